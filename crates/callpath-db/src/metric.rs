//! Columns of a profile that are computed from others.

use callpath_schema::{Expression, Formula, Metric, MetricKind, MetricType, Operand, Value};

use crate::ScopeKind;
use crate::rows::{Row, Rows};

/// For each of `theirs` the column among `all`, made where there is none. The second of two equal metrics is the second
/// there too.
pub fn columns_for(all: &mut Vec<Metric>, theirs: &[Metric]) -> Vec<usize> {
    let mine = all.len();
    let mut taken = vec![false; mine];
    let column = |metric: &Metric| {
        let free = (0..mine).find(|&i| !taken[i] && all[i] == *metric);
        free.inspect(|&i| taken[i] = true).unwrap_or_else(|| {
            all.push(metric.clone());
            all.len() - 1
        })
    };
    theirs.iter().map(column).collect()
}

/// What was counted of each scope itself, of those metrics by which others are shared out: by row, 0 of all but procedures.
pub(crate) struct Counts {
    of: Vec<(PerOwn, Vec<u64>)>,
}

impl Counts {
    /// `own`: by row what each scope costs itself, if that is known; `kinds`: by row.
    pub(crate) fn of(metrics: &[Metric], own: Option<&Rows>, kinds: impl Iterator<Item = ScopeKind>) -> Counts {
        let all = PerOwn::all(metrics);
        // For most profiles nothing is to be done.
        let kinds: Vec<ScopeKind> = if all.is_empty() { Vec::new() } else { kinds.collect() };
        let of = all.into_iter().map(|per_own| {
            let count = |(row, kind): (usize, &ScopeKind)| {
                own.filter(|_| kind.is_frame()).map_or(0, |own| own.get(row, per_own.count))
            };
            (per_own, kinds.iter().enumerate().map(count).collect())
        });
        Counts { of: of.collect() }
    }
}

/// Fills the derived columns of tables whose rows stand for the same scopes. `totals`: one value per metric of everything
/// that is shown, the columns that are computed left out.
pub(crate) fn fill_derived(metrics: &[Metric], tables: &mut [&mut Rows], totals: &[u64], counts: &Counts) {
    tables.iter_mut().for_each(|rows| fill_ratios(metrics, rows));
    for (per_own, counts) in &counts.of {
        tables.iter_mut().for_each(|rows| per_own.fill(rows, counts));
    }
    let mut of_all = Rows::new(metrics.iter().map(Metric::rule));
    of_all.push();
    of_all.add_row(0, totals);
    fill_ratios(metrics, &mut of_all);
    // One may be made of others that stand before it.
    for (column, metric) in metrics.iter().enumerate() {
        if let MetricKind::Derived(Formula::Expression(expression)) = &metric.kind {
            let totals = of_all.clone();
            let typed = Typed::of(metrics, expression, column, &totals);
            typed.fill(&mut of_all);
            tables.iter_mut().for_each(|rows| typed.fill(rows));
        }
    }
}

/// A number, whatever its type.
fn as_real(metric: &Metric, bits: u64) -> f64 {
    match metric.value(bits) {
        Value::Integer(value) => value as f64,
        Value::Signed(value) => value as f64,
        Value::Real(value) => value,
    }
}

/// A derived column that is [`Formula::Expression`].
struct Typed<'a> {
    column: usize,
    expression: &'a Expression,
    /// For each operand what it is; `None`: no metric has its name.
    operands: Vec<Option<Known<'a>>>,
}

/// What an operand stands for.
enum Known<'a> {
    Column(usize, &'a Metric),
    Total(f64),
}

impl<'a> Typed<'a> {
    fn of(metrics: &'a [Metric], expression: &'a Expression, column: usize, totals: &Rows) -> Typed<'a> {
        let known = |operand: &Operand| {
            let (found, metric) = metrics.iter().enumerate().find(|(_, metric)| metric.name == operand.metric())?;
            Some(match operand {
                Operand::Metric(_) => Known::Column(found, metric),
                Operand::Total(_) => Known::Total(as_real(metric, totals.get(0, found))),
            })
        };
        Typed { column, expression, operands: expression.operands().map(known).collect() }
    }

    fn fill(&self, rows: &mut Rows) {
        let value = |row: Row<'_>| {
            let operand = |operand: usize| match self.operands[operand] {
                Some(Known::Column(column, metric)) => as_real(metric, row.get(column)),
                Some(Known::Total(total)) => total,
                None => 0.0,
            };
            self.expression.evaluate(operand).to_bits()
        };
        let values: Vec<u64> = rows.iter().map(value).collect();
        rows.set_column(self.column, values);
    }
}

/// A derived column that is [`Formula::PerOwn`].
#[derive(Clone, Copy, Debug)]
struct PerOwn {
    column: usize,
    cost: usize,
    /// The column of what counts.
    count: usize,
}

impl PerOwn {
    /// All of them.
    fn all(metrics: &[Metric]) -> Vec<PerOwn> {
        let columns = metrics.iter().enumerate().filter_map(|(column, metric)| {
            let MetricKind::Derived(Formula::PerOwn { cost, count }) = &metric.kind else { return None };
            Some(PerOwn { column, cost: stored(metrics, cost)?, count: stored(metrics, count)? })
        });
        columns.collect()
    }

    /// Computes its column of `rows`; `counts`: for each row what was counted of
    /// the procedure, 0 for rows of other scopes.
    fn fill(self, rows: &mut Rows, counts: &[u64]) {
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
fn fill_ratios(metrics: &[Metric], rows: &mut Rows) {
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
