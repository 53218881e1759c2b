//! A question to a profile and its answer: which view, of which processes and threads, in how much detail.
//! Refuses to know how the answer is shown.

mod callers;
mod costs;
mod flat;
mod procedures;
mod reshape;
mod suffix;
mod view;

pub use procedures::ProcedureCost;
pub use view::{View, ViewNode};

use std::num::NonZeroU32;

use crate::{Profile, ScopeKind};
use costs::Costs;

/// The way a view reads the tree.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ViewKind {
    /// Top down: below each procedure those that it calls.
    #[default]
    Context,
    /// Bottom up: every procedure with its self cost, below each those that call it.
    Callers,
    /// By code: module, file, procedure, and the loops, inlined calls and lines in it.
    Flat,
}

impl ViewKind {
    /// The word of the command line and the JSON schema.
    pub fn word(self) -> &'static str {
        match self {
            ViewKind::Context => "context",
            ViewKind::Callers => "callers",
            ViewKind::Flat => "flat",
        }
    }
}

/// What is kept of a path on which calls recur. The costs are the same, and so is their sum.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Recursion {
    /// Every frame.
    #[default]
    Full,
    /// A procedure that is called while it is active becomes one with its outermost activation on that path, as in Ammons,
    /// Ball and Larus 1997: recursion of any depth is one node, and inclusive cost is that of the outermost activation
    /// without what moved further out.
    Collapse,
    /// The innermost so many procedures of a path, with the inlined calls, loops and lines in them; between them and the
    /// path's root a scope for what is left out.
    Suffix(NonZeroU32),
}

/// A question to a profile. The default asks for the whole context view, without lines.
#[derive(Clone, PartialEq, Debug)]
pub struct Query {
    /// Which view.
    pub view: ViewKind,
    /// Only the processes with this name or process id.
    pub process: Option<String>,
    /// Only the threads with this name or thread id.
    pub thread: Option<String>,
    /// Keeps threads apart that have equal entries; merged otherwise.
    pub per_thread: bool,
    /// Merges processes that have equal names; apart otherwise.
    pub merge_processes: bool,
    /// What is kept of a path on which calls recur. For the context and callers views; flat cost counts each sample once
    /// anyway.
    pub recursion: Recursion,
    /// Scopes of these kinds vanish: their own cost goes to the scope above, and so do their children.
    pub fold: Vec<ScopeKind>,
    /// What costs less than this share of the total (by metric 0, inclusive; 0.01 is 1%) is pruned; 0 prunes nothing.
    pub min_share: f64,
    /// Levels below the root that are kept; the rest is pruned.
    pub max_depth: Option<usize>,
}

impl Default for Query {
    fn default() -> Self {
        Query {
            view: ViewKind::Context,
            process: None,
            thread: None,
            per_thread: false,
            merge_processes: false,
            recursion: Recursion::Full,
            fold: vec![ScopeKind::Line],
            min_share: 0.0,
            max_depth: None,
        }
    }
}

/// Why a query has no answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QueryError {
    /// No process has that name or id.
    #[error("failed to find a process {wanted:?}; there are: {}", list(.there))]
    NoSuchProcess {
        /// As asked.
        wanted: String,
        /// Those there are, as `name (id)`.
        there: Vec<String>,
    },
    /// No thread of the processes asked for has that name or id.
    #[error("failed to find a thread {wanted:?}; there are: {}", list(.there))]
    NoSuchThread {
        /// As asked.
        wanted: String,
        /// Those there are, as `name (id)`.
        there: Vec<String>,
    },
    /// The suffixes of all paths do not fit into memory.
    #[error("failed to keep {kept} frames of each path: these are millions of paths that differ; keep fewer")]
    TooManyFrames {
        /// As asked.
        kept: usize,
    },
}

/// The first of them, and how many more.
fn list(there: &[String]) -> String {
    const SHOWN: usize = 12;
    match there.len() {
        0 => "none".into(),
        n if n <= SHOWN => there.join(", "),
        n => format!("{} and {} more", there[..SHOWN].join(", "), n - SHOWN),
    }
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
    ///   exclusive + children here too. Self is the cost on the first level, 0 below. Processes and threads are no
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
            ViewKind::Context => {
                let costs = Costs::of(&asked.tree);
                (asked, costs)
            }
            ViewKind::Callers => callers::callers(&asked, query),
            ViewKind::Flat => flat::flat(&asked),
        };
        Ok(view::emit(self, query, tree, costs))
    }

    /// Every procedure, inlined or not, with its cost in the processes and threads that `query` selects; in descending
    /// order of self cost by metric 0, then by name. View, depth, share and folding of the query do not matter.
    pub fn procedures(&self, query: &Query) -> Result<Vec<ProcedureCost>, QueryError> {
        let asked = reshape::reshape(self, query, false, &[ScopeKind::Loop, ScopeKind::Line])?;
        Ok(procedures::procedures(self, &asked.tree))
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
