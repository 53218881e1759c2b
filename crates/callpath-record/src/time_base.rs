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
        let unix_ns = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        let (at, ticks) = by_both_clocks();
        Beginning { at, unix_ns, ticks }
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
        let (now, ticks) = by_both_clocks();
        let passed = ticks.saturating_sub(self.ticks);
        let ns = self.until_ns(now) as f64;
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

/// The monotonic clock, nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
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

/// One moment by the monotonic clock and by the counter. The counter is read on either side of the clock until both reads
/// lie close together: whoever loses the processor between two clocks takes times for one that are milliseconds apart.
fn by_both_clocks() -> (Instant, u64) {
    const TRIES: u32 = 32;
    /// Shorter than anything that takes the processor away.
    const CLOSE_TICKS: u64 = 1_000;
    let mut best: Option<(u64, Instant, u64)> = None;
    for _ in 0..TRIES {
        let before = ticks();
        let at = Instant::now();
        let apart = ticks().saturating_sub(before);
        if best.is_none_or(|(least, ..)| apart < least) {
            best = Some((apart, at, before + apart / 2));
        }
        if apart < CLOSE_TICKS {
            break;
        }
    }
    best.map_or_else(|| (Instant::now(), ticks()), |(_, at, ticks)| (at, ticks))
}

/// The counter's rate, measured over a tenth of a millisecond, which is good to a part in a thousand.
pub(crate) fn ticks_per_ms() -> u64 {
    const OVER: Duration = Duration::from_micros(100);
    let (began, first) = by_both_clocks();
    while began.elapsed() < OVER {}
    let (ended, last) = by_both_clocks();
    (last.saturating_sub(first) as f64 * 1e6 / ended.duration_since(began).as_nanos() as f64) as u64
}
