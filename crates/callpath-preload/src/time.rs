//! Computes what is left of the time that a system call may wait.

use core::ffi::{c_int, c_long};

/// `struct timespec`
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Time {
    pub seconds: i64,
    pub nanoseconds: c_long,
}

impl Time {
    fn of_ns(ns: u64) -> Time {
        Time { seconds: (ns / 1_000_000_000) as i64, nanoseconds: (ns % 1_000_000_000) as c_long }
    }

    /// `None`: not a valid time; the real function returns the error.
    fn ns(self) -> Option<u64> {
        let seconds = u64::try_from(self.seconds).ok()?.checked_mul(1_000_000_000)?;
        seconds.checked_add(u64::try_from(self.nanoseconds).ok().filter(|n| *n < 1_000_000_000)?)
    }

    /// What is left after `passed_ns` nanoseconds; an invalid time stays as it is.
    pub fn without(self, passed_ns: u64) -> Time {
        match self.ns() {
            Some(ns) if passed_ns > 0 => Time::of_ns(ns.saturating_sub(passed_ns)),
            _ => self,
        }
    }
}

/// The same of milliseconds; below 0 there is no end.
pub fn left_ms(timeout: c_int, passed_ns: u64) -> c_int {
    if timeout <= 0 { timeout } else { (i64::from(timeout) - (passed_ns / 1_000_000) as i64).max(0) as c_int }
}
