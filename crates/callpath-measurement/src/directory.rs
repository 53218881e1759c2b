//! A measurement's directory: which files there are, the newest measurement, writing a file whole.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::names_file::{NamesFile, decode_names};
use super::ranks::{self, Ranks};
use super::together::{self, TOGETHER};
use super::{ProcessFile, SessionFile};
use crate::error::MeasurementError;
use crate::plain::plain;
use crate::process_file::decode_process;
use crate::session_file::decode_session;

const SESSION: &str = "session";
const PROCESS: &str = "process-";
const NAMES: &str = "names-";
/// How many unreadable files are named one by one.
const LOSSES_NAMED: usize = 5;

/// Appended to a file's name while the file is being written.
pub(crate) const TEMPORARY: &str = ".new";

/// The name of a process's file.
pub fn process_file_name(sequence: u32, pid: u32) -> String {
    format!("{PROCESS}{sequence}-{pid}")
}

/// The name of the file with a process's names of its generated code.
pub fn names_file_name(sequence: u32, pid: u32) -> String {
    format!("{NAMES}{sequence}-{pid}")
}

/// Writes a file under another name and renames it: a reader sees the old one or the new one.
pub fn write_file(directory: &Path, name: &str, bytes: &[u8]) -> Result<(), MeasurementError> {
    let path = directory.join(name);
    let temporary = directory.join(format!("{name}{TEMPORARY}"));
    let write = || {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        options.open(&temporary)?.write_all(bytes)?;
        fs::rename(&temporary, &path)
    };
    write().map_err(|source| {
        // It may not exist: the error of the write is the one to report.
        drop(fs::remove_file(&temporary));
        MeasurementError::Write { path: path.clone(), source }
    })
}

/// A measurement as it was read.
#[derive(Debug)]
pub struct Measurement {
    /// Where it is.
    pub directory: PathBuf,
    /// The whole.
    pub session: SessionFile,
    /// The processes, in the order in which they came.
    pub processes: Vec<ProcessFile>,
    /// The processes' names of their generated code, in no order.
    pub names: Vec<NamesFile>,
    /// Files that could not be read, and gaps in their numbers. What they held is missing from the processes.
    pub unreadable: Vec<MeasurementError>,
    /// The ranks, if it is of several: then the session is that of all, and each process has its rank.
    pub ranks: Option<Ranks>,
}

impl Measurement {
    /// The file that holds a measurement's own data.
    pub const SESSION_FILE: &'static str = SESSION;

    /// Reads a measurement, of one recorder or of several ranks, which may still be growing.
    pub fn read(directory: &Path) -> Result<Measurement, MeasurementError> {
        if ranks::is_of_ranks(directory) {
            return ranks::read(directory);
        }
        Measurement::read_one(directory)
    }

