//! A thread's record: the start of its first chunk, with everything that its samples need.
//!
//! ```text
//! 0        ChunkHeader
//! 64       ThreadRecord
//! 640      bucket directory   u32 x 1024      (references to segments of 512 buckets)
//! 4736     pc cache           32 bytes x 256  (private to the handler)
//! 12928    frame keys         u64 x 1024      (private)
//! 21120    deep stack         2048 bytes      (private)
//! 23168    frame slots        u64 x 1024      (private)
//! 31360    counted nodes      u32 x 2048
//! 39552    columns            32 bytes for each metric
//!          nodes ->        <- segments of buckets
//! ```

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64, fence};

use super::arena::{CHUNK_LEN_BYTES, Shared};

/// Why a sample was not kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Dropped {
    /// The handler had taken more than its share of the time.
    Throttled = 0,
    /// No free chunk for new nodes.
    NoMemory = 1,
    /// The thread was inside callpath's own code.
    InCollector = 2,
    /// It was delivered after the event: its pc is not the event's.
    Late = 3,
    /// No recipe table yet, and no room for another raw sample.
    RawFull = 4,
    /// The thread shares its thread pointer with another one.
    SharedThread = 5,
}

impl Dropped {
    /// Number of reasons.
    pub const COUNT: usize = 6;
    /// The names in reports and files, by number.
    pub const NAMES: [&str; Dropped::COUNT] =
        ["throttled", "no-memory", "in-collector", "late", "raw-full", "shared-thread-pointer"];
}

/// Offsets in a thread's first chunk, bytes.
#[allow(missing_docs)]
pub mod layout {
    pub const RECORD: usize = 64;
    pub const DIRECTORY: usize = 640;
    pub const DIRECTORY_LEN: usize = 1024;
    pub const PC_CACHE: usize = DIRECTORY + 4 * DIRECTORY_LEN;
    pub const PC_CACHE_LEN: usize = 256;
    const PC_CACHE_ENTRY_BYTES: usize = 32;
    pub const KEYS: usize = PC_CACHE + PC_CACHE_LEN * PC_CACHE_ENTRY_BYTES;
    pub const KEYS_LEN: usize = 1024;
    /// [`super::Deep`], then the chunks of what is known of a deep stack, and
    /// of what a sample has walked of it (u32 each).
    pub const DEEP: usize = KEYS + 8 * KEYS_LEN;
    const DEEP_BYTES: usize = 2048;
    pub const DEEP_CHUNKS: usize = 256;
    pub const FRESH_CHUNKS: usize = 16;
    /// Like the pc cache, for generated code within one walk.
    pub const MEMO: usize = DEEP + DEEP_BYTES - MEMO_LEN * PC_CACHE_ENTRY_BYTES;
    pub const MEMO_LEN: usize = 16;
    pub const SLOTS: usize = DEEP + DEEP_BYTES;
    /// The deepest stack that is followed, frames.
    pub const DEEPEST: usize = 131_072;
    /// The nodes that samples and returns were added to (`ArenaRef`), a ring;
    /// [`super::ThreadRecord::counted`] is how many there were.
    pub const COUNTED: usize = SLOTS + 8 * KEYS_LEN;
    pub const COUNTED_LEN: usize = 2048;
    /// A column for each metric ([`super::super::Columns`]); nodes follow.
    pub const COLUMNS: usize = COUNTED + 4 * COUNTED_LEN;
    /// Buckets in a segment.
    pub const SEGMENT_LEN: usize = 512;
}

