//! Periods and rates as a person types them, and their bounds.

use callpath_target::Every;

use super::error::EventError;

/// Samples a second of a thread, at most. A sample costs the kernel 15 to 20 us: faster ones would leave the program no time.
pub const HIGHEST_RATE: u64 = 20_000;
/// Nanoseconds; a longer period is no sampling.
const LONGEST_PERIOD_NS: u64 = 1_000_000_000;

/// The period of a rate (samples a second), nanoseconds.
pub(super) fn period_of_rate(rate: u64) -> Result<u64, EventError> {
    Ok(1_000_000_000 / rate_in_range(rate)?)
}

/// The same rate, if it is one that can be kept up.
pub(super) fn rate_in_range(rate: u64) -> Result<u64, EventError> {
    if (1..=HIGHEST_RATE).contains(&rate) { Ok(rate) } else { Err(EventError::Rate(rate)) }
}

/// The same period of a clock (nanoseconds), if there is any use in it.
pub(super) fn clock_period_in_range(period: u64, as_typed: &str) -> Result<u64, EventError> {
    let wrong = || EventError::ClockPeriod(as_typed.to_owned());
    if (1_000_000_000 / HIGHEST_RATE..=LONGEST_PERIOD_NS).contains(&period) { Ok(period) } else { Err(wrong()) }
}

/// Parses the text behind the `@` of a clock: nanoseconds.
pub(super) fn clock_period(suffix: &str) -> Result<u64, EventError> {
    let wrong = || EventError::ClockPeriod(suffix.to_owned());
    let period = match suffix.strip_prefix('f') {
        Some(rate) => period_of_rate(rate.parse().map_err(|_| wrong())?)?,
        None => suffix.parse().map_err(|_| wrong())?,
    };
    clock_period_in_range(period, suffix)
}

/// Parses the text behind the `@` of a counter.
pub(super) fn counter_period(suffix: &str) -> Result<Every, EventError> {
    let wrong = || EventError::Period(suffix.to_owned());
    match suffix.strip_prefix('f') {
        Some(rate) => Ok(Every::Rate(rate_in_range(rate.parse().map_err(|_| wrong())?)?)),
        None => match suffix.parse() {
            // The kernel refuses a period with the highest bit.
            Ok(period) if (1..1 << 63).contains(&period) => Ok(Every::Period(period)),
            _ => Err(wrong()),
        },
    }
}
