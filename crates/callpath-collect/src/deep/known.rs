//! What is known of a thread's deep stack: a word for each frame, and each other word that the walk depended on, with
//! the value that it had. If none has changed, a walk takes the same way.
//!
//! ```text
//! position   outer ......................... inner
//!            | outermost frame, or as far as      | the frame that a sample has
//!            | walks have come                    | interrupted
//! ```

use callpath_format::shared::thread::{Deep, layout};
use callpath_format::shared::tree::{Known, KnownKind, KnownWord};
use callpath_format::shared::{ArenaRef, CHUNK_LEN_BYTES, ChunkHeader, ChunkIndex};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::process::Process;
use crate::thread::Thread;

/// Entries in a chunk.
const PER_CHUNK: u32 =
    ((CHUNK_LEN_BYTES - ChunkHeader::LEN_BYTES) / (size_of::<Known>() + size_of::<KnownWord>())) as u32;
/// One past the last position.
pub(crate) const POSITIONS: u32 = layout::DEEP_CHUNKS as u32 * PER_CHUNK;
/// Where the first sample of a stack begins.
pub(crate) const FIRST: u32 = POSITIONS / 2;
/// The most that is known at once: 131,072 frames, some of them with a second word.
pub(crate) const MOST: u32 = FIRST * 3 / 4;
/// As many entries fit into the list of what one sample has walked.
pub(crate) const FRESH: u32 = layout::FRESH_CHUNKS as u32 * PER_CHUNK;

/// A list of entries in chunks of the thread's.
#[derive(Clone, Copy)]
pub(crate) struct List<'p, 'm> {
    process: &'p Process<'m>,
    thread: Thread<'m>,
    chunks: &'m [AtomicU32],
}

impl<'p, 'm> List<'p, 'm> {
    pub(crate) fn new(process: &'p Process<'m>, thread: Thread<'m>, chunks: &'m [AtomicU32]) -> List<'p, 'm> {
        List { process, thread, chunks }
    }

    /// Where the words of a chunk of entries are.
    #[inline]
    fn words(&self, chunk: u32) -> Option<usize> {
        let index = self.chunks.get(chunk as usize)?.load(Relaxed) as usize;
        (index != 0).then_some(index * CHUNK_LEN_BYTES + ChunkHeader::LEN_BYTES)
    }

    /// The entry at a position, if one has been put there.
    #[inline]
    pub(crate) fn get(&self, at: u32) -> Option<(&'m KnownWord, &'m Known)> {
        let (words, index) = (self.words(at / PER_CHUNK)?, (at % PER_CHUNK) as usize);
        let others = words + PER_CHUNK as usize * size_of::<KnownWord>();
        Some((
            self.process.arena.at_offset(words + index * size_of::<KnownWord>())?,
            self.process.arena.at_offset(others + index * size_of::<Known>())?,
        ))
    }

    /// The words of the last positions of `from..to`, as many as lie together.
    pub(crate) fn last_words(&self, from: u32, to: u32) -> Option<&'m [KnownWord]> {
        let last = to.checked_sub(1)?;
        let from = from.max(last / PER_CHUNK * PER_CHUNK);
        let first = self.words(last / PER_CHUNK)? + (from % PER_CHUNK) as usize * size_of::<KnownWord>();
        self.process.arena.slice_at(first, to.checked_sub(from)? as usize)
    }

    pub(crate) fn fact(&self, at: u32) -> Option<Fact> {
        let (word, known) = self.get(at)?;
        let at = word.at.load(Relaxed);
        Some(Fact {
            at: at & !KnownKind::BITS,
            kind: at & KnownKind::BITS,
            word: word.word.load(Relaxed),
            key: known.key.load(Relaxed),
        })
    }

    /// Puts an entry there. `None`: no memory, or no such position.
    #[inline]
    pub(crate) fn put(&self, at: u32, fact: Fact) -> Option<()> {
        if self.words(at / PER_CHUNK).is_none() {
            let chunk = self.chunks.get((at / PER_CHUNK) as usize)?;
            chunk.store(self.take_chunk()?.0, Relaxed);
        }
        let (word, known) = self.get(at)?;
        word.at.store(fact.at & !KnownKind::BITS | fact.kind, Relaxed);
        word.word.store(fact.word, Relaxed);
        known.key.store(fact.key, Relaxed);
        known.node.store(0, Relaxed);
        Some(())
    }

    /// A known frame has been met again: whether its word may be marked now.
    pub(crate) fn remark(&self, at: u32, fact: Fact) -> Option<()> {
        self.get(at)?.0.at.store(fact.at & !KnownKind::BITS | fact.kind, Relaxed);
        Some(())
    }

    /// A chunk for entries, behind the last of the thread's chunks of nodes: it goes back with those.
    #[cold]
    fn take_chunk(&self) -> Option<ChunkIndex> {
        let Process { arena, .. } = self.process;
        let chunk = self.process.take_chunk()?;
        let last = arena.chunk(ChunkIndex(self.thread.record.chunk.load(Relaxed)))?;
        let header = arena.chunk(chunk)?;
        header.kind.store(ChunkHeader::KIND_KNOWN, Relaxed);
        header.owner.store(self.thread.reference().0, Relaxed);
        header.start.store(ChunkHeader::LEN_BYTES as u32, Relaxed);
        header.end.store(ChunkHeader::LEN_BYTES as u32, Relaxed);
        header.top.store(CHUNK_LEN_BYTES as u32, Relaxed);
        header.next.store(last.next.load(Relaxed), Relaxed);
        last.next.store(chunk.0, Release);
        Some(chunk)
    }
}

