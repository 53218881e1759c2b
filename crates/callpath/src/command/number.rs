//! Numbers as values of options.

/// A whole number, as an option's value.
pub(super) fn whole<N: std::str::FromStr>(typed: &str) -> Result<N, &'static str> {
    typed.parse().map_err(|_| "must be a whole number")
}
