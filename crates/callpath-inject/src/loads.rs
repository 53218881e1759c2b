//! Libraries that come while the program runs: the loader calls us before it relocates them, and their procedures get copies
//! before their first instruction.

use callpath_collect::syscall::futex_wait;
use callpath_collect::{clock, refused};
use callpath_format::shared::Session;
use callpath_format::shared::refused::Calls;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::join;

/// The recorder reports that it is at work twice a second: after so long without one it is considered gone, and not waited for
/// again.
const PATIENCE_NS: u64 = 10_000_000_000;
static IS_GONE: AtomicBool = AtomicBool::new(false);
const TURN_NS: u64 = 50_000_000;

/// The routine's address. It takes the place of one that does nothing and that the loader calls, as debuggers know it: all
/// registers may change that a C function may change.
pub fn routine() -> u64 {
    loaded as *const () as usize as u64
}

extern "C" fn loaded() {
    let Some(process) = join::own_process() else { return };
    let (slot, session) = (process.slot, process.session);
    if IS_GONE.load(Relaxed) || session.recorder.load(Relaxed) != Session::SERVING || refused::has(Calls::FUTEX) {
        return;
    }
    let wanted = slot.loads_wanted.fetch_add(1, AcqRel).wrapping_add(1);
    process.ring();
    let (mut beat, mut begin) = (session.beat.load(Relaxed), clock::monotonic_ns());
    loop {
        let served = slot.loads_served.load(Acquire);
        let is_served = wanted.wrapping_sub(served) as i32 <= 0;
        if is_served || session.recorder.load(Relaxed) != Session::SERVING {
            return;
        }
        let now = clock::monotonic_ns();
        if session.beat.load(Relaxed) != beat {
            (beat, begin) = (session.beat.load(Relaxed), now);
        }
        if now.saturating_sub(begin) >= PATIENCE_NS {
            IS_GONE.store(true, Relaxed);
            return;
        }
        futex_wait(&slot.loads_served, served, TURN_NS);
    }
}
