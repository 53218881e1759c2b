//! How much time may be spent on analysing a process's generated code.
//!
//! Some at once, since it is while a program starts that its code is new, and from then on a small part of the time that passes.

use std::time::{Duration, Instant};

/// So much may be spent at once.
const FIRST: Duration = Duration::from_millis(400);
/// One part in so many of the time that passes.
const SHARE: u32 = 20;
/// So much in one round of serving: others wait, and raw samples fill the arena.
const ROUND: Duration = Duration::from_millis(15);

pub(super) struct Budget {
    began: Instant,
    spent: Duration,
    spent_in_round: Duration,
}

impl Budget {
    pub(super) fn new() -> Budget {
        Budget { began: Instant::now(), spent: Duration::ZERO, spent_in_round: Duration::ZERO }
    }

    /// Whether some may be spent now.
    pub(super) fn allows(&self) -> bool {
        self.spent <= FIRST + self.began.elapsed() / SHARE && self.spent_in_round <= ROUND
    }

    /// Another round of serving begins.
    pub(super) fn begin_round(&mut self) {
        self.spent_in_round = Duration::ZERO;
    }

    /// Whether less than half of what may be spent at once has been.
    pub(super) fn is_at_first(&self) -> bool {
        self.spent < FIRST / 2
    }

    /// The calling thread's CPU time.
    pub(super) fn now() -> Duration {
        // SAFETY: a valid place.
        let time = unsafe {
            let mut time: libc::timespec = std::mem::zeroed();
            libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time);
            time
        };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    /// Something was done that began at that CPU time: what was spent on it.
    pub(super) fn charge(&mut self, began: Duration) -> Duration {
        let spent = Budget::now().saturating_sub(began);
        self.spent += spent;
        self.spent_in_round += spent;
        spent
    }
}
