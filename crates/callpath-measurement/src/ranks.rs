//! The measurement of several ranks: a directory for each, which is a measurement of its own, beside the job's file. They are
//! read as one.
//!
//! ```text
//! <measurement>/job        which job it is
//!               rank-0/    the measurement of rank 0, with a job file that says so
//!               rank-1/
//! ```

use std::fs;
use std::path::Path;

use super::directory::{Measurement, read_file};
use crate::error::MeasurementError;
use crate::job_file::{Job, MOST_RANKS, decode_job};
use crate::{EndKind, SessionEnd, SessionFile};

/// The name of a job's file, in the measurement and in each rank's directory.
pub const JOB_FILE: &str = "job";
const RANK: &str = "rank-";

/// The name of a rank's directory.
pub fn rank_directory_name(rank: u32) -> String {
    format!("{RANK}{rank}")
}

/// The ranks of a measurement.
#[derive(Debug, Default)]
pub struct Ranks {
    /// Their job.
    pub job: Job,
    /// Those that could be read, in order.
    pub there: Vec<RankSession>,
}

/// One rank that could be read.
#[derive(Debug)]
pub struct RankSession {
    /// Its number.
    pub rank: u32,
    /// Its session.
    pub session: SessionFile,
    /// The number that its first process has among those of all ranks.
    pub first_sequence: u32,
}

/// Whether a directory is the measurement of several ranks.
pub(super) fn is_of_ranks(directory: &Path) -> bool {
    fs::metadata(directory.join(JOB_FILE)).is_ok_and(|file| file.is_file())
        && !directory.join(Measurement::SESSION_FILE).exists()
}

/// The directories of ranks with their numbers, in order; errors for what is called like one and is none.
fn directories(directory: &Path) -> Result<(Vec<u32>, Vec<MeasurementError>), MeasurementError> {
    let read = |source| MeasurementError::Read { path: directory.to_owned(), source };
    let (mut ranks, mut unreadable) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(directory).map_err(read)? {
        let path = entry.map_err(read)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some(number) = name.strip_prefix(RANK) else { continue };
        let rank = number.parse::<u32>().ok().filter(|rank| *rank < MOST_RANKS);
        match rank.filter(|rank| *name == *rank_directory_name(*rank)) {
            Some(rank) => ranks.push(rank),
            None => unreadable.push(MeasurementError::NoRank { path }),
        }
    }
    ranks.sort_unstable();
    Ok((ranks, unreadable))
}

/// The directories of ranks in a directory, by number; none if it is no measurement of several, or cannot be read.
pub fn rank_directories(directory: &Path) -> Vec<(u32, std::path::PathBuf)> {
    let ranks = directories(directory).map_or_else(|_| Vec::new(), |(ranks, _)| ranks);
    ranks.into_iter().map(|rank| (rank, directory.join(rank_directory_name(rank)))).collect()
}

/// The session files of a measurement of several ranks, without reading them.
pub(super) fn session_files(directory: &Path) -> Result<Vec<std::path::PathBuf>, MeasurementError> {
    let (ranks, _) = directories(directory)?;
    let file = |rank| directory.join(rank_directory_name(rank)).join(Measurement::SESSION_FILE);
    Ok(ranks.into_iter().map(file).collect())
}

fn job_of(directory: &Path) -> Result<(Job, Option<u32>), MeasurementError> {
    let path = directory.join(JOB_FILE);
    let bytes = read_file(&path).map_err(|source| MeasurementError::Read { path: path.clone(), source })?;
    decode_job(&bytes, &path)
}

/// The job that a measurement of several ranks is of.
pub fn read_job(directory: &Path) -> Result<Job, MeasurementError> {
    job_of(directory).map(|(job, _)| job)
}

