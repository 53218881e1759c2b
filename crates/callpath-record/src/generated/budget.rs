//! How much time may be spent on analysing a process's generated code.
//!
//! An initial budget, since a program's code is new while it starts, and then a small part of the time that passes.

use std::time::{Duration, Instant};

/// The initial budget.
const FIRST: Duration = Duration::from_millis(400);
/// Then one part in this many of the time that passes.
const SHARE: u32 = 20;
/// The limit in one round of serving: other processes wait, and raw samples fill the arena.
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

    /// Whether less than half of the initial budget is spent.
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

    /// Charges the work that began at that CPU time.
    pub(super) fn charge(&mut self, began: Duration) -> Duration {
        let spent = Budget::now().saturating_sub(began);
        self.spent += spent;
        self.spent_in_round += spent;
        spent
    }
}
