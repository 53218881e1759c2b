//! Loads the profile of a measurement for the commands that show one.

use std::path::Path;

use callpath_analyze::attribute::{AttributeOptions, attribute};
use callpath_db::Profile;
use callpath_measurement::{Measurement, newest};
use callpath_view::ViewError;

use crate::output;
use crate::surroundings::{self, Progress};

/// The profile of a measurement, the newest one here if none is named. Files of it that cannot be read are named on
/// standard error; it is an error if none can.
pub(crate) fn load(directory: Option<&Path>) -> anyhow::Result<Profile> {
    let found;
    let directory = match directory {
        Some(directory) => directory,
        None => {
            found = newest(Path::new(".")).map_err(|e| anyhow::anyhow!("failed to {e}"))?;
            found.strip_prefix(".").unwrap_or(&found)
        }
    };
    let measurement = Measurement::read(directory).map_err(|e| anyhow::anyhow!("failed to {e}"))?;
    let losses = measurement.losses();
    losses.iter().for_each(output::say);
    let options = AttributeOptions {
        debug_roots: surroundings::debug_roots(),
        vdso: callpath_target::own_vdso(),
        cache: surroundings::cache_directory(),
    };
    let mut progress = Progress::new("reading modules");
    let profile = attribute(&measurement, &options, &mut |done, of| progress.step(done, of));
    let still_running = profile.info.exit.is_none();
    if profile.info.processes.is_empty() && !(still_running && losses.is_empty()) {
        measurement.session.notes.iter().for_each(output::say);
        anyhow::bail!(
            "{}: no data of any process: none was measured, or the files are missing or damaged",
            directory.display()
        );
    }
    Ok(profile)
}

/// Why a profile was not shown; standard output's own error is left as it is.
pub(crate) fn shown(error: ViewError) -> anyhow::Error {
    match error {
        ViewError::Write(error) => error.into(),
        other => other.into(),
    }
}
