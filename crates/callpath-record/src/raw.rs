//! Raw samples, unwound by the collector's own walk once their tables are there.
//! Knows nothing of how they were taken.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use callpath_analyze::measurement::{FULL_ROOT, PARTIAL_ROOT};
use callpath_format::address::RunAddr;
use callpath_format::frame::FrameKey;
use callpath_format::recipe::{Expression, Packed, Recipe};
use callpath_format::shared::load_map::{Mapping, Published};
use callpath_format::shared::tree::RawSample;
use callpath_format::shared::{ArenaRef, CHUNK_LEN_BYTES, ChunkHeader, ChunkIndex, MAX_METRICS, ProcessSlot};
use callpath_format::table::RecipeId;
use callpath_unwind::{CodeMap, Cursor, End, Located, Memory, walk};

use crate::arena::ArenaKeeper;
use crate::thread::Thread;

/// The raw samples that a process has put down since the last time.
pub(crate) fn take_list(keeper: &ArenaKeeper, slot: &ProcessSlot) -> Vec<ChunkIndex> {
    let mut chunks = Vec::new();
    let mut next = ChunkIndex(slot.raw.swap(0, AcqRel));
    while keeper.is_backed(next) && (chunks.len() as u32) < keeper.arena().chunk_count() {
        chunks.push(next);
        next = match keeper.arena().chunk(next) {
            Some(header) => ChunkIndex(header.next.load(Acquire)),
            None => break,
        };
    }
    chunks
}

/// One raw sample in its chunk.
pub(crate) struct Raw<'a> {
    sample: &'a RawSample,
    stack: &'a [AtomicU64],
    /// The thread's record.
    pub(crate) owner: ArenaRef,
}

impl<'a> Raw<'a> {
    /// What lies in a chunk, if it is a raw sample.
    pub(crate) fn in_chunk(keeper: &'a ArenaKeeper, chunk: ChunkIndex) -> Option<Raw<'a>> {
        let arena = keeper.arena();
        let header = arena.chunk(chunk).filter(|h| h.kind.load(Relaxed) == ChunkHeader::KIND_RAW)?;
        let base = chunk.0 as usize * CHUNK_LEN_BYTES + ChunkHeader::LEN_BYTES;
        let sample: &RawSample = arena.at_offset(base)?;
        let len = (sample.stack_len_bytes.load(Relaxed) as usize).min(RawSample::MAX_STACK_BYTES);
        let stack = arena.slice_at(base + size_of::<RawSample>(), len / 8)?;
        Some(Raw { sample, stack, owner: ArenaRef(header.owner.load(Relaxed)) })
    }

    /// The interrupted instruction.
    pub(crate) fn pc(&self) -> RunAddr {
        RunAddr(self.sample.registers[16].load(Relaxed))
    }

    /// Walks it and adds it to its thread's own tree.
    pub(crate) fn attribute(&self, thread: &mut Thread, mappings: &[Mapping], published: Published<'_>) {
        let registers = std::array::from_fn(|i| self.sample.registers[i].load(Relaxed));
        let mut code = Code { mappings, published };
        let mut memory = Stack { start: self.sample.stack_start.load(Relaxed), words: self.stack };
        let mut keys: Vec<FrameKey> = Vec::new();
        let cursor = Cursor::interrupted(self.pc(), registers);
        let end = walk(cursor, &mut code, &mut memory, |_, located| {
            keys.push(located.key);
            ControlFlow::Continue(())
        });
        let (root, count) = match end {
            End::Outermost => (FULL_ROOT, &mut thread.raw_full),
            End::Stopped(_) | End::Broken => (PARTIAL_ROOT, &mut thread.raw_partial),
        };
        let samples = self.sample.samples.load(Relaxed);
        *count += samples;
        let node = keys.iter().rev().fold(root, |node, key| thread.own.child(node, *key));
        let values: [u64; MAX_METRICS] = std::array::from_fn(|i| self.sample.values[i].load(Relaxed));
        thread.own.add(node, samples, values);
    }
}

/// A copy of a stack.
struct Stack<'a> {
    start: u64,
    words: &'a [AtomicU64],
}

impl Memory for Stack<'_> {
    fn read_u64(&mut self, addr: u64) -> Option<u64> {
        let offset = addr.checked_sub(self.start)?;
        let (index, shift) = (usize::try_from(offset / 8).ok()?, 8 * (offset % 8) as u32);
        let low = self.words.get(index)?.load(Relaxed);
        if shift == 0 {
            return Some(low);
        }
        let high = self.words.get(index + 1)?.load(Relaxed);
        Some(low >> shift | high << (64 - shift))
    }
}

/// A process's code as the recorder knows it.
struct Code<'a> {
    mappings: &'a [Mapping],
    published: Published<'a>,
}

impl CodeMap for Code<'_> {
    fn locate(&mut self, addr: RunAddr) -> Located {
        let unknown = Packed { disp: 0, add: 0, head: Packed::UNKNOWN, slots: [0; 6] };
        let index = self.mappings.partition_point(|m| m.end <= addr);
        let Some(mapping) = self.mappings.get(index).filter(|m| m.start <= addr) else {
            return Located { key: FrameKey::outside(addr), recipe: unknown, table: 0 };
        };
        let link = addr.to_link(mapping.bias);
        let key = FrameKey::in_module(mapping.module, link);
        let found = self.published.table(mapping.table).and_then(|t| {
            let id = t.find(link)?;
            Some((id, t.packed(id)?))
        });
        match found {
            Some((id, recipe)) => Located { key, recipe, table: mapping.table << 16 | u64::from(id.0) },
            None => Located { key, recipe: unknown, table: 0 },
        }
    }

    fn open(&self, located: &Located) -> Option<Recipe> {
        self.published.table(located.table >> 16)?.recipe(RecipeId(located.table as u16))
    }

    fn expression(&self, located: &Located, expression: Expression) -> Option<&[u8]> {
        self.published.table(located.table >> 16)?.expression(expression)
    }
}
