//! What can go wrong with a measurement's files. Each completes "failed to ...".

use std::path::PathBuf;

use crate::bytes::VERSION;

/// Why a measurement cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum MeasurementError {
    #[error("read {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("write {path}: {source}")]
    Write { path: PathBuf, source: std::io::Error },
    #[error("read {path}: it is not a file of a callpath measurement (it does not begin with CPMEAS)")]
    Magic { path: PathBuf },
    #[error(
        "read {path}: it is of another version of the format ({found} at byte 6, not {VERSION}); use the callpath that recorded it"
    )]
    Version { path: PathBuf, found: String },
    #[error("read {path}: it is another kind of file (kind {found} at byte 8)")]
    Kind { path: PathBuf, found: u32 },
    #[error("read {path}: it ends at byte {found}, not at byte {expected}; it was cut or is damaged")]
    Length { path: PathBuf, expected: u64, found: u64 },
    #[error("read {path}: it has no record, not even of the process")]
    NoRecord { path: PathBuf },
    #[error("read {path}: what follows byte {offset} does not match its checksum; it is damaged")]
    Checksum { path: PathBuf, offset: usize },
    #[error("read {path}: nonsense at byte {offset} ({what})")]
    Content { path: PathBuf, offset: usize, what: &'static str },
    #[error(
        "read {path} to its end: only its first {offset} bytes are whole ({why}); the process is shown as it was then"
    )]
    Tail { path: PathBuf, offset: usize, why: String },
    #[error("read {names} in {path}: not there, though the measurement had it")]
    Gone { path: PathBuf, names: String },
    #[error("read {path}: process {sequence} is in the measurement twice; the first one counts")]
    Twice { path: PathBuf, sequence: u32 },
    #[error("read {path}: it is of process {pid}, whose own file is not there or cannot be read")]
    NoProcess { path: PathBuf, pid: u32 },
    #[error("read {path}: it is of job {found:?}, not {expected:?}; a measurement is of one job")]
    OtherJob { path: PathBuf, found: String, expected: String },
    #[error("read {path}: it is of rank {number}, so that rank would be there twice")]
    OtherRank { path: PathBuf, number: u32 },
    #[error("read {path}: not the directory of a rank")]
    NoRank { path: PathBuf },
    #[error("read {path}: no rank of the job has written anything there")]
    NoRanks { path: PathBuf },
    #[error(
        "find a measurement in {path}: there is no file `session` in it; is it the directory that `callpath record` named?"
    )]
    NoSession { path: PathBuf },
    #[error(
        "read {path}: it is neither a measurement, which is a directory, nor a database (it does not begin with CPDATA)"
    )]
    IsFile { path: PathBuf },
    #[error("find a measurement in {path}: there is no such file or directory")]
    NotThere { path: PathBuf },
    #[error("find a measurement: no *.callpath directory here; record one with: callpath record PROGRAM")]
    NoMeasurement,
}
