//! System calls that wait and that no SA_RESTART restarts: a timer's sample must not end them (signal(7)).
//!
//! The kernel's own clock does not interrupt a system call, but a sample of its that waited for the
//! mask which a call opens may. A timer does; these functions then wait for the rest of the time,
//! unless a handler of the program has run (`crate::handlers`). Code that makes these calls by `syscall(2)`, or waits on a
//! socket with a timeout, may see an EINTR from a timer.

use core::ffi::{c_int, c_long, c_uint, c_void};

use crate::hook::hook;
use crate::info::Info;
use crate::libc::{SIGTRAP, errno};
use crate::time::{Time, left_ms};
use crate::tls::{self, Word};
use crate::{info, masks, part, sends, signal};
use callpath_collect::clock::monotonic_ns;

const EINTR: c_int = 4;
const WAITING: u64 = 1;
const SAMPLED: u64 = 2;
/// A handler of the program's has run since the wait began.
pub const ENDED: u64 = 3;

/// For the signal's handler: whether the interrupted thread is in one of these calls, and no handler has run since.
pub fn is_waiting() -> bool {
    tls::get(Word::Wait) == WAITING
}

/// For the signal's handler: a sample, and nothing else, has ended the wait.
pub fn sampled() {
    tls::set(Word::Wait, SAMPLED);
}

/// For the signal's handler: a handler of the program's own runs for this signal, and ends the wait.
pub fn ended() {
    if tls::get(Word::Wait) != 0 {
        tls::set(Word::Wait, ENDED);
    }
}

/// Repeats the call as long as only samples interrupt it. `interrupted` checks a result;
/// `call` gets the time that has passed, nanoseconds.
fn unless_sampled<R: Copy>(interrupted: impl Fn(R) -> bool, mut call: impl FnMut(u64) -> R) -> R {
    if part::process().is_none() {
        return call(0);
    }
    let begin = monotonic_ns();
    let mut passed = 0;
    tls::set(Word::Wait, WAITING);
    loop {
        let result = call(passed);
        if interrupted(result) {
            passed = monotonic_ns().saturating_sub(begin);
            // A handler that runs from here on finds the next call waiting, and the next sample there ends it.
            if tls::exchange(Word::Wait, SAMPLED, WAITING) == SAMPLED {
                continue;
            }
        }
        tls::set(Word::Wait, 0);
        return result;
    }
}

fn failed(result: c_int) -> bool {
    result == -1 && errno() == EINTR
}

/// Makes a call that puts `mask` in the place of the thread's while it waits. If the program believes SIGTRAP blocked,
/// it is then unblocked there as the program asks: not earlier, or a signal that comes early would not end the call.
fn under<R>(mask: *const c_void, call: impl FnOnce(*const c_void) -> R) -> R {
    // SAFETY: null or a signal set, which the real procedure would read: the program vouches for it.
    let asked = unsafe { mask.cast::<u64>().as_ref() }.filter(|mask| **mask & masks::TRAP_BIT == 0);
    let Some(asked) = asked.filter(|_| part::own_process().is_some() && signal::is_taken()) else { return call(mask) };
    // The C library may read a whole set.
    let mut passed = [0u64; 16];
    passed[0] = masks::in_action(*asked);
    let call = || call(passed.as_ptr().cast());
    if masks::is_blocked() { masks::while_opened(call) } else { call() }
}

/// `sigtimedwait` and its kin, behind which a sample may not hide: a timer's signal that is sent inside the call is as
/// good as any other to the kernel.
fn wait_for_signal(info: *mut c_void, mut wait: impl FnMut(*mut c_void, u64) -> c_int) -> c_int {
    let mut own = Info::default();
    let begin = monotonic_ns();
    let mut before = 0;
    loop {
        let got = unless_sampled(failed, |passed| wait((&raw mut own).cast(), before + passed));
        if got == SIGTRAP {
            let is_sample = info::is_sample(own.code);
            let is_announced = sends::is_announced(&own);
            if is_sample || is_announced {
                if !sends::take() {
                    before = monotonic_ns().saturating_sub(begin);
                    continue;
                }
                // The C library reports SI_TKILL as SI_USER to a thread that waits.
                own = Info { code: sends::SI_USER, ..sends::by_thread() };
            }
            if masks::is_blocked() && part::own_process().is_some() {
                // No SIGTRAP of the program's is pending any more, so samples may come.
                masks::unblock();
            }
        }
        if got > 0 && !info.is_null() {
            // SAFETY: the program gave room for a whole record.
            unsafe { info.cast::<Info>().write(own) };
        }
        return got;
    }
}

