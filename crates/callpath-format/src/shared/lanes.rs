//! Memory in which the threads of a process count what the copies of its procedures do: a lane each, so that no count is
//! lost and none is locked. A lane is a row of words of eight bytes; what each of them counts only the recorder knows.
//!
//! ```text
//! head      LanesHead: which lanes are taken
//! lane 0    of threads that have no other: those that the C library did not start
//! lane 1    of the first thread
//! lane n
//! ```
//!
//! The recorder maps it into a process before that begins, and its forks have it at the same place. A thread's word
//! (thread pointer plus [`super::ProcessSlot::lane_word`]) holds the address of its lane's first word. A new thread has it from its
//! first instruction on: its creator writes it where the C library copies the thread's words from.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

/// The first bytes.
#[repr(C)]
pub struct LanesHead {
    /// How far lanes lie apart, bytes.
    pub lane_len_bytes: AtomicU64,
    /// How many there are.
    pub lanes: AtomicU64,
    /// Threads that found no free lane and count in the first.
    pub without: AtomicU64,
    /// A bit for each lane: a thread has it.
    taken: [AtomicU64; LanesHead::MOST / 64],
    /// The process that a lane belongs to, as it sees itself; 0: none yet. It keeps the lane when the thread has ended.
    owners: [AtomicU32; LanesHead::MOST],
}

/// The first bytes of a lane.
#[repr(C)]
pub struct LaneHead {
    /// The address of [`LanesHead`] in the process.
    pub head: AtomicU64,
    /// Which lane it is.
    pub number: AtomicU64,
    reserved: [AtomicU64; 6],
}

impl LanesHead {
    /// The most lanes.
    pub const MOST: usize = 16 << 10;
    /// Where the first lane begins, bytes: in whole pages.
    pub const LEN_BYTES: usize = size_of::<LanesHead>().next_multiple_of(4096);
    /// The lane of threads without one, and that of a program's first thread.
    pub const SHARED: u32 = 0;
    /// See [`LanesHead::SHARED`].
    pub const FIRST: u32 = 1;

    /// The number of no process.
    const RETIRED: u32 = u32::MAX;

    /// Where a lane begins, counted from the head, bytes.
    pub fn offset_of(&self, lane: u32) -> u64 {
        let apart = self.lane_len_bytes.load(Relaxed);
        (LanesHead::LEN_BYTES as u64).saturating_add(apart.saturating_mul(lane.into()))
    }

    /// Takes a lane for a thread of this process. `None`: all are taken.
    pub fn take(&self, pid: u32) -> Option<u32> {
        let lanes = (self.lanes.load(Relaxed) as usize).min(LanesHead::MOST);
        for (index, word) in self.taken.iter().enumerate() {
            let first = index * 64;
            if first >= lanes {
                break;
            }
            let mut taken = word.load(Acquire);
            let mut tried = taken;
            while tried != u64::MAX {
                let bit = (!tried).trailing_zeros();
                let lane = first + bit as usize;
                if lane >= lanes {
                    break;
                }
                let Some(owner) = self.owners.get(lane) else { break };
                let before = owner.load(Acquire);
                let is_ours = before == pid || before == 0 && owner.compare_exchange(0, pid, AcqRel, Relaxed).is_ok();
                if !is_ours {
                    tried |= 1 << bit;
                    continue;
                }
                match word.compare_exchange(taken, taken | 1 << bit, AcqRel, Acquire) {
                    Ok(_) => return Some(lane as u32),
                    Err(now) => (taken, tried) = (now, now),
                }
            }
        }
        self.without.fetch_add(1, Relaxed);
        None
    }

    /// Takes a lane that nobody has, by its number; for the recorder, before the process begins.
    pub fn take_one(&self, lane: u32, pid: u32) {
        if let Some(owner) = self.owners.get(lane as usize) {
            owner.store(pid, Relaxed);
        }
        if let Some(word) = self.taken.get(lane as usize / 64) {
            word.fetch_or(1 << (lane % 64), Release);
        }
    }

    /// The lanes of a process are nobody's from now on, and not taken again: what they count was read.
    pub fn retire(&self, pid: u32) {
        for owner in self.owners.iter().filter(|owner| owner.load(Acquire) == pid) {
            owner.store(LanesHead::RETIRED, Release);
        }
    }

    /// The process that a lane belongs to; 0: it was never taken.
    pub fn owner(&self, lane: u32) -> u32 {
        self.owners.get(lane as usize).map_or(0, |owner| owner.load(Acquire))
    }
}

impl LaneHead {
    /// Its length, bytes: the words begin behind it.
    pub const LEN_BYTES: usize = size_of::<LaneHead>();
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    fn zeroed() -> std::boxed::Box<LanesHead> {
        // SAFETY: atomics, for which zeroes are a value.
        unsafe { std::boxed::Box::<LanesHead>::new_zeroed().assume_init() }
    }

    #[test]
    fn each_thread_has_a_lane_and_a_process_keeps_its_own() {
        let head = zeroed();
        head.lanes.store(70, Relaxed);
        head.lane_len_bytes.store(1 << 20, Relaxed);
        head.take_one(LanesHead::SHARED, 7);
        let all: std::vec::Vec<Option<u32>> = (0..70).map(|_| head.take(7)).collect();
        let expected: std::vec::Vec<Option<u32>> = (1..70).map(Some).chain([None]).collect();
        assert_eq!(all, expected);
        assert_eq!(head.without.load(Relaxed), 1);
        head.lanes.store(72, Relaxed);
        assert_eq!((head.take(8), head.take(7), head.owner(70)), (Some(70), Some(71), 8));
        head.retire(7);
        // A later process of that number begins anew.
        head.lanes.store(73, Relaxed);
        assert_eq!((head.take(7), head.owner(71), head.owner(70)), (Some(72), u32::MAX, 8));
        assert_eq!(head.offset_of(2), LanesHead::LEN_BYTES as u64 + (2 << 20));
    }
}