/// An entry before it is put anywhere.
#[derive(Clone, Copy)]
pub(crate) struct Fact {
    pub(crate) at: u64,
    pub(crate) word: u64,
    pub(crate) key: u64,
    /// [`KnownKind`].
    pub(crate) kind: u64,
}

impl Fact {
    /// The caller's CFA depends on a word on the stack, or (`at` 0) on rbp as it came from a frame further inwards.
    pub(crate) fn word(at: u64, word: u64) -> Fact {
        Fact { at, word, key: 0, kind: KnownKind::WORD }
    }

    /// The caller's frame depends on something that is not noted.
    pub(crate) const SEAL: Fact = Fact { at: 0, word: 0, key: 0, kind: KnownKind::SEAL };

    pub(crate) fn is_frame(&self) -> bool {
        self.kind & !KnownKind::MARKABLE == KnownKind::FRAME
    }
}

/// A thread's deep stack.
#[derive(Clone, Copy)]
pub(crate) struct Stretch<'p, 'm> {
    pub(crate) list: List<'p, 'm>,
    pub(crate) state: &'m Deep,
}

impl<'p, 'm> Stretch<'p, 'm> {
    pub(crate) fn outer(&self) -> u32 {
        self.state.outer.load(Relaxed)
    }

    pub(crate) fn inner(&self) -> u32 {
        self.state.inner.load(Relaxed)
    }

    /// Forgets all of it.
    pub(crate) fn clear(&self) {
        for position in [&self.state.outer, &self.state.inner, &self.state.noded] {
            position.store(FIRST, Relaxed);
        }
        self.state.sealed.store(u32::MAX, Relaxed);
        self.state.end.store(Deep::OPEN, Relaxed);
        self.state.met_generated.store(0, Relaxed);
    }

    /// Keeps what is outwards of a position.
    pub(crate) fn cut(&self, inner: u32) {
        self.state.inner.store(inner, Relaxed);
        self.state.noded.store(self.state.noded.load(Relaxed).min(inner), Relaxed);
        if self.state.sealed.load(Relaxed) >= inner {
            self.state.sealed.store(u32::MAX, Relaxed);
        }
    }

    /// Adds a fact within the innermost known one.
    pub(crate) fn push_inner(&self, fact: Fact) -> Option<()> {
        let at = self.inner();
        self.list.put(at, fact)?;
        if fact.kind == KnownKind::SEAL && self.state.sealed.load(Relaxed) == u32::MAX {
            self.state.sealed.store(at, Relaxed);
        }
        self.state.inner.store(at + 1, Relaxed);
        Some(())
    }

    /// Adds one outwards of all.
    pub(crate) fn push_outer(&self, fact: Fact) -> Option<()> {
        let at = self.outer().checked_sub(1)?;
        self.list.put(at, fact)?;
        if fact.kind == KnownKind::SEAL {
            self.state.sealed.store(at, Relaxed);
        }
        self.state.outer.store(at, Relaxed);
        self.state.noded.store(at, Relaxed);
        Some(())
    }

    /// The node of the entry before a position, outwards: of the frames up to there.
    pub(crate) fn node_before(&self, position: u32) -> Option<ArenaRef> {
        ArenaRef(self.list.get(position.checked_sub(1)?)?.1.node.load(Relaxed)).some()
    }
}