/// A time that the program asks for, as it is when the call begins: the kernel may write what is left to the same place.
fn asked(time: *const Time) -> Option<Time> {
    // SAFETY: null or a time, which the real procedure would read: the program vouches for it.
    unsafe { time.as_ref() }.copied()
}

/// What is left of a time that is counted from the first call.
fn left(asked: Option<Time>, passed_ns: u64) -> Option<Time> {
    asked.map(|time| time.without(passed_ns))
}

/// Repeats a call that says what is left of its time when it is interrupted, unless `rest` is null. What a sample has left is nothing
/// that the program is told.
fn with_rest(
    rest: *mut Time,
    interrupted: impl Fn(c_int) -> bool,
    mut call: impl FnMut(u64, *mut Time) -> c_int,
) -> c_int {
    let mut own = Time { seconds: 0, nanoseconds: 0 };
    let own_at = if rest.is_null() { core::ptr::null_mut() } else { &raw mut own };
    let result = unless_sampled(&interrupted, |passed| call(passed, own_at));
    if interrupted(result) && !rest.is_null() {
        // SAFETY: the program gave room for a time, to which the real procedure would have written.
        unsafe { rest.write(own) };
    }
    result
}

fn pointer(time: &Option<Time>) -> *const Time {
    time.as_ref().map_or(core::ptr::null(), core::ptr::from_ref)
}

