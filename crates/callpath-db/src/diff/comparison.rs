//! Costs of both sides, ready to be tested: by run, whatever they are costs of.

use super::answer::{Change, DiffOptions, Expectation};
use super::identity::Identity;
use super::matching::Joined;
use super::statistics::{Runs, Test, discoveries, estimate};
use super::units::Units;
use crate::{Metric, MetricSource};

/// What has fewer samples in all runs of both sides together is not tested: it cannot be found, and would hide others.
const LEAST_SAMPLES: f64 = 5.0;

/// Costs of both sides, ready to be tested.
pub(super) struct Comparison<'a> {
    pub(super) joined: Joined,
    pub(super) test: Test,
    pub(super) options: &'a DiffOptions,
    /// By run, what costs are multiplied by before they are compared.
    pub(super) factors: Vec<f64>,
    /// By run, what a sample costs, multiplied by that.
    pub(super) sample_costs: Vec<f64>,
    /// The same, but 0 where everything was counted: there is no error of sampling.
    pub(super) errors: Vec<f64>,
}

impl<'a> Comparison<'a> {
    pub(super) fn new(joined: Joined, (test, metric): (Test, &Metric), options: &'a DiffOptions) -> Self {
        let has_processes = joined.units.iter().any(|units| units.processes > 1);
        let count = |units: &Units| if has_processes { units.processes } else { units.threads };
        let per_unit = |units: &Units| 1.0 / count(units).max(1) as f64;
        let factor = |(run, units): (usize, &Units)| match options.expectation {
            Expectation::Same => 1.0,
            Expectation::Strong(times) if run < joined.runs_of_a => per_unit(units) / times,
            Expectation::Strong(_) | Expectation::Weak => per_unit(units),
        };
        let factors: Vec<f64> = joined.units.iter().enumerate().map(factor).collect();
        let sample_costs: Vec<f64> =
            joined.sample_costs.iter().zip(&factors).map(|(cost, factor)| cost * factor).collect();
        let errors =
            if metric.source == MetricSource::Probes { vec![0.0; sample_costs.len()] } else { sample_costs.clone() };
        Comparison { joined, test, options, factors, sample_costs, errors }
    }

    /// The change of something by its cost in each run.
    pub(super) fn change(&self, costs: &[f64]) -> Change {
        let (a, b) = self.sides(costs, &self.errors);
        let found = estimate(self.test, a, b);
        let (half_width, probability) = (found.half_width(), found.two_sided());
        Change { a: a.mean(), b: b.mean(), half_width, probability, is_found: false }
    }

    /// Whether B is above A by more than a share: the probability of what is seen if it is not.
    pub(super) fn probability_above(&self, costs: &[f64], share: f64) -> f64 {
        let raised = |costs: &[f64]| -> Vec<f64> {
            let is_a = |run: usize| run < self.joined.runs_of_a;
            costs.iter().enumerate().map(|(run, cost)| if is_a(run) { cost * (1.0 + share) } else { *cost }).collect()
        };
        let (costs, sample_costs) = (raised(costs), raised(&self.errors));
        let (a, b) = self.sides(&costs, &sample_costs);
        estimate(self.test, a, b).above()
    }

    pub(super) fn sides<'c>(&self, costs: &'c [f64], sample_costs: &'c [f64]) -> (Runs<'c>, Runs<'c>) {
        let (of_a, of_b) = costs.split_at(self.joined.runs_of_a);
        let (samples_a, samples_b) = sample_costs.split_at(self.joined.runs_of_a);
        (Runs { costs: of_a, sample_costs: samples_a }, Runs { costs: of_b, sample_costs: samples_b })
    }

    /// Whether there are enough samples to test it.
    pub(super) fn is_tested(&self, costs: &[f64]) -> bool {
        let samples =
            costs.iter().zip(&self.sample_costs).map(|(cost, of_one)| if *of_one > 0.0 { cost / of_one } else { 0.0 });
        samples.sum::<f64>() >= LEAST_SAMPLES || self.errors.iter().all(|error| *error == 0.0)
    }

    /// Marks the changes that are more than noise; `None` in place of a cost that is not tested.
    pub(super) fn mark(&self, changes: Vec<(&mut Change, bool)>) {
        let (mut changes, _): (Vec<_>, Vec<_>) = changes.into_iter().partition(|(_, is_tested)| *is_tested);
        let probabilities: Vec<f64> = changes.iter().map(|(change, _)| change.probability).collect();
        let found = discoveries(&probabilities, self.options.false_discovery_rate);
        changes.iter_mut().zip(found).for_each(|((change, _), is_found)| change.is_found = is_found);
    }

    /// By row, by run, from by run, by row.
    pub(super) fn rows(&self, costs: &[Vec<f64>], row: usize) -> Vec<f64> {
        costs.iter().zip(&self.factors).map(|(run, factor)| run[row] * factor).collect()
    }

    /// Name and module of a procedure.
    pub(super) fn named(&self, procedure: usize) -> (String, String) {
        match self.joined.procedures[procedure] {
            Identity::Frame { module, name } => (self.joined.strings.get(name).to_owned(), self.joined.module(module)),
            Identity::Unnamed { module, address } => (format!("{address:#x}"), self.joined.module(module)),
            Identity::Other { name, .. } => (self.joined.strings.get(name).to_owned(), String::new()),
        }
    }
}
