//! What can go wrong in this crate. Each completes "failed to ...".

use std::io;
use std::path::PathBuf;

/// Why there is no score.
#[derive(Debug, thiserror::Error)]
pub enum OracleError {
    /// The program cannot be run or looked at.
    #[error(transparent)]
    Target(#[from] callpath_target::TargetError),
    /// Copies of a module's procedures have to be within 2 GB of it.
    #[error("find room for copies near {path}")]
    NoRoom {
        /// The module.
        path: PathBuf,
    },
    /// A procedure that something takes the place of cannot be moved away.
    #[error("move {name}: {refusal}")]
    NotMoved {
        /// Which.
        name: &'static str,
        /// Why not.
        refusal: callpath_x86::rewrite::Refusal,
    },
    /// Constructors have started threads.
    #[error("change its code: {threads} threads run before its own first instruction")]
    Threads {
        /// How many.
        threads: usize,
    },
    /// The walk did not answer.
    #[error(transparent)]
    Snapshot(#[from] callpath_tables::SnapshotError),
    /// A stream or a list of truths cannot be written.
    #[error("write {what}: {source}")]
    Write {
        /// Which.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A stream or a list of truths cannot be read.
    #[error("read {path}: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A stream or a list of truths is malformed.
    #[error("read {path}: {what}")]
    Malformed {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}
