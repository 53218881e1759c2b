//! Paths in contexts (Ammons, Ball and Larus 1997, section 5): memory that a process and its forks share with the recorder, in which
//! each calling context has a counter for each path through its procedure. What was counted is there however the program ends.
//!
//! ```text
//! 0                     FlowsHead
//! FlowsHead::LEN_BYTES  word 0: the shared piece, whose words count for all whose context is not known, or has no room
//!                       the first piece, the second one, ...
//! piece                 its owner, a word (the `ThreadRecord` of the thread that it belongs to)
//! FlowRecord::FIRST_AT  records, each a context: FlowRecord, FlowCache if there is one, its counters; zeroes end them
//! ```
//!
//! Words are numbered from the shared piece on; a context's node (`super::activation::ContextNode`) has the number of the first of its counters. The first one
//! counts paths that were begun and not ended, the next ones each a path, by its number; further ones, which the recorder alone
//! knows, count a path each, too. Where a procedure has too many paths for that, those with low numbers have counters here, and others are counted
//! in a hash table (`super::hashed`).

use super::hashed::HashedKey;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// What the memory begins with.
#[repr(C)]
pub struct FlowsHead {
    /// How many pieces threads have taken.
    pub pieces: AtomicU64,
    /// How many there are, the shared one apart.
    pub most: AtomicU64,
}

impl FlowsHead {
    /// Where word 0 is, bytes.
    pub const LEN_BYTES: usize = 4096;
    /// The length of a piece in words of eight bytes: it has room for the largest record.
    pub const PIECE_WORDS: usize = 8192;
    /// The most paths of a procedure that has a counter for each: of others, those with low numbers have.
    pub const MOST_PATHS: u64 = 4096;

    /// How many bytes it takes with so many pieces.
    pub const fn len_bytes(pieces: u64) -> u64 {
        FlowsHead::LEN_BYTES as u64 + (pieces + 1) * (FlowsHead::PIECE_WORDS * size_of::<u64>()) as u64
    }

    /// The number of the first word of a piece that is the caller's from now on. `None`: there is none any more.
    pub fn take_piece(&self) -> Option<u64> {
        let most = self.most.load(Relaxed);
        // It stays what it is when there are no more.
        let piece = self.pieces.fetch_update(Relaxed, Relaxed, |taken| (taken < most).then_some(taken + 1)).ok()?;
        Some((piece + 1) * FlowsHead::PIECE_WORDS as u64)
    }
}

/// What counters the contexts of a procedure have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowCounters {
    /// How many; 0: there are none.
    pub count: u32,
    /// Paths that have none are counted in a hash table.
    pub are_more_hashed: bool,
}

impl FlowCounters {
    const HASHED_BIT: u32 = 31;

    /// As a word, which is 0 if there are none.
    pub const fn to_word(self) -> u32 {
        self.count | (self.are_more_hashed as u32) << FlowCounters::HASHED_BIT
    }

    /// From a word.
    pub const fn from_word(word: u32) -> FlowCounters {
        let are_more_hashed = word >> FlowCounters::HASHED_BIT != 0;
        FlowCounters { count: word << 1 >> 1, are_more_hashed }
    }

    /// How many words of a record are before the first counter.
    pub const fn first_at(self) -> usize {
        FlowRecord::WORDS + if self.are_more_hashed { FlowCache::COUNT } else { 0 }
    }

    /// How many words a record is from the next one.
    pub const fn record_words(self) -> usize {
        (self.first_at() + self.count as usize).next_multiple_of(HashedKey::FLOW_WORDS)
    }
}

/// Where copies look first for a path of a context that is counted in a hash table: words before the context's counters. A word leads to an entry
/// of the table, as the distance from [`FlowCache::NOWHERE_AT`].
pub struct FlowCache;

impl FlowCache {
    /// The binary logarithm of how many words it is.
    pub const COUNT_SHIFT: u32 = 7;
    /// How many words it is.
    pub const COUNT: usize = 1 << FlowCache::COUNT_SHIFT;
    /// Where zeroes stay that are no entry, bytes from word 0: in the head. Behind them and before word 0, where the cache of a context lies that is
    /// not known, are only zeroes, too.
    pub const NOWHERE_AT: i32 = -2048;
}

const _: () = {
    let head = FlowsHead::LEN_BYTES as i32;
    assert!(size_of::<FlowsHead>() as i32 <= head + FlowCache::NOWHERE_AT);
    assert!(FlowCache::NOWHERE_AT + 16 <= -((FlowCache::COUNT * size_of::<u64>()) as i32));
    // Then the first counter's number is a multiple, too.
    assert!((FlowRecord::FIRST_AT + FlowRecord::WORDS).is_multiple_of(HashedKey::FLOW_WORDS));
    assert!(FlowCache::COUNT.is_multiple_of(HashedKey::FLOW_WORDS));
};

/// What stands before the counters of a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowRecord {
    /// What counters there are; there is one.
    pub counters: FlowCounters,
    /// The procedure's number.
    pub procedure: u32,
    /// The context's node in the owner's calling context tree ([`super::ArenaRef`]).
    pub context: u32,
}

impl FlowRecord {
    /// How many words it is.
    pub const WORDS: usize = 2;
    /// The number of the word of a piece that the first one begins at.
    pub const FIRST_AT: usize = 2;

    /// As words. The first one, which is not 0, is to be written last.
    pub const fn to_words(self) -> [u64; FlowRecord::WORDS] {
        [self.counters.to_word() as u64 | (self.procedure as u64) << 32, self.context as u64]
    }

    /// From words. `None`: there is no record.
    pub const fn from_words(words: [u64; FlowRecord::WORDS]) -> Option<FlowRecord> {
        let [first, context] = words;
        let (counters, procedure) = (FlowCounters::from_word(first as u32), (first >> 32) as u32);
        if counters.count == 0 { None } else { Some(FlowRecord { counters, procedure, context: context as u32 }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end() {
        let head = FlowsHead { pieces: AtomicU64::new(0), most: AtomicU64::new(2) };
        let words = FlowsHead::PIECE_WORDS as u64;
        assert_eq!([head.take_piece(), head.take_piece(), head.take_piece()], [Some(words), Some(2 * words), None]);
        assert_eq!(FlowsHead::len_bytes(2), 4096 + 3 * 65536);
        // The owner, the record, the paths, and those that were cut short.
        assert!(FlowRecord::WORDS as u64 + FlowsHead::MOST_PATHS + 1 < words);
        assert_eq!(FlowCounters { count: 5, are_more_hashed: false }.record_words(), 8);
        assert_eq!(FlowCounters { count: 5, are_more_hashed: true }.record_words(), 8 + FlowCache::COUNT);
        for are_more_hashed in [false, true] {
            let counters = FlowCounters { count: 3, are_more_hashed };
            let record = FlowRecord { counters, procedure: 7, context: 9 };
            assert_eq!(FlowRecord::from_words(record.to_words()), Some(record));
        }
        assert_eq!(FlowRecord::from_words([7 << 32, 1]), None);
    }
}
