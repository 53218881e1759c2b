//! A thread as the measurement knows it: its record, what it keeps of each metric, and where that lies.

use callpath_format::shared::thread::layout;
use callpath_format::shared::{ArenaRef, CHUNK_LEN_BYTES, ChunkIndex, Column, ThreadRecord};

use crate::process::Process;

/// A thread's record, and the process it belongs to.
#[derive(Clone, Copy)]
pub struct Thread<'m> {
    /// The record.
    pub record: &'m ThreadRecord,
    /// Of each metric.
    pub columns: &'m [Column],
    /// Its chunk.
    pub chunk: ChunkIndex,
}

impl<'m> Thread<'m> {
    /// The thread whose record lies at `reference`.
    #[inline]
    pub fn at(process: &Process<'m>, reference: ArenaRef) -> Option<Thread<'m>> {
        let chunk = reference.chunk();
        let columns = process.session.columns.of_thread(&process.arena, chunk)?;
        Some(Thread { record: process.arena.get(reference)?, columns, chunk })
    }

    /// Where the record lies.
    pub fn reference(&self) -> ArenaRef {
        ArenaRef::from_offset(self.chunk.0 as usize * CHUNK_LEN_BYTES + layout::RECORD)
    }
}