/// Reads a measurement of several ranks, which may still grow. A rank that cannot be read is among the unreadable. It is an error
/// if none can.
pub(super) fn read(directory: &Path) -> Result<Measurement, MeasurementError> {
    let (numbers, mut unreadable) = directories(directory)?;
    // Each rank has a copy of it.
    let mut job = match job_of(directory) {
        Ok((job, _)) => Some(job),
        Err(error) => {
            unreadable.push(error);
            None
        }
    };
    let (mut there, mut processes, mut names) = (Vec::new(), Vec::new(), Vec::new());
    // Numbers of processes are of a rank; here each has one of its own.
    let mut first = 0u32;
    for rank in numbers {
        let path = directory.join(rank_directory_name(rank));
        let measurement = job_of(&path).and_then(|(its, number)| {
            let of_job = job.get_or_insert_with(|| its.clone());
            if *of_job != its {
                return Err(MeasurementError::OtherJob {
                    path: path.clone(),
                    found: its.id,
                    expected: of_job.id.clone(),
                });
            }
            match number {
                Some(number) if number == rank => Measurement::read_one(&path),
                Some(number) => Err(MeasurementError::OtherRank { path: path.clone(), number }),
                None => Err(MeasurementError::NoRank { path: path.clone() }),
            }
        });
        let measurement = match measurement {
            Ok(measurement) => measurement,
            Err(error) => {
                unreadable.push(error);
                continue;
            }
        };
        let Measurement { session, processes: its, names: its_names, unreadable: its_unreadable, .. } = measurement;
        let number = |sequence: u32| first.saturating_add(sequence);
        names.extend(its_names.into_iter().map(|file| crate::NamesFile { sequence: number(file.sequence), ..file }));
        let last = its.last().map_or(0, |process| u64::from(process.sequence) + 1);
        processes.extend(its.into_iter().map(|process| crate::ProcessFile {
            sequence: number(process.sequence),
            rank: Some(rank),
            ..process
        }));
        unreadable.extend(its_unreadable);
        let first_sequence = first;
        first = number(u32::try_from(session.processes.max(last)).unwrap_or(u32::MAX));
        there.push(RankSession { rank, session, first_sequence });
    }
    let Some(session) = session_of_all(&there) else {
        return Err(unreadable.into_iter().next().unwrap_or(MeasurementError::NoRanks { path: directory.to_owned() }));
    };
    let ranks = Some(Ranks { job: job.unwrap_or_default(), there });
    Ok(Measurement { directory: directory.to_owned(), session, processes, names, unreadable, ranks })
}

/// What is true of all ranks: words are those of the first, times reach from the first beginning to the last end, counts add
/// up, notes are there once each. It has ended if all have; its status is the first that is not 0.
fn session_of_all(ranks: &[RankSession]) -> Option<SessionFile> {
    let sessions = || ranks.iter().map(|rank| &rank.session);
    let mut all = ranks.first()?.session.clone();
    let sum = |count: fn(&SessionFile) -> u64| sessions().fold(0u64, |sum, session| sum.saturating_add(count(session)));
    let end = |session: &SessionFile| session.started_unix_ns.saturating_add(session.duration_ns);
    all.started_unix_ns = sessions().map(|session| session.started_unix_ns).min().unwrap_or(0);
    all.duration_ns = sessions().map(end).max().unwrap_or(0).saturating_sub(all.started_unix_ns);
    let ends: Option<Vec<SessionEnd>> = sessions().map(|session| session.ended).collect();
    all.ended = ends.map(|ends| SessionEnd {
        kind: ends.iter().map(|end| end.kind).find(|kind| *kind != EndKind::Known).unwrap_or_default(),
        status: ends.iter().map(|end| end.status).find(|status| *status != 0).unwrap_or(0),
        user_ns: ends.iter().fold(0, |sum: u64, end| sum.saturating_add(end.user_ns)),
        kernel_ns: ends.iter().fold(0, |sum: u64, end| sum.saturating_add(end.kernel_ns)),
    });
    all.lost_processes = sum(|session| session.lost_processes);
    all.recorder_cpu_ns = sum(|session| session.recorder_cpu_ns);
    all.processes = sum(|session| session.processes);
    for probes in sessions().skip(1).filter_map(|session| session.probes.as_ref()) {
        all.probes.get_or_insert_default().add(probes);
    }
    let mut seen = std::collections::HashSet::new();
    all.notes = sessions().flat_map(|session| &session.notes).filter(|note| seen.insert(*note)).cloned().collect();
    Some(all)
}

impl Measurement {
    /// The session that a process is of: its rank's, where there are ranks.
    pub fn session_of(&self, process: &crate::ProcessFile) -> &SessionFile {
        let there = self.ranks.as_ref().map_or(&[][..], |ranks| &ranks.there);
        let found = process.rank.and_then(|rank| there.binary_search_by_key(&rank, |session| session.rank).ok());
        found.map_or(&self.session, |at| &there[at].session)
    }

    /// The session of the whole, and those of its ranks, if there are any.
    pub fn sessions_mut(&mut self) -> impl Iterator<Item = &mut SessionFile> {
        let ranks = self.ranks.iter_mut().flat_map(|ranks| &mut ranks.there);
        std::iter::once(&mut self.session).chain(ranks.map(|rank| &mut rank.session))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callpath_schema::{Metric, MetricId};

    use crate::{ProcessFile, encode_job, encode_process, encode_session, newest, process_file_name, write_file};

    fn job() -> Job {
        Job { launcher: "test".into(), id: "job 7".into(), size: Some(4) }
    }

    fn rank(directory: &Path, rank: u32, status: Option<i32>) {
        let path = directory.join(rank_directory_name(rank));
        fs::create_dir(&path).unwrap();
        let session = SessionFile {
            metrics: vec![Metric::of(MetricId::CPU_TIME)],
            started_unix_ns: 1000 + u64::from(rank),
            duration_ns: 50,
            ended: status.map(|status| SessionEnd { status, user_ns: 10, kernel_ns: 1, ..SessionEnd::default() }),
            processes: 2,
            notes: vec!["of all".into(), format!("of {rank}")],
            ..SessionFile::default()
        };
        write_file(&path, JOB_FILE, &encode_job(&job(), Some(rank))).unwrap();
        write_file(&path, Measurement::SESSION_FILE, &encode_session(&session)).unwrap();
        for sequence in 0..2 {
            let process = encode_process(&ProcessFile { sequence, pid: 100, ..ProcessFile::default() });
            write_file(&path, &process_file_name(sequence, 100), &process).unwrap();
        }
    }

    fn measurement() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        write_file(directory.path(), JOB_FILE, &encode_job(&job(), None)).unwrap();
        for (number, status) in [(0, 0), (1, 9), (3, 0)] {
            rank(directory.path(), number, Some(status));
        }
        directory
    }

