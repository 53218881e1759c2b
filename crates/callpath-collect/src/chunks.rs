//! Waiting for memory: the recorder adds chunks of it to the arena, and what finds none is not counted.

use callpath_format::shared::Session;
use callpath_format::shared::refused::Calls;
use core::sync::atomic::Ordering::Relaxed;

use crate::process::Process;
use crate::syscall::futex_wait;
use crate::{clock, refused};

/// What a thread's record or a deep path may take, chunks.
const ENOUGH: u32 = 16;

/// Waits until the recorder has added chunks, if few are left, at most so long. `false`: that was in vain.
pub fn await_chunks(process: &Process<'_>, patience_ns: u64) -> bool {
    let session = process.session;
    let is_waiting = || {
        session.free_chunks() < ENOUGH
            && session.low_water.load(Relaxed) > ENOUGH
            && session.recorder.load(Relaxed) == Session::SERVING
            && !refused::has(Calls::FUTEX)
    };
    if !is_waiting() {
        return true;
    }
    let begin = clock::monotonic_ns();
    process.ring();
    loop {
        let given = session.given.load(Relaxed);
        let waited = clock::monotonic_ns().saturating_sub(begin);
        if !is_waiting() {
            return true;
        }
        if waited >= patience_ns {
            return false;
        }
        futex_wait(&session.given, given, patience_ns - waited);
    }
}
