//! The arena from the recorder's side: making it, backing chunks with memory, handing them out and taking them back. Of
//! a chunk's content it knows only which bytes must be zeroed.

use callpath_format::shared::session::FREE_STACK_LEN;
use callpath_format::shared::{
    Arena, CHUNK_LEN_BYTES, ChunkHeader, ChunkIndex, Columns, PROCESS_SLOTS, ProcessSlot, Session, SessionHead,
    Settings,
};
use callpath_target::{Maps, SharedMemory, TargetError};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Free chunks from the beginning: enough for the first sample of a stack 100,000 frames deep.
const FIRST_CHUNKS: u32 = 112;
/// Chunks that are backed at a time.
const BATCH: u32 = 16;

/// The most free chunks that are reserved for raw samples: 64 MiB, and this part of the arena.
const MOST_FOR_COPIES: u32 = 1024;
const ARENA_SHARE: u32 = 4;
/// How many more are reserved at a time.
const COPIES_BATCH: u32 = 64;

/// The allocator of chunks: the arena and its free chunks.
pub(crate) struct ArenaAllocator {
    memory: SharedMemory,
    /// A copy of the head: a program may change the one in the arena.
    head: SessionHead,
    columns: Columns,
    /// Chunks below this are backed with memory.
    backed: u32,
    /// Chunks that came back and are not free yet.
    returned: Vec<ChunkIndex>,
    /// How many chunks are kept free.
    reserve: u32,
    /// How many are wanted for raw samples.
    for_copies: u32,
    /// Memory is exhausted: nothing more can be backed.
    exhausted: bool,
}

impl ArenaAllocator {
    /// An arena of `len_bytes` bytes, its session filled in but for the magic.
    pub(crate) fn create(
        len_bytes: usize,
        published_len_bytes: usize,
        nonce: u64,
        settings: Settings,
    ) -> Result<ArenaAllocator, TargetError> {
        let columns = settings.columns().expect("as many metrics as an arena has columns for: `parse_events`");
        let memory = SharedMemory::create(c"callpath-arena", len_bytes)?;
        let first = columns.first_free_chunk() as usize * CHUNK_LEN_BYTES;
        memory.back(0, first)?;
        let head = SessionHead {
            magic: Session::MAGIC,
            nonce,
            arena_len_bytes: len_bytes as u64,
            published_len_bytes: published_len_bytes as u64,
            settings,
        };
        let mut allocator = ArenaAllocator {
            memory,
            head,
            columns,
            backed: columns.first_free_chunk(),
            returned: Vec::new(),
            reserve: FIRST_CHUNKS,
            for_copies: 0,
            exhausted: false,
        };
        allocator.session().set_head(head);
        allocator.session().low_water.store(FIRST_CHUNKS / 2, Relaxed);
        allocator.refill_with_more();
        allocator.session().recorder.store(Session::SERVING, Release);
        Ok(allocator)
    }

