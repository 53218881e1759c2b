//! What the cache of tables could not do.

use std::fmt;
use std::path::PathBuf;

/// Something that the cache could not do. The table is as good as without it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CacheTrouble {
    /// The directory cannot be used: nothing is stored.
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A file in it is not a table that we can use; it was built again.
    Rebuilt {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A table could not be stored.
    NotStored {
        /// Under which name.
        path: PathBuf,
        /// Why.
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