    /// Reads the measurement of one recorder.
    pub(crate) fn read_one(directory: &Path) -> Result<Measurement, MeasurementError> {
        let path = directory.join(SESSION);
        let bytes = match read_file(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotADirectory && directory.is_file() => {
                return Err(MeasurementError::IsFile { path: directory.to_owned() });
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && !directory.exists() => {
                return Err(MeasurementError::NotThere { path: directory.to_owned() });
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound || e.kind() == std::io::ErrorKind::NotADirectory => {
                return Err(MeasurementError::NoSession { path: directory.to_owned() });
            }
            Err(source) => return Err(MeasurementError::Read { path, source }),
        };
        let session = decode_session(&bytes, &path)?;
        let read = |source| MeasurementError::Read { path: directory.to_owned(), source };
        let (mut processes, mut names, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
        let (mut files, mut names_files, mut together) = (Vec::new(), Vec::new(), None);
        for entry in fs::read_dir(directory).map_err(read)? {
            let path = entry.map_err(read)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if let Some(number) = name.strip_prefix(PROCESS).filter(|number| !number.ends_with(TEMPORARY)) {
                // A file that has no number is read for its error.
                let sequence = number.split_once('-').and_then(|(sequence, _)| sequence.parse::<u32>().ok());
                files.push((sequence, path));
            } else if name.starts_with(NAMES) && !name.ends_with(TEMPORARY) {
                names_files.push(path);
            } else if name == TOGETHER {
                together = Some(path);
            }
        }
        files.sort();
        let mut sequences: Vec<u32> = files.iter().filter_map(|(sequence, _)| *sequence).collect();
        let grows = session.ended.is_none();
        if let Some(path) = together {
            let bytes = read_file(&path).map_err(|source| MeasurementError::Read { path: path.clone(), source });
            for process in bytes.map_or_else(|e| vec![Err(e)], |bytes| together::read(&bytes, &path, grows)) {
                match process {
                    Ok(process) => {
                        sequences.push(process.sequence);
                        processes.push(process);
                    }
                    Err(error) => unreadable.push(error),
                }
            }
        }
        sequences.sort_unstable();
        // As long as it grows, a process may have come that was not written yet.
        if !grows {
            let behind_last = u32::try_from(session.processes).ok();
            unreadable.splice(..0, gaps(sequences.into_iter().chain(behind_last), directory));
        }
        for (_, path) in files {
            let bytes = read_file(&path).map_err(|source| MeasurementError::Read { path: path.clone(), source });
            match bytes.and_then(|bytes| decode_process(&bytes, &path)) {
                Ok((process, tail)) => {
                    processes.push(process);
                    unreadable.extend(tail);
                }
                Err(error) => unreadable.push(error),
            }
        }
        processes.sort_by_key(|p| p.sequence);
        processes.dedup_by(|process, first| {
            let is_there = process.sequence == first.sequence;
            if is_there {
                let path = directory.to_owned();
                unreadable.push(MeasurementError::Twice { path, sequence: process.sequence });
            }
            is_there
        });
        for path in names_files {
            let bytes = read_file(&path).map_err(|source| MeasurementError::Read { path: path.clone(), source });
            match bytes.and_then(|bytes| decode_names(&bytes, &path)) {
                Ok(file) => names.push(file),
                Err(error) => unreadable.push(error),
            }
        }
        Ok(Measurement { directory: directory.to_owned(), session, processes, names, unreadable, ranks: None })
    }

    /// Sentences about what could not be read; empty if everything could.
    pub fn losses(&self) -> Vec<String> {
        let named = self.unreadable.iter().take(LOSSES_NAMED);
        let mut losses: Vec<String> =
            named.map(|error| format!("failed to {}: its data is missing here", plain(error))).collect();
        if let more @ 1.. = self.unreadable.len().saturating_sub(LOSSES_NAMED) {
            losses.push(format!("failed to read {more} more files of {}", self.directory.display()));
        }
        losses
    }
}

/// Reads a regular file; other kinds may never end.
pub(crate) fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("not a regular file"));
    }
    fs::read(path)
}

/// The numbers missing in an ascending list that should begin at 0 without gaps.
fn gaps(sequences: impl Iterator<Item = u32>, directory: &Path) -> Vec<MeasurementError> {
    let mut gaps = Vec::new();
    let mut next = 0;
    for sequence in sequences {
        let name = |sequence: u32| format!("{PROCESS}{sequence}-*");
        let names = match sequence.saturating_sub(next) {
            0 => None,
            1 => Some(name(next)),
            _ => Some(format!("{} to {}", name(next), name(sequence - 1))),
        };
        gaps.extend(names.map(|names| MeasurementError::Gone { path: directory.to_owned(), names }));
        next = sequence.saturating_add(1);
    }
    gaps
}

