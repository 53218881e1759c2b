//! The clocks that a sample reads.
//! Knows nothing of what is done with the time.

use crate::syscall::{call4, number};

/// Time stamp counter, ticks. Cheap; the recorder knows how long a tick is.
#[inline]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has it; where the kernel forbids it (PR_TSC), so is all else that reads time.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The calling thread's time on a CPU, user and kernel, nanoseconds.
#[inline]
pub fn thread_cpu_ns() -> u64 {
    const THREAD_CPUTIME: usize = 3;
    clock_gettime(THREAD_CPUTIME)
}

/// Time that passed since some moment, nanoseconds.
#[inline]
pub fn monotonic_ns() -> u64 {
    const MONOTONIC: usize = 1;
    clock_gettime(MONOTONIC)
}

/// The calling thread's user time and kernel time as the kernel divides its CPU time, nanoseconds (microseconds
/// resolution). Their sum is the CPU time.
#[inline]
pub fn thread_user_kernel_ns() -> (u64, u64) {
    const RUSAGE_THREAD: usize = 1;
    let mut usage = [0u64; 18];
    // SAFETY: `usage` has the size of `struct rusage`, 144 bytes.
    unsafe { call4(number::GETRUSAGE, RUSAGE_THREAD, usage.as_mut_ptr() as usize, 0, 0) };
    (usage[0] * 1_000_000_000 + usage[1] * 1_000, usage[2] * 1_000_000_000 + usage[3] * 1_000)
}

#[inline]
fn clock_gettime(clock: usize) -> u64 {
    let mut time = [0u64; 2];
    // SAFETY: `time` has the size of `struct timespec`.
    unsafe { call4(number::CLOCK_GETTIME, clock, time.as_mut_ptr() as usize, 0, 0) };
    time[0].wrapping_mul(1_000_000_000).wrapping_add(time[1])
}
