//! What changed between two sides of runs: each difference with an interval, and whether it is more than noise.
//!
//! Contexts are matched by what their scopes are called in the source. Everything is about cost, never about shares: a
//! procedure does not change because another one did.

mod alike;
mod answer;
mod comparison;
mod error;
mod fuzzing;
mod identity;
mod matched;
mod matching;
mod moved;
mod regroup;
mod rows;
mod skipped;
mod spelling;
mod statistics;
mod units;

pub use answer::{Calls, Change, Diff, DiffOptions, Expectation, Matched, ProcedureChange, RowChange};
use comparison::Comparison;
pub use error::DiffError;
pub use fuzzing::fuzz_diff;
use matching::{Joining, Side};
use rows::Costs;
pub use statistics::{CONFIDENCE, Test, quantile as students_quantile};
use statistics::{discoveries, estimate};

use crate::{Metric, MetricSource, Profile, ViewKind};

/// Procedures below this share of the total are no regressions.
const LEAST_REGRESSING_SHARE: f64 = 0.01;

impl Diff {
    /// Compares the runs in `a` with those in `b`. A profile of several runs counts as that many.
    pub fn of(a: &[Profile], b: &[Profile], options: &DiffOptions) -> Result<Diff, DiffError> {
        let first = a.first().ok_or(DiffError::NoRuns)?;
        let wanted = options.metric.as_deref();
        let metric = match wanted {
            None => first.metrics.first().cloned(),
            Some(wanted) => first.metrics.iter().find(|metric| metric.name == wanted).cloned(),
        };
        let metric = metric.ok_or_else(|| DiffError::NoSuchMetric {
            wanted: wanted.unwrap_or_default().to_owned(),
            there: first.metrics.iter().map(|metric| metric.name.clone()).collect(),
        })?;
        let mut joining = Joining::new(&metric);
        for profile in a {
            joining.add(Side::A, profile, &options.renames)?;
        }
        for profile in b {
            joining.add(Side::B, profile, &[])?;
        }
        let joined = joining.finish();
        let runs = [joined.runs_of_a, joined.runs() - joined.runs_of_a];
        if runs.contains(&0) {
            return Err(DiffError::NoRuns);
        }
        let test = match (options.paired, runs) {
            (true, [a, b]) if a != b => return Err(DiffError::NoPairs { a, b }),
            (_, [1, _] | [_, 1]) if metric.source == MetricSource::Probes => Test::Counted,
            (_, [1, _] | [_, 1]) => Test::Sampling,
            (true, _) => Test::Paired,
            (false, _) => Test::Welch,
        };
        Ok(Comparison::new(joined, (test, &metric), options).answer(metric))
    }
}

impl Comparison<'_> {
    fn answer(self, metric: Metric) -> Diff {
        let inclusive = self.joined.inclusive();
        let count = self.joined.procedures.len();
        let mut own = vec![vec![0.0; self.joined.runs()]; count];
        let mut whole = own.clone();
        for (number, node) in self.joined.nodes.iter().enumerate() {
            let Some(procedure) = node.procedure else { continue };
            for run in 0..self.joined.runs() {
                own[procedure][run] += self.joined.own[run][number] * self.factors[run];
                whole[procedure][run] += inclusive[run][number] * self.factors[run];
            }
        }
        let total_costs = self.rows(&inclusive, 0);
        let mut total = self.change(&total_costs);
        let mut procedures: Vec<ProcedureChange> = (0..count)
            .map(|number| {
                let (name, module) = self.named(number);
                let (own, inclusive) = (self.change(&own[number]), self.change(&whole[number]));
                let calls = self.calls(number, &inclusive);
                ProcedureChange { name, module, own, inclusive, moved: Vec::new(), calls, is_regression: false }
            })
            .collect();
        let mut tested = vec![(&mut total, true)];
        for (number, procedure) in procedures.iter_mut().enumerate() {
            tested.push((&mut procedure.own, self.is_tested(&own[number])));
            tested.push((&mut procedure.inclusive, self.is_tested(&whole[number])));
        }
        self.mark(tested);
        let too_small = whole.iter().filter(|costs| !self.is_tested(costs)).count();
        for (number, with) in moved::moves(&self, &own, &procedures) {
            procedures[number].moved = with.iter().map(|&other| procedures[other].name.clone()).collect();
        }
        let mut total_is_regression = false;
        if let Some(share) = self.options.fail_above {
            let least = LEAST_REGRESSING_SHARE * total.a.max(total.b);
            let mut family = vec![(None, self.probability_above(&total_costs, share))];
            for (number, procedure) in procedures.iter().enumerate() {
                for (change, costs) in [(&procedure.own, &own[number]), (&procedure.inclusive, &whole[number])] {
                    // What is new is part of its callers.
                    let is_moved = !procedure.moved.is_empty() && std::ptr::eq(change, &raw const procedure.own);
                    if change.a > 0.0 && change.a.max(change.b) >= least && !is_moved {
                        family.push((Some(number), self.probability_above(costs, share)));
                    }
                }
            }
            let probabilities: Vec<f64> = family.iter().map(|(_, probability)| *probability).collect();
            let found = discoveries(&probabilities, self.options.false_discovery_rate);
            for ((number, _), _) in family.into_iter().zip(found).filter(|(_, is_found)| *is_found) {
                match number {
                    None => total_is_regression = true,
                    Some(number) => procedures[number].is_regression = true,
                }
            }
        }
        let costs = Costs { inclusive: &inclusive, procedures: &procedures };
        let contexts = self.contexts(&costs);
        let wanted = |view: ViewKind| self.options.view == Some(view);
        let callers = if wanted(ViewKind::Callers) { self.callers(&costs) } else { Vec::new() };
        let flat = if wanted(ViewKind::Flat) { self.flat(&costs) } else { Vec::new() };
        let size = |change: &Change| change.difference().abs();
        procedures.sort_by(|a, b| {
            b.own.is_found.cmp(&a.own.is_found).then(size(&b.own).total_cmp(&size(&a.own))).then(a.name.cmp(&b.name))
        });
        Diff {
            metric,
            runs: [self.joined.runs_of_a, self.joined.runs() - self.joined.runs_of_a],
            test: self.test,
            false_discovery_rate: self.options.false_discovery_rate,
            expectation: self.options.expectation,
            matched: self.matched(&inclusive),
            total,
            total_is_regression,
            fail_above: self.options.fail_above,
            procedures,
            too_small,
            contexts,
            callers,
            flat,
        }
    }

    /// A return is counted of an activation that met a sample. Where most meet more than one, few met none, and the
    /// count is one of calls.
    fn calls(&self, procedure: usize, inclusive: &Change) -> Option<Calls> {
        const SAMPLES_EACH: f64 = 2.0;
        let counts: Vec<f64> =
            self.joined.returns.iter().map(|run| run.get(procedure).copied()).collect::<Option<_>>()?;
        let one = vec![1.0; counts.len()];
        let (a, b) = self.sides(&counts, &one);
        let found = estimate(self.test, a, b);
        let probability = found.two_sided();
        let is_found = probability <= self.options.false_discovery_rate;
        let half_width = found.half_width();
        let returns = Change { a: a.mean(), b: b.mean(), half_width, probability, is_found };
        let cost_each = [inclusive.a / returns.a, inclusive.b / returns.b];
        let least = SAMPLES_EACH * self.sample_costs.iter().copied().fold(0.0, f64::max);
        let is_told = cost_each.iter().all(|cost| cost.is_finite() && *cost >= least);
        is_told.then_some(Calls { returns, cost_each })
    }
}

#[cfg(test)]
mod tests;
