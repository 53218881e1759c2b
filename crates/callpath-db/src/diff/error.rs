//! Why two sides cannot be compared.

use crate::QueryError;

/// Why two sides cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    /// A side without runs.
    #[error("failed to compare: a side has no run")]
    NoRuns,
    /// A profile lacks the metric.
    #[error("failed to find the metric {wanted:?} in each measurement; one has: {}", there.join(", "))]
    NoSuchMetric {
        /// As asked.
        wanted: String,
        /// Of the profile that lacks it.
        there: Vec<String>,
    },
    /// Differences of such values mean nothing.
    #[error("failed to compare by {metric:?}: it does not add up")]
    DoesNotAddUp {
        /// Its name.
        metric: String,
    },
    /// Pairs need as many runs on either side.
    #[error("failed to pair {a} runs with {b}")]
    NoPairs {
        /// Runs of side A.
        a: usize,
        /// Runs of side B.
        b: usize,
    },
    /// A profile has no answer.
    #[error(transparent)]
    Query(#[from] QueryError),
}
