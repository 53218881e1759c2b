//! `record --map`: the map that a measurement keeps, so that reports find call paths in it, and that is asked while the program runs
//! (`--on-ambiguous=walk`).

use std::path::Path;

use callpath_analyze::infer::{ToldBlocks, check_builds, not_measured, told_blocks};
use callpath_infer::{MAP_FILE, PathMap};
use callpath_measurement::{Measurement, write_file};

use crate::command::path_map;
use crate::command::profile::analysis_options;
use crate::surroundings::Progress;

/// A map that a measurement keeps.
pub(super) struct Mapped {
    map: PathMap,
}

impl Mapped {
    pub(super) fn read(file: &Path) -> anyhow::Result<Mapped> {
        let map = path_map::read(file)?;
        check_builds(&map).map_err(|other| {
            anyhow::anyhow!("failed to use {}: {other} than is there now; train a map of this build", file.display())
        })?;
        Ok(Mapped { map })
    }

    /// The map's checksum.
    pub(super) fn checksum(&self) -> u64 {
        self.map.checksum()
    }

    /// What it tells while the program runs.
    pub(super) fn told(&self) -> ToldBlocks {
        let mut progress = Progress::new("reading modules");
        told_blocks(&self.map, &analysis_options(), &mut |done, of| progress.step(done, of))
    }

    /// Puts it into the directory of a measurement that has ended. Returns what the user should know.
    pub(super) fn keep(&self, directory: &Path) -> Option<String> {
        if let Err(error) = write_file(directory, MAP_FILE, &self.map.encode()) {
            return Some(format!("failed to {error}: give the map to each report (--map)"));
        }
        let measurement = Measurement::read(directory).ok()?;
        not_measured(&self.map, &measurement).map(|absent| format!("--map: {absent}"))
    }
}
