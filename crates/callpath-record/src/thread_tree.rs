//! A thread's tree in the arena, followed while it grows: new and changed nodes are copied into a tree
//! of the recorder's. Trusts nothing that it reads.
//!
//! New nodes follow the old ones. The thread notes which nodes it adds to (`layout::COUNTED`): only if it has noted
//! more than there is room for since the last look, and for the last time, all nodes are compared with what they were.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use callpath_format::frame::FrameKey;
use callpath_format::shared::thread::layout;
use callpath_format::shared::{
    ArenaRef, CHUNK_LEN_BYTES, ChunkHeader, ChunkIndex, Columns, MetricSettings, Node, Settings, ThreadRecord,
};
use callpath_measurement::{FULL_ROOT, PARTIAL_ROOT, PathTree};
use rustc_hash::FxHashMap;

use crate::arena::ArenaAllocator;
use crate::events::rule_of;
use crate::time_base::TickLength;

/// How far nodes of a chunk have been copied.
#[derive(Debug)]
struct Chunk {
    index: ChunkIndex,
    /// Offset of its first node, bytes.
    start: usize,
    /// The same of the first that has not been copied.
    end: usize,
    /// The index of its first node in [`TreeCopy::nodes`].
    first: usize,
}

/// The nodes of a tree in the arena, in order, and each one's index in the recorder's tree.
#[derive(Debug, Default)]
pub(crate) struct TreeCopy {
    chunks: Vec<Chunk>,
    /// By index in the arena, the position in `chunks`.
    chunk_positions: FxHashMap<u32, usize>,
    /// For each node of the arena its index in the recorder's tree.
    nodes: Vec<u32>,
    /// The content of each node of the arena at the last look: samples, then the metrics.
    seen: Vec<u64>,
    /// How often the thread had added to a node then.
    counted: u32,
    columns: Columns,
    /// What was added to a node since the last look; kept to reuse its memory.
    row: Vec<u64>,
    /// A reference was invalid: the program has overwritten the tree.
    pub(crate) is_damaged: bool,
}

impl TreeCopy {
    /// The index in our tree of the node at `at`, if it has been copied.
    pub(crate) fn index(&self, at: ArenaRef) -> Option<u32> {
        self.nodes.get(self.number(at)?).copied()
    }

    /// The index of the arena's node at `at`.
    fn number(&self, at: ArenaRef) -> Option<usize> {
        let chunk = self.chunks.get(*self.chunk_positions.get(&at.chunk().0)?)?;
        let offset = at.offset_bytes() % CHUNK_LEN_BYTES;
        let within = offset.checked_sub(chunk.start).filter(|_| offset < chunk.end)?;
        Some(chunk.first + within / self.columns.stride_bytes())
    }
}

/// An update: the tree that is followed, and the copy.
pub(crate) struct Update<'a> {
    pub(crate) copy: &'a mut TreeCopy,
    pub(crate) allocator: &'a ArenaAllocator,
    /// The thread's tree.
    pub(crate) record: ArenaRef,
    /// The recorder's tree.
    pub(crate) tree: &'a mut PathTree,
    /// What values are.
    pub(crate) units: Units<'a>,
}

/// What the values of nodes are.
#[derive(Clone, Copy)]
pub(crate) struct Units<'a> {
    /// Of those that are ticks.
    pub(crate) tick: TickLength,
    pub(crate) metrics: &'a [MetricSettings],
}