    /// The arena. Its mapping lives as long as the allocator; the references are for use within one round of serving.
    pub(crate) fn arena(&self) -> Arena<'_> {
        // SAFETY: the mapping is ours and lives as long as `self`.
        unsafe { Arena::new(self.memory.base(), self.memory.len_bytes()) }
    }

    /// Chunk 0.
    pub(crate) fn session(&self) -> &Session {
        self.arena().at_offset(0).expect("the arena holds at least chunk 0")
    }

    /// A process's slot.
    pub(crate) fn slot(&self, index: usize) -> &ProcessSlot {
        let offset = ProcessSlot::offset_bytes(index % PROCESS_SLOTS).expect("reduced to the number of slots");
        self.arena().at_offset(offset).expect("the arena holds all slots")
    }

    /// The bases of a process's slot.
    pub(crate) fn bases(&self, index: usize) -> &[AtomicU64] {
        self.columns.bases(&self.arena(), index % PROCESS_SLOTS).expect("the arena holds all slots' bases")
    }

    /// The layout of the metrics' columns.
    pub(crate) fn columns(&self) -> Columns {
        self.columns
    }

    /// The nonce of the session.
    pub(crate) fn head(&self) -> &SessionHead {
        &self.head
    }

    /// The settings.
    pub(crate) fn settings(&self) -> &Settings {
        &self.head.settings
    }

    /// The memory.
    pub(crate) fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    pub(crate) fn descriptor(&self) -> i32 {
        self.memory.descriptor()
    }

    /// Whether a process has the arena mapped.
    pub(crate) fn is_mapped_in(&self, maps: &Maps) -> bool {
        self.memory.is_mapped_in(maps)
    }

    /// Whether a chunk may be looked at: it is one that was handed out.
    pub(crate) fn is_backed(&self, chunk: ChunkIndex) -> bool {
        (self.columns.first_free_chunk()..self.backed).contains(&chunk.0)
    }

    /// Whether fewer chunks are free than the reserve.
    pub(crate) fn is_low(&self) -> bool {
        self.session().free_chunks() < self.reserve
    }

    /// Whether so few are free that processes ring, or wait. Each refill wakes all that wait, so it should be of many.
    pub(crate) fn is_short(&self) -> bool {
        self.session().free_chunks() <= self.reserve / 2
    }

    /// Frees chunks that came back, up to the reserve.
    pub(crate) fn refill(&mut self) {
        self.fill(false);
    }

    /// Frees chunks up to the reserve, with more memory if need be: when all that could come back has.
    pub(crate) fn refill_with_more(&mut self) {
        self.fill(true);
    }

    /// Raises the reserve after a raw sample has taken this many chunks: more samples will. They pile up while the
    /// recorder gets no processor, and must find room.
    pub(crate) fn expect_copies(&mut self, chunks: u32) {
        let most = MOST_FOR_COPIES.min(self.arena().chunk_count() / ARENA_SHARE);
        let copies = u32::try_from(self.settings().raw_limit).unwrap_or(u32::MAX);
        let wanted = chunks.saturating_mul(copies).min(most);
        // The kernel takes time to give memory, and a process waits for us.
        self.for_copies = self.for_copies.max(wanted.min(self.reserve + COPIES_BATCH));
    }

    fn fill(&mut self, with_more: bool) {
        // The more is in use, the more may be wanted at once.
        self.reserve = FIRST_CHUNKS.max(self.backed / 4).max(self.for_copies).min(FREE_STACK_LEN as u32 / 2);
        let mut gave = false;
        while self.session().free_chunks() < self.reserve {
            let chunk = match self.returned.pop() {
                Some(chunk) => chunk,
                None if with_more && self.back_more() => continue,
                None => break,
            };
            if !self.session().give_chunk(chunk) {
                self.returned.push(chunk);
                break;
            }
            gave = true;
        }
        let is_dry = self.exhausted && self.session().free_chunks() == 0;
        let low_water = if is_dry { 0 } else { self.reserve / 2 };
        let is_dry_now = self.session().low_water.swap(low_water, Relaxed) != 0 && is_dry;
        if is_dry_now {
            // Who waits shall see that it is in vain.
            self.session().given.fetch_add(1, Release);
        }
        if gave || is_dry_now {
            wake(&self.session().given);
        }
    }

    fn back_more(&mut self) -> bool {
        let limit = self.arena().chunk_count();
        let count = BATCH.min(limit.saturating_sub(self.backed));
        let (at, len) = (self.backed as usize * CHUNK_LEN_BYTES, count as usize * CHUNK_LEN_BYTES);
        if count == 0 || self.memory.back(at, len).is_err() {
            self.exhausted = true;
            return false;
        }
        self.returned.extend((self.backed..self.backed + count).rev().map(ChunkIndex));
        self.backed += count;
        true
    }

    /// Checks that no chunk is free twice, and that each may be handed out.
    pub(crate) fn assert_whole(&self) {
        let mut seen = vec![false; self.arena().chunk_count() as usize];
        for chunk in &self.returned {
            assert!(self.is_backed(*chunk), "chunk {} was never handed out", chunk.0);
            assert!(!std::mem::replace(&mut seen[chunk.0 as usize], true), "chunk {} came back twice", chunk.0);
        }
    }

    /// Whether memory ran out at some time.
    pub(crate) fn exhausted(&self) -> bool {
        self.exhausted
    }

    /// Takes a chunk back, zeroed where its next owner expects zeros.
    pub(crate) fn give_back(&mut self, chunk: ChunkIndex) {
        if !self.is_backed(chunk) {
            return;
        }
        let Some(header) = self.arena().chunk(chunk) else { return };
        let dirty = match header.kind.load(Acquire) {
            // Its buffers of a walk, too: nodes may come to lie there next.
            ChunkHeader::KIND_THREAD => 0..self.columns.nodes_start(),
            _ => 0..0,
        };
        let nodes = match header.kind.load(Relaxed) {
            ChunkHeader::KIND_THREAD | ChunkHeader::KIND_NODES => {
                let end = (header.end.load(Relaxed) as usize).min(CHUNK_LEN_BYTES);
                let top = (header.top.load(Relaxed) as usize).min(CHUNK_LEN_BYTES);
                [header.start.load(Relaxed) as usize..end, top..CHUNK_LEN_BYTES]
            }
            // Whole: nodes must begin as zeros, and this one held something else.
            _ => [0..CHUNK_LEN_BYTES, 0..0],
        };
        let base = chunk.0 as usize * CHUNK_LEN_BYTES;
        let words = self.arena().slice_at::<AtomicU64>(base, CHUNK_LEN_BYTES / 8).unwrap_or_default();
        for range in [dirty, nodes[0].clone(), nodes[1].clone(), 0..ChunkHeader::LEN_BYTES] {
            // Our code writes whole words only.
            let words = words.get(range.start / 8..range.end.div_ceil(8)).unwrap_or_default();
            words.iter().for_each(|word| word.store(0, Relaxed));
        }
        self.returned.push(chunk);
    }
}

