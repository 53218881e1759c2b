//! A measurement's directory: which files there are, the newest measurement, writing a file whole.
//! Knows nothing of what the bytes mean.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::codec::{MeasurementError, decode_process, decode_session};
use super::{ProcessFile, SessionFile};

const SESSION: &str = "session";

/// The name of the session file, and of what is added to a name while a file is being written.
pub(crate) const TEMPORARY: &str = ".new";

/// The name of a process's file.
pub fn process_file_name(sequence: u32, pid: u32) -> String {
    format!("process-{sequence}-{pid}")
}

/// The name of a process's trace.
pub fn trace_file_name(sequence: u32, pid: u32) -> String {
    format!("trace-{sequence}-{pid}")
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
    write().map_err(|source| MeasurementError::Write { path: path.clone(), source })
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
    /// Files that could not be read. What they held is missing from the processes.
    pub unreadable: Vec<MeasurementError>,
}

impl Measurement {
    /// The file that holds a measurement's own data.
    pub const SESSION_FILE: &'static str = SESSION;

    /// Reads a measurement, which may still be growing.
    pub fn read(directory: &Path) -> Result<Measurement, MeasurementError> {
        let path = directory.join(SESSION);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound || e.kind() == std::io::ErrorKind::NotADirectory => {
                return Err(MeasurementError::NoSession { path: directory.to_owned() });
            }
            Err(source) => return Err(MeasurementError::Read { path, source }),
        };
        let session = decode_session(&bytes, &path)?;
        let read = |source| MeasurementError::Read { path: directory.to_owned(), source };
        let (mut processes, mut unreadable) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(directory).map_err(read)? {
            let path = entry.map_err(read)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !name.starts_with("process-") || name.ends_with(TEMPORARY) {
                continue;
            }
            let bytes = fs::read(&path).map_err(|source| MeasurementError::Read { path: path.clone(), source });
            match bytes.and_then(|bytes| decode_process(&bytes, &path)) {
                Ok(process) => processes.push(process),
                Err(error) => unreadable.push(error),
            }
        }
        processes.sort_by_key(|p| p.sequence);
        Ok(Measurement { directory: directory.to_owned(), session, processes, unreadable })
    }
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
        // A directory without a session file is no measurement, whatever its name.
        let Ok(written) = fs::metadata(path.join(SESSION)).and_then(|m| m.modified()) else { continue };
        if newest.as_ref().is_none_or(|(time, _)| written > *time) {
            newest = Some((written, path));
        }
    }
    newest.map(|(_, path)| path).ok_or(MeasurementError::NoMeasurement)
}
