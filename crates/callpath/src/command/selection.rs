//! What of a profile a command shows: the options that `report` and `export` have in common.

use callpath_db::{Query, Recursion, ScopeKind};

use super::recursion::RecursionArgument;

#[derive(clap::Args, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    /// Show only processes with this name or ID; in a name, * stands for any text and ? for any character
    #[arg(long, value_name = "NAME|PID")]
    process: Option<String>,
    /// Show only threads with this name or ID; * and ? as in --process
    #[arg(long, value_name = "NAME|TID")]
    thread: Option<String>,
    /// Show only call paths through this procedure: its name, a part of it, or a pattern with * and ?; or through any
    /// procedure of module:NAME or file:NAME; of several --focus, paths through any of them
    #[arg(long, value_name = "NAME")]
    focus: Vec<String>,
    /// Leave out call paths through this procedure
    #[arg(long, value_name = "NAME")]
    ignore: Vec<String>,
    /// Leave out this procedure's frames; their cost belongs to their callers
    #[arg(long, value_name = "NAME")]
    hide: Vec<String>,
    /// Leave out what this procedure calls; the cost belongs to it
    #[arg(long, value_name = "NAME")]
    prune_from: Vec<String>,
    /// Show system calls as rows of their own, below the code that made them (what the kernel calls: callpath record --kernel)
    #[arg(long)]
    kernel: bool,
    /// Hide loops; their cost belongs to what contains them
    #[arg(long)]
    no_loops: bool,
    /// Hide inlined calls; their cost belongs to what contains them
    #[arg(long)]
    no_inlines: bool,
    /// What to show of recursive paths: full (every frame), collapse (one row for all activations of a procedure on a
    /// path) or suffix:N (the innermost N frames) [default: full; a report's text collapses a long tree where that
    /// halves it]
    #[arg(long, value_name = "WHAT")]
    pub(crate) recursion: Option<RecursionArgument>,
}

impl Selection {
    /// Whether nothing was asked for.
    pub(crate) fn is_of_whole(&self) -> bool {
        *self == Selection::default()
    }

    /// The context view of what was selected, with source lines, and with ranks added up.
    pub(crate) fn query(&self) -> Query {
        let folded = [
            (!self.kernel, ScopeKind::SystemCall),
            (self.no_loops, ScopeKind::Loop),
            (self.no_inlines, ScopeKind::Inlined),
        ];
        Query {
            process: self.process.clone(),
            thread: self.thread.clone(),
            focus: self.focus.clone(),
            ignore: self.ignore.clone(),
            hide: self.hide.clone(),
            prune_from: self.prune_from.clone(),
            recursion: self.recursion.map_or(Recursion::Full, Recursion::from),
            fold: folded
                .into_iter()
                .filter(|(is_folded, _)| *is_folded)
                .map(|(_, kind)| kind)
                .chain([ScopeKind::Rank])
                .collect(),
            ..Query::default()
        }
    }
}
