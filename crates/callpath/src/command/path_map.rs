//! Reads maps of call paths for the commands that use them.

use std::path::{Path, PathBuf};

use callpath_analyze::infer::Maps;
use callpath_infer::{MAP_FILE, PLAN_FILE, PaddingPlan, PathMap};
use callpath_measurement::{Measurement, NOT_WALKED, rank_directory_name, told_by};

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
    let Some(plan) = find(measurement, PLAN_FILE) else { return Ok(Known { map, larger: None }) };
    let plan = PaddingPlan::read(&plan).map_err(|error| anyhow::anyhow!("failed to {error}"))?;
    let paddings = map.paddings_of(&plan).map_err(|other| {
        anyhow::anyhow!("failed to use {}: {other} than the program ran with larger frames", path.display())
    })?;
    let larger = Some(map.resized(&paddings));
    Ok(Known { map, larger })
}

/// The map that a measurement keeps, if its call paths are not known without one.
pub(crate) fn kept(measurement: &Measurement) -> Option<PathBuf> {
    needs_map(measurement).then(|| find(measurement, MAP_FILE)).flatten()
}

/// Whether the call paths of a measurement are not known without a map.
pub(crate) fn needs_map(measurement: &Measurement) -> bool {
    measurement.session.notes.iter().any(|note| note == NOT_WALKED || told_by(note).is_some())
}

/// Whether stacks of a measurement were walked until a map told the rest.
pub(crate) fn is_walked_until_told(measurement: &Measurement) -> bool {
    measurement.session.notes.iter().any(|note| told_by(note).is_some())
}

/// That a map is the one that told the rest of a measurement's call paths, if one did.
pub(crate) fn check_told_by(known: &Known, path: &Path, measurement: &Measurement) -> anyhow::Result<()> {
    let told = measurement.session.notes.iter().filter_map(|note| told_by(note));
    let checksum = told.clone().next().map(|_| known.map.checksum());
    anyhow::ensure!(
        told.clone().all(|told| Some(told) == checksum),
        "failed to look up call paths of {} in {}: another map told the rest of them while they were recorded (--on-ambiguous=walk); leave \
         --map out: the measurement keeps it ({})",
        measurement.directory.display(),
        path.display(),
        measurement.directory.join(MAP_FILE).display()
    );
    Ok(())
}

/// A file of a measurement, or of the first of its ranks that has one.
fn find(measurement: &Measurement, name: &str) -> Option<PathBuf> {
    let of_ranks = measurement.ranks.iter().flat_map(|ranks| &ranks.there);
    let of_ranks = of_ranks.map(|rank| measurement.directory.join(rank_directory_name(rank.rank)));
    let places = std::iter::once(measurement.directory.clone()).chain(of_ranks);
    places.map(|place| place.join(name)).find(|file| file.exists())
}

/// The map in a file.
pub(crate) fn read(path: &Path) -> anyhow::Result<PathMap> {
    PathMap::read(path).map_err(|error| anyhow::anyhow!("failed to {error}"))
}
