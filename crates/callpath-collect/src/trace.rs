//! One entry for each sample, in order of time, for the recorder to take away.

use callpath_format::shared::tree::TraceEntry;
use callpath_format::shared::{ArenaRef, CHUNK_LEN_BYTES, ChunkHeader, ChunkIndex};
use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::sample::Sample;

/// Adds an entry. `None`: there is no memory for it, and the entry is lost (the sample is not).
pub(crate) fn add(sample: &Sample<'_, '_>, node: ArenaRef) -> Option<()> {
    let Sample { process, thread, .. } = *sample;
    let record = thread.record;
    let mut chunk = ChunkIndex(record.trace_last.load(Relaxed));
    let full = |c: ChunkIndex| -> Option<bool> {
        Some(process.arena.chunk(c)?.end.load(Relaxed) as usize + size_of::<TraceEntry>() > CHUNK_LEN_BYTES)
    };
    if chunk.0 == 0 || full(chunk)? {
        let fresh = process.take_chunk()?;
        let header = process.arena.chunk(fresh)?;
        header.kind.store(ChunkHeader::KIND_TRACE, Relaxed);
        header.next.store(0, Relaxed);
        header.owner.store(thread.reference().0, Relaxed);
        header.start.store(ChunkHeader::LEN_BYTES as u32, Relaxed);
        header.end.store(ChunkHeader::LEN_BYTES as u32, Relaxed);
        match chunk.0 {
            0 => record.trace_first.store(fresh.0, Release),
            _ => process.arena.chunk(chunk)?.next.store(fresh.0, Release),
        }
        record.trace_last.store(fresh.0, Relaxed);
        chunk = fresh;
    }
    let header = process.arena.chunk(chunk)?;
    let end = header.end.load(Relaxed) as usize;
    let entry: &TraceEntry = process.arena.at_offset(chunk.0 as usize * CHUNK_LEN_BYTES + end)?;
    entry.ticks.store(sample.begin_ticks, Relaxed);
    entry.node.store(node.0, Relaxed);
    header.end.store((end + size_of::<TraceEntry>()) as u32, Release);
    Some(())
}
