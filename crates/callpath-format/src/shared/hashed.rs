//! Counters of paths for which arrays would be too long: memory that a process and its forks share with the recorder, a hash table (Ball and
//! Larus 1996, section 3.5). What was counted is there however the program ends.
//!
//! ```text
//! 0                       HashedHead
//! HashedHead::LEN_BYTES   HashedPath, HashedHead::COUNT times
//! ```
//!
//! Keys that differ in the path alone are a group, which begins anywhere. The first places that a key may have are near the group's start, in one
//! cache line each, of ever more such lines ([`HashedHead::NEAR_BITS`]); then it may have any, from its own on. So what a program executes most, which
//! it mostly executes early, lies together: counters in as many pages as there are paths would miss the TLB.
//!
//! Where a procedure's path was found before, its copy counts by itself: each such procedure has a cache in every lane ([`super::lanes`]) of
//! [`HashedCache::COUNT`] words; where paths are counted in contexts, each context has one ([`super::flows::FlowCache`]). A lane's word leads to an entry, as the distance from the lane's word [`HashedCache::NOWHERE`], whose zeroes are no key. Whatever
//! other threads or handlers do meanwhile, an entry's key stays what it is.

use core::sync::atomic::AtomicU64;

/// What the memory begins with.
#[repr(C)]
pub struct HashedHead {
    /// Paths that found no entry, or whose context is not known, and were not counted.
    pub lost: AtomicU64,
}

impl HashedHead {
    /// Where the table begins, bytes.
    pub const LEN_BYTES: usize = 4096;
    /// The binary logarithm of how many entries there are.
    pub const COUNT_SHIFT: u32 = 22;
    /// How many entries there are.
    pub const COUNT: usize = 1 << HashedHead::COUNT_SHIFT;
    /// So many entries are looked at from a key's place on, if it may have any.
    pub const PROBES: usize = 1 << 12;
    /// How far these are apart, in entries. It is odd, so that all would be met, and long: what groups have near their starts are dense runs of
    /// up to 2 to the power of the greatest of [`HashedHead::NEAR_BITS`].
    pub const STRIDE: usize = 0x1e_3779;
    /// Among how many entries from its group's start on a key has its first places, then others: binary logarithms, the least, the step, the greatest.
    pub const NEAR_BITS: (u32, u32, u32) = (8, 4, 16);
    /// A context's group begins at its part of the key shifted right by this, so that contexts which were new one after the other lie beside one another.
    pub const OF_FLOW_SHIFT: u32 = 2;
    /// How many entries a cache line has.
    pub const IN_LINE: usize = 4;
    /// What a key is multiplied by; the uppermost bits of the product are its place (Knuth 1998, section 6.4).
    pub const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

    /// How many bytes it takes.
    pub const fn len_bytes() -> usize {
        HashedHead::LEN_BYTES + HashedHead::COUNT * size_of::<HashedPath>()
    }
}

/// Where copies look first.
pub struct HashedCache;

impl HashedCache {
    /// The binary logarithm of how many words it has.
    pub const COUNT_SHIFT: u32 = 12;
    /// How many words it has.
    pub const COUNT: u32 = 1 << HashedCache::COUNT_SHIFT;
    /// The first of two words of a lane that stay zeroes, as an entry of no key.
    pub const NOWHERE: usize = 2;
    /// What the lower half of a key is multiplied by; the uppermost bits of that half of the product are its place.
    pub const SPREAD: i32 = 0x9e37_79b1u32 as i32;
}

/// A counter.
#[repr(C)]
pub struct HashedPath {
    /// [`HashedKey`]; 0: nothing is here.
    pub key: AtomicU64,
    /// How often the path was executed.
    pub executions: AtomicU64,
}

/// What a counter counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HashedKey {
    /// A path in a thread.
    OfLane {
        /// The thread's lane, less than [`super::lanes::LanesHead::MOST`].
        lane: u32,
        /// The procedure's number among those with such counters.
        procedure: u16,
        /// The path's, less than [`HashedKey::MOST_PATHS`].
        path: u32,
    },
    /// A path in a context.
    OfContext {
        /// The number of the first of the context's other counters ([`super::activation::ContextNode::flow`]), a multiple of
        /// [`HashedKey::FLOW_WORDS`] and less than 2 to the power of 33.
        flow: u64,
        /// The path's, less than [`HashedKey::MOST_PATHS`].
        path: u32,
    },
}

impl HashedKey {
    /// The most paths of a procedure.
    pub const MOST_PATHS: u64 = (1 << 32) - 1;
    /// How many procedures may have such counters of lanes.
    pub const MOST_PROCEDURES: u32 = 1 << 16;
    /// How many bits of a key are the path's number plus 1.
    pub const PATH_BITS: u32 = 32;
    /// Numbers of contexts' first counters are multiples of this.
    pub const FLOW_WORDS: usize = 4;
    /// Where such a number begins, bits: its lowest bits, which are 0, are not there.
    pub const FLOW_AT: u32 = HashedKey::PATH_BITS - HashedKey::FLOW_WORDS.trailing_zeros();
    /// The bit that is set in the key of a context.
    pub const CONTEXT_BIT: u32 = 63;
    /// The bit that is set in that of a lane.
    pub const LANE_BIT: u32 = 62;
    /// Where a lane's number begins, bits.
    pub const LANE_AT: u32 = 48;
    /// Where a procedure's does.
    pub const PROCEDURE_AT: u32 = 32;

    /// As a word, which is not 0.
    pub const fn to_word(self) -> u64 {
        match self {
            HashedKey::OfLane { lane, procedure, path } => {
                1 << HashedKey::LANE_BIT
                    | (lane as u64) << HashedKey::LANE_AT
                    | (procedure as u64) << HashedKey::PROCEDURE_AT
                    | path.wrapping_add(1) as u64
            }
            HashedKey::OfContext { flow, path } => {
                1 << HashedKey::CONTEXT_BIT | flow << HashedKey::FLOW_AT | path.wrapping_add(1) as u64
            }
        }
    }

    /// From a word. `None`: it is none.
    pub const fn from_word(word: u64) -> Option<HashedKey> {
        if word >> HashedKey::CONTEXT_BIT != 0 {
            let flow = (word << 1 >> 1 >> HashedKey::PATH_BITS) * HashedKey::FLOW_WORDS as u64;
            return Some(HashedKey::OfContext { flow, path: (word as u32).wrapping_sub(1) });
        }
        if word >> HashedKey::LANE_BIT == 0 {
            return None;
        }
        let lane = (word << 2 >> 2 >> HashedKey::LANE_AT) as u32;
        Some(HashedKey::OfLane {
            lane,
            procedure: (word >> HashedKey::PROCEDURE_AT) as u16,
            path: (word as u32).wrapping_sub(1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_words() {
        for key in [
            HashedKey::OfLane { lane: 0, procedure: 0, path: 0 },
            HashedKey::OfLane { lane: (16 << 10) - 1, procedure: u16::MAX, path: u32::MAX - 1 },
            HashedKey::OfContext { flow: 4, path: 0 },
            HashedKey::OfContext { flow: (1 << 33) - 4, path: u32::MAX - 1 },
        ] {
            assert_eq!(HashedKey::from_word(key.to_word()), Some(key));
        }
        assert_eq!(HashedKey::from_word(0), None);
        assert_eq!(HashedKey::from_word(u64::MAX >> 2), None);
    }
}