/// A thread. Only the thread itself writes, except where a field's comment names another writer.
#[repr(C)]
pub struct ThreadRecord {
    /// [`ThreadRecord::LIVE`] or [`ThreadRecord::EXITED`].
    pub state: AtomicU32,
    /// As the process sees it; 0 while the thread has not yet run.
    pub tid: AtomicU32,
    /// The next record of the process's list (`ArenaRef`).
    pub next: AtomicU32,
    /// The process's slot.
    pub slot: AtomicU32,
    /// 1 while a handler (or other code of ours) is at work on the record.
    pub busy: AtomicU32,
    /// The last chunk of the thread's list, where nodes are added (index).
    pub chunk: AtomicU32,
    /// The root of full paths (`ArenaRef`).
    pub full_root: AtomicU32,
    /// The root of partial paths.
    pub partial_root: AtomicU32,
    /// The node of the last sample.
    pub last_node: AtomicU32,
    /// Nodes in the tree, roots included.
    pub nodes: AtomicU32,
    /// Buckets in use.
    pub buckets: AtomicU32,
    /// Generation of the load map that the pc cache was filled from.
    pub cache_generation: AtomicU32,
    /// The thread's timer (number + 1), 0 if it has none.
    pub timer: AtomicU32,
    /// Tells the signal mask apart that the thread had which created this one: its two halves combined by xor, times 4. Bit 0: the program had blocked
    /// one of SIGTRAP and SIGSTKFLT alone. Valid until it runs.
    pub made_under: AtomicU32,
    /// The stack's lowest address and one past its highest; 0, 0 where it is not known.
    pub stack: [AtomicU64; 2],
    /// The procedure that the thread began in, and its argument; 0 for a process's first thread.
    pub start_routine: AtomicU64,
    /// See `start_routine`.
    pub start_argument: AtomicU64,
    /// Each clock at the last sample that was kept, nanoseconds: CPU (or its user part), wall, kernel part of the CPU.
    pub clocks: [AtomicU64; 3],
    /// No sample is walked before this time: the thread's CPU clock,
    /// nanoseconds, if a metric reads it, else a time stamp.
    pub throttled_until: AtomicU64,
    /// Where the last sample interrupted the thread, if `last_node` is its whole path, else zeros: program counter and
    /// stack pointer.
    pub last_location: [AtomicU64; 2],
    /// Time stamp of the last handler's end.
    pub last_end: AtomicU64,
    /// The thread's CPU clock then, nanoseconds, if a metric reads it. Samples
    /// could come then, whether or not that one was kept.
    pub seen_cpu_ns: AtomicU64,
    /// Its time in user mode at the last sample by a timer, nanoseconds.
    pub seen_user_ns: AtomicU64,
    name: [AtomicU64; 2],
    /// 1: the last sample was one that the recorder asked for: the thread waited, and has not run since.
    pub asked: AtomicU32,
    /// Version of the name: odd while a thread writes it, raised by 2 by each name.
    name_version: AtomicU32,
    /// Samples that were delivered.
    pub taken: AtomicU64,
    /// Samples whose path is full.
    pub full: AtomicU64,
    /// Samples whose path is partial.
    pub partial: AtomicU64,
    /// Samples that were kept raw.
    pub raw: AtomicU64,
    /// Samples that were not kept, by [`Dropped`].
    pub dropped: [AtomicU64; Dropped::COUNT],
    /// Time stamp ticks spent in handlers.
    pub handler_ticks: AtomicU64,
    /// The longest handler, ticks.
    pub handler_ticks_max: AtomicU64,
    /// Number of handlers by the binary logarithm of their ticks.
    pub handler_histogram: [AtomicU32; 40],
    /// Frames that were walked over.
    pub frames: AtomicU64,
    /// If no clock can be read: the sum of the periods of samples since the last one that was kept, nanoseconds.
    pub unread_ns: AtomicU64,
    /// Nodes in buckets.
    pub hashed: AtomicU32,
    /// How often something was added to a node, modulo 2^32. The last 2,048 of those nodes are at `layout::COUNTED`.
    /// Stored with release order after the addition.
    pub counted: AtomicU32,
    /// Exits of probed procedures that belong to no activation that is known.
    pub unmatched_exits: AtomicU64,
    /// The fixed place of the stack, from which heights count: of a process's first thread where the kernel put the number of arguments, of others the
    /// CFA of the procedure that they began in; 0 where it is not known.
    pub stack_base: AtomicU64,
}

// SAFETY: all atomics.
unsafe impl Shared for ThreadRecord {}

impl ThreadRecord {
    /// The thread may be sampled.
    pub const LIVE: u32 = 1;
    /// The last of our destructors has run in the thread; a few samples may follow until the kernel ends it.
    pub const EXITED: u32 = 2;

    /// A thread's name: up to 15 bytes, as in the kernel.
    pub fn name_of(text: &[u8]) -> [u64; 2] {
        let mut words = [0; 2];
        for (index, byte) in text.iter().take(15).enumerate() {
            let word = if index < 8 { &mut words[0] } else { &mut words[1] };
            *word |= u64::from(*byte) << (8 * (index % 8));
        }
        words
    }

    /// Writes the thread's name, up to 15 bytes and a zero. Any thread of the process may call this. If several do so
    /// at once, one writes: the others' names count as set just before.
    pub fn set_name(&self, words: [u64; 2]) {
        let version = self.name_version.load(Relaxed);
        let odd = version | 1;
        if odd == version || self.name_version.compare_exchange(version, odd, Acquire, Relaxed).is_err() {
            return;
        }
        // A reader that sees one of the words also sees the odd version.
        fence(Release);
        for (to, word) in self.name.iter().zip(words) {
            to.store(word, Relaxed);
        }
        self.name_version.store(odd.wrapping_add(1), Release);
    }

    /// The last name that was set through a call that callpath hooks; all
    /// zeros: unknown. `None`: a thread is writing it.
    pub fn name(&self) -> Option<[u64; 2]> {
        let version = self.name_version.load(Acquire);
        let words = self.name.each_ref().map(|word| word.load(Relaxed));
        fence(Acquire);
        (version & 1 == 0 && self.name_version.load(Relaxed) == version).then_some(words)
    }
}