impl Update<'_> {
    /// Brings the recorder's tree up to date. `is_last`: the thread adds nothing any more.
    pub(crate) fn run(mut self, is_last: bool) {
        let (allocator, record) = (self.allocator, self.record);
        self.copy.columns = allocator.columns();
        let at = allocator.arena().get::<ThreadRecord>(record).filter(|_| allocator.is_backed(record.chunk()));
        let Some(at) = at else { return };
        // The count is read first: nodes that are added during the look belong to the next one.
        let counted = at.counted.load(Acquire);
        self.copy_new();
        let since = counted.wrapping_sub(self.copy.counted) as usize;
        if is_last || !allocator.settings().notes_additions() || !self.look_at_noted(at, since) {
            self.look_at_all();
        }
        self.copy.counted = counted;
    }

    /// Copies nodes that have come since the last look.
    fn copy_new(&mut self) {
        let allocator = self.allocator;
        let mut next = self.copy.chunks.last().map_or(self.record.chunk(), |chunk| chunk.index);
        while next.0 != 0 {
            // A list that runs in circles or into another's was damaged by the program.
            let backed = allocator.arena().chunk(next).filter(|_| allocator.is_backed(next));
            let mine = backed.filter(|header| header.owner.load(Relaxed) == self.record.0);
            let Some(header) = mine else {
                self.copy.is_damaged = true;
                break;
            };
            // Chunks of other kinds follow those of nodes.
            if !matches!(header.kind.load(Relaxed), ChunkHeader::KIND_THREAD | ChunkHeader::KIND_NODES) {
                break;
            }
            let copy = &mut *self.copy;
            let position = copy.chunks.len();
            if copy.chunks.last().is_none_or(|last| last.index != next) {
                let start = header.start.load(Relaxed) as usize;
                if copy.chunk_positions.contains_key(&next.0) || start > CHUNK_LEN_BYTES || !start.is_multiple_of(8) {
                    copy.is_damaged = true;
                    break;
                }
                copy.chunk_positions.insert(next.0, position);
                copy.chunks.push(Chunk { index: next, start, end: start, first: copy.nodes.len() });
            }
            // Check for another chunk first: if there is one, this one's end is final when it is read afterwards.
            let after = ChunkIndex(header.next.load(Acquire));
            self.copy_chunk(header.end.load(Acquire) as usize);
            if after == next {
                self.copy.is_damaged = true;
                break;
            }
            next = after;
        }
    }

    /// Copies what is new in the last chunk, up to `end`.
    fn copy_chunk(&mut self, end: usize) {
        let stride = self.copy.columns.stride_bytes();
        let Some(chunk) = self.copy.chunks.last().filter(|_| end <= CHUNK_LEN_BYTES) else { return };
        let base = chunk.index.0 as usize * CHUNK_LEN_BYTES;
        let mut offset = chunk.end;
        while offset + stride <= end {
            let Some(node) = self.allocator.arena().at_offset::<Node>(base + offset) else { return };
            let at = match self.copy.nodes.len() as u32 {
                root @ (FULL_ROOT | PARTIAL_ROOT) => root,
                // An earlier one, or the partial root if the program has damaged the tree.
                _ => {
                    let parent = self.copy.index(ArenaRef(node.parent.load(Relaxed)));
                    self.copy.is_damaged |= parent.is_none();
                    let parent = parent.unwrap_or(PARTIAL_ROOT);
                    self.tree.child(parent, FrameKey(node.key.load(Relaxed)))
                }
            };
            self.copy.nodes.push(at);
            self.copy.seen.extend(std::iter::repeat_n(0, 1 + self.copy.columns.count()));
            offset += stride;
            if let Some(chunk) = self.copy.chunks.last_mut() {
                chunk.end = offset;
            }
            self.look(base + offset - stride, self.copy.nodes.len() - 1);
        }
    }

    /// Updates the nodes that the thread has noted. `false`: some notes have been overwritten.
    fn look_at_noted(&mut self, at: &ThreadRecord, since: usize) -> bool {
        let ring = self.record.chunk().0 as usize * CHUNK_LEN_BYTES + layout::COUNTED;
        let Some(ring) = self.allocator.arena().slice_at::<AtomicU32>(ring, layout::COUNTED_LEN) else {
            return false;
        };
        if since > layout::COUNTED_LEN {
            return false;
        }
        let noted: Vec<u32> = (0..since)
            .map(|position| {
                ring[self.copy.counted.wrapping_add(position as u32) as usize % layout::COUNTED_LEN].load(Relaxed)
            })
            .collect();
        // An overwritten note is not the one that was counted.
        if at.counted.load(Acquire).wrapping_sub(self.copy.counted) as usize > layout::COUNTED_LEN {
            return false;
        }
        let mut are_known = true;
        for node in noted {
            match self.copy.number(ArenaRef(node)) {
                Some(number) => self.look(ArenaRef(node).offset_bytes(), number),
                None => are_known = false,
            }
        }
        are_known
    }

    fn look_at_all(&mut self) {
        let stride = self.copy.columns.stride_bytes();
        for position in 0..self.copy.chunks.len() {
            let Chunk { index, start, end, first } = self.copy.chunks[position];
            let base = index.0 as usize * CHUNK_LEN_BYTES;
            for (number, offset) in (start..end).step_by(stride).enumerate() {
                self.look(base + offset, first + number);
            }
        }
    }

    /// Adds to the recorder's tree what has been added to the node at an offset in the arena since the last look.
    fn look(&mut self, offset: usize, number: usize) {
        let (arena, copy) = (self.allocator.arena(), &mut *self.copy);
        let at = ArenaRef::from_offset(offset);
        let (Some(node), Some(values)) = (arena.get::<Node>(at), copy.columns.of_node(&arena, at)) else { return };
        let width = 1 + copy.columns.count();
        let Some(seen) = copy.seen.get_mut(number * width..(number + 1) * width) else { return };
        copy.row.clear();
        let mut any = 0;
        for (seen, now) in seen.iter_mut().zip(std::iter::once(&node.samples).chain(values)) {
            let now = now.load(Relaxed);
            let since = now.wrapping_sub(*seen);
            any |= since;
            *seen = now;
            copy.row.push(since);
        }
        if any != 0
            && let Some((samples, values)) = copy.row.split_first_mut()
        {
            if self.allocator.settings().uses(Settings::CALLS) {
                let are_samples = self.allocator.settings().calls_are_samples();
                self.units.of_probes(are_samples.then_some(&mut *samples), values);
                self.units.put_marks(self.tree, copy.nodes[number], (&copy.seen[number * width + 1..], values));
            }
            self.tree.add(copy.nodes[number], *samples, values);
        }
    }
}

