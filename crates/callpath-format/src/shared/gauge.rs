//! What probes measure of a call: gauges. Each has a column, or several that follow each other: the bins of a histogram.
//!
//! The columns of probes follow each other, the calls first. If time is measured, it is next: routines of few instructions
//! add to these two ([`Gauge::CALLS_COLUMN`], [`Gauge::TICKS_COLUMN`]).

use super::columns::MetricSettings;
use super::session::Settings;

/// Which part of what its meter says a column of probes is ([`MetricSettings::part`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Part {
    /// Of an argument: which, from 1. Of several equal gauges, which.
    pub number: u8,
    /// Of an argument or a result: how many of its lowest bits count.
    pub bits: u8,
    /// Which of the gauge's columns it is: of a histogram its bin, of an expression 1 for calls of which it could not be
    /// computed.
    pub nth: u8,
    /// Of an expression, how long its program is ([`super::expression`]), words.
    pub program_words: u8,
    /// Where the program is in the published memory, in units of 8 bytes.
    pub program: u32,
}

impl Part {
    /// As a number.
    pub const fn to_u64(self) -> u64 {
        let [number, bits, nth, words] =
            [self.number as u64, self.bits as u64, self.nth as u64, self.program_words as u64];
        number | bits << 8 | nth << 16 | words << 24 | (self.program as u64) << 32
    }

    /// From a number.
    pub const fn from_u64(number: u64) -> Part {
        Part {
            number: number as u8,
            bits: (number >> 8) as u8,
            nth: (number >> 16) as u8,
            program_words: (number >> 24) as u8,
            program: (number >> 32) as u32,
        }
    }
}

/// What is measured of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gauge {
    /// What it reads: [`Settings::CALLS`] and what follows.
    pub meter: u32,
    /// Of its first column.
    pub part: Part,
    /// Its first column, counted from the first one of probes.
    pub column: u32,
    /// How many columns it has.
    pub columns: u32,
}

impl Gauge {
    /// The most that a measurement has: a bit of a word each.
    pub const MOST: usize = 32;
    /// No gauge.
    pub const NONE: Gauge = Gauge { meter: 0, part: Part::from_u64(0), column: 0, columns: 0 };
    /// The column of the calls.
    pub const CALLS_COLUMN: usize = 0;
    /// The column of the time, if it is measured.
    pub const TICKS_COLUMN: usize = 1;
    /// Of a histogram of times in nanoseconds: three days, and what is longer.
    pub const LATENCY_BINS: u32 = 48;

    /// Whether a procedure's exits must be probed for it.
    pub fn needs_exit(self) -> bool {
        !matches!(self.meter, Settings::CALLS | Settings::PROBED_ARGUMENT | Settings::PROBED_EXPRESSION)
    }

    /// Whether routines of few instructions measure it, which do nothing else.
    pub fn is_quick(self) -> bool {
        matches!(self.meter, Settings::CALLS | Settings::PROBED_TICKS | Settings::PROBED_CONTEXT)
    }

    /// The bin of a value: `floor(log2(value))`, 0 for 0, and the last one for all that lies beyond.
    pub fn bin(self, value: u64) -> u32 {
        (value | 1).ilog2().min(self.columns.saturating_sub(1))
    }
}

/// The gauges that columns belong to, in order; those of samples are left out.
pub fn gauges(metrics: impl Iterator<Item = MetricSettings>) -> impl Iterator<Item = Gauge> {
    let mut columns = metrics.filter(|metric| Settings::is_of_probes(metric.meter)).zip(0u32..).peekable();
    core::iter::from_fn(move || {
        let (first, column) = columns.next()?;
        let part = first.part();
        let is_same = |metric: &MetricSettings| {
            metric.meter == first.meter
                && Part { nth: part.nth, ..metric.part() } == part
                && metric.part().nth != part.nth
        };
        let mut count = 1;
        while columns.next_if(|(metric, _)| is_same(metric)).is_some() {
            count += 1;
        }
        Some(Gauge { meter: first.meter, part, column, columns: count })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    #[test]
    fn columns_that_differ_in_their_place_alone_are_one_gauge() {
        let setting = |meter, part: Part| MetricSettings { meter, period: part.to_u64() };
        let argument =
            |number, nth| setting(Settings::PROBED_ARGUMENT, Part { number, bits: 64, nth, ..Part::default() });
        let metrics = [
            setting(Settings::CPU_TIME, Part::default()),
            setting(Settings::CALLS, Part::default()),
            setting(Settings::PROBED_TICKS, Part::default()),
            argument(1, 0),
            argument(1, 1),
            argument(1, 2),
            argument(2, 0),
            argument(2, 1),
        ];
        let found: Vec<(u32, u8, u32, u32)> =
            gauges(metrics.into_iter()).map(|g| (g.meter, g.part.number, g.column, g.columns)).collect();
        assert_eq!(
            found,
            [
                (Settings::CALLS, 0, 0, 1),
                (Settings::PROBED_TICKS, 0, 1, 1),
                (Settings::PROBED_ARGUMENT, 1, 2, 3),
                (Settings::PROBED_ARGUMENT, 2, 5, 2)
            ]
        );
        let part = Part { number: 6, bits: 32, nth: 63, program_words: 200, program: 0x1234_5678 };
        assert_eq!(Part::from_u64(part.to_u64()), part);
    }

    #[test]
    fn bins_are_powers_of_two() {
        let of_64 = Gauge { columns: 64, ..Gauge::NONE };
        let bins = [0, 1, 2, 3, 4, 7, 8, u64::MAX].map(|value| of_64.bin(value));
        assert_eq!(bins, [0, 0, 1, 1, 2, 2, 3, 63]);
        assert_eq!(Gauge { columns: 48, ..Gauge::NONE }.bin(u64::MAX), 47);
    }
}
