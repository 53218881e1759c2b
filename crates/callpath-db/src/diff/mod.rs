//! What changed between two sides of runs: each difference with an interval, and whether it is more than noise.
//!
//! Contexts are matched by what their scopes are called in the source. Everything is about cost, never about shares: a
//! procedure does not change because another one did.

mod alike;
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

pub use fuzzing::fuzz_diff;
use identity::Identity;
pub use matched::Matched;
use matching::{Joined, Joining, Side};
use rows::Costs;
pub use statistics::{CONFIDENCE, Test};
use statistics::{Runs, discoveries, estimate};
use units::Units;

use crate::{Metric, Profile, QueryError, ScopeKind, ViewKind};

/// What is compared, and how.
#[derive(Clone, Debug)]
pub struct DiffOptions {
    /// The metric by name; none: the first of side A.
    pub metric: Option<String>,
    /// Names of procedures and modules on side A with those that they have on side B.
    pub renames: Vec<(String, String)>,
    /// Run number i of side A ran beside run number i of side B.
    pub paired: bool,
    /// Of all differences that are reported, the share that may be none.
    pub false_discovery_rate: f64,
    /// What side B is expected to cost.
    pub expectation: Expectation,
    /// Slower by more than this share is a regression.
    pub fail_above: Option<f64>,
    /// A view that is wanted beside call paths.
    pub view: Option<ViewKind>,
}

impl Default for DiffOptions {
    fn default() -> Self {
        DiffOptions {
            metric: None,
            renames: Vec::new(),
            paired: false,
            false_discovery_rate: 0.01,
            expectation: Expectation::Same,
            fail_above: None,
            view: None,
        }
    }
}

/// What side B is expected to cost, given side A (Coarfa et al. 2007).
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Expectation {
    /// The same.
    Same,
    /// Each process, or thread where there is one process, this many times less: as many times more share the same work.
    Strong(f64),
    /// Each process, or thread, the same: each has the same work.
    Weak,
}

/// Why two sides cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    /// A side without runs.
    #[error("failed to compare: a side has no run")]
    NoRuns,
    /// A profile lacks the metric.
    #[error("failed to find the metric {wanted:?} in each measurement; one has: {}", there.join(", "))]
    NoSuchMetric {
        /// As asked.
        wanted: String,
        /// Of the profile that lacks it.
        there: Vec<String>,
    },
    /// Differences of such values mean nothing.
    #[error("failed to compare by {metric:?}: it does not add up")]
    DoesNotAddUp {
        /// Its name.
        metric: String,
    },
    /// Pairs need as many runs on either side.
    #[error("failed to pair {a} runs with {b}")]
    NoPairs {
        /// Runs of side A.
        a: usize,
        /// Runs of side B.
        b: usize,
    },
    /// A profile has no answer.
    #[error(transparent)]
    Query(#[from] QueryError),
}

/// The difference of the means of both sides.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Change {
    /// Mean of side A, or what is expected of side B by it.
    pub a: f64,
    /// Mean of side B.
    pub b: f64,
    /// With the probability [`CONFIDENCE`], the true difference is not further than this from `b - a`.
    pub half_width: f64,
    /// Probability of such a difference where there is none.
    pub probability: f64,
    /// More than noise, with false discoveries controlled.
    pub is_found: bool,
}

impl Change {
    /// B less A.
    pub fn difference(&self) -> f64 {
        self.b - self.a
    }

    /// The difference as a share of A; none where A is nothing.
    pub fn relative(&self) -> Option<f64> {
        (self.a > 0.0).then(|| self.difference() / self.a)
    }

    /// The ends of the interval as shares of A.
    pub fn relative_interval(&self) -> Option<(f64, f64)> {
        let end = |difference: f64| difference / self.a;
        (self.a > 0.0).then(|| (end(self.difference() - self.half_width), end(self.difference() + self.half_width)))
    }
}

/// How often a procedure returned, and what it cost each time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Calls {
    /// Returns.
    pub returns: Change,
    /// Inclusive cost of a return on side A and on side B.
    pub cost_each: [f64; 2],
}

/// A procedure on both sides, inlined copies and all contexts together.
#[derive(Clone, Debug)]
pub struct ProcedureChange {
    /// Its name; of one without, its address.
    pub name: String,
    /// Its module.
    pub module: String,
    /// Cost of its own body.
    pub own: Change,
    /// Cost while it was active.
    pub inclusive: Change,
    /// The change of its own cost is that of these other procedures with the opposite sign.
    pub moved: Vec<String>,
    /// Where both sides counted returns, and activations were long enough for the count to be one of calls.
    pub calls: Option<Calls>,
    /// It is slower than allowed.
    pub is_regression: bool,
}

