//! A profile's answer to a question: by way of the tree that the question is about, and its costs.

mod callers;
mod costs;
mod flat;
mod meant;
mod members;
mod procedures;
mod question;
mod regions;
mod reshape;
mod select;
mod suffix;
mod view;
pub(crate) mod whole;

pub use meant::Meant;
pub use members::{ProcessCost, ThreadCost};
pub use procedures::{Inlined, ProcedureCost};
pub use question::{Order, Query, QueryError, Recursion, ViewKind};
pub use regions::Regions;
pub use view::{HandedOut, View, ViewNode};

use crate::rows::Rows;
use crate::{Profile, Scope, ScopeKind};
pub(crate) use costs::Costs;
pub(crate) use regions::are_among as has_regions;
pub(crate) use reshape::Counted;
pub(crate) use view::{among_equals, emit};

/// A tree with the costs of the calling context view.
pub(crate) fn of_contexts(asked: Counted) -> (Counted, Costs) {
    let costs = Costs::of(&asked.tree);
    (asked, costs)
}

/// The callers tree of a tree, with costs.
pub(crate) fn of_callers(asked: &Counted, query: &Query) -> (Counted, Costs) {
    callers::callers(asked, query)
}

/// The flat view's tree with all costs.
pub(crate) fn of_code(code: Counted, inclusive: Rows) -> (Counted, Costs) {
    let costs = flat::costs(&code.tree, inclusive);
    (code, costs)
}

/// The list of procedures with these costs, self and inclusive, of a whole.
pub(crate) fn of_procedures(
    profile: &Profile,
    scopes: Vec<Scope>,
    (self_cost, inclusive): (Rows, Rows),
    total: Vec<u64>,
) -> Vec<ProcedureCost> {
    procedures::procedures(profile, procedures::Tally { scopes, self_cost, inclusive, total })
}

impl Profile {
    /// Answers `query`.
    ///
    /// In every view the children of a node come in descending order of metric 0, inclusive, then by name. Inclusive
    /// never counts a sample twice, under any recursion; of the root it is the total of what was selected.
    ///
    /// - **context**: inclusive = exclusive + the children's inclusive, exactly, for metrics that add up. Self of a
    ///   procedure or inlined call is its own body with loops and lines; of a pruned node, the sum of those in it. So
    ///   the self of all nodes other than loops and lines adds up to the total.
    /// - **callers**: the first level is every scope with a cost of its own (procedures, inlined calls, each with its loops; a thread or
    ///   partial root where no frame was known), inclusive = its self cost; below are its callers, and the loops that they call it
    ///   from, with the part of that cost that came through them. Exclusive is the part for which there was no further caller, so inclusive =
    ///   exclusive + children here too. Self is the cost on the first level, 0 below. Where the query names a procedure, its cost is that of all that it
    ///   calls, too ([`HandedOut`]). Processes and threads are no
    ///   callers, a partial root is, and so is what stands for frames left out. A tree so deep and recursive that this would not fit in memory is pruned.
    /// - **flat**: exclusive is the cost in the scope and in none inside it; self of a module or file is the sum of the
    ///   procedures and inlined calls in it; inclusive includes everything called while the scope was active, once.
    pub fn view(&self, query: &Query) -> Result<View, QueryError> {
        let collapse = query.recursion == Recursion::Collapse;
        let asked = match query.view {
            ViewKind::Context => reshape::reshape(self, query, collapse, &[])?,
            ViewKind::Callers => reshape::reshape(self, query, collapse, &[ScopeKind::Line])?,
            ViewKind::Flat => reshape::reshape(self, query, false, &[])?,
        };
        let asked = match (query.recursion, query.view) {
            (Recursion::Suffix(kept), ViewKind::Context | ViewKind::Callers) => {
                suffix::suffix(&asked, kept.get() as usize)?
            }
            _ => asked,
        };
        let (tree, costs) = match query.view {
            ViewKind::Context => of_contexts(asked),
            ViewKind::Callers => callers::callers(&asked, query),
            ViewKind::Flat => flat::flat(&asked.tree, query.flatten),
        };
        Ok(emit(self, query, tree, costs))
    }

    /// Every procedure with its cost in the processes and threads that `query` selects; in descending order of self cost by
    /// metric 0, then by name. View, depth, share and folding of the query do not matter.
    pub fn procedures(&self, query: &Query, inlined: Inlined) -> Result<Vec<ProcedureCost>, QueryError> {
        let asked = reshape::reshape(self, query, false, &[])?;
        Ok(procedures::procedures(self, procedures::tally(&asked.tree, inlined)))
    }

    /// The procedures that each name of the query means, whatever else the query asks for.
    pub fn meant(&self, query: &Query) -> Result<Vec<Meant>, QueryError> {
        Ok(meant::MeantByQuery::of(self, query)?.all())
    }

    /// How many threads the profile has, all processes together: thread scopes before any merging.
    pub fn thread_count(&self) -> usize {
        self.tree.nodes().filter(|&node| self.tree.scope(node).kind == ScopeKind::Thread).count()
    }

    /// How many processes the profile has.
    pub fn process_count(&self) -> usize {
        self.tree.nodes().filter(|&node| self.tree.scope(node).kind == ScopeKind::Process).count()
    }
}
