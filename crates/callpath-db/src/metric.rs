//! Columns of a profile that are computed from others.

use callpath_schema::{Formula, Metric, MetricKind, MetricType};

use crate::rows::{Row, Rows};

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

    /// Computes its column of `rows`; `counts`: for each row what was counted of
    /// the procedure, 0 for rows of other scopes.
    pub(crate) fn fill(self, rows: &mut Rows, counts: &[u64]) {
        let share = |(row, count): (Row<'_>, &u64)| row.get(self.cost).checked_div(*count).unwrap_or(0);
        let shares: Vec<u64> = rows.iter().zip(counts).map(share).collect();
        rows.set_column(self.column, shares);
    }
}

/// The column of a metric that is stored.
fn stored(metrics: &[Metric], name: &str) -> Option<usize> {
    metrics.iter().position(|metric| metric.name == name && !matches!(metric.kind, MetricKind::Derived(_)))
}

/// Fills the columns of `rows` that are ratios of others.
pub(crate) fn fill_ratios(metrics: &[Metric], rows: &mut Rows) {
    for (column, metric) in metrics.iter().enumerate() {
        let MetricKind::Derived(Formula::Ratio { numerator, denominator, scale }) = &metric.kind else { continue };
        let (Some(above), Some(below)) = (stored(metrics, numerator), stored(metrics, denominator)) else { continue };
        let ratio = |(above, below): (u64, u64)| match metric.value {
            MetricType::Real if below > 0 => (above as f64 * *scale as f64 / below as f64).to_bits(),
            MetricType::Real => 0,
            _ => {
                let ratio = (u128::from(above) * u128::from(*scale)).checked_div(u128::from(below)).unwrap_or(0);
                u64::try_from(ratio).unwrap_or(u64::MAX)
            }
        };
        let ratios: Vec<u64> = rows.iter().map(|row| ratio((row.get(above), row.get(below)))).collect();
        rows.set_column(column, ratios);
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
        let mut rows = Rows::new(metrics.iter().map(Metric::rule));
        for (row, values) in [[200, 0, 51, 0], [0, 0, 7, 0]].iter().enumerate() {
            rows.push();
            rows.add_row(row, values);
        }
        fill_ratios(&metrics, &mut rows);
        assert_eq!(rows.row(0), [200, 25, 51, 25.5f64.to_bits()]);
        assert_eq!(rows.row(1), [0, 0, 7, 0]);
    }
}
