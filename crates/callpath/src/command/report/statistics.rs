//! `callpath report --statistics`: how costs are distributed over profiles.

use std::io::Write;
use std::path::Path;

use callpath_db::database::{Database, DatabaseError, StatisticsQuery, is_database};
use callpath_view::{statistics_json, text};

use super::{Arguments, query};
use crate::command::profile::{load, need_samples};
use crate::{output, surroundings};

pub(super) fn show(arguments: &Arguments) -> anyhow::Result<()> {
    let failed = |error: DatabaseError| anyhow::anyhow!("failed to {error}");
    let database = match arguments.measurement.as_deref() {
        Some(file) if is_database(file) => Database::open(file).map_err(failed)?,
        directory => {
            let profile = load(directory)?;
            need_samples(&profile)?;
            let bytes = profile.to_database().map_err(failed)?;
            Database::of_bytes(bytes, directory.unwrap_or(Path::new("."))).map_err(failed)?
        }
    };
    let asked = query(arguments);
    let asked = StatisticsQuery {
        metric: metric(&database, &arguments.columns)?,
        min_share: asked.min_share,
        max_depth: asked.max_depth.unwrap_or(usize::MAX),
        fold: asked.fold,
    };
    let tree = database.statistics_tree(&asked).map_err(failed)?;
    if arguments.json {
        let mut out = output::stdout();
        statistics_json::write(&tree, &mut out)?;
        return Ok(out.flush()?);
    }
    let mut out = arguments.screen.open();
    let width = arguments.width.unwrap_or_else(surroundings::width);
    text::statistics(&tree, width, arguments.screen.color(), &mut out)?;
    Ok(out.end()?)
}

/// The number of the metric that is asked for.
fn metric(database: &Database, asked: &[String]) -> anyhow::Result<usize> {
    let [name] = asked else {
        anyhow::ensure!(asked.is_empty(), "--statistics shows one metric at a time: name one with --columns");
        return Ok(0);
    };
    let names: Vec<&str> = database.metrics().iter().map(|metric| metric.name.as_str()).collect();
    let found = names.iter().position(|there| there == name);
    found.ok_or_else(|| anyhow::anyhow!("no metric is called {name}; there are: {}", names.join(", ")))
}
