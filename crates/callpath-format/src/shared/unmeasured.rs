//! Programs that a measured process started and that cannot be measured: name, reason and number of starts.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU8, AtomicU32};

/// How many different programs are named.
pub(super) const UNMEASURED_LEN: usize = 32;
/// How much of a program's name is kept, bytes.
pub const NAME_LEN: usize = 48;

/// Why a program cannot be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Reason {
    /// It has no dynamic loader.
    Static = 1,
    /// It is a 32-bit program or for another processor.
    OtherMachine = 2,
    /// It gains privileges, and the loader preloads nothing into it.
    Privileged = 3,
    /// Our object or the recorder's memory cannot be opened there: another root directory, another user.
    OutOfReach = 4,
    /// It is started without our environment.
    NoEnvironment = 5,
    /// Its C library is not glibc.
    OtherLibrary = 6,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 6] = [
        Reason::Static,
        Reason::OtherMachine,
        Reason::Privileged,
        Reason::OutOfReach,
        Reason::NoEnvironment,
        Reason::OtherLibrary,
    ];

    /// The reason with this number.
    pub fn from_u32(value: u32) -> Option<Reason> {
        Reason::ALL.into_iter().find(|r| *r as u32 == value)
    }
}

/// One program. The first process that needs a free entry claims it; it is never released.
#[repr(C)]
pub struct Unmeasured {
    state: AtomicU32,
    reason: AtomicU32,
    count: AtomicU32,
    name: [AtomicU8; NAME_LEN],
}

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const FILLED: u32 = 2;

impl Unmeasured {
    /// Whether this entry belongs to that program: already, or because it was free and has been claimed.
    pub fn takes(&self, reason: Reason, name: &[u8]) -> bool {
        if self.state.load(Acquire) == FREE && self.state.compare_exchange(FREE, CLAIMED, AcqRel, Acquire).is_ok() {
            for (to, from) in self.name.iter().zip(name) {
                to.store(*from, Relaxed);
            }
            self.reason.store(reason as u32, Relaxed);
            self.state.store(FILLED, Release);
            return true;
        }
        self.state.load(Acquire) == FILLED
            && self.reason.load(Relaxed) == reason as u32
            && self.name.iter().enumerate().all(|(i, b)| b.load(Relaxed) == name.get(i).copied().unwrap_or(0))
    }

    /// Counts one start more, or one less if the program could not be started.
    pub fn count(&self, more: bool) {
        if more {
            self.count.fetch_add(1, Relaxed)
        } else {
            self.count.fetch_sub(1, Relaxed)
        };
    }

    /// Reason, name and number of starts. `None`: the entry is free or damaged.
    pub fn read(&self) -> Option<(Reason, [u8; NAME_LEN], u32)> {
        if self.state.load(Acquire) != FILLED {
            return None;
        }
        let reason = Reason::from_u32(self.reason.load(Relaxed))?;
        let mut name = [0; NAME_LEN];
        for (to, from) in name.iter_mut().zip(&self.name) {
            *to = from.load(Relaxed);
        }
        Some((reason, name, self.count.load(Relaxed))).filter(|(_, _, count)| *count > 0)
    }
}