    fn ranks(measurement: &Measurement) -> Vec<u32> {
        measurement.ranks.as_ref().unwrap().there.iter().map(|rank| rank.rank).collect()
    }

    #[test]
    fn ranks_are_one_measurement() {
        let directory = measurement();
        let read = Measurement::read(directory.path()).unwrap();
        assert_eq!((read.losses().join("\n"), ranks(&read)), (String::new(), vec![0, 1, 3]));
        let processes: Vec<_> = read.processes.iter().map(|process| (process.rank, process.sequence)).collect();
        assert_eq!(processes, [(Some(0), 0), (Some(0), 1), (Some(1), 2), (Some(1), 3), (Some(3), 4), (Some(3), 5)]);
        let session = &read.session;
        assert_eq!((session.started_unix_ns, session.duration_ns, session.processes), (1000, 53, 6));
        assert_eq!(session.ended, Some(SessionEnd { status: 9, user_ns: 30, kernel_ns: 3, ..SessionEnd::default() }));
        assert_eq!(session.notes, ["of all", "of 0", "of 1", "of 3"]);
        assert_eq!(read.session_of(&read.processes[4]).started_unix_ns, 1003);
        // Each is a measurement of its own.
        assert!(Measurement::read(&directory.path().join("rank-1")).unwrap().ranks.is_none());
        // One runs.
        rank(directory.path(), 2, None);
        assert_eq!(Measurement::read(directory.path()).unwrap().session.ended, None);
    }

    #[test]
    fn damage_costs_the_rank_that_it_hits() {
        let directory = measurement();
        let at = |name: &str| directory.path().join(name);
        let losses = || {
            let read = Measurement::read(directory.path()).unwrap();
            (ranks(&read), read.losses().join("\n"))
        };
        let session = fs::read(at("rank-1/session")).unwrap();
        fs::write(at("rank-1/session"), &session[..session.len() - 1]).unwrap();
        let (there, said) = losses();
        assert!(there == [0, 3] && said.contains("rank-1/session: it ends at byte"), "{said}");
        fs::write(at("rank-1/session"), &session).unwrap();
        // Copies of a rank, of another job's, and names that no recorder writes.
        for name in ["rank-2", "rank-03", "rank-x", "rank-99999999999"] {
            fs::create_dir(at(name)).unwrap();
        }
        for file in [JOB_FILE, "session"] {
            fs::copy(at("rank-0").join(file), at("rank-2").join(file)).unwrap();
        }
        let (there, said) = losses();
        assert_eq!(there, [0, 1, 3]);
        assert!(
            said.contains("rank-2: it is of rank 0") && said.matches("not the directory of a rank").count() == 3,
            "{said}"
        );
        let other = Job { id: "job 8".into(), ..job() };
        write_file(&at("rank-2"), JOB_FILE, &encode_job(&other, Some(2))).unwrap();
        let (there, said) = losses();
        assert!(there == [0, 1, 3] && said.contains("rank-2: it is of job \"job 8\", not \"job 7\""), "{said}");
        // What the measurement's own job file said, a rank says, too.
        fs::write(at(JOB_FILE), "CPMEAS").unwrap();
        let read = Measurement::read(directory.path()).unwrap();
        assert_eq!((ranks(&read), &read.ranks.as_ref().unwrap().job), (vec![0, 1, 3], &job()));
        assert!(read.losses().join("\n").contains("/job: it ends at byte 6"));
    }

    #[test]
    fn a_job_without_ranks_is_no_measurement() {
        let directory = tempfile::tempdir().unwrap();
        write_file(directory.path(), JOB_FILE, &encode_job(&job(), None)).unwrap();
        let said = Measurement::read(directory.path()).unwrap_err().to_string();
        assert!(said.contains("no rank of the job"), "{said}");
        let here = tempfile::tempdir().unwrap();
        assert!(newest(here.path()).is_err());
        let of_job = here.path().join("app-7.callpath");
        fs::rename(measurement().keep(), &of_job).unwrap();
        assert_eq!(newest(here.path()).unwrap(), of_job);
    }
}
