//! What to record: events, rates, where.
//! Knows nothing of how it is done.

use std::ffi::OsString;
use std::path::PathBuf;

use callpath_format::shared::{MAX_METRICS, Settings};

/// A clock that samples are taken by and weighed with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// Time on a CPU, user and kernel.
    CpuTime,
    /// Time that passes.
    WallTime,
}

impl Clock {
    /// All of them.
    pub const ALL: [Clock; 2] = [Clock::CpuTime, Clock::WallTime];

    /// What a person types.
    pub fn name(self) -> &'static str {
        match self {
            Clock::CpuTime => "cpu-time",
            Clock::WallTime => "wall-time",
        }
    }

    pub(crate) fn code(self) -> u32 {
        match self {
            Clock::CpuTime => Settings::CPU_TIME,
            Clock::WallTime => Settings::WALL_TIME,
        }
    }
}

/// What a person asked for.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// The program as typed.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The clocks, the first one first; at least one.
    pub clocks: Vec<Clock>,
    /// Nanoseconds between two samples of a thread.
    pub period_ns: u64,
    /// Keep a trace.
    pub trace: bool,
    /// The measurement directory; `None`: `./<program>-<pid>.callpath`.
    pub output: Option<PathBuf>,
    /// Where recipe tables and the preload object are kept; `None`: nowhere, tables are made anew.
    pub cache: Option<PathBuf>,
    /// The preload object's bytes.
    pub preload: &'static [u8],
}

/// An event, a rate or a period that cannot be.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SettingsError {
    #[error("unknown event `{0}`; there are: cpu-time, wall-time")]
    Event(String),
    #[error("`{0}` is no period; write nanoseconds between samples (cpu-time@1000000) or a rate (cpu-time@f1000)")]
    Period(String),
    #[error("a rate of {0} samples a second is out of range; choose 1 to 20000")]
    Rate(u64),
    #[error("event `{0}` is asked for twice")]
    Twice(String),
}

/// The default: samples a second.
pub const DEFAULT_RATE: u64 = 1000;
/// A sample costs the kernel 15 to 20 us: faster ones would leave the program no time.
const HIGHEST_RATE: u64 = 20_000;

/// The period of a rate (samples a second), nanoseconds.
pub(crate) fn period_of_rate(rate: u64) -> Result<u64, SettingsError> {
    if (1..=HIGHEST_RATE).contains(&rate) { Ok(1_000_000_000 / rate) } else { Err(SettingsError::Rate(rate)) }
}

/// Reads `EVENT[@PERIOD|@fRATE]`: the clock, and the period in nanoseconds if there is one.
pub fn parse_event(text: &str) -> Result<(Clock, Option<u64>), SettingsError> {
    let (name, suffix) = match text.split_once('@') {
        Some((name, suffix)) => (name, Some(suffix)),
        None => (text, None),
    };
    let clock =
        Clock::ALL.into_iter().find(|c| c.name() == name).ok_or_else(|| SettingsError::Event(name.to_owned()))?;
    let Some(suffix) = suffix else { return Ok((clock, None)) };
    let wrong = || SettingsError::Period(suffix.to_owned());
    let period = match suffix.strip_prefix('f') {
        Some(rate) => period_of_rate(rate.parse().map_err(|_| wrong())?)?,
        None => suffix.parse().map_err(|_| wrong())?,
    };
    if (1_000_000_000 / HIGHEST_RATE..=1_000_000_000).contains(&period) {
        Ok((clock, Some(period)))
    } else {
        Err(wrong())
    }
}

impl RecordOptions {
    /// The events as typed (`-e`, in order) with a rate (`-F`): clocks, and the period. A period with an event stands
    /// above the rate; the first one given counts, since all clocks are read at each sample.
    pub fn clocks_and_period(events: &[String], rate: Option<u64>) -> Result<(Vec<Clock>, u64), SettingsError> {
        let mut clocks = Vec::new();
        let mut period = None;
        for event in events.iter().flat_map(|e| e.split(',')) {
            let (clock, its_period) = parse_event(event)?;
            if clocks.contains(&clock) {
                return Err(SettingsError::Twice(clock.name().to_owned()));
            }
            clocks.push(clock);
            period = period.or(its_period);
        }
        if clocks.is_empty() {
            clocks.push(Clock::CpuTime);
        }
        let of_rate = period_of_rate(rate.unwrap_or(DEFAULT_RATE))?;
        Ok((clocks, period.unwrap_or(of_rate)))
    }

    pub(crate) fn shared(&self, ticks_per_ms: u64) -> Settings {
        let mut clocks = [0; MAX_METRICS];
        for (to, clock) in clocks.iter_mut().zip(&self.clocks) {
            *to = clock.code();
        }
        Settings {
            metric_count: self.clocks.len().min(MAX_METRICS) as u32,
            clocks,
            flags: if self.trace { Settings::TRACE } else { 0 },
            period_ns: self.period_ns,
            rest_factor: 4,
            ticks_per_ms,
            raw_limit: 64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_as_typed() {
        assert_eq!(parse_event("cpu-time"), Ok((Clock::CpuTime, None)));
        assert_eq!(parse_event("wall-time@500000"), Ok((Clock::WallTime, Some(500_000))));
        assert_eq!(parse_event("cpu-time@f4000"), Ok((Clock::CpuTime, Some(250_000))));
        assert_eq!(parse_event("cycles"), Err(SettingsError::Event("cycles".into())));
        for wrong in ["cpu-time@", "cpu-time@x", "cpu-time@-5", "cpu-time@0", "cpu-time@fx", "cpu-time@99"] {
            assert!(matches!(parse_event(wrong), Err(SettingsError::Period(_))), "{wrong}");
        }
        assert_eq!(parse_event("cpu-time@f0"), Err(SettingsError::Rate(0)));
    }

    #[test]
    fn periods_stand_above_the_rate() {
        let events = |e: &[&str]| e.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let default = RecordOptions::clocks_and_period(&[], None).unwrap();
        assert_eq!(default, (vec![Clock::CpuTime], 1_000_000));
        let both = RecordOptions::clocks_and_period(&events(&["wall-time,cpu-time@f100"]), Some(50)).unwrap();
        assert_eq!(both, (vec![Clock::WallTime, Clock::CpuTime], 10_000_000));
        assert!(RecordOptions::clocks_and_period(&events(&["cpu-time", "cpu-time"]), None).is_err());
        assert!(RecordOptions::clocks_and_period(&[], Some(0)).is_err());
    }
}