impl Units<'_> {
    /// Of what has been added to a node's values: each call of a probed procedure counts as a sample, where `samples` are
    /// given; ticks become nanoseconds.
    fn of_probes(&self, mut samples: Option<&mut u64>, values: &mut [u64]) {
        for (value, metric) in values.iter_mut().zip(self.metrics) {
            match metric.meter {
                Settings::CALLS => samples.iter_mut().for_each(|samples| **samples = *value),
                Settings::PROBED_TICKS | Settings::PROBED_WAIT | Settings::PROBED_IO => *value = self.tick.ns(*value),
                _ => {}
            }
        }
    }

    /// Combines those of a node's values with the tree's that do not add up, where they have changed: ticks, or a
    /// context's number. Nothing of them is left to add.
    fn put_marks(&self, tree: &mut PathTree, node: u32, (now, changed): (&[u64], &mut [u64])) {
        for (column, ((now, changed), metric)) in now.iter().zip(changed).zip(self.metrics).enumerate() {
            let rule = rule_of(metric.meter);
            if !rule.adds_up() && std::mem::take(changed) != 0 {
                let value = if metric.meter == Settings::PROBED_CONTEXT { *now } else { self.tick.ns(*now).max(1) };
                tree.put(node, column, (value, rule));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Release;

    const METRICS: usize = 2;

    /// A thread that writes its tree as the collector does.
    struct Writer {
        metrics: [MetricSettings; METRICS],
        allocator: ArenaAllocator,
        record: ArenaRef,
        chunk: ChunkIndex,
        nodes: Vec<ArenaRef>,
        /// What a right copy holds: for each node its path of keys, samples and values.
        truth: Vec<(Vec<u64>, u64, [u64; METRICS])>,
    }

    impl Writer {
        fn new(meters: [u32; METRICS]) -> Writer {
            let metrics = meters.map(|meter| MetricSettings { meter, period: 0 });
            let settings = Settings::default().with_metrics(&metrics);
            let allocator = ArenaAllocator::create(32 << 20, 1 << 20, 7, settings).expect("memory for a small arena");
            let chunk = allocator.session().take_chunk().expect("chunks are free");
            let record = ArenaRef::from_offset(chunk.0 as usize * CHUNK_LEN_BYTES + layout::RECORD);
            let mut writer = Writer { metrics, allocator, record, chunk, nodes: Vec::new(), truth: Vec::new() };
            let nodes_start = writer.allocator.columns().nodes_start();
            writer.begin_chunk(chunk, ChunkHeader::KIND_THREAD, nodes_start);
            writer.add(None, 0);
            writer.add(None, 0);
            writer
        }

        fn begin_chunk(&mut self, chunk: ChunkIndex, kind: u32, start: usize) {
            let header = self.allocator.arena().chunk(chunk).unwrap();
            header.kind.store(kind, Relaxed);
            header.owner.store(self.record.0, Relaxed);
            header.start.store(start as u32, Relaxed);
            header.end.store(start as u32, Relaxed);
            if chunk != self.chunk {
                self.allocator.arena().chunk(self.chunk).unwrap().next.store(chunk.0, Release);
            }
            self.chunk = chunk;
        }

        fn add(&mut self, parent: Option<usize>, key: u64) -> usize {
            let stride = self.allocator.columns().stride_bytes();
            if self.allocator.arena().chunk(self.chunk).unwrap().end.load(Relaxed) as usize + stride > CHUNK_LEN_BYTES {
                let chunk = self.allocator.session().take_chunk().expect("chunks are free");
                self.begin_chunk(chunk, ChunkHeader::KIND_NODES, ChunkHeader::LEN_BYTES);
            }
            let header = self.allocator.arena().chunk(self.chunk).unwrap();
            let end = header.end.load(Relaxed) as usize;
            let at = ArenaRef::from_offset(self.chunk.0 as usize * CHUNK_LEN_BYTES + end);
            let node: &Node = self.allocator.arena().get(at).unwrap();
            node.key.store(key, Relaxed);
            node.parent.store(parent.map_or(0, |parent| self.nodes[parent].0), Relaxed);
            header.end.store((end + stride) as u32, Release);
            let mut path = parent.map_or(Vec::new(), |parent| self.truth[parent].0.clone());
            path.push(key);
            self.nodes.push(at);
            self.truth.push((path, 0, [0; METRICS]));
            self.nodes.len() - 1
        }

        fn count(&mut self, node: usize, values: [u64; METRICS], is_noted: bool) {
            let at = self.nodes[node];
            for (slot, value) in
                self.allocator.columns().of_node(&self.allocator.arena(), at).unwrap().iter().zip(values)
            {
                slot.fetch_add(value, Relaxed);
            }
            self.truth[node].2.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            if !is_noted {
                return;
            }
            self.allocator.arena().get::<Node>(at).unwrap().samples.fetch_add(1, Relaxed);
            self.truth[node].1 += 1;
            let record: &ThreadRecord = self.allocator.arena().get(self.record).unwrap();
            let before = record.counted.load(Relaxed);
            let ring = self.record.chunk().0 as usize * CHUNK_LEN_BYTES + layout::COUNTED;
            let ring = self.allocator.arena().slice_at::<AtomicU32>(ring, layout::COUNTED_LEN).unwrap();
            ring[before as usize % layout::COUNTED_LEN].store(at.0, Relaxed);
            record.counted.store(before.wrapping_add(1), Release);
        }

        fn check(&self, copy: &TreeCopy, tree: &PathTree) {
            assert_eq!(tree.nodes().len(), self.truth.len());
            for (node, (path, samples, values)) in self.truth.iter().enumerate().skip(2) {
                let at = copy.index(self.nodes[node]).expect("it has been copied");
                let (mut keys, mut up) = (Vec::new(), at);
                while up > PARTIAL_ROOT {
                    keys.push(tree.nodes()[up as usize].key.0);
                    up = tree.nodes()[up as usize].parent;
                }
                keys.extend([0]);
                keys.reverse();
                assert_eq!((&keys, tree.nodes()[at as usize].samples), (path, *samples));
                let expected: Vec<_> = values.iter().copied().enumerate().filter(|(_, value)| *value > 0).collect();
                assert_eq!(tree.values(at).collect::<Vec<_>>(), expected);
            }
        }
    }

    /// Grows a tree over several chunks and follows it, with `at_once` counts between two looks.
    fn followed(meters: [u32; METRICS], at_once: usize, is_noted: bool, is_last: bool) {
        let mut writer = Writer::new(meters);
        let (mut copy, mut tree, mut seed) = (TreeCopy::default(), PathTree::default(), 3u64);
        let mut below = |bound: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % bound
        };
        for round in 0..6u64 {
            for node in 0..400 {
                let parent = below(writer.nodes.len());
                writer.add(Some(parent), 1000 * round + node);
            }
            for _ in 0..at_once {
                let node = 2 + below(writer.nodes.len() - 2);
                writer.count(node, [below(1000) as u64, u64::from(node % 2 == 0)], is_noted);
            }
            follow(&mut copy, &writer, &mut tree, is_last);
            writer.check(&copy, &tree);
        }
        assert!(copy.chunks.len() > 1 && !copy.is_damaged);
    }

    const CLOCK: [u32; METRICS] = [Settings::CPU_TIME, Settings::COUNTED];

    fn follow(copy: &mut TreeCopy, writer: &Writer, tree: &mut PathTree, is_last: bool) {
        Update {
            copy,
            allocator: &writer.allocator,
            record: writer.record,
            tree,
            units: Units { tick: TickLength { ns_per_tick: 1.0 }, metrics: &writer.metrics },
        }
        .run(is_last);
    }

    #[test]
    fn what_a_thread_notes_is_followed() {
        followed(CLOCK, 300, true, false);
    }

    #[test]
    fn more_than_it_can_note_is_found_by_looking_at_all() {
        followed(CLOCK, layout::COUNTED_LEN + 100, true, false);
    }

    #[test]
    fn what_is_not_noted_is_found_at_the_end_and_where_returns_are_counted() {
        followed(CLOCK, 300, false, true);
        followed([Settings::CPU_TIME, Settings::RETURNS], 300, false, false);
    }

    #[test]
    fn a_damaged_list_leads_nowhere() {
        let mut writer = Writer::new(CLOCK);
        for key in 0..3000 {
            writer.add(Some(key as usize / 2), key);
        }
        let (first, last) = (writer.record.chunk(), writer.chunk);
        assert_ne!(first, last);
        for next in [first.0, last.0, 3, u32::MAX] {
            writer.allocator.arena().chunk(last).unwrap().next.store(next, Relaxed);
            let (mut copy, mut tree) = (TreeCopy::default(), PathTree::default());
            for _ in 0..3 {
                follow(&mut copy, &writer, &mut tree, true);
            }
            writer.check(&copy, &tree);
            assert!(copy.is_damaged, "{next}");
        }
        // Nodes whose parent does not precede them are attached to the
        // partial root; the thread's notes may be anything.
        let node: &Node = writer.allocator.arena().get(writer.nodes[5]).unwrap();
        node.parent.store(writer.nodes[900].0, Relaxed);
        writer.count(5, [1, 1], true);
        let ring = writer.record.chunk().0 as usize * CHUNK_LEN_BYTES + layout::COUNTED;
        let ring = writer.allocator.arena().slice_at::<AtomicU32>(ring, 1).unwrap();
        for position in [0, 1, u32::MAX, writer.nodes[7].0 + 1] {
            ring[0].store(position, Relaxed);
            let (mut copy, mut tree) = (TreeCopy::default(), PathTree::default());
            follow(&mut copy, &writer, &mut tree, false);
            let at = copy.index(writer.nodes[5]).unwrap();
            assert_eq!((tree.nodes()[at as usize].parent, tree.total(0), copy.is_damaged), (PARTIAL_ROOT, 1, true));
        }
    }
}