/// Wakes all threads that wait for a word of the arena.
pub(crate) fn wake(word: &std::sync::atomic::AtomicU32) {
    // SAFETY: wakes; does not touch memory.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_zeros_again_whatever_it_held() {
        let settings = Settings { metric_count: 40, ..Settings::default() };
        let mut allocator = ArenaAllocator::create(32 << 20, 1 << 20, 7, settings).expect("memory for a small arena");
        for kind in ChunkHeader::KIND_THREAD..=ChunkHeader::KIND_KNOWN {
            let chunk = allocator.session().take_chunk().expect("chunks are free");
            let base = chunk.0 as usize * CHUNK_LEN_BYTES;
            // SAFETY: a whole backed chunk that was taken.
            let bytes = unsafe { std::slice::from_raw_parts_mut(allocator.memory.base().add(base), CHUNK_LEN_BYTES) };
            bytes.fill(0xa5);
            let header = allocator.arena().chunk(chunk).expect("it is in the arena");
            header.kind.store(kind, Relaxed);
            // Nodes fill it up to its end.
            let nodes = allocator.columns().nodes_start();
            let start = if kind == ChunkHeader::KIND_THREAD { nodes } else { ChunkHeader::LEN_BYTES };
            header.start.store(start as u32, Relaxed);
            header.end.store(CHUNK_LEN_BYTES as u32, Relaxed);
            header.top.store(CHUNK_LEN_BYTES as u32, Relaxed);
            allocator.give_back(chunk);
            let left = bytes.iter().position(|byte| *byte != 0);
            assert_eq!(left, None, "a byte of a chunk of kind {kind} is left");
        }
    }

    #[test]
    fn room_for_long_copies_comes_step_by_step() {
        let settings = Settings { raw_limit: 100, ..Settings::default() };
        let mut allocator = ArenaAllocator::create(64 << 20, 1 << 20, 7, settings).expect("memory for an arena");
        for _ in 0..10 {
            let before = allocator.session().free_chunks();
            allocator.expect_copies(5);
            allocator.refill_with_more();
            assert!(allocator.session().free_chunks() <= before + COPIES_BATCH, "too many at once");
        }
        // A quarter of this arena, which is less than what was wanted.
        assert_eq!(allocator.session().free_chunks(), (64 << 20) / CHUNK_LEN_BYTES as u32 / ARENA_SHARE);
    }

    #[test]
    fn each_free_chunk_is_taken_once() {
        let mut allocator =
            ArenaAllocator::create(32 << 20, 1 << 20, 7, Settings::default()).expect("memory for an arena");
        let (left, owners) = (std::sync::atomic::AtomicU32::new(4), allocator.arena().chunk_count() as usize);
        let owned: Vec<_> = (0..owners).map(|_| std::sync::atomic::AtomicBool::new(false)).collect();
        let (session, returned) = (allocator.arena(), std::sync::Mutex::new(Vec::new()));
        let session: &Session = session.at_offset(0).expect("it is there");
        std::thread::scope(|scope| {
            for _ in 0..left.load(Relaxed) {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let Some(chunk) = session.take_chunk() else { continue };
                        assert!(!owned[chunk.0 as usize].swap(true, Acquire), "two have chunk {}", chunk.0);
                        returned.lock().expect("no thread panics").push(chunk);
                    }
                    left.fetch_sub(1, Release);
                });
            }
            while left.load(Acquire) > 0 {
                let chunks = std::mem::take(&mut *returned.lock().expect("no thread panics"));
                for chunk in chunks {
                    owned[chunk.0 as usize].store(false, Release);
                    assert!(session.give_chunk(chunk));
                }
            }
        });
        let returned = returned.into_inner().expect("no thread panics").len() as u32;
        assert_eq!(session.free_chunks() + returned, FIRST_CHUNKS);
        for _ in 0..session.free_chunks() {
            assert!(session.take_chunk().is_some());
        }
        assert_eq!((session.take_chunk(), session.free_chunks()), (None, 0));
        allocator.refill();
    }
}
