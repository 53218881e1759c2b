//! Reads maps of call paths for the commands that use them.

use std::path::Path;

use callpath_infer::{PLAN_FILE, PaddingPlan, PathMap};
use callpath_measurement::Measurement;

/// The map in a file, for a measurement: where frames were larger, heights are.
pub(crate) fn read_for(path: &Path, measurement: &Measurement) -> anyhow::Result<PathMap> {
    let map = read(path)?;
    let plan = measurement.directory.join(PLAN_FILE);
    if !plan.exists() {
        return Ok(map);
    }
    let plan = PaddingPlan::read(&plan).map_err(|error| anyhow::anyhow!("failed to {error}"))?;
    let paddings = map.paddings_of(&plan).map_err(|other| {
        anyhow::anyhow!("failed to use {}: {other} than the program ran with larger frames", path.display())
    })?;
    Ok(map.resized(&paddings))
}

/// The map in a file.
pub(crate) fn read(path: &Path) -> anyhow::Result<PathMap> {
    PathMap::read(path).map_err(|error| anyhow::anyhow!("failed to {error}"))
}
