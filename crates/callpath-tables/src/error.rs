//! Errors of a snapshot stream. Each completes "failed to ...".

use std::io;

/// Why a stream is not answered to its end.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The stream of snapshots cannot be read.
    #[error("read the snapshot stream at byte {offset}: {source}")]
    SnapshotRead {
        /// Offset in the stream, bytes.
        offset: u64,
        /// The system's reason.
        source: io::Error,
    },
    /// The stream is not a snapshot stream.
    #[error("read the snapshot stream: it does not begin with \"CPSNAP01\"")]
    SnapshotMagic,
    /// The stream ends inside a record. All records before it were answered.
    #[error("read the record at byte {offset} of the snapshot stream: the stream ends inside it")]
    SnapshotCut {
        /// The record's offset in the stream, bytes.
        offset: u64,
    },
    /// A record contradicts itself. All records before it were answered.
    #[error("read the record at byte {offset} of the snapshot stream: {what}")]
    SnapshotRecord {
        /// The record's offset in the stream, bytes.
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
