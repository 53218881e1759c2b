//! Numbers as values of options.

use std::time::Duration;

/// A whole number, as an option's value.
pub(super) fn whole<N: std::str::FromStr>(typed: &str) -> Result<N, &'static str> {
    typed.parse().map_err(|_| "must be a whole number")
}

/// The number of a process.
pub(super) fn pid(typed: &str) -> Result<u32, &'static str> {
    let number = typed.parse::<i32>().ok().filter(|number| *number > 0);
    number.map(i32::cast_unsigned).ok_or("must be the number of a process (`pgrep NAME` finds it)")
}

/// A number of seconds, whole or not.
pub(super) fn seconds(typed: &str) -> Result<Duration, String> {
    let number: f64 = typed.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(number).map_err(|_| "not a time that can be waited for".to_owned())
}
