//! Statistics of a run: stops, instructions, and snapshots whose truth is in doubt.

use std::collections::HashMap;
use std::time::Duration;

/// How it went.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// Stops: instructions (iterations of repeated ones included), with `every_step`.
    pub steps: u64,
    /// Distinct instructions.
    pub instructions: u64,
    /// Snapshots of which the truth is not known for certain.
    pub doubted: HashMap<&'static str, u64>,
    /// Instructions that were met outside of every module.
    pub outside: u64,
    /// Returns to an address that no call had left there.
    pub unexplained_returns: u64,
    /// Signals that a handler got.
    pub signals: u64,
    /// Threads that were followed.
    pub threads: u64,
    /// Wall-clock time.
    pub elapsed: Duration,
    /// The program's exit status, or 128 + signal; `None` if it was stopped before its end.
    pub status: Option<i32>,
}
