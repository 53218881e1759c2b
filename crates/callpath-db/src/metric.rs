//! What is counted: a metric's name, unit, and how two values of it become one.
//! Refuses to know which event or clock a value came from.

/// One column of a profile. Metric 0 is the one that everything is ordered by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metric {
    /// As typed: `cpu-time`, `samples`.
    pub name: String,
    /// `ns`, `count` or `bytes`.
    pub unit: String,
    /// How values combine.
    pub kind: MetricKind,
    /// What a reader must know who would take it for something else.
    pub note: Option<String>,
}

impl Metric {
    /// A metric that adds up.
    pub fn sum(name: &str, unit: &str) -> Self {
        Metric { name: name.into(), unit: unit.into(), kind: MetricKind::Sum, note: None }
    }

    /// A high-water mark.
    pub fn max(name: &str, unit: &str) -> Self {
        Metric { name: name.into(), unit: unit.into(), kind: MetricKind::Max, note: None }
    }

    /// What `cost` is per `count` of a procedure's own: `cost-per-return` of `cost` and `returns`.
    pub fn per_own(cost: &Metric, count: &Metric) -> Self {
        let formula = Formula::PerOwn { cost: cost.name.clone(), count: count.name.clone() };
        Metric {
            name: format!("{}-per-{}", cost.name, count.name.strip_suffix('s').unwrap_or(&count.name)),
            unit: cost.unit.clone(),
            kind: MetricKind::Derived(formula),
            note: count.note.clone(),
        }
    }

    /// The same, with a note.
    pub fn noted(self, note: &str) -> Self {
        Metric { note: Some(note.into()), ..self }
    }
}

/// How two values of a metric become one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// They add up (saturating).
    Sum,
    /// The greater one stays: a high-water mark.
    Max,
    /// Stored nowhere; computed from the node's other metrics when a view is made.
    Derived(Formula),
}

impl MetricKind {
    /// `sum`, `max` or `derived`: the word of the JSON schema.
    pub fn word(&self) -> &'static str {
        match self {
            MetricKind::Sum => "sum",
            MetricKind::Max => "max",
            MetricKind::Derived(_) => "derived",
        }
    }
}

/// How a derived metric is computed. Metrics are referred to by name, so that merging may reorder columns.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Formula {
    /// `numerator * scale / denominator`, rounded down; 0 where the denominator is 0 or a metric is missing.
    Ratio {
        /// Name of the metric above the bar.
        numerator: String,
        /// Name of the metric below the bar.
        denominator: String,
        /// 100 for a percentage, and so on.
        scale: u64,
    },
    /// What a procedure costs for each time that something was counted of it itself, not of what it calls: `cost / count`,
    /// rounded down; the count is the procedure's own whichever cost it is. 0 where there is no count, and of all but
    /// procedures.
    PerOwn {
        /// Name of the metric that is shared out.
        cost: String,
        /// Name of the metric that counts.
        count: String,
    },
}

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

/// The combining rule of a column, without its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Combine {
    Add,
    Max,
    /// A derived column holds nothing until a view computes it.
    Nothing,
}

impl Combine {
    pub(crate) fn of(kind: &MetricKind) -> Self {
        match kind {
            MetricKind::Sum => Combine::Add,
            MetricKind::Max => Combine::Max,
            MetricKind::Derived(_) => Combine::Nothing,
        }
    }

    pub(crate) fn pair(self, a: u64, b: u64) -> u64 {
        match self {
            Combine::Add => a.saturating_add(b),
            Combine::Max => a.max(b),
            Combine::Nothing => 0,
        }
    }
}

/// `into = into (+) from`, column by column.
pub(crate) fn accumulate(rules: &[Combine], into: &mut [u64], from: &[u64]) {
    for ((rule, a), &b) in rules.iter().zip(into).zip(from) {
        *a = rule.pair(*a, b);
    }
}

/// Fills the derived columns of `rows`, a flat array of rows as wide as `metrics`.
pub(crate) fn fill_derived(metrics: &[Metric], rows: &mut [u64]) {
    for (column, metric) in metrics.iter().enumerate() {
        let MetricKind::Derived(Formula::Ratio { numerator, denominator, scale }) = &metric.kind else { continue };
        let (Some(above), Some(below)) = (stored(metrics, numerator), stored(metrics, denominator)) else { continue };
        for row in rows.chunks_exact_mut(metrics.len()) {
            let scaled = u128::from(row[above]) * u128::from(*scale);
            let ratio = scaled.checked_div(u128::from(row[below])).unwrap_or(0);
            row[column] = u64::try_from(ratio).unwrap_or(u64::MAX);
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
            Metric { name: "miss-rate".into(), unit: "percent".into(), kind: MetricKind::Derived(ratio), note: None },
            Metric::sum("misses", "count"),
        ];
        let mut rows = [200, 0, 50, 0, 0, 7];
        fill_derived(&metrics, &mut rows);
        assert_eq!(rows, [200, 25, 50, 0, 0, 7]);
    }
}
