//! Reads maps of call paths for the commands that use them.

use std::path::Path;

use callpath_analyze::infer::Maps;
use callpath_infer::{PLAN_FILE, PaddingPlan, PathMap};
use callpath_measurement::{Measurement, rank_directory_name};

/// A map, and the same where frames were larger.
pub(crate) struct Known {
    map: PathMap,
    larger: Option<PathMap>,
}

impl Known {
    pub(crate) fn maps(&self) -> Maps<'_> {
        Maps { map: &self.map, larger: self.larger.as_ref() }
    }
}

/// The map in a file, for a measurement of a program whose frames may have been larger.
pub(crate) fn read_for(path: &Path, measurement: &Measurement) -> anyhow::Result<Known> {
    let map = read(path)?;
    let of_ranks = measurement.ranks.iter().flat_map(|ranks| &ranks.there);
    let of_ranks = of_ranks.map(|rank| measurement.directory.join(rank_directory_name(rank.rank)));
    let places = std::iter::once(measurement.directory.clone()).chain(of_ranks);
    let Some(plan) = places.map(|place| place.join(PLAN_FILE)).find(|plan| plan.exists()) else {
        return Ok(Known { map, larger: None });
    };
    let plan = PaddingPlan::read(&plan).map_err(|error| anyhow::anyhow!("failed to {error}"))?;
    let paddings = map.paddings_of(&plan).map_err(|other| {
        anyhow::anyhow!("failed to use {}: {other} than the program ran with larger frames", path.display())
    })?;
    let larger = Some(map.resized(&paddings));
    Ok(Known { map, larger })
}

/// The map in a file.
pub(crate) fn read(path: &Path) -> anyhow::Result<PathMap> {
    PathMap::read(path).map_err(|error| anyhow::anyhow!("failed to {error}"))
}
