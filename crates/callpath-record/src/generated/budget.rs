//! How much time may be spent on analysing a process's generated code.
//!
//! An initial budget, since a program's code is new while it starts, and then a small part of the time that passes; and another
//! one at the program's end, for what then still waits.

use std::time::{Duration, Instant};

/// The initial budget.
const FIRST: Duration = Duration::from_millis(400);
/// Then one part in this many of the time that passes.
const SHARE: u32 = 20;
/// The limit in one round of serving: other processes wait, and raw samples fill the arena.
const ROUND: Duration = Duration::from_millis(15);

/// What samples still wait for when the process has ended may take so much in addition: nothing is disturbed any more.
const AT_END: Duration = Duration::from_secs(5);

pub(super) struct Budget {
    began: Instant,
    spent: Duration,
    spent_in_round: Duration,
    /// What may be spent since the process has ended.
    at_end: Duration,
}

impl Budget {
    pub(super) fn new() -> Budget {
        Budget { began: Instant::now(), spent: Duration::ZERO, spent_in_round: Duration::ZERO, at_end: Duration::ZERO }
    }

    /// Whether some may be spent now.
    pub(super) fn allows(&self) -> bool {
        self.spent <= FIRST + self.began.elapsed() / SHARE + self.at_end && self.spent_in_round <= ROUND
    }

    /// The process has ended.
    pub(super) fn finish(&mut self) {
        self.at_end = AT_END;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_at_the_end_is_done() {
        let mut budget = Budget::new();
        assert!(budget.allows());
        budget.spent = FIRST + Duration::from_secs(4);
        assert!(!budget.allows());
        budget.finish();
        assert!(budget.allows());
        budget.spent_in_round = ROUND * 2;
        assert!(!budget.allows(), "other processes wait");
        budget.begin_round();
        budget.spent += AT_END;
        assert!(!budget.allows(), "it is not endless");
    }
}
