//! Waiting for memory: the recorder adds chunks of it to the arena, and a call that finds none is not counted.

use callpath_collect::syscall::futex_wait;
use callpath_collect::{Process, clock, refused};
use callpath_format::shared::Session;
use callpath_format::shared::refused::Calls;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// What a thread's record or a deep path may take, chunks.
const ENOUGH: u32 = 16;
/// As long as a busy machine may keep the recorder from running.
const PATIENCE_NS: u64 = 1_000_000_000;

/// How often the recorder had given memory when a wait for more was in vain, + 1.
static IN_VAIN: AtomicU64 = AtomicU64::new(0);

/// Waits until the recorder has added chunks, if few are left.
pub fn await_chunks(process: &Process<'_>) {
    let session = process.session;
    let is_waiting = || {
        session.free_chunks() < ENOUGH
            && session.low_water.load(Relaxed) > ENOUGH
            && session.recorder.load(Relaxed) == Session::SERVING
            && !refused::has(Calls::FUTEX)
            && IN_VAIN.load(Relaxed) != u64::from(session.given.load(Relaxed)) + 1
    };
    if !is_waiting() {
        return;
    }
    let begin = clock::monotonic_ns();
    process.ring();
    loop {
        let given = session.given.load(Relaxed);
        let waited = clock::monotonic_ns().saturating_sub(begin);
        if !is_waiting() {
            return;
        }
        if waited >= PATIENCE_NS {
            // It is gone, or there is no more.
            IN_VAIN.store(u64::from(given) + 1, Relaxed);
            return;
        }
        futex_wait(&session.given, given, PATIENCE_NS - waited);
    }
}
