//! What a person, or another program, sees of a profile: text, JSON, and the formats of other tools.
//! It uses the database only: no files, and no settings of terminals.
//!
//! [`text::report`] is what is read from top to bottom in a minute, [`text::view`] one view in more detail,
//! [`json::write`] everything for other programs, [`export::write`] what other tools read. A call path may be hundreds of thousands of frames deep, so nothing
//! in this crate recurses.

#![forbid(unsafe_code)]

pub mod diff_json;
pub mod exact_json;
mod exact_label;
pub mod export;
mod histogram;
pub mod json;
pub mod ranks_json;
pub mod shape_json;
pub mod statistics_json;
pub mod text;

impl From<callpath_db::AnswerError> for ViewError {
    fn from(error: callpath_db::AnswerError) -> ViewError {
        match error {
            callpath_db::AnswerError::Query(error) => error.into(),
            callpath_db::AnswerError::Database(error) => error.into(),
        }
    }
}

/// Why a profile cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// What was asked for is not there.
    #[error(transparent)]
    Query(#[from] callpath_db::QueryError),
    /// The database cannot be read.
    #[error("failed to {0}")]
    Database(#[from] callpath_db::database::DatabaseError),
    /// No metric has the name.
    #[error("failed to find a metric {wanted:?}; there are: {}", there.join(", "))]
    NoSuchMetric {
        /// As asked.
        wanted: String,
        /// The profile's metrics.
        there: Vec<String>,
    },
    /// There is nothing to put beside each other.
    #[error(
        "failed to compare ranks: this is no measurement of several ranks; record them with: mpirun -n 4 callpath record PROGRAM"
    )]
    NoRanks,
    /// The metric is no integer that adds up, which is all that the formats of other tools hold.
    #[error("failed to export metric {metric:?}, which does not add up in whole numbers; these do: {}", there.join(", "))]
    NotASum {
        /// Its name.
        metric: String,
        /// Those that can be exported.
        there: Vec<String>,
    },
    /// The format has no number so great.
    #[error("failed to export metric {metric:?}: {total} is more than the format can hold")]
    TooLarge {
        /// Its name.
        metric: String,
        /// What it adds up to.
        total: u64,
    },
    /// The output takes no more. What the output is, its writer says.
    #[error(transparent)]
    Write(#[from] std::io::Error),
}
