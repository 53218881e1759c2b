//! Traces: entries taken out of the arena and appended to a process's file.
//!
//! ```text
//! 0   magic  "CPTRAC01"
//! 8   entries of 16 bytes: { time_ns: u64 from the measurement's beginning, thread: u32, node: u32 }
//! ```
//!
//! `thread` and `node` are indices into the process's file. A last entry that is not whole does not count.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use callpath_format::shared::tree::TraceEntry;
use callpath_format::shared::{ArenaRef, CHUNK_LEN_BYTES, ChunkHeader, ChunkIndex};
use callpath_measurement::MeasurementError;

use crate::arena::ArenaAllocator;
use crate::thread::Thread;

const MAGIC: &[u8; 8] = b"CPTRAC01";

/// A process's trace file.
#[derive(Debug)]
pub(crate) struct TraceFile {
    file: File,
    path: std::path::PathBuf,
    len_bytes: u64,
}

impl TraceFile {
    pub(crate) fn create(path: &Path) -> Result<TraceFile, MeasurementError> {
        let failed = |source| MeasurementError::Write { path: path.to_owned(), source };
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let mut file = options.open(path).map_err(failed)?;
        file.write_all(MAGIC).map_err(failed)?;
        Ok(TraceFile { file, path: path.to_owned(), len_bytes: MAGIC.len() as u64 })
    }

    /// Appends entries of one thread.
    pub(crate) fn append(&mut self, entries: impl Iterator<Item = FileEntry>) -> Result<(), MeasurementError> {
        let mut bytes = Vec::new();
        for FileEntry { time_ns, thread, node } in entries {
            bytes.extend(time_ns.to_le_bytes());
            bytes.extend(thread.to_le_bytes());
            bytes.extend(node.to_le_bytes());
        }
        // What was written of them before the disk was full goes again: an entry is whole or not there.
        let at = self.len_bytes;
        let write = || {
            self.file.write_all_at(&bytes, at).or_else(|error| self.file.set_len(at).and(Err(error)))?;
            Ok(at + bytes.len() as u64)
        };
        self.len_bytes = write().map_err(|source| MeasurementError::Write { path: self.path.clone(), source })?;
        Ok(())
    }
}

/// An entry as the file has it.
pub(crate) struct FileEntry {
    /// From the measurement's beginning.
    pub(crate) time_ns: u64,
    /// Where the thread stands in its process's file.
    pub(crate) thread: u32,
    /// Where the node stands in the thread's tree.
    pub(crate) node: u32,
}

/// An entry as the thread wrote it: time stamp, and the node.
type Entry = (u64, ArenaRef);

/// Takes a thread's entries away. Chunks that are full go back. The thread's tree must be copied after this, so that it
/// holds every node that the entries name.
pub(crate) fn take(allocator: &mut ArenaAllocator, thread: &Thread) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut free = Vec::new();
    if let Some(record) = thread.record(allocator) {
        let mut chunk = ChunkIndex(record.trace_first.load(Acquire));
        while allocator.is_backed(chunk) && !free.contains(&chunk) {
            let Some(header) =
                allocator.arena().chunk(chunk).filter(|h| h.kind.load(Relaxed) == ChunkHeader::KIND_TRACE)
            else {
                break;
            };
            let next = header.next.load(Acquire);
            let (start, end) = (header.start.load(Relaxed) as usize, header.end.load(Acquire) as usize);
            let count = end.min(CHUNK_LEN_BYTES).saturating_sub(start) / size_of::<TraceEntry>();
            let base = chunk.0 as usize * CHUNK_LEN_BYTES + start;
            for entry in allocator.arena().slice_at::<TraceEntry>(base, count).unwrap_or_default() {
                entries.push((entry.ticks.load(Relaxed), ArenaRef(entry.node.load(Relaxed))));
            }
            // The thread never looks at `start`.
            header.start.store((start + count * size_of::<TraceEntry>()) as u32, Relaxed);
            if next == 0 {
                break;
            }
            record.trace_first.store(next, Release);
            free.push(chunk);
            chunk = ChunkIndex(next);
        }
    }
    for chunk in free {
        allocator.give_back(chunk);
    }
    entries
}

/// Gives back what trace chunks a thread that has ended still has.
pub(crate) fn release(allocator: &mut ArenaAllocator, thread: &Thread) {
    let Some(record) = thread.record(allocator) else { return };
    let last = ChunkIndex(record.trace_first.swap(0, Acquire));
    if allocator.arena().chunk(last).is_some_and(|h| h.kind.load(Relaxed) == ChunkHeader::KIND_TRACE) {
        allocator.give_back(last);
    }
}
