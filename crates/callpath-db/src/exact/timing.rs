//! What paths take, by executions of them that were measured.

use callpath_schema::TimesAccount;

use super::{ExactCounts, ExactPath, ExactProcedure};

/// How it was measured.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ExactTiming(pub TimesAccount);

impl ExactTiming {
    /// What is measured.
    pub const METRIC: &str = "wall-time";

    /// How far what all executions of a path took may be from [`callpath_schema::MeasuredTime::total_ns`] either way, in 95 of 100 runs, nanoseconds: by chance,
    /// and by the clock. `None`: that is not known.
    pub fn interval_ns(&self, procedure: &ExactProcedure, path: &ExactPath) -> Option<f64> {
        let calls = procedure.blocks_of(path).map(|block| block.calls.len() as u64).sum::<u64>();
        let by_clock = self.0.clock_error_ns(1 + calls) * path.executions as f64;
        Some(path.time.interval_ns(path.executions)? + by_clock)
    }
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