/// State of the walk over a thread's deep stack: positions in its list of known words. Private to the handler.
#[repr(C)]
pub struct Deep {
    /// Where the next walk continues: pc, whether it is exact, rsp, rbp, whether that is known, where it was saved.
    pub front: [AtomicU64; 6],
    /// The outermost known entry.
    pub outer: AtomicU32,
    /// One past the innermost. 0: nothing was ever known.
    pub inner: AtomicU32,
    /// Outwards of this, entries have nodes.
    pub noded: AtomicU32,
    /// The outermost entry that is a seal; from there on inwards no walk may end. `u32::MAX`: there is none.
    pub sealed: AtomicU32,
    /// [`Deep::OPEN`], [`Deep::OUTERMOST`], [`Deep::STOPPED`].
    pub end: AtomicU32,
    /// Whether there is a frame of generated code.
    pub met_generated: AtomicU32,
    /// The root of the nodes (`ArenaRef`).
    pub root: AtomicU32,
    /// Of the load map.
    pub generation: AtomicU32,
    /// How many of the next samples do not try.
    pub skip: AtomicU32,
    /// How many did not try after the last failed attempt.
    pub vain: AtomicU32,
    /// Whether it was walked when no frame could be marked.
    pub unmarkable: AtomicU32,
    /// Samples that did more work than the usual limit.
    pub long: AtomicU32,
}

// SAFETY: all atomics.
unsafe impl Shared for Deep {}

impl Deep {
    /// There is more outwards.
    pub const OPEN: u32 = 0;
    /// The outermost known frame has no caller.
    pub const OUTERMOST: u32 = 1;
    /// Its caller cannot be found.
    pub const STOPPED: u32 = 2;
}

const _: () =
    assert!(layout::DEEP + size_of::<Deep>() + 4 * (layout::DEEP_CHUNKS + layout::FRESH_CHUNKS) <= layout::MEMO);
const _: () = assert!(layout::RECORD + size_of::<ThreadRecord>() <= layout::DIRECTORY);
const _: () = assert!(layout::COLUMNS + 4 * layout::SEGMENT_LEN + 4096 < CHUNK_LEN_BYTES);

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::boxed::Box;

    #[test]
    fn a_name_is_fifteen_bytes_and_a_zero() {
        let in_memory = |text: &[u8; 16]| {
            let (words, _) = text.as_chunks::<8>();
            [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])]
        };
        assert_eq!(ThreadRecord::name_of(b""), [0; 2]);
        assert_eq!(ThreadRecord::name_of(b"main"), in_memory(b"main\0\0\0\0\0\0\0\0\0\0\0\0"));
        assert_eq!(ThreadRecord::name_of(b"seventeen letters"), in_memory(b"seventeen lette\0"));
    }

    /// Reads the name while `writers` threads write it.
    fn assert_names_are_whole(writers: u64) {
        // SAFETY: a record is atomics, for which zeros are valid.
        let record = unsafe { Box::<ThreadRecord>::new_zeroed().assume_init() };
        assert_eq!(record.name(), Some([0; 2]));
        let is_over = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for writer in 0..writers {
                let (record, is_over) = (&record, &is_over);
                scope.spawn(move || {
                    let mut n = writer;
                    while is_over.load(Relaxed) == 0 {
                        record.set_name([n; 2]);
                        n += writers;
                    }
                });
            }
            let (mut changes, mut last, mut torn) = (0, 0, None);
            while changes < 2000 && torn.is_none() {
                let Some([low, high]) = record.name() else { continue };
                torn = (low != high).then_some([low, high]);
                changes += u32::from(low != last);
                last = low;
            }
            is_over.store(1, Relaxed);
            assert_eq!(torn, None);
        });
        record.set_name([7, 8]);
        assert_eq!(record.name(), Some([7, 8]));
    }

    #[test]
    fn a_name_is_read_whole_or_not_at_all() {
        assert_names_are_whole(1);
    }

    #[test]
    fn a_name_that_several_set_is_one_of_theirs() {
        assert_names_are_whole(3);
        // SAFETY: a record is atomics, for which zeros are valid.
        let record = unsafe { Box::<ThreadRecord>::new_zeroed().assume_init() };
        // Somebody has written the first word.
        record.name_version.store(5, Relaxed);
        record.name[0].store(1, Relaxed);
        record.set_name([2, 2]);
        assert_eq!((record.name(), record.name[0].load(Relaxed)), (None, 1));
        record.name[1].store(1, Relaxed);
        record.name_version.store(6, Relaxed);
        assert_eq!(record.name(), Some([1, 1]));
    }
}
