//! Median and spread of a few figures.

use std::fmt;

/// Median and quartiles of some figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The lower quartile.
    pub low: f64,
    /// The upper quartile.
    pub high: f64,
}

/// Their spread; NaN if there are no figures.
pub fn spread(figures: &[f64]) -> Spread {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    Spread { median: quantile(&sorted, 0.5), low: quantile(&sorted, 0.25), high: quantile(&sorted, 0.75) }
}

/// Their median; NaN if there are no figures.
pub fn median(figures: &[f64]) -> f64 {
    spread(figures).median
}

fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = share * last as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

/// `1.043 (1.031-1.052)`; the number of decimals is the format's precision.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(3);
        write!(f, "{:.digits$} ({:.digits$}-{:.digits$})", self.median, self.low, self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middle_and_quartiles() {
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Spread { median: 2.0, low: 1.5, high: 2.5 });
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert!(median(&[]).is_nan());
        assert_eq!(format!("{:.1}", spread(&[1.0])), "1.0 (1.0-1.0)");
    }
}
