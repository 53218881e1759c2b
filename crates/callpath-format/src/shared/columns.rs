//! Layout of the data that grows with the number of metrics of a recording, and the largest number of metrics.
//!
//! ```text
//! published, from byte 64 on       MetricSettings x metrics
//! arena, chunks 5 ...              for each process slot: u64 x metrics, its bases
//! a thread's first chunk           Column x metrics, in front of the nodes
//! a node, a raw sample             u64 x metrics, behind the fixed part
//! ```

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

use super::arena::{Arena, ArenaRef, CHUNK_LEN_BYTES, ChunkHeader, ChunkIndex, Shared};
use super::gauge::Part;
use super::process::{FIRST_BASES_CHUNK, PROCESS_SLOTS};
use super::thread::layout;
use super::tree::{Node, RawSample};

/// The settings of one metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetricSettings {
    /// What it reads: [`super::Settings::CPU_TIME`] and its kin.
    pub meter: u32,
    /// The period of its event; 0 if none was given. Of probes, a [`Part`].
    pub period: u64,
}

/// A thread's state of one metric. Only the thread itself writes it.
#[repr(C)]
pub struct Column {
    /// If the metric is read from the thread's usage: the reading at the last sample that was kept for it. If its event
    /// counts it: the weight of samples that were not kept, which the next sample takes.
    pub count: AtomicU64,
    /// The period of its event when the thread began.
    pub period: AtomicU64,
    /// The weight of the sample that is being taken. Private to the handler.
    pub value: AtomicU64,
    /// The node of the last sample that was kept for it; 0: that was a raw one.
    pub last_node: AtomicU32,
    reserved: AtomicU32,
}

// SAFETY: all atomics.
unsafe impl Shared for Column {}

/// How many columns there are: one for each metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Columns(u32);

impl Columns {
    /// A thread's columns, its first segment of buckets and both its roots lie in its first chunk.
    pub const MOST: u32 = {
        let room = CHUNK_LEN_BYTES - layout::COLUMNS - 4 * layout::SEGMENT_LEN - 2 * size_of::<Node>();
        (room / (size_of::<Column>() + 2 * size_of::<AtomicU64>())) as u32
    };

    /// `None`: more than [`Columns::MOST`].
    pub const fn new(metric_count: u32) -> Option<Columns> {
        if metric_count <= Columns::MOST { Some(Columns(metric_count)) } else { None }
    }

    /// How many there are.
    pub const fn count(self) -> usize {
        self.0 as usize
    }

    /// The values of a node, or of a raw sample, bytes.
    const fn values_bytes(self) -> usize {
        self.count() * size_of::<AtomicU64>()
    }

    /// The first chunk of the arena that is handed out: behind the slots' bases.
    pub const fn first_free_chunk(self) -> u32 {
        FIRST_BASES_CHUNK + (PROCESS_SLOTS * self.values_bytes()).div_ceil(CHUNK_LEN_BYTES) as u32
    }

    /// Where a thread's first chunk begins to hold nodes: offset in the chunk, bytes.
    pub const fn nodes_start(self) -> usize {
        layout::COLUMNS + self.count() * size_of::<Column>()
    }

    /// Distance from one node to the next, bytes.
    pub const fn stride_bytes(self) -> usize {
        size_of::<Node>() + self.values_bytes()
    }

    /// Where the copy of the stack begins that a raw sample's first chunk holds: offset in the chunk, bytes.
    pub const fn stack_start(self) -> usize {
        ChunkHeader::LEN_BYTES + size_of::<RawSample>() + self.values_bytes()
    }

    /// How much of a stack's copy fits into a raw sample's first chunk, bytes.
    pub const fn first_stack_bytes(self) -> usize {
        CHUNK_LEN_BYTES - RawSample::MAX_CODE_BYTES - self.stack_start()
    }

    /// The bases of a process slot. For a metric that is counted by its event: the period of the event in the first
    /// thread, and in threads that begin now. For one that is read from the thread's usage: what an earlier program
    /// image had accounted for. `None`: there is no such slot, or the arena does not hold it.
    pub fn bases<'m>(self, arena: &Arena<'m>, slot: usize) -> Option<&'m [AtomicU64]> {
        let begin = FIRST_BASES_CHUNK as usize * CHUNK_LEN_BYTES;
        (slot < PROCESS_SLOTS).then(|| arena.slice_at(begin + slot * self.values_bytes(), self.count()))?
    }

    /// The columns of the thread that begins in `chunk`. `None`: the arena does not hold them.
    pub fn of_thread<'m>(self, arena: &Arena<'m>, chunk: ChunkIndex) -> Option<&'m [Column]> {
        arena.slice_at(chunk.0 as usize * CHUNK_LEN_BYTES + layout::COLUMNS, self.count())
    }

    /// The values of a node. `None`: the arena does not hold them.
    #[inline]
    pub fn of_node<'m>(self, arena: &Arena<'m>, at: ArenaRef) -> Option<&'m [AtomicU64]> {
        arena.slice_at(at.some()?.offset_bytes() + size_of::<Node>(), self.count())
    }

    /// The values of the raw sample in `chunk`. `None`: the arena does not hold them.
    pub fn of_raw<'m>(self, arena: &Arena<'m>, chunk: ChunkIndex) -> Option<&'m [AtomicU64]> {
        let begin = chunk.0 as usize * CHUNK_LEN_BYTES + ChunkHeader::LEN_BYTES;
        arena.slice_at(begin + size_of::<RawSample>(), self.count())
    }
}

