//! Time in a measurement: ticks of the time stamp counter as nanoseconds.

use std::time::{Duration, Instant, SystemTime};

/// How long a tick of the time stamp counter is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TickLength {
    pub(crate) ns_per_tick: f64,
}

impl TickLength {
    pub(crate) fn ns(self, ticks: u64) -> u64 {
        (ticks as f64 * self.ns_per_tick) as u64
    }
}

/// When the measurement began, by each clock.
pub(crate) struct Beginning {
    at: Instant,
    /// Since 1970.
    pub(crate) unix_ns: u64,
    ticks: u64,
}

impl Beginning {
    pub(crate) fn now() -> Beginning {
        Beginning {
            at: Instant::now(),
            unix_ns: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64),
            ticks: ticks(),
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.at.elapsed()
    }

    /// Time from it to a moment, nanoseconds.
    pub(crate) fn until_ns(&self, moment: Instant) -> u64 {
        moment.saturating_duration_since(self.at).as_nanos() as u64
    }

    /// The best estimate so far of a tick's length.
    pub(crate) fn time_base(&self) -> TimeBase {
        let (elapsed, passed) = (self.elapsed(), ticks().saturating_sub(self.ticks));
        let ns = elapsed.as_nanos() as f64;
        TimeBase {
            begin_ticks: self.ticks,
            begin_mono_ns: clock_ns(libc::CLOCK_MONOTONIC).saturating_sub(self.elapsed().as_nanos() as u64),
            tick: TickLength { ns_per_tick: if passed == 0 { 1.0 } else { ns / passed as f64 } },
        }
    }
}

/// The time base of the measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeBase {
    begin_ticks: u64,
    /// The monotonic clock then.
    pub(crate) begin_mono_ns: u64,
    pub(crate) tick: TickLength,
}

impl TimeBase {
    /// Of ticks, since the measurement began.
    pub(crate) fn since_begin_ns(self, ticks: u64) -> u64 {
        self.tick.ns(ticks.saturating_sub(self.begin_ticks))
    }

    /// Of ticks, by the monotonic clock.
    pub(crate) fn monotonic_ns(self, ticks: u64) -> u64 {
        self.begin_mono_ns.saturating_add(self.since_begin_ns(ticks))
    }
}

/// The CPU time that this process has taken.
pub(crate) fn own_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    // SAFETY: a valid place.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(clock, &mut time);
        time
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The time stamp counter.
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The counter's rate, measured over a tenth of a millisecond, which is good to a part in a thousand.
pub(crate) fn ticks_per_ms() -> u64 {
    const OVER: Duration = Duration::from_micros(100);
    let (began, first) = (Instant::now(), ticks());
    loop {
        let passed = began.elapsed();
        if passed >= OVER {
            return (ticks().saturating_sub(first) as f64 * 1e6 / passed.as_nanos() as f64) as u64;
        }
    }
}
