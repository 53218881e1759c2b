//! What can go wrong with a stream of snapshots. Each completes "failed to ...".

use std::io;

/// Why a stream is not answered to its end.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The stream of snapshots cannot be read.
    #[error("read the snapshot stream at byte {offset}: {source}")]
    SnapshotRead {
        /// Where, from the stream's first byte.
        offset: u64,
        /// The system's reason.
        source: io::Error,
    },
    /// The stream is no stream of snapshots.
    #[error("read the snapshot stream: it does not begin with \"CPSNAP01\"")]
    SnapshotMagic,
    /// The stream ends inside a record. All before it was answered.
    #[error("read the record at byte {offset} of the snapshot stream: the stream ends inside it")]
    SnapshotCut {
        /// Where the record begins, from the stream's first byte.
        offset: u64,
    },
    /// A record contradicts itself. All before it was answered.
    #[error("read the record at byte {offset} of the snapshot stream: {what}")]
    SnapshotRecord {
        /// Where the record begins, from the stream's first byte.
        offset: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The answers cannot be written.
    #[error("write the answers: {source}")]
    SnapshotWrite {
        /// The system's reason.
        source: io::Error,
    },
}
