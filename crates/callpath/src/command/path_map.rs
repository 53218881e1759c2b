//! Reads maps of call paths for the commands that use them.

use std::path::Path;

use callpath_infer::PathMap;

/// The map in a file.
pub(crate) fn read(path: &Path) -> anyhow::Result<PathMap> {
    PathMap::read(path).map_err(|error| anyhow::anyhow!("failed to {error}"))
}
