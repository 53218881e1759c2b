//! Options of a profile shown as text.

use callpath_db::{Inlined, Query};

/// How a profile is shown as text.
#[derive(Clone, Debug)]
pub struct TextOptions {
    /// What is shown. Besides, threads are no level of the tree unless they are asked for, nor is a single process.
    pub query: Query,
    /// Columns of the terminal or page; names are shortened to fit, down to a readable minimum.
    pub width: usize,
    /// Whether escape sequences for colour and weight may be used.
    pub color: bool,
    /// So many metrics, the first ones, are shown. `None`: those that say what things cost, as far as there is room.
    pub columns: Option<usize>,
    /// Procedures in the report's list by self cost.
    pub top: usize,
    /// What inlined calls count for in that list.
    pub inlined: Inlined,
    /// Lines of the report's tree: where it has more, the share below which nodes are left out is raised, up to 10%.
    pub max_lines: usize,
    /// Gives each frame a row. Otherwise a run of frames without cost of their own is one row.
    pub whole: bool,
    /// Whether recursion that the query leaves whole may be collapsed all the same, where that makes a long tree much shorter.
    pub may_collapse: bool,
    /// Processes have the names of their control groups ([`Profile::name_processes_by_group`]).
    ///
    /// [`Profile::name_processes_by_group`]: callpath_db::Profile::name_processes_by_group
    pub by_group: bool,
    /// How callpath was called, for the commands that are named, as a shell's word: `callpath`, or a path.
    pub command: String,
}

impl Default for TextOptions {
    /// The context view without what costs less than 1%, processes of one name as one, 100 columns, no colour.
    fn default() -> Self {
        TextOptions {
            query: Query { min_share: 0.01, merge_processes: true, regions_meet: true, ..Query::default() },
            width: 100,
            color: false,
            columns: None,
            top: 15,
            inlined: Inlined::default(),
            max_lines: 60,
            whole: false,
            may_collapse: true,
            by_group: false,
            command: "callpath".into(),
        }
    }
}

impl TextOptions {
    /// The processes, threads and paths that are shown, unless it is all of them.
    pub(super) fn selected(&self) -> Option<String> {
        let query = &self.query;
        let of = match (&query.process, &query.thread) {
            (None, None) => None,
            (Some(process), None) => Some(format!("process {process}")),
            (None, Some(thread)) => Some(format!("thread {thread}")),
            (Some(process), Some(thread)) => Some(format!("thread {thread} of process {process}")),
        };
        let paths = [("through", &query.focus), ("without", &query.ignore)];
        let paths = paths.into_iter().filter(|(_, names)| !names.is_empty());
        let paths: Vec<String> = paths.map(|(word, names)| format!("{word} {}", names.join(" or "))).collect();
        match (of, paths.is_empty()) {
            (of, true) => of,
            (None, false) => Some(format!("the program {}", paths.join(" "))),
            (Some(of), false) => Some(format!("{of} {}", paths.join(" "))),
        }
    }
}
