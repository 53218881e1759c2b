//! Histograms as they lie in the columns of a profile: a bin each, that of bin `b` with values from 2^b up to 2^(b + 1).

use callpath_db::{Metric, MetricType};

/// Which columns are one metric: the first of them, and how many.
pub(crate) fn groups(metrics: &[Metric]) -> impl Iterator<Item = (usize, usize)> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let first = next;
        let metric = metrics.get(first)?;
        next += 1;
        let is_next_bin = |bin: u32, other: &Metric| {
            other.value == MetricType::Histogram { bin } && (&other.name, &other.unit) == (&metric.name, &metric.unit)
        };
        if let MetricType::Histogram { bin } = metric.value {
            while metrics.get(next).is_some_and(|other| is_next_bin(bin + (next - first) as u32, other)) {
                next += 1;
            }
        }
        Some((first, next - first))
    })
}

/// The bin in which so many thousandths of the values are reached, the smallest first. `None`: there are no values.
pub(crate) fn quantile(bins: &[u64], thousandths: u64) -> Option<u32> {
    let all: u128 = bins.iter().map(|count| u128::from(*count)).sum();
    let mut below = 0;
    let reached = (0u32..).zip(bins).find(|(_, count)| {
        below += u128::from(**count);
        below > 0 && below * 1000 >= all * u128::from(thousandths)
    });
    reached.map(|(bin, _)| bin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_reached_in_a_bin() {
        let bins = [0, 50, 40, 0, 9, 1];
        let found = [0, 500, 501, 900, 901, 990, 991, 1000].map(|thousandths| quantile(&bins, thousandths));
        assert_eq!(found, [1, 1, 2, 2, 4, 4, 5, 5].map(Some));
        assert_eq!([quantile(&[], 500), quantile(&[0, 0], 500)], [None, None]);
        assert_eq!(quantile(&[u64::MAX, u64::MAX], 501), Some(1));
    }
}
