//! A thread's calling context tree: a node for each distinct path, found by linear hashing.
//!
//! Nodes are hashed by (parent, key) into buckets that are lists. When there are more than two nodes a bucket,
//! one more bucket is added and one is split (Litwin 1980), so no insertion ever costs more than one list:
//! nothing is rehashed inside a signal handler. A node's first child is hashed when there is a second one:
//! deep paths without branches, as they are found for the first time, touch no bucket. Nodes grow from the
//! start of a chunk, segments of buckets from its end.

use callpath_format::frame::FrameKey;
use callpath_format::shared::thread::layout;
use callpath_format::shared::{ArenaRef, CHUNK_LEN_BYTES, ChunkHeader, ChunkIndex, Node, Settings, ThreadRecord};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::process::Process;
use crate::thread::Thread;

#[cfg(test)]
mod tests;

const NODES_PER_BUCKET: u32 = 2;
const FIRST_BUCKETS: u32 = layout::SEGMENT_LEN as u32;

/// As many nodes are looked at on the way to the root: a tree that the program has damaged may have no end.
const LONGEST_CLIMB: usize = layout::DEEPEST;

/// The same of a bucket's list. With all buckets in use, of which there are half a million,
/// lists are as long as the tree has millions of nodes.
const LONGEST_LIST: usize = 1024;

/// A thread's tree. Only its thread may change it.
pub(crate) struct Tree<'p, 'm> {
    process: &'p Process<'m>,
    record: &'m ThreadRecord,
    directory: &'m [AtomicU32],
    /// The nodes that were counted last, in turn: the recorder looks at these alone.
    counted: &'m [AtomicU32],
    stride: usize,
}

impl<'p, 'm> Tree<'p, 'm> {
    /// `None`: the thread's chunk is not in the arena.
    pub(crate) fn new(process: &'p Process<'m>, thread: Thread<'m>) -> Option<Tree<'p, 'm>> {
        let chunk = thread.chunk.0 as usize * CHUNK_LEN_BYTES;
        let directory = process.arena.slice_at(chunk + layout::DIRECTORY, layout::DIRECTORY_LEN)?;
        let counted = process.arena.slice_at(chunk + layout::COUNTED, layout::COUNTED_LEN)?;
        let stride = process.session.columns.stride_bytes();
        Some(Tree { process, record: thread.record, directory, counted, stride })
    }

    /// The child of `parent` with this key, made if there is none. Where recursion is collapsed it is
    /// `parent` or a node above if that has the key: as no two nodes of a path have one key, it does not
    /// matter what the tree holds yet. Frames of our own code are one ([`FrameKey::PROBE`]). `None`: no memory.
    #[inline]
    pub(crate) fn child(&mut self, parent: ArenaRef, key: FrameKey) -> Option<ArenaRef> {
        let above: &Node = self.process.arena.get(parent)?;
        if key == FrameKey::PROBE && above.key.load(Relaxed) == key.0 {
            return Some(parent);
        }
        let likely = ArenaRef(above.last_child.load(Relaxed));
        if let Some(node) = self.process.arena.get::<Node>(likely)
            && node.key.load(Relaxed) == key.0
            && (node.parent.load(Relaxed) == parent.0 || self.is_collapsed())
        {
            return Some(likely);
        }
        let child = match self.process.arena.get::<Node>(likely) {
            _ if self.is_collapsed() => self.find_or_add(parent, key)?,
            // An only child is found by its parent.
            None => self.allocate_node(parent, key)?,
            Some(only) => {
                if only.hashed.load(Relaxed) == 0 {
                    self.enter(likely, hash(parent, FrameKey(only.key.load(Relaxed))))?;
                }
                self.find_or_add(parent, key)?
            }
        };
        above.last_child.store(child.0, Relaxed);
        Some(child)
    }

    /// How many of a path's innermost frames are kept, if not all.
    pub(crate) fn suffix_frames(&self) -> Option<usize> {
        self.process.session.settings.suffix_frames()
    }

    fn is_collapsed(&self) -> bool {
        self.process.session.settings.recursion == Settings::COLLAPSED
    }