/// The newest measurement among the directories named `*.callpath` in `directory`.
pub fn newest(directory: &Path) -> Result<PathBuf, MeasurementError> {
    let read = |source| MeasurementError::Read { path: directory.to_owned(), source };
    let mut newest = None;
    for entry in fs::read_dir(directory).map_err(read)? {
        let path = entry.map_err(read)?.path();
        if path.extension().is_none_or(|e| e != "callpath") {
            continue;
        }
        let sessions = if ranks::is_of_ranks(&path) { ranks::session_files(&path)? } else { vec![path.join(SESSION)] };
        // A directory without a session file is no measurement, whatever its name.
        let written = sessions.iter().filter_map(|file| fs::metadata(file).and_then(|m| m.modified()).ok()).max();
        let Some(written) = written else { continue };
        if newest.as_ref().is_none_or(|(time, _)| written > *time) {
            newest = Some((written, path));
        }
    }
    newest.map(|(_, path)| path).ok_or(MeasurementError::NoMeasurement)
}

#[cfg(test)]
mod tests {
    use super::*;
    use callpath_schema::{Metric, MetricId};

    use crate::{SessionEnd, encode_process, encode_session};

    fn measurement(ended: bool) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let session = SessionFile {
            metrics: vec![Metric::of(MetricId::CPU_TIME)],
            ended: ended.then(SessionEnd::default),
            processes: 9,
            ..SessionFile::default()
        };
        write_file(directory.path(), SESSION, &encode_session(&session)).unwrap();
        for sequence in 0..9 {
            let process = encode_process(&ProcessFile { sequence, ..ProcessFile::default() });
            write_file(directory.path(), &process_file_name(sequence, 100), &process).unwrap();
        }
        directory
    }

    fn losses(directory: &Path) -> String {
        let dir = directory.display().to_string();
        Measurement::read(directory).unwrap().losses().join("\n").replace(&dir, "DIR")
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_offset() {
        let whole = measurement(true);
        assert_eq!(losses(whole.path()), "");
        let file = |sequence| whole.path().join(process_file_name(sequence, 100));
        let len = fs::read(file(2)).unwrap().len();
        fs::write(file(2), &fs::read(file(2)).unwrap()[..33]).unwrap();
        for gone in [4, 6, 7] {
            fs::remove_file(file(gone)).unwrap();
        }
        let expected = format!(
            "failed to read process-4-* in DIR: not there, though the measurement had it: its data is missing here
failed to read process-6-* to process-7-* in DIR: not there, though the measurement had it: its data is missing here
failed to read DIR/process-2-100: it ends at byte 33, not at byte {len}; it was cut or is damaged: its data is missing here"
        );
        assert_eq!(losses(whole.path()), expected);
        assert_eq!(Measurement::read(whole.path()).unwrap().processes.len(), 5);
    }

    #[test]
    fn all_processes_that_were_measured_are_there_once() {
        let whole = measurement(true);
        let file = |sequence| whole.path().join(process_file_name(sequence, 100));
        fs::remove_file(file(8)).unwrap();
        assert_eq!(
            losses(whole.path()),
            "failed to read process-8-* in DIR: not there, though the measurement had it: its data is missing here"
        );
        fs::copy(file(1), whole.path().join(TOGETHER)).unwrap();
        let said = losses(whole.path());
        assert!(said.contains("process 1 is in the measurement twice"), "{said}");
        assert_eq!(Measurement::read(whole.path()).unwrap().processes.len(), 8);
        fs::remove_file(file(2)).unwrap();
        std::os::unix::fs::symlink("/dev/zero", file(2)).unwrap();
        assert!(losses(whole.path()).contains("process-2-100: not a regular file"));
    }

    #[test]
    fn many_losses_are_counted() {
        let whole = measurement(true);
        for sequence in 0..9 {
            fs::write(whole.path().join(process_file_name(sequence, 100)), "CPMEAS").unwrap();
        }
        let said = losses(whole.path());
        assert!(said.lines().count() == 6 && said.ends_with("\nfailed to read 4 more files of DIR"), "{said}");
    }

    #[test]
    fn a_measurement_that_grows_may_lack_files() {
        let growing = measurement(false);
        fs::remove_file(growing.path().join(process_file_name(3, 100))).unwrap();
        assert_eq!(losses(growing.path()), "");
    }
}
