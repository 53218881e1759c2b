//! A thread's wait: begun, interrupted by a probed function, resumed, ended. No node is looked for, and no signal held back.

use callpath_collect::{Thread, clock};
use callpath_format::shared::probe::{Area, Interrupted, Waiting};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU64, compiler_fence};

use crate::gauges::add;

/// The thread waits from now on.
///
/// # Safety
/// It must be the calling thread's.
pub unsafe fn set(waiting: *mut Waiting, wait: Interrupted) {
    // SAFETY: the caller vouches for it. Volatile: a handler may wait, too.
    unsafe {
        // Twice: a handler that comes in between may wait, or interrupt this wait.
        for _ in 0..2 {
            (&raw mut (*waiting).what_for).write_volatile(wait.what_for);
            (&raw mut (*waiting).began).write_volatile(clock::ticks());
            compiler_fence(SeqCst);
            (&raw mut (*waiting).rsp).write_volatile(wait.rsp);
            compiler_fence(SeqCst);
        }
    }
}

/// An activation begins: if the thread waits in a function that was not left, that wait is interrupted. Ask after
/// [`end_left`].
///
/// # Safety
/// The area must be the calling thread's.
pub unsafe fn interrupt(area: *mut Area) -> Interrupted {
    // SAFETY: the caller vouches for it. Volatile: a handler may wait, too.
    unsafe {
        let waiting = &raw mut (*area).waiting;
        let rsp = (&raw const (*waiting).rsp).read_volatile();
        let what_for = (&raw const (*waiting).what_for).read_volatile();
        if rsp != 0 && end(waiting, rsp) { Interrupted { rsp, what_for } } else { Interrupted::NONE }
    }
}

/// The activation that has interrupted a wait has ended, and the wait goes on, unless it was left, too.
///
/// # Safety
/// The area must be the calling thread's.
pub unsafe fn go_on(area: *mut Area, wait: Interrupted, is_left: bool) {
    // SAFETY: the caller vouches for it. Volatile: a handler may wait, too.
    unsafe {
        let waiting = &raw mut (*area).waiting;
        if wait.rsp != 0 && (&raw const (*waiting).rsp).read_volatile() == 0 && !is_left {
            set(waiting, wait);
        }
    }
}

/// Adds what the thread has waited, and ends that, if it waits in the function that was entered with this stack pointer.
/// `false`: it does not.
///
/// # Safety
/// It must be the calling thread's.
pub unsafe fn end(waiting: *mut Waiting, at: u64) -> bool {
    // SAFETY: the caller vouches for it. Volatile: a handler may wait, too.
    unsafe {
        let what_for = (&raw const (*waiting).what_for).read_volatile();
        let began = (&raw const (*waiting).began).read_volatile();
        compiler_fence(SeqCst);
        // A handler may have ended it in between.
        if AtomicU64::from_ptr(&raw mut (*waiting).rsp).compare_exchange(at, 0, SeqCst, SeqCst).is_err() {
            return false;
        }
        if let Some(ticks) = (*waiting).ticks.get_mut(what_for as usize) {
            add(ticks, clock::ticks().saturating_sub(began));
        }
        true
    }
}

/// A function that waited was left without an exit, if the thread is now at a place outwards of it: it has waited until
/// now.
///
/// # Safety
/// The area must be the calling thread's.
pub unsafe fn end_left(area: *mut Area, thread: &Thread<'_>, rsp: u64) {
    // SAFETY: the caller vouches for the area.
    unsafe {
        let waiting = &raw mut (*area).waiting;
        let at = (&raw const (*waiting).rsp).read_volatile();
        if at != 0 && is_left(at, rsp, thread) {
            end(waiting, at);
        }
    }
}

/// Whether a place on a stack lies inwards of where the thread is now, or at the same place. A handler on a stack of its
/// own has left nothing.
pub fn is_left(at: u64, rsp: u64, thread: &Thread<'_>) -> bool {
    let [low, high] = thread.record.stack.each_ref().map(|bound| bound.load(Relaxed));
    let is_own = |at: u64| low.saturating_sub(64 << 20) <= at && at < high;
    is_own(at) == is_own(rsp) && at <= rsp
}
