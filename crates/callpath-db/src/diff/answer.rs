//! What is asked of a comparison, and what it answers.

use super::statistics::Test;
use crate::{Metric, ScopeKind, ViewKind};

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

/// Shares of the cost of A and of B.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Matched {
    /// In contexts that both have.
    pub both: [f64; 2],
    /// In calls that one side inlined and the other has no code of: compared as a part of their callers.
    pub at_caller: [f64; 2],
    /// In contexts that one side lacks, as expected of two equal programs: samples that happen to be on one side, of contexts
    /// that have few.
    pub by_chance: [f64; 2],
}
