//! Options of a profile shown as text.

use callpath_db::{Inlined, Query};

/// How a profile is shown as text.
#[derive(Clone, Debug)]
pub struct TextOptions {
    /// What is shown. Scopes of processes and threads are left out besides, where there is only one.
    pub query: Query,
    /// Columns of the terminal or page; names are shortened to fit, down to a readable minimum.
    pub width: usize,
    /// Whether escape sequences for colour and weight may be used.
    pub color: bool,
    /// Procedures in the report's list by self cost.
    pub top: usize,
    /// What inlined calls count for in that list.
    pub inlined: Inlined,
    /// Lines of the report's tree: where it has more, the share below which nodes are left out is raised, up to 10%.
    pub max_lines: usize,
    /// Gives each frame a row. Otherwise a run of frames without cost of their own is one row.
    pub whole: bool,
    /// Whether recursion that the query leaves whole may be collapsed all the same, where that halves a long tree.
    pub may_collapse: bool,
    /// How callpath was called, for the commands that are named, as a shell's word: `callpath`, or a path.
    pub command: String,
}

impl Default for TextOptions {
    /// The context view without what costs less than 1%, 100 columns, no colour.
    fn default() -> Self {
        TextOptions {
            query: Query { min_share: 0.01, ..Query::default() },
            width: 100,
            color: false,
            top: 15,
            inlined: Inlined::default(),
            max_lines: 60,
            whole: false,
            may_collapse: true,
            command: "callpath".into(),
        }
    }
}

impl TextOptions {
    /// The processes and threads that are shown, unless it is all of them.
    pub(super) fn selected(&self) -> Option<String> {
        match (&self.query.process, &self.query.thread) {
            (None, None) => None,
            (Some(process), None) => Some(format!("process {process}")),
            (None, Some(thread)) => Some(format!("thread {thread}")),
            (Some(process), Some(thread)) => Some(format!("thread {thread} of process {process}")),
        }
    }
}
