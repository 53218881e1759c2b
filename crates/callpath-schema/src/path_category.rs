//! The categories of paths through procedures: Ammons, Ball and Larus 1997, section 2.

/// The reason why a procedure was not counted begins so if its calls were, and its paths alone were not.
pub const CALLS_ALONE: &str = "its calls were, its paths were not: ";
/// It begins so if its calls were counted, and what they take was to be measured and was not.
pub const NOT_MEASURED: &str = "its calls were counted, and not measured: ";

/// Whether the calls of a procedure were counted that was not counted for this reason.
pub fn calls_were_counted(reason: &str) -> bool {
    reason.starts_with(CALLS_ALONE) || reason.starts_with(NOT_MEASURED)
}

/// Where a path through a procedure begins and ends. A back edge is also one at which the graph was cut.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PathCategory {
    /// From the procedure's entry to where control leaves it.
    EntryExit,
    /// From the procedure's entry to a back edge.
    EntryBack,
    /// From behind a back edge to a back edge.
    HeadBack,
    /// From behind a back edge to where control leaves the procedure.
    HeadExit,
}

impl PathCategory {
    /// All, in the order of their numbers in files.
    pub const ALL: [PathCategory; 4] =
        [PathCategory::EntryExit, PathCategory::EntryBack, PathCategory::HeadBack, PathCategory::HeadExit];

    /// The name that reports use.
    pub fn word(self) -> &'static str {
        match self {
            PathCategory::EntryExit => "entry-exit",
            PathCategory::EntryBack => "entry-back",
            PathCategory::HeadBack => "head-back",
            PathCategory::HeadExit => "head-exit",
        }
    }

    /// Whether it begins at the procedure's entry.
    pub fn is_from_entry(self) -> bool {
        matches!(self, PathCategory::EntryExit | PathCategory::EntryBack)
    }

    /// Whether control leaves the procedure at its end.
    pub fn is_to_exit(self) -> bool {
        matches!(self, PathCategory::EntryExit | PathCategory::HeadExit)
    }
}