    /// The node nearest to `from` on the way to its root that has this key. A root has none.
    fn on_the_way_out(&self, from: ArenaRef, key: FrameKey) -> Option<ArenaRef> {
        let mut at = from;
        for _ in 0..LONGEST_CLIMB {
            let node: &Node = self.process.arena.get(at)?;
            if ArenaRef(node.parent.load(Relaxed)) == ArenaRef::NONE {
                return None;
            }
            if node.key.load(Relaxed) == key.0 {
                return Some(at);
            }
            at = ArenaRef(node.parent.load(Relaxed));
        }
        None
    }

    fn find_or_add(&mut self, parent: ArenaRef, key: FrameKey) -> Option<ArenaRef> {
        let hash = hash(parent, key);
        let mut at = ArenaRef(self.bucket(bucket_of(hash, self.record.buckets.load(Relaxed)))?.load(Relaxed));
        for _ in 0..LONGEST_LIST {
            let Some(node) = self.process.arena.get::<Node>(at) else { break };
            if node.key.load(Relaxed) == key.0 && node.parent.load(Relaxed) == parent.0 {
                return Some(at);
            }
            at = ArenaRef(node.next.load(Relaxed));
        }
        if self.is_collapsed()
            && let Some(active) = self.on_the_way_out(parent, key)
        {
            return Some(active);
        }
        self.add(parent, key, hash)
    }

    /// Adds a node without looking for one.
    pub(crate) fn add(&mut self, parent: ArenaRef, key: FrameKey, hash: u64) -> Option<ArenaRef> {
        let at = self.allocate_node(parent, key)?;
        self.enter(at, hash)?;
        Some(at)
    }

    /// Has a node found by its hash.
    fn enter(&mut self, at: ArenaRef, hash: u64) -> Option<()> {
        let hashed = self.record.hashed.load(Relaxed) + 1;
        self.record.hashed.store(hashed, Relaxed);
        let buckets = self.record.buckets.load(Relaxed);
        self.link(at, bucket_of(hash, buckets))?;
        self.process.arena.get::<Node>(at)?.hashed.store(1, Relaxed);
        if hashed > buckets.saturating_mul(NODES_PER_BUCKET) {
            self.split();
        }
        Some(())
    }

    /// Adds samples and values, by metric, to a node. `false`: there is no such node.
    #[inline]
    pub(crate) fn count(&mut self, at: ArenaRef, samples: u64, values: impl Iterator<Item = u64>) -> bool {
        let arena = &self.process.arena;
        let (Some(node), Some(sums)) = (arena.get::<Node>(at), self.process.session.columns.of_node(arena, at)) else {
            return false;
        };
        for (sum, value) in sums.iter().zip(values) {
            sum.store(sum.load(Relaxed).wrapping_add(value), Relaxed);
        }
        node.samples.store(node.samples.load(Relaxed).wrapping_add(samples), Relaxed);
        let before = self.record.counted.load(Relaxed);
        if let Some(place) = self.counted.get(before as usize % layout::COUNTED_LEN) {
            place.store(at.0, Relaxed);
        }
        self.record.counted.store(before.wrapping_add(1), Release);
        true
    }

    /// Makes the first segment of buckets.
    pub(crate) fn first_segment(&mut self) -> Option<()> {
        self.add_segment(0)?;
        self.record.buckets.store(FIRST_BUCKETS, Relaxed);
        Some(())
    }

    fn allocate_node(&mut self, parent: ArenaRef, key: FrameKey) -> Option<ArenaRef> {
        let (chunk, header) = self.room(self.stride)?;
        let end = header.end.load(Relaxed) as usize;
        let at = ArenaRef::from_offset(chunk.0 as usize * CHUNK_LEN_BYTES + end);
        let node: &Node = self.process.arena.get(at)?;
        node.key.store(key.0, Relaxed);
        node.parent.store(parent.0, Relaxed);
        self.record.nodes.store(self.record.nodes.load(Relaxed) + 1, Relaxed);
        header.end.store((end + self.stride) as u32, Release);
        Some(at)
    }

