//! `callpath report --view contexts`: the shape of the calling context tree of calls that were counted exactly.

use std::io::Write;
use std::path::Path;

use callpath_analyze::exact::{context_tree, exact_quality};
use callpath_db::database::is_database;
use callpath_db::exact::ContextTree;
use callpath_measurement::plain;
use callpath_view::text::{self, ShapeText};

use crate::command::profile::has_calls;
use crate::command::profile::{analysis_options_of, of_measurement, read};
use crate::screen::ScreenOptions;
use crate::surroundings::Progress;
use crate::{output, surroundings};

/// So many procedures are shown.
const MOST_PROCEDURES: usize = 10;

/// What is asked for.
pub(super) struct ShapeAsked<'a> {
    /// The newest one here, if none is named.
    pub(super) measurement: Option<&'a Path>,
    /// In percent.
    pub(super) threshold: Option<f64>,
    pub(super) json: bool,
    pub(super) width: Option<usize>,
    pub(super) screen: &'a ScreenOptions,
    /// An option that says nothing of this view, if there is one.
    pub(super) of_other_views: Option<&'static str>,
}

pub(super) fn show(asked: &ShapeAsked<'_>) -> anyhow::Result<()> {
    if let Some(option) = asked.of_other_views {
        anyhow::bail!("failed to show contexts: {option} is for other views; this one takes --threshold and --json");
    }
    let tree = load(asked.measurement)?;
    let min_share = asked.threshold.unwrap_or(0.0) / 100.0;
    if asked.json {
        let mut out = output::stdout();
        callpath_view::shape_json::write(&tree, min_share, &mut out)?;
        return Ok(out.flush()?);
    }
    let mut out = asked.screen.open();
    let shown = ShapeText {
        tree: &tree,
        min_share,
        max_rows: if asked.threshold.is_some() { usize::MAX } else { MOST_PROCEDURES },
        width: asked.width.unwrap_or_else(surroundings::width),
        color: asked.screen.color(),
    };
    text::shape(shown, &mut out)?;
    Ok(out.end()?)
}

/// The tree of a measurement, the newest one here if none is named.
fn load(directory: Option<&Path>) -> anyhow::Result<ContextTree> {
    if let Some(file) = directory.filter(|file| is_database(file)) {
        anyhow::bail!(
            "failed to show contexts: {} is a database, which does not say what its code is; name the measurement that it was merged from",
            file.display()
        );
    }
    let measurement = read(directory)?;
    let none = || {
        let directory = measurement.directory.display();
        anyhow::anyhow!(
            "failed to show contexts: {directory} has no counts of all calls; record them with: callpath record --exact=calls PROGRAM"
        )
    };
    let profile = of_measurement(&measurement)?;
    anyhow::ensure!(has_calls(&profile), none());
    let options = analysis_options_of(&measurement.directory);
    let paths = measurement.read_paths().map_err(|error| anyhow::anyhow!("failed to {}", plain(error)))?;
    let quality = exact_quality(&measurement, &paths, &options);
    // Probes count calls, too, and may have done so beside paths.
    anyhow::ensure!(!quality.paths || quality.in_contexts, none());
    let mut progress = Progress::new("reading modules");
    let tree = context_tree((&measurement, &paths), &profile, &options, &mut |done, of| progress.step(done, of));
    let mut tree = tree.ok_or_else(none)?;
    tree.quality = quality;
    Ok(tree)
}
