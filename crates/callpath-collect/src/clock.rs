//! Reads the clocks that a sample needs.

use callpath_format::shared::Settings;
use callpath_format::shared::refused::Calls;

use crate::refused;
use crate::syscall::{call4, number};

/// Time stamp counter, ticks. Cheap; the recorder knows how long a tick is.
#[inline]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has it; if the kernel forbids it (PR_TSC), other reads of time fail, too.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The calling thread's time on a CPU, user and kernel, nanoseconds. `None`: it cannot be read.
#[inline]
pub fn thread_cpu_ns() -> Option<u64> {
    const THREAD_CPUTIME: usize = 3;
    clock_gettime(THREAD_CPUTIME).or_else(|| {
        let usage = Usage::of_thread();
        (!refused::has(Calls::GETRUSAGE)).then_some(usage.user_ns + usage.kernel_ns)
    })
}

/// Time that passed since some moment, nanoseconds.
#[inline]
pub fn monotonic_ns() -> u64 {
    const MONOTONIC: usize = 1;
    clock_gettime(MONOTONIC).unwrap_or_else(|| refused::time_at(ticks()))
}

/// The kernel's usage statistics of the calling thread (getrusage).
#[derive(Clone, Copy, Default)]
pub struct Usage {
    /// User time and kernel time as the kernel divides its CPU time, nanoseconds
    /// (microseconds resolution). Their sum is the CPU time.
    pub user_ns: u64,
    /// See `user_ns`.
    pub kernel_ns: u64,
    /// Page faults that took no reading from a disk.
    pub minor_faults: u64,
    /// Those that did.
    pub major_faults: u64,
    /// How often it left a CPU.
    pub context_switches: u64,
}

impl Usage {
    /// Of the calling thread, now.
    #[inline]
    pub fn of_thread() -> Usage {
        const RUSAGE_THREAD: usize = 1;
        let mut usage = [0u64; 18];
        // SAFETY: `usage` has the size of `struct rusage`, 144 bytes.
        unsafe { call4(number::GETRUSAGE, [RUSAGE_THREAD, usage.as_mut_ptr() as usize, 0, 0]) };
        // A filter may also fake success: then nothing was written, not even the size of the thread's memory.
        if usage.iter().all(|word| *word == 0) {
            refused::learn(Calls::GETRUSAGE);
        }
        let ns = |seconds: u64, micros: u64| seconds * 1_000_000_000 + micros * 1_000;
        Usage {
            user_ns: ns(usage[0], usage[1]),
            kernel_ns: ns(usage[2], usage[3]),
            minor_faults: usage[8],
            major_faults: usage[9],
            context_switches: usage[16].wrapping_add(usage[17]),
        }
    }

    /// What a meter reads; 0 for one that is not of the usage.
    #[inline]
    pub fn reading(&self, meter: u32) -> u64 {
        match meter {
            Settings::PAGE_FAULTS => self.minor_faults.wrapping_add(self.major_faults),
            Settings::MINOR_FAULTS => self.minor_faults,
            Settings::MAJOR_FAULTS => self.major_faults,
            Settings::CONTEXT_SWITCHES => self.context_switches,
            _ => 0,
        }
    }
}

/// `None`: it is refused.
#[inline]
fn clock_gettime(clock: usize) -> Option<u64> {
    let mut time = [0u64; 2];
    // SAFETY: `time` has the size of `struct timespec`.
    let result = unsafe { call4(number::CLOCK_GETTIME, [clock, time.as_mut_ptr() as usize, 0, 0]) };
    // A filter may also fake success: then nothing was written.
    let ns = time[0].wrapping_mul(1_000_000_000).wrapping_add(time[1]);
    if result == 0 && ns == 0 {
        refused::learn(Calls::CLOCK_GETTIME);
    }
    (result == 0 && ns > 0).then_some(ns)
}
