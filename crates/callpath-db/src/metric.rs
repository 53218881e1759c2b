//! Columns of a profile: rows of values combined, and those that are computed from others.
//! Refuses to know which event or clock a value came from.

use callpath_schema::{Formula, Metric, MetricKind, MetricType, Rule};

/// A derived column that is [`Formula::PerOwn`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerOwn {
    column: usize,
    cost: usize,
    /// The column of what counts.
    pub(crate) count: usize,
}

impl PerOwn {
    /// All of them.
    pub(crate) fn all(metrics: &[Metric]) -> Vec<PerOwn> {
        let columns = metrics.iter().enumerate().filter_map(|(column, metric)| {
            let MetricKind::Derived(Formula::PerOwn { cost, count }) = &metric.kind else { return None };
            Some(PerOwn { column, cost: stored(metrics, cost)?, count: stored(metrics, count)? })
        });
        columns.collect()
    }

    /// Computes the cell of a row; `count`: what was counted of the procedure.
    pub(crate) fn fill(self, row: &mut [u64], count: u64) {
        row[self.column] = row[self.cost].checked_div(count).unwrap_or(0);
    }
}

/// The column of a metric that is stored.
fn stored(metrics: &[Metric], name: &str) -> Option<usize> {
    metrics.iter().position(|metric| metric.name == name && !matches!(metric.kind, MetricKind::Derived(_)))
}

/// `into = into (+) from`, column by column.
pub(crate) fn accumulate(rules: &[Rule], into: &mut [u64], from: &[u64]) {
    for ((rule, a), &b) in rules.iter().zip(into).zip(from) {
        *a = rule.combine(*a, b);
    }
}

/// Fills the derived columns of `rows`, a flat array of rows as wide as `metrics`.
pub(crate) fn fill_derived(metrics: &[Metric], rows: &mut [u64]) {
    for (column, metric) in metrics.iter().enumerate() {
        let MetricKind::Derived(Formula::Ratio { numerator, denominator, scale }) = &metric.kind else { continue };
        let (Some(above), Some(below)) = (stored(metrics, numerator), stored(metrics, denominator)) else { continue };
        for row in rows.chunks_exact_mut(metrics.len()) {
            row[column] = match metric.value {
                MetricType::Real if row[below] > 0 => (row[above] as f64 * *scale as f64 / row[below] as f64).to_bits(),
                MetricType::Real => 0,
                _ => {
                    let scaled = u128::from(row[above]) * u128::from(*scale);
                    let ratio = scaled.checked_div(u128::from(row[below])).unwrap_or(0);
                    u64::try_from(ratio).unwrap_or(u64::MAX)
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_computed_per_row() {
        let ratio = Formula::Ratio { numerator: "misses".into(), denominator: "loads".into(), scale: 100 };
        let metrics = [
            Metric::sum("loads", "count"),
            Metric { kind: MetricKind::Derived(ratio.clone()), ..Metric::sum("miss-rate", "percent") },
            Metric::sum("misses", "count"),
            Metric {
                kind: MetricKind::Derived(ratio),
                value: MetricType::Real,
                ..Metric::sum("exact-miss-rate", "percent")
            },
        ];
        let mut rows = [200, 0, 51, 0, 0, 0, 7, 0];
        fill_derived(&metrics, &mut rows);
        assert_eq!(rows, [200, 25, 51, 25.5f64.to_bits(), 0, 0, 7, 0]);
    }
}