/// The settings of each metric, in place: published before any process reads them, and never changed.
#[derive(Clone, Copy)]
pub struct Metrics<'m>(&'m [[AtomicU64; MetricSettings::WORDS]]);

impl MetricSettings {
    const WORDS: usize = 2;

    /// Of a metric of probes, which part of it this is.
    pub const fn part(&self) -> Part {
        Part::from_u64(self.period)
    }

    /// How many bytes of the published memory the settings of so many metrics take.
    pub const fn bytes_of(count: usize) -> usize {
        count * MetricSettings::WORDS * size_of::<u64>()
    }

    /// The words of all settings, as they are published at [`Metrics::OFFSET`].
    pub fn words_of(metrics: &[MetricSettings]) -> impl Iterator<Item = u64> {
        metrics.iter().flat_map(|metric| [u64::from(metric.meter), metric.period])
    }

    fn read([meter, period]: &[AtomicU64; MetricSettings::WORDS]) -> MetricSettings {
        MetricSettings { meter: meter.load(Relaxed) as u32, period: period.load(Relaxed) }
    }
}

impl<'m> Metrics<'m> {
    /// Their offset in the published memory, bytes.
    pub const OFFSET: u64 = 64;

    /// Words that hold as many metrics as there are columns.
    pub(crate) const fn words(columns: Columns) -> usize {
        columns.count() * MetricSettings::WORDS
    }

    pub(crate) fn in_words(words: &'m [AtomicU64]) -> Metrics<'m> {
        Metrics(words.as_chunks().0)
    }

    /// All of them, in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = MetricSettings> + use<'m> {
        self.0.iter().map(MetricSettings::read)
    }

    /// One of them, by number.
    #[inline]
    pub fn get(&self, metric: usize) -> Option<MetricSettings> {
        self.0.get(metric).map(MetricSettings::read)
    }
}

const _: () = assert!(Columns::MOST >= 256);
const _: () = assert!(Columns(Columns::MOST).first_stack_bytes() >= CHUNK_LEN_BYTES / 2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_columns_leave_room_for_buckets_and_roots() {
        let most = Columns::new(Columns::MOST).expect("as many as there can be");
        let room = |columns: Columns| CHUNK_LEN_BYTES - columns.nodes_start() - 4 * layout::SEGMENT_LEN;
        assert!(room(most) >= 2 * most.stride_bytes());
        let more = Columns(Columns::MOST + 1);
        assert!(room(more) < 2 * more.stride_bytes());
        assert_eq!(Columns::new(Columns::MOST + 1), None);
    }

    /// A slot's bases end where the next one's begin, and the last one's before the chunks that are handed out.
    #[test]
    fn nothing_lies_over_something_else() {
        extern crate std;
        for count in [1, 2, 7, 8, 9, 32, 33, Columns::MOST] {
            let columns = Columns::new(count).expect("not too many");
            let len_bytes = (columns.first_free_chunk() as usize + 1) * CHUNK_LEN_BYTES;
            let words: std::vec::Vec<AtomicU64> = (0..len_bytes / 8 + 512).map(|_| AtomicU64::new(0)).collect();
            let begin = words.as_ptr().align_offset(4096);
            // SAFETY: the words live as long as the arena is used, and a page of them more than it holds was made.
            let arena = unsafe { Arena::new(words.as_ptr().add(begin).cast_mut().cast(), len_bytes) };
            let mut slots = 0;
            for index in 0..PROCESS_SLOTS {
                let slot = super::super::ProcessSlot::offset_bytes(index).expect("there is one");
                assert!(slot + size_of::<super::super::ProcessSlot>() <= FIRST_BASES_CHUNK as usize * CHUNK_LEN_BYTES);
                for base in columns.bases(&arena, index).expect("they are in the arena") {
                    assert_eq!(base.swap(1, Relaxed), 0, "a base of two slots");
                    slots += 1;
                }
            }
            assert_eq!(slots, PROCESS_SLOTS * columns.count());
            assert!(columns.bases(&arena, PROCESS_SLOTS).is_none());
            let free = columns.first_free_chunk() as usize * CHUNK_LEN_BYTES;
            let handed_out: &[AtomicU64] = arena.slice_at(free, CHUNK_LEN_BYTES / 8).expect("it is in the arena");
            assert!(handed_out.iter().all(|word| word.load(Relaxed) == 0));
        }
    }
}