    /// The last chunk with `bytes` free, a new one if need be.
    fn room(&mut self, bytes: usize) -> Option<(ChunkIndex, &'m ChunkHeader)> {
        let last = ChunkIndex(self.record.chunk.load(Relaxed));
        let header = self.process.arena.chunk(last)?;
        let (end, top) = (header.end.load(Relaxed) as usize, header.top.load(Relaxed) as usize);
        if end + bytes <= top && top <= CHUNK_LEN_BYTES {
            return Some((last, header));
        }
        let chunk = self.process.take_chunk()?;
        let fresh = self.process.arena.chunk(chunk)?;
        fresh.kind.store(ChunkHeader::KIND_NODES, Relaxed);
        // Chunks of another kind may follow.
        fresh.next.store(header.next.load(Relaxed), Relaxed);
        fresh.owner.store(header.owner.load(Relaxed), Relaxed);
        fresh.start.store(ChunkHeader::LEN_BYTES as u32, Relaxed);
        fresh.end.store(ChunkHeader::LEN_BYTES as u32, Relaxed);
        fresh.top.store(CHUNK_LEN_BYTES as u32, Relaxed);
        header.next.store(chunk.0, Release);
        self.record.chunk.store(chunk.0, Relaxed);
        Some((chunk, fresh))
    }

    fn bucket(&self, index: u32) -> Option<&'m AtomicU32> {
        let segment = ArenaRef(self.directory.get(index as usize / layout::SEGMENT_LEN)?.load(Relaxed)).some()?;
        self.process.arena.at_offset(segment.offset_bytes() + 4 * (index as usize % layout::SEGMENT_LEN))
    }

    fn link(&self, at: ArenaRef, bucket: u32) -> Option<()> {
        let head = self.bucket(bucket)?;
        self.process.arena.get::<Node>(at)?.next.store(head.load(Relaxed), Relaxed);
        head.store(at.0, Relaxed);
        Some(())
    }

    fn add_segment(&mut self, index: usize) -> Option<()> {
        const LEN_BYTES: usize = 4 * layout::SEGMENT_LEN;
        if index >= layout::DIRECTORY_LEN {
            return None;
        }
        let (chunk, header) = self.room(LEN_BYTES)?;
        let top = header.top.load(Relaxed) as usize - LEN_BYTES;
        header.top.store(top as u32, Relaxed);
        let at = ArenaRef::from_offset(chunk.0 as usize * CHUNK_LEN_BYTES + top);
        self.directory.get(index)?.store(at.0, Relaxed);
        Some(())
    }

    /// Adds a bucket and moves to it what now belongs there. Without memory for it, lists just grow longer.
    fn split(&mut self) {
        let buckets = self.record.buckets.load(Relaxed);
        if (buckets as usize).is_multiple_of(layout::SEGMENT_LEN)
            && self.add_segment(buckets as usize / layout::SEGMENT_LEN).is_none()
        {
            return;
        }
        let Some(old) = self.bucket(buckets - level_len(buckets)) else { return };
        let mut at = ArenaRef(old.load(Relaxed));
        self.record.buckets.store(buckets + 1, Relaxed);
        old.store(0, Relaxed);
        for _ in 0..LONGEST_LIST {
            let Some(node) = self.process.arena.get::<Node>(at) else { return };
            let next = ArenaRef(node.next.load(Relaxed));
            let hash = hash(ArenaRef(node.parent.load(Relaxed)), FrameKey(node.key.load(Relaxed)));
            if self.link(at, bucket_of(hash, buckets + 1)).is_none() {
                return;
            }
            at = next;
        }
    }
}

/// The number of buckets when the current round of splitting began.
fn level_len(buckets: u32) -> u32 {
    let rounds = (buckets / FIRST_BUCKETS).max(1).ilog2();
    FIRST_BUCKETS << rounds
}

fn bucket_of(hash: u64, buckets: u32) -> u32 {
    let level = level_len(buckets);
    let wide = hash as u32 & (2 * level - 1);
    if wide < buckets { wide } else { hash as u32 & (level - 1) }
}

fn hash(parent: ArenaRef, key: FrameKey) -> u64 {
    // Fibonacci hashing of both words; the roots (0, 0) hash to 0.
    let mixed = (key.0 ^ (u64::from(parent.0) << 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32
}
