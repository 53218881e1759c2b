//! Threads that wait are asked for a sample: under the kernel's clock a wait has none before it is over, and one that
//! lasts until the program ends would have none at all.
//!
//! A thread is asked once in each wait: the signal says where it waits, and when it continues, the next sample has
//! the time that has passed since. The signal restarts the system call, as a timer's does elsewhere. It is sent
//! only if the kernel reports that the thread sleeps, that the process has a handler for it, and that the process
//! still runs the program that it was admitted with.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use callpath_format::shared::{Pause, ProcessSlot, Session, SessionHead, Settings, SlotState, Source, ThreadRecord};
use callpath_target::ProcessHandle;

use crate::thread::Thread;

/// How often waits are looked for.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(40);
/// A thread that was not seen for this long may be waiting.
const QUIET_MS: u64 = 30;
/// Asking costs the thread a sample: a limit at once, and a limit a second.
const AT_ONCE: u32 = 256;
const PER_SECOND: u32 = 256;

const TRAP_BIT: u64 = 1 << (libc::SIGTRAP - 1);

/// How many may still be asked.
pub(crate) struct Allowance {
    left: u32,
    since: Instant,
}

impl Allowance {
    pub(crate) fn new() -> Allowance {
        Allowance { left: AT_ONCE, since: Instant::now() }
    }

    /// Time brings more.
    pub(crate) fn refill(&mut self) {
        let more = (self.since.elapsed().as_secs_f64() * f64::from(PER_SECOND)) as u32;
        if more > 0 {
            self.left = self.left.saturating_add(more).min(AT_ONCE);
            self.since = Instant::now();
        }
    }

    fn take(&mut self) -> bool {
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }
}

/// A round of asking, in one process.
pub(crate) struct Round<'a> {
    pub(crate) handle: &'a ProcessHandle,
    pub(crate) head: &'a SessionHead,
    pub(crate) slot: &'a ProcessSlot,
    pub(crate) now_ticks: u64,
    pub(crate) allowance: &'a mut Allowance,
}

/// One process whose threads may be asked.
pub(crate) struct Asker {
    /// The program that it ran when it was admitted.
    image: [u64; 3],
}

impl Asker {
    /// For a process that waits for us. `None`: its samples come without
    /// being asked for, or time that passes is no metric.
    pub(crate) fn of(handle: &ProcessHandle, settings: &Settings, source: Source) -> Option<Asker> {
        let is_wanted = source == Source::Clock && settings.uses(Settings::WALL_TIME);
        let image = handle.waiting(handle.pid().0).filter(|_| is_wanted)?.image;
        // Without an answer from the kernel, one program cannot be distinguished from the next.
        (image[2] != 0).then_some(Asker { image })
    }

    /// Asks a thread if it waits.
    pub(crate) fn ask(&self, round: &mut Round<'_>, thread: &mut Thread, record: &ThreadRecord) {
        let Round { handle, head, slot, now_ticks, .. } = *round;
        let seen = record.last_end.load(Relaxed);
        let quiet_ticks = head.settings.ticks_per_ms.saturating_mul(QUIET_MS);
        if seen == thread.asked_at
            || now_ticks.saturating_sub(seen) < quiet_ticks
            || record.asked.load(Relaxed) != 0
            || record.busy.load(Relaxed) != 0
            || record.state.load(Acquire) != ThreadRecord::LIVE
        {
            return;
        }
        let tid = record.tid.load(Relaxed);
        if tid == 0 || !round.allowance.take() {
            return;
        }
        let Some(waiting) = handle.waiting(tid).filter(|w| w.is_asleep && w.image == self.image) else { return };
        thread.asked_at = seen;
        let is_running = slot.pause.load(Acquire) == Pause::RUNNING && slot.state.load(Acquire) == SlotState::LIVE;
        if is_running && waiting.blocked & TRAP_BIT == 0 && waiting.caught & TRAP_BIT != 0 {
            // It may have ended.
            drop(handle.send_trap(tid, Session::ASKED, head.nonce));
        }
    }
}
