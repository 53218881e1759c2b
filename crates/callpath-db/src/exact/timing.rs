//! What paths take, by executions of them that were measured.

use super::ExactCounts;

/// What is known of the measuring.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ExactTiming {
    /// Executions that were measured and whose times found no room.
    pub lost: u64,
}

impl ExactTiming {
    /// What is measured.
    pub const METRIC: &str = "wall-time";
}

/// Paths of which nothing was measured: they have no estimate.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Unmeasured {
    /// How many were executed.
    pub paths: u64,
    /// How often.
    pub executions: u64,
}

impl ExactCounts {
    /// What was executed and not measured.
    pub fn unmeasured(&self) -> Unmeasured {
        let paths = self.procedures.iter().flat_map(|procedure| &procedure.paths);
        paths.filter(|path| path.time.measured == 0).fold(Unmeasured::default(), |sum, path| Unmeasured {
            paths: sum.paths + 1,
            executions: sum.executions.saturating_add(path.executions),
        })
    }
}
