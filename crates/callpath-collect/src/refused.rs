//! System calls that a filter of the program's own (seccomp) refuses: from then on they are not made.
//!
//! A call that is made all the same might kill the process, or fail with an error that means something else.

use callpath_format::shared::refused::Calls;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// A fork's child inherits the filter and this.
static REFUSED: AtomicU32 = AtomicU32::new(0);
/// The process's number, for when the call is refused.
static PID: AtomicU32 = AtomicU32::new(0);
/// Time without a system call: nanoseconds at a time stamp, and time stamps in a millisecond.
static TIME: [AtomicU64; 3] = [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)];

/// Those that are refused.
#[inline(always)]
pub fn calls() -> Calls {
    Calls(REFUSED.load(Relaxed))
}

/// Whether any of these is.
#[inline(always)]
pub fn has(calls: Calls) -> bool {
    REFUSED.load(Relaxed) & calls.0 != 0
}

/// These are refused.
pub fn set(calls: Calls) {
    REFUSED.store(calls.0, Relaxed);
}

/// Adds a call that turned out to be refused, by a filter whose installation callpath did not see.
#[cold]
pub(crate) fn learn(call: Calls) {
    REFUSED.fetch_or(call.0, Relaxed);
}

/// Remembers the calling process's number.
pub fn remember_pid(pid: u32) {
    PID.store(pid, Relaxed);
}

/// As it was remembered.
pub fn pid() -> u32 {
    PID.load(Relaxed)
}

/// From here on time is computed from time stamps, if the clock is refused.
pub fn remember_time(now_ns: u64, ticks: u64, ticks_per_ms: u64) {
    for (to, from) in TIME.iter().zip([now_ns, ticks, ticks_per_ms]) {
        to.store(from, Relaxed);
    }
}

/// The time at a time stamp, nanoseconds.
pub(crate) fn time_at(ticks: u64) -> u64 {
    let [now_ns, then] = [0, 1].map(|index: usize| TIME.get(index).map_or(0, |word| word.load(Relaxed)));
    now_ns + ns_of(ticks.saturating_sub(then))
}

/// How long so many ticks take, nanoseconds.
pub fn ns_of(ticks: u64) -> u64 {
    let [.., per_ms] = &TIME;
    let per_ms = per_ms.load(Relaxed).max(1);
    // Whole milliseconds first: the product would overflow within hours.
    (ticks / per_ms) * 1_000_000 + (ticks % per_ms) * 1_000_000 / per_ms
}
