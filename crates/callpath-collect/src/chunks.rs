//! Waiting for memory: the recorder adds chunks of it to the arena, and what finds none is not counted.

use callpath_format::shared::Session;
use callpath_format::shared::refused::Calls;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::process::Process;
use crate::syscall::futex_wait;
use crate::{clock, refused};

/// What a thread's record or a deep path may take, chunks.
const ENOUGH: u32 = 16;

/// How often the recorder had given memory when a wait for more was in vain, + 1.
static IN_VAIN: AtomicU64 = AtomicU64::new(0);

/// Waits until the recorder has added chunks, if few are left, at most so long.
pub fn await_chunks(process: &Process<'_>, patience_ns: u64) {
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
        if waited >= patience_ns {
            // It is gone, or there is no more.
            IN_VAIN.store(u64::from(given) + 1, Relaxed);
            return;
        }
        futex_wait(&session.given, given, patience_ns - waited);
    }
}