/// A row of a view on both sides.
#[derive(Clone, Debug)]
pub struct RowChange {
    /// The one above, by its number in the list; none of the root.
    pub parent: Option<usize>,
    /// What it is.
    pub kind: ScopeKind,
    /// Its name.
    pub name: String,
    /// Its module; empty for what has none.
    pub module: String,
    /// The cost of it and all that it calls; of a loop, of its own body.
    pub inclusive: Change,
    /// The cost of its own body. Of a caller, that of the procedure that it calls.
    pub own: Change,
    /// A context whose procedure as a whole did not change: it is called here instead of elsewhere. In other views, its cost
    /// went to another procedure or came from one.
    pub is_moved: bool,
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Diff {
    /// What was compared.
    pub metric: Metric,
    /// Runs of side A and side B.
    pub runs: [usize; 2],
    /// How it was tested.
    pub test: Test,
    /// Of all differences that are reported, the share that may be none, on average.
    pub false_discovery_rate: f64,
    /// What B was expected to cost.
    pub expectation: Expectation,
    /// How much is compared.
    pub matched: Matched,
    /// The whole.
    pub total: Change,
    /// The whole is slower than allowed.
    pub total_is_regression: bool,
    /// What may be slower, as a share.
    pub fail_above: Option<f64>,
    /// By the size of the difference of own cost, those that are more than noise first.
    pub procedures: Vec<ProcedureChange>,
    /// Procedures with too few samples on both sides together to be tested.
    pub too_small: usize,
    /// Call paths in preorder, children by the size of the difference.
    pub contexts: Vec<RowChange>,
    /// Procedures, below each its callers; in preorder. Empty unless wanted.
    pub callers: Vec<RowChange>,
    /// Modules, files, procedures and loops, in preorder. Empty unless wanted.
    pub flat: Vec<RowChange>,
}

/// What has fewer samples in all runs of both sides together is not tested: it cannot be found, and would hide others.
const LEAST_SAMPLES: f64 = 5.0;
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
            (_, [1, _] | [_, 1]) => Test::Sampling,
            (true, _) => Test::Paired,
            (false, _) => Test::Welch,
        };
        Ok(Comparison::new(joined, test, options).answer(metric))
    }
}

/// Costs of both sides, ready to be tested.
struct Comparison<'a> {
    joined: Joined,
    test: Test,
    options: &'a DiffOptions,
    /// By run, what costs are multiplied by before they are compared.
    factors: Vec<f64>,
    /// By run, what a sample costs, multiplied by that.
    sample_costs: Vec<f64>,
}

impl<'a> Comparison<'a> {
    fn new(joined: Joined, test: Test, options: &'a DiffOptions) -> Self {
        let has_processes = joined.units.iter().any(|units| units.processes > 1);
        let count = |units: &Units| if has_processes { units.processes } else { units.threads };
        let per_unit = |units: &Units| 1.0 / count(units).max(1) as f64;
        let factor = |(run, units): (usize, &Units)| match options.expectation {
            Expectation::Same => 1.0,
            Expectation::Strong(times) if run < joined.runs_of_a => per_unit(units) / times,
            Expectation::Strong(_) | Expectation::Weak => per_unit(units),
        };
        let factors: Vec<f64> = joined.units.iter().enumerate().map(factor).collect();
        let sample_costs = joined.sample_costs.iter().zip(&factors).map(|(cost, factor)| cost * factor).collect();
        Comparison { joined, test, options, factors, sample_costs }
    }

    /// The change of something by its cost in each run.
    fn change(&self, costs: &[f64]) -> Change {
        let (a, b) = self.sides(costs, &self.sample_costs);
        let found = estimate(self.test, a, b);
        let (half_width, probability) = (found.half_width(), found.two_sided());
        Change { a: a.mean(), b: b.mean(), half_width, probability, is_found: false }
    }

    /// Whether B is above A by more than a share: the probability of what is seen if it is not.
    fn probability_above(&self, costs: &[f64], share: f64) -> f64 {
        let raised = |costs: &[f64]| -> Vec<f64> {
            let is_a = |run: usize| run < self.joined.runs_of_a;
            costs.iter().enumerate().map(|(run, cost)| if is_a(run) { cost * (1.0 + share) } else { *cost }).collect()
        };
        let (costs, sample_costs) = (raised(costs), raised(&self.sample_costs));
        let (a, b) = self.sides(&costs, &sample_costs);
        estimate(self.test, a, b).above()
    }

    fn sides<'c>(&self, costs: &'c [f64], sample_costs: &'c [f64]) -> (Runs<'c>, Runs<'c>) {
        let (of_a, of_b) = costs.split_at(self.joined.runs_of_a);
        let (samples_a, samples_b) = sample_costs.split_at(self.joined.runs_of_a);
        (Runs { costs: of_a, sample_costs: samples_a }, Runs { costs: of_b, sample_costs: samples_b })
    }

    /// Whether there are enough samples to test it.
    fn is_tested(&self, costs: &[f64]) -> bool {
        let samples =
            costs.iter().zip(&self.sample_costs).map(|(cost, of_one)| if *of_one > 0.0 { cost / of_one } else { 0.0 });
        samples.sum::<f64>() >= LEAST_SAMPLES
    }

    /// Marks the changes that are more than noise; `None` in place of a cost that is not tested.
    fn mark(&self, changes: Vec<(&mut Change, bool)>) {
        let (mut changes, _): (Vec<_>, Vec<_>) = changes.into_iter().partition(|(_, is_tested)| *is_tested);
        let probabilities: Vec<f64> = changes.iter().map(|(change, _)| change.probability).collect();
        let found = discoveries(&probabilities, self.options.false_discovery_rate);
        changes.iter_mut().zip(found).for_each(|((change, _), is_found)| change.is_found = is_found);
    }

    /// By row, by run, from by run, by row.
    fn rows(&self, costs: &[Vec<f64>], row: usize) -> Vec<f64> {
        costs.iter().zip(&self.factors).map(|(run, factor)| run[row] * factor).collect()
    }

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

    /// Name and module of a procedure.
    fn named(&self, procedure: usize) -> (String, String) {
        match self.joined.procedures[procedure] {
            Identity::Frame { module, name } => (self.joined.strings.get(name).to_owned(), self.joined.module(module)),
            Identity::Unnamed { module, address } => (format!("{address:#x}"), self.joined.module(module)),
            Identity::Other { name, .. } => (self.joined.strings.get(name).to_owned(), String::new()),
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
