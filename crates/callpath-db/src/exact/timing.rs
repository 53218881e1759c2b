//! What paths take, by executions of them that were measured.

use callpath_schema::TimesAccount;

/// How it was measured.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ExactTiming(pub TimesAccount);

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
