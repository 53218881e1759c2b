//! What a person, or another program, sees of a profile: text and JSON.
//! It uses the database only: no files, and no settings of terminals.
//!
//! [`text::report`] is what is read from top to bottom in a minute, [`text::view`] one view in more detail,
//! [`json::write`] everything for other programs. A call path may be hundreds of thousands of frames deep, so nothing
//! in this crate recurses.

#![forbid(unsafe_code)]

pub mod diff_json;
pub mod json;
pub mod text;

/// Why a profile cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// What was asked for is not there.
    #[error(transparent)]
    Query(#[from] callpath_db::QueryError),
    /// The output takes no more. What the output is, its writer says.
    #[error(transparent)]
    Write(#[from] std::io::Error),
}
