//! A question to a profile: which view, of which processes and threads, in how much detail; and why it has no answer.

use std::num::NonZeroU32;

use crate::ScopeKind;

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
    /// A procedure that is called while it is active becomes one with its outermost activation on that path, as in
    /// Ammons, Ball and Larus 1997: recursion of any depth is one node, and inclusive cost is that of the outermost
    /// activation without what moved further out.
    Collapse,
    /// The innermost so many procedures of a path, with the inlined calls, loops and lines in them; between them and
    /// the path's root a scope for what is left out.
    Suffix(NonZeroU32),
}

/// A question to a profile. The default asks for the whole context view, without lines and system calls, and with
/// ranks added up.
#[derive(Clone, PartialEq, Debug)]
pub struct Query {
    /// Which view.
    pub view: ViewKind,
    /// Only the processes with this process id, or with a name that this is or describes (`*` is any text, `?` any
    /// character).
    pub process: Option<String>,
    /// Only the threads with this thread id or name, which may be a glob as well.
    pub thread: Option<String>,
    /// Keeps threads apart that have equal entries; merged otherwise.
    pub per_thread: bool,
    /// Merges processes that have equal names; apart otherwise.
    pub merge_processes: bool,
    /// Only paths through a procedure, inlined or not, that one of these means, as [`crate::Way`] has it: its name, a part
    /// of it, a glob, or what a report prints; or all procedures of `module:NAME` or `file:NAME`, which may be globs.
    pub focus: Vec<String>,
    /// No paths through a procedure that one of these means.
    pub ignore: Vec<String>,
    /// The frames of these procedures vanish with their loops and lines: their own cost goes to their callers.
    pub hide: Vec<String>,
    /// What these procedures call vanishes, with loops and lines: its cost goes to them.
    pub prune_from: Vec<String>,
    /// Only what goes through the procedures that this means, as seen from there: in the context and flat views what
    /// they cost and call, in the callers view who calls them, by their inclusive cost.
    pub procedure: Option<String>,
    /// Where threads are no level of their own (they are in `fold`): a parallel region that workers of an OpenMP or TBB
    /// runtime execute stands below the one context that calls it through the same runtime, if there is exactly one.
    pub regions_meet: bool,
    /// What is kept of a path on which calls recur. For the context and callers views;
    /// flat cost counts each sample once anyway.
    pub recursion: Recursion,
    /// Scopes of these kinds vanish: their own cost goes to the scope above, and so do their children.
    pub fold: Vec<ScopeKind>,
    /// What costs less than this share of the total (by metric 0, inclusive; 0.01 is 1%) is pruned; 0 prunes nothing. Of
    /// processes or threads that are kept apart, the twenty that cost most stay.
    pub min_share: f64,
    /// Levels below the root that are kept; the rest is pruned.
    pub max_depth: Option<usize>,
    /// Of the flat view, so many levels vanish, outermost first, without what is in them: 1 shows files (procedures where no
    /// file is known), 2 procedures, 3 what is in these, 4 what is in that. What a scope costs besides what is in it stays.
    pub flatten: usize,
    /// The order of siblings, greatest first. `None`: inclusive cost by metric 0.
    pub order: Option<Order>,
}

/// By what siblings are put in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// The metric's column.
    pub metric: usize,
    /// By what a scope costs itself, in the callers view on the first level; otherwise with all that it calls.
    pub by_self: bool,
}

impl Default for Query {
    fn default() -> Self {
        Query {
            view: ViewKind::Context,
            process: None,
            thread: None,
            per_thread: false,
            merge_processes: false,
            focus: Vec::new(),
            ignore: Vec::new(),
            hide: Vec::new(),
            prune_from: Vec::new(),
            procedure: None,
            regions_meet: false,
            recursion: Recursion::Full,
            fold: vec![ScopeKind::Line, ScopeKind::SystemCall, ScopeKind::Rank],
            min_share: 0.0,
            max_depth: None,
            flatten: 0,
            order: None,
        }
    }
}

/// Why a query has no answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QueryError {
    /// No process has that name or id.
    #[error("failed to find a process {wanted:?}{}; there are: {}", tried(.glob), list(.there))]
    NoSuchProcess {
        /// As asked.
        wanted: String,
        /// Those there are, each name once, the nearest first: `name (id)` or `name ×12`.
        there: Vec<String>,
        /// A glob that would find some.
        glob: Option<String>,
    },
    /// No thread of the processes asked for has that name or id.
    #[error("failed to find a thread {wanted:?}{}; there are: {}", tried(.glob), list(.there))]
    NoSuchThread {
        /// As asked.
        wanted: String,
        /// Those there are, each name once, the nearest first: `name (id)` or `name ×12`.
        there: Vec<String>,
        /// A glob that would find some.
        glob: Option<String>,
    },
    /// No procedure of the measurement has that name.
    #[error("failed to find a procedure {wanted:?}{}", similar(.near))]
    NoSuchProcedure {
        /// As asked.
        wanted: String,
        /// Names that are near, the nearest first.
        near: Vec<String>,
    },
    /// No module or file of the measurement has that name.
    #[error("failed to find a {kind} {wanted:?}{}", similar(.near))]
    NoSuchPlace {
        /// `module` or `file`.
        kind: &'static str,
        /// As asked.
        wanted: String,
        /// Names that are near, the nearest first.
        near: Vec<String>,
    },
    /// A name that is asked for is empty.
    #[error("failed to find a procedure: its name is empty")]
    EmptyName,
    /// A page of one procedure is asked for by a name that all have.
    #[error("failed to find a procedure: all are called {wanted:?}")]
    AllMeant {
        /// As asked.
        wanted: String,
    },
    /// All names are known, but no path has all that is asked of it.
    #[error("failed to find a call path: none is left {asked}")]
    NoPathLeft {
        /// What is asked of paths, in words.
        asked: String,
    },
    /// Each frame is of a procedure to hide.
    #[error("failed to find a call path: all procedures are hidden")]
    AllHidden,
    /// The suffixes of all paths do not fit into memory.
    #[error("failed to keep {kept} frames of each path: these are millions of paths that differ; keep fewer")]
    TooManyFrames {
        /// As asked.
        kept: usize,
    },
}

/// What to type instead.
fn tried(glob: &Option<String>) -> String {
    glob.as_ref().map_or_else(String::new, |glob| format!(" (try {glob:?})"))
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

/// What else could have been meant.
fn similar(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; similar names: {}", near.join(", ")) }
}
