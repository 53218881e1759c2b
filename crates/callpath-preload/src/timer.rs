//! A timer for each thread, used if perf_event's clock is not available or does not count kernel time.

use callpath_collect::syscall::{call4, gettid};
use callpath_collect::{Process, Thread};
use callpath_format::shared::{Settings, Source};
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::libc::{SIGTRAP, syscall_number};

const CLOCK_MONOTONIC: usize = 1;
const CLOCK_THREAD_CPUTIME: usize = 3;
const SIGEV_THREAD_ID: i32 = 4;
/// The kernel's ticks are at least this far apart; a faster timer on a CPU clock would not be served.
const SHORTEST_TICK_NS: u64 = 1_000_000;

/// `struct sigevent`
#[repr(C)]
struct Event {
    value: u64,
    signal: i32,
    notify: i32,
    tid: i32,
    padding: [i32; 11],
}

/// Starts the calling thread's timer if the process's source asks for one.
pub fn start(process: &Process<'_>, thread: &Thread<'_>) {
    let settings = &process.session.settings;
    let (clock, period_ns) = match Source::from_u32(process.slot.source.load(Acquire)) {
        Source::None | Source::Clock | Source::Refused | Source::Outside => return,
        Source::UserClock if settings.uses(Settings::CPU_TIME) => (CLOCK_THREAD_CPUTIME, SHORTEST_TICK_NS),
        Source::UserClock => return,
        Source::CpuTimer => (CLOCK_THREAD_CPUTIME, settings.period_ns),
        Source::WallTimer => (CLOCK_MONOTONIC, settings.period_ns),
    };
    let event = Event { value: 0, signal: SIGTRAP, notify: SIGEV_THREAD_ID, tid: gettid() as i32, padding: [0; 11] };
    let mut timer = 0i32;
    let (event_at, timer_at) = (core::ptr::from_ref(&event) as usize, core::ptr::from_mut(&mut timer) as usize);
    // SAFETY: the kernel reads a `struct sigevent` and writes a number; both live in this frame.
    if unsafe { call4(syscall_number::TIMER_CREATE, [clock, event_at, timer_at, 0]) } != 0 {
        process.session.lost_timers.fetch_add(1, Relaxed);
        return;
    }
    let time = [period_ns / 1_000_000_000, period_ns % 1_000_000_000];
    let setting = [time, time];
    // SAFETY: the kernel reads a `struct itimerspec`, which `setting` is: two times of two words.
    unsafe { call4(syscall_number::TIMER_SETTIME, [timer as usize, 0, setting.as_ptr() as usize, 0]) };
    thread.record.timer.store(timer as u32 + 1, Relaxed);
}

/// Ends a thread's timer.
pub fn stop(thread: &Thread<'_>) {
    if let Some(timer) = thread.record.timer.swap(0, Relaxed).checked_sub(1) {
        // SAFETY: deletes a timer of our own.
        unsafe { call4(syscall_number::TIMER_DELETE, [timer as usize, 0, 0, 0]) };
    }
}
