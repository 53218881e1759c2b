//! `callpath export --format parquet`: a directory of tables for engines.

use std::path::Path;

use callpath_db::database::{Database, is_database};
use callpath_parquet::{Exported, NewTables};
use callpath_target::survive_long_files;

use super::Arguments;
use crate::command::profile::load_sampled;
use crate::outcome::{Failure, Outcome};
use crate::surroundings::Progress;
use crate::{interrupt, output};

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let Some(path) = &arguments.output else {
        return Err(anyhow::anyhow!("parquet is a directory of tables: name a new one with -o").into());
    };
    if arguments.metric.is_some() || !arguments.selection.is_of_whole() {
        return Err(anyhow::anyhow!(
            "parquet has all metrics, threads and call paths: select with SQL (docs/engines.md), not with options"
        )
        .into());
    }
    let Exported { contexts, facts, len_bytes, .. } = write(arguments.measurement.as_deref(), path)?;
    let path = path.display();
    output::say(format_args!("exported: {path} has {contexts} contexts and {facts} values ({len_bytes} bytes)"));
    Ok(0)
}

/// Writes the tables of a database or a measurement, the newest one here if none is named, into a new directory.
pub(in crate::command) fn write(measurement: Option<&Path>, path: &Path) -> Result<Exported, Failure> {
    survive_long_files();
    interrupt::catch();
    let failed = |error| Failure::from(anyhow::anyhow!("failed to {error}"));
    // Before a profile is read, which may take long.
    let tables = NewTables::create(path).map_err(failed)?;
    let database = match measurement.filter(|path| is_database(path)) {
        Some(file) => Database::open(file),
        None => load_sampled(measurement, "exported")?.to_database().and_then(|bytes| Database::of_bytes(bytes, path)),
    };
    let database = database.map_err(|error| failed(error.into()))?;
    let (mut progress, profiles) = (Progress::new("exporting"), database.profiles().len());
    let written = tables.write(&database, |done| {
        progress.step(done, profiles);
        interrupt::caught().is_none()
    });
    drop(progress);
    written.map_err(|error| match interrupt::caught() {
        Some(signal) => Failure { status: 128 + signal, ..failed(error) },
        None => failed(error),
    })
}
