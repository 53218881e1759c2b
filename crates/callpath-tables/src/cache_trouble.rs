//! Failures of the table cache.

use std::fmt;
use std::path::PathBuf;

/// A failure of the cache. The table is as good as without it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CacheTrouble {
    /// The directory cannot be used: nothing is stored.
    Directory {
        /// The directory.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A cached file is not a usable table; the table was built again.
    Rebuilt {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A table could not be stored.
    NotStored {
        /// The file's path.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

impl fmt::Display for CacheTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheTrouble::Directory { path, reason } => {
                write!(f, "recipe tables are not kept in {}: {reason}", path.display())
            }
            CacheTrouble::Rebuilt { path, reason } => {
                write!(f, "the recipe table {} was made again: {reason}", path.display())
            }
            CacheTrouble::NotStored { path, reason } => {
                write!(f, "the recipe table {} could not be kept: {reason}", path.display())
            }
        }
    }
}