hook! {
    /// `poll(2)`
    fn poll(fds: *mut c_void, count: u64, timeout: c_int) -> c_int, or -1;
    |next| unless_sampled(failed, |passed| {
        // SAFETY: a timeout is any number; all else is the program's own, which it vouches for.
        unsafe { (next.real)(fds, count, left_ms(timeout, passed)) }
    })

    /// `poll(2)` as `_FORTIFY_SOURCE` calls it.
    fn __poll_chk(fds: *mut c_void, count: u64, timeout: c_int, room: usize) -> c_int, or -1;
    |next| unless_sampled(failed, |passed| {
        // SAFETY: a timeout is any number; all else is the program's own, which it vouches for.
        unsafe { (next.real)(fds, count, left_ms(timeout, passed), room) }
    })

    /// `ppoll(2)`
    fn ppoll(fds: *mut c_void, count: u64, timeout: *const Time, mask: *const c_void) -> c_int, or -1;
    |next| {
        let asked = asked(timeout);
        unless_sampled(failed, |passed| {
            let left = left(asked, passed);
            // SAFETY: `left` lives until the call has returned; all else is the program's own, which it vouches for.
            under(mask, |mask| unsafe { (next.real)(fds, count, pointer(&left), mask) })
        })
    }

    /// `ppoll(2)` as `_FORTIFY_SOURCE` calls it.
    fn __ppoll_chk(
        fds: *mut c_void, count: u64, timeout: *const Time, mask: *const c_void, room: usize
    ) -> c_int, or -1;
    |next| {
        let asked = asked(timeout);
        unless_sampled(failed, |passed| {
            let left = left(asked, passed);
            // SAFETY: `left` lives until the call has returned; all else is the program's own, which it vouches for.
            under(mask, |mask| unsafe { (next.real)(fds, count, pointer(&left), mask, room) })
        })
    }

    /// `select(2)`: the kernel leaves in `timeout` what is left of it.
    fn select(
        count: c_int, read: *mut c_void, write: *mut c_void, except: *mut c_void, timeout: *mut c_void
    ) -> c_int, or -1;
    |next| unless_sampled(failed, |_| next.original())

    /// `pselect(2)`
    fn pselect(
        count: c_int, read: *mut c_void, write: *mut c_void, except: *mut c_void, timeout: *const Time,
        mask: *const c_void
    ) -> c_int, or -1;
    |next| {
        let asked = asked(timeout);
        unless_sampled(failed, |passed| {
            let left = left(asked, passed);
            // SAFETY: `left` lives until the call has returned; all else is the program's own, which it vouches for.
            under(mask, |mask| unsafe { (next.real)(count, read, write, except, pointer(&left), mask) })
        })
    }

    /// `epoll_wait(2)`
    fn epoll_wait(fd: c_int, events: *mut c_void, room: c_int, timeout: c_int) -> c_int, or -1;
    |next| unless_sampled(failed, |passed| {
        // SAFETY: a timeout is any number; all else is the program's own, which it vouches for.
        unsafe { (next.real)(fd, events, room, left_ms(timeout, passed)) }
    })

    /// `epoll_pwait(2)`
    fn epoll_pwait(
        fd: c_int, events: *mut c_void, room: c_int, timeout: c_int, mask: *const c_void
    ) -> c_int, or -1;
    |next| unless_sampled(failed, |passed| {
        // SAFETY: a timeout is any number; all else is the program's own, which it vouches for.
        under(mask, |mask| unsafe { (next.real)(fd, events, room, left_ms(timeout, passed), mask) })
    })

    /// `epoll_pwait2(2)`
    fn epoll_pwait2(
        fd: c_int, events: *mut c_void, room: c_int, timeout: *const Time, mask: *const c_void
    ) -> c_int, or -1;
    |next| {
        let asked = asked(timeout);
        unless_sampled(failed, |passed| {
            let left = left(asked, passed);
            // SAFETY: `left` lives until the call has returned; all else is the program's own, which it vouches for.
            under(mask, |mask| unsafe { (next.real)(fd, events, room, pointer(&left), mask) })
        })
    }

    /// `nanosleep(2)`
    fn nanosleep(time: *const Time, rest: *mut Time) -> c_int, or -1;
    |next| {
        let asked = asked(time);
        with_rest(rest, failed, |passed, rest| {
            let left = left(asked, passed);
            // SAFETY: `left` lives until the call has returned; `rest` is null or lives as long.
            unsafe { (next.real)(pointer(&left), rest) }
        })
    }

    /// `clock_nanosleep(2)`: an absolute time stays as it is, and nothing is left of it. It returns the error itself.
    fn clock_nanosleep(clock: c_int, flags: c_int, time: *const Time, rest: *mut Time) -> c_int, or EINTR;
    |next| {
        const TIMER_ABSTIME: c_int = 1;
        let (asked, is_absolute) = (asked(time), flags & TIMER_ABSTIME != 0);
        let rest = if is_absolute { core::ptr::null_mut() } else { rest };
        with_rest(rest, |result| result == EINTR, |passed, rest| {
            let left = left(asked, if is_absolute { 0 } else { passed });
            // SAFETY: `left` lives until the call has returned; `rest` is null or lives as long.
            unsafe { (next.real)(clock, flags, pointer(&left), rest) }
        })
    }

    /// `thrd_sleep(3)`
    fn thrd_sleep(time: *const Time, rest: *mut Time) -> c_int, or -1;
    |next| {
        let asked = asked(time);
        with_rest(rest, |result| result == -1, |passed, rest| {
            let left = left(asked, passed);
            // SAFETY: `left` lives until the call has returned; `rest` is null or lives as long.
            unsafe { (next.real)(pointer(&left), rest) }
        })
    }

    /// `usleep(3)`
    fn usleep(microseconds: c_uint) -> c_int, or -1;
    |next| unless_sampled(failed, |passed| {
        // SAFETY: a timeout is any number; all else is the program's own, which it vouches for.
        unsafe { (next.real)((u64::from(microseconds) - (passed / 1000).min(u64::from(microseconds))) as c_uint) }
    })

    /// `sem_timedwait(3)`: its time is absolute.
    fn sem_timedwait(semaphore: *mut c_void, until: *const Time) -> c_int, or -1;
    |next| unless_sampled(failed, |_| next.original())

    /// `sem_clockwait(3)`: its time is absolute.
    fn sem_clockwait(semaphore: *mut c_void, clock: c_int, until: *const Time) -> c_int, or -1;
    |next| unless_sampled(failed, |_| next.original())

    /// `sigtimedwait(2)`
    fn sigtimedwait(set: *const c_void, info: *mut c_void, timeout: *const Time) -> c_int, or -1;
    |next| {
        let asked = asked(timeout);
        wait_for_signal(info, |info, passed| {
            let left = left(asked, passed);
            // SAFETY: `left` lives until the call has returned, and `info` is a whole record of
            // `wait_for_signal`'s; the program vouches for the set.
            unsafe { (next.real)(set, info, pointer(&left)) }
        })
    }

    /// `sigwaitinfo(2)`
    fn sigwaitinfo(set: *const c_void, info: *mut c_void) -> c_int, or -1;
    |next| wait_for_signal(info, |info, _| {
        // SAFETY: `info` is a whole record of `wait_for_signal`'s; the program vouches for the set.
        unsafe { (next.real)(set, info) }
    })

    /// `aio_suspend(3)`
    fn aio_suspend(list: *const c_void, count: c_int, timeout: *const Time) -> c_int, or -1;
    |next| {
        let asked = asked(timeout);
        unless_sampled(failed, |passed| {
            let left = left(asked, passed);
            // SAFETY: `left` lives until the call has returned; all else is the program's own, which it vouches for.
            unsafe { (next.real)(list, count, pointer(&left)) }
        })
    }

    /// `pause(2)`
    fn pause() -> c_int, or -1;
    |next| unless_sampled(failed, |_| next.original())

    /// `sigsuspend(2)`
    fn sigsuspend(mask: *const c_void) -> c_int, or -1;
    |next| unless_sampled(failed, |_| {
        // SAFETY: the program's own set, which it vouches for, or a whole one of ours.
        under(mask, |mask| unsafe { (next.real)(mask) })
    })

    /// `semop(2)`
    fn semop(id: c_int, operations: *mut c_void, count: usize) -> c_int, or -1;
    |next| unless_sampled(failed, |_| next.original())

    /// `semtimedop(2)`
    fn semtimedop(id: c_int, operations: *mut c_void, count: usize, timeout: *const Time) -> c_int, or -1;
    |next| {
        let asked = asked(timeout);
        unless_sampled(failed, |passed| {
            let left = left(asked, passed);
            // SAFETY: `left` lives until the call has returned; all else is the program's own, which it vouches for.
            unsafe { (next.real)(id, operations, count, pointer(&left)) }
        })
    }

    /// `msgsnd(2)`
    fn msgsnd(id: c_int, message: *const c_void, len: usize, flags: c_int) -> c_int, or -1;
    |next| unless_sampled(failed, |_| next.original())

    /// `msgrcv(2)`
    fn msgrcv(id: c_int, message: *mut c_void, len: usize, kind: c_long, flags: c_int) -> isize, or -1;
    |next| unless_sampled(|r: isize| r == -1 && errno() == EINTR, |_| next.original())

    /// `sleep(3)`: returns the seconds that are left, so it is built on one that can be resumed.
    fn sleep(seconds: c_uint) -> c_uint, or seconds;
    |next| {
        if part::process().is_none() {
            return next.original();
        }
        let time = Time { seconds: seconds.into(), nanoseconds: 0 };
        let mut rest = Time { seconds: 0, nanoseconds: 0 };
        // SAFETY: both live in this frame until it returns.
        if unsafe { nanosleep(&raw const time, &raw mut rest) } == 0 { 0 } else { rest.seconds as c_uint }
    }

    /// `signalfd(2)`: a read of it would take a sample that is sent inside the read. So SIGTRAP is in it
    /// only where the program asks for nothing else.
    fn signalfd(descriptor: c_int, set: *const u64, flags: c_int) -> c_int, or -1;
    |next| {
        // SAFETY: the program vouches that it is null or points to a set, of which
        // the C library passes on the kernel's 64 bits.
        match unsafe { set.as_ref() } {
            Some(asked) if *asked != masks::TRAP_BIT && part::process().is_some() && signal::is_taken() => {
                let mut others = [0u64; 16];
                others[0] = asked & !masks::TRAP_BIT;
                // SAFETY: the program's own arguments, but for a whole set of this frame's.
                unsafe { (next.real)(descriptor, others.as_ptr(), flags) }
            }
            _ => {
                sends::is_read_elsewhere();
                next.original()
            }
        }
    }
}

/// `sigwait(3)`: returns the error itself, and continues to wait after a handler of the program has run.
///
/// # Safety
/// As for `sigwait(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigwait(set: *const c_void, signal: *mut c_int) -> c_int {
    loop {
        // SAFETY: the program vouches for the set; null means no record.
        let got = unsafe { sigwaitinfo(set, core::ptr::null_mut()) };
        if got > 0 {
            // SAFETY: the program vouches for a place for a number.
            unsafe { *signal = got };
            return 0;
        }
        match errno() {
            EINTR => {}
            error => return error,
        }
    }
}
