//! Where one rank of a parallel job writes: a directory of its own, in one that all ranks of the job share. No rank waits for
//! another.
//!
//! The shared directory is made elsewhere, with the job's file in it, and renamed: whoever sees it sees which job's it is. Of
//! ranks that try at once, one succeeds, and the others find its directory.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use callpath_measurement::{JOB_FILE, Job, Measurement, Rank, encode_job, rank_directory_name, read_job, write_file};

use super::{Destination, NAMES, elsewhere, make, name};
use crate::error::RecordError;

impl Destination {
    /// Makes the directory of a rank in the one that was asked for.
    pub(crate) fn asked_for_rank(directory: &Path, rank: &Rank) -> Result<Destination, RecordError> {
        let of_rank = join(directory, rank)?;
        Ok(Destination { directory: of_rank, of_job: Some(directory.to_owned()), note: None })
    }

    /// Makes the directory of a rank in `<program>-<job>.callpath` here, or where temporary files go if nothing can be written here.
    /// Where this rank is there already, or another job: `<program>-<job>-2.callpath`, and so on, for each rank the same.
    pub(crate) fn usual_of_rank(program: &OsStr, rank: &Rank) -> Result<Destination, RecordError> {
        let job = plain_name(&rank.job.id);
        let in_one = |parent: &Path| {
            for number in 1..=NAMES {
                let of_job = parent.join(name(program, &job, number));
                match join(&of_job, rank) {
                    Ok(directory) => return Ok(Destination { directory, of_job: Some(of_job), note: None }),
                    Err(RecordError::Exists { .. } | RecordError::RankExists { .. } | RecordError::OtherJob { .. }) => {
                    }
                    Err(error) => return Err(error),
                }
            }
            Err(RecordError::Exists { path: parent.join(name(program, &job, 1)) })
        };
        let why = match in_one(Path::new("")) {
            Err(RecordError::Directory { source, .. }) => source,
            other => return other,
        };
        let found = in_one(&std::env::temp_dir())?;
        let note = Some(elsewhere(&why, &found.directory));
        Ok(Destination { note, ..found })
    }
}

/// An id with nothing in it that file names or shells treat differently.
fn plain_name(id: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '@' | '+');
    let plain: String = id.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    format!("job-{}", plain.chars().take(64).collect::<String>())
}

/// The directory of a rank in that of its job, both made if they are not there.
fn join(of_job: &Path, rank: &Rank) -> Result<PathBuf, RecordError> {
    let failed = |source| RecordError::Directory { path: of_job.to_owned(), source };
    if of_job.symlink_metadata().is_err() {
        make_of_job(of_job, rank).map_err(failed)?;
    }
    if !of_job.join(JOB_FILE).exists() || of_job.join(Measurement::SESSION_FILE).exists() {
        return Err(RecordError::Exists { path: of_job.to_owned() });
    }
    let there = read_job(of_job)?;
    if there != rank.job {
        let words = |job: &Job| match job.size {
            Some(size) => format!("{} of {size} ranks", job.id),
            None => job.id.clone(),
        };
        let (found, own) = (words(&there), words(&rank.job));
        return Err(RecordError::OtherJob { path: of_job.to_owned(), found, own });
    }
    let directory = of_job.join(rank_directory_name(rank.number));
    make(&directory).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => RecordError::RankExists { path: of_job.to_owned(), rank: rank.number },
        _ => RecordError::Directory { path: directory.clone(), source: error },
    })?;
    write_file(&directory, JOB_FILE, &encode_job(&rank.job, Some(rank.number)))?;
    Ok(directory)
}

/// Makes the directory of a job, unless another rank was faster.
fn make_of_job(of_job: &Path, rank: &Rank) -> io::Result<()> {
    let mut new = of_job.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    // Ranks of other hosts may have the same process id.
    new.push(format!(".rank-{}-{}.new", rank.number, std::process::id()));
    let new = of_job.with_file_name(new);
    make(&new)?;
    let filled = write_file(&new, JOB_FILE, &encode_job(&rank.job, None)).map_err(|error| match error {
        callpath_measurement::MeasurementError::Write { source, .. } => source,
        other => io::Error::other(other),
    });
    let renamed = filled.and_then(|()| std::fs::rename(&new, of_job));
    if renamed.is_err() {
        // What failed is what counts.
        drop(std::fs::remove_dir_all(&new));
    }
    match renamed {
        // Another rank's is there, or what else has come since: it is looked at.
        Err(_) if of_job.symlink_metadata().is_ok() => Ok(()),
        renamed => renamed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(id: &str, number: u32) -> Rank {
        Rank { job: Job { launcher: "test".into(), id: id.into(), size: Some(64) }, number }
    }

    fn said(result: Result<Destination, RecordError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn ranks_that_come_at_once_share_one_directory() {
        for _ in 0..20 {
            let here = tempfile::tempdir().unwrap();
            let directory = here.path().join("D");
            let barrier = std::sync::Barrier::new(64);
            std::thread::scope(|scope| {
                for number in 0..64 {
                    let (barrier, directory) = (&barrier, &directory);
                    scope.spawn(move || {
                        barrier.wait();
                        let made = Destination::asked_for_rank(directory, &rank("1", number)).unwrap();
                        assert_eq!(made.directory, directory.join(format!("rank-{number}")));
                    });
                }
            });
            // Nothing but it is left.
            assert_eq!(std::fs::read_dir(here.path()).unwrap().count(), 1);
            assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 65);
            assert_eq!(read_job(&directory).unwrap(), rank("1", 0).job);
        }
    }

    #[test]
    fn what_is_there_is_not_written_to() {
        let here = tempfile::tempdir().unwrap();
        let directory = here.path().join("D");
        let asked = |id: &str, number| Destination::asked_for_rank(&directory, &rank(id, number));
        // An empty directory, a measurement, a file, a link to nowhere.
        std::fs::create_dir(&directory).unwrap();
        assert!(said(asked("1", 0)).contains("it exists already"));
        std::fs::write(directory.join("session"), "").unwrap();
        assert!(said(asked("1", 0)).contains("it exists already"));
        std::fs::remove_dir_all(&directory).unwrap();
        std::fs::write(&directory, "").unwrap();
        assert!(said(asked("1", 0)).contains("it exists already"));
        std::fs::remove_file(&directory).unwrap();
        std::os::unix::fs::symlink("nowhere", &directory).unwrap();
        assert!(said(asked("1", 0)).contains("it exists already"));
        std::fs::remove_file(&directory).unwrap();
        asked("1", 0).unwrap();
        assert!(said(asked("1", 0)).contains("rank 0 of this job is there already"));
        let other = said(asked("2", 1));
        assert!(other.contains("it holds job 1 of 64 ranks, and this is job 2 of 64 ranks"), "{other}");
        std::fs::write(directory.join("job"), "nonsense").unwrap();
        assert!(said(asked("1", 1)).contains("/job: it is not a file of a callpath measurement"));
        assert_eq!(std::fs::read_dir(here.path()).unwrap().count(), 1);
    }

    #[test]
    fn names_of_jobs_are_names_of_files() {
        assert_eq!(plain_name("prterun-host-4711@1"), "job-prterun-host-4711@1");
        assert_eq!(plain_name("../a b/\n;"), "job-.._a_b___");
    }
}
