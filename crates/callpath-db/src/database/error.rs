//! What can go wrong with a database. Each completes "failed to ...".

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::layout::VERSION;

/// Why a database cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum DatabaseError {
    #[error("read {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("write {path}: {source}")]
    Write { path: PathBuf, source: std::io::Error },
    #[error("write {path}: it is there already, and nothing is overwritten; name another file, or remove it")]
    Exists { path: PathBuf },
    #[error("write {path}: {source}; nothing of it is left. {remedy}, or name a file on another disk")]
    NoRoom { path: PathBuf, source: std::io::Error, remedy: &'static str },
    #[error("read {path}: it changed while it was merged; merge again when nothing writes to it")]
    Changed { path: PathBuf },
    #[error("read {path}: it is not a callpath database (it does not begin with CPDATA)")]
    Magic { path: PathBuf },
    #[error(
        "read {path}: it is of another version of the format ({found} at byte 6, not {VERSION}); use the callpath that wrote it"
    )]
    Version { path: PathBuf, found: String },
    #[error("read {path}: it was never finished: its writer was interrupted")]
    Unfinished { path: PathBuf },
    #[error("read {path}: it ends at byte {found}, not at byte {expected}; it was cut or is damaged")]
    Length { path: PathBuf, expected: u64, found: u64 },
    #[error("read {path}: its {section} at byte {offset} do not match their checksum; it is damaged")]
    Checksum { path: PathBuf, section: &'static str, offset: u64 },
    #[error("read {path}: nonsense at byte {offset} ({what})")]
    Content { path: PathBuf, offset: u64, what: &'static str },
    #[error("merge: there are more than {most} {what}")]
    TooMany { what: &'static str, most: u64 },
}

impl DatabaseError {
    /// Why a new file could not be written or get its name.
    pub fn of_writing(path: &Path, source: std::io::Error) -> DatabaseError {
        let path = path.to_owned();
        match source.kind() {
            ErrorKind::AlreadyExists => DatabaseError::Exists { path },
            ErrorKind::StorageFull => DatabaseError::NoRoom { path, source, remedy: "Free some room" },
            ErrorKind::QuotaExceeded => DatabaseError::NoRoom { path, source, remedy: "Free some of your quota" },
            ErrorKind::FileTooLarge => DatabaseError::NoRoom { path, source, remedy: "Raise the limit (ulimit -f)" },
            _ => DatabaseError::Write { path, source },
        }
    }
}
