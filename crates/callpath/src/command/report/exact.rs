//! `callpath report --view paths` and `--view blocks`: what was counted exactly.

use std::io::Write;
use std::path::{Path, PathBuf};

use callpath_analyze::exact::{exact_counts, exact_quality};
use callpath_db::Profile;
use callpath_db::database::is_database;
use callpath_db::exact::ExactCounts;
use callpath_db::nearest;
use callpath_measurement::{Measurement, MeasurementError, has_paths, plain};
use callpath_view::exact_json::{self, ExactJson};
use callpath_view::text::{self, ExactText};

use crate::command::profile::{analysis_options, read};
use crate::screen::ScreenOptions;
use crate::surroundings::Progress;
use crate::{output, surroundings};

/// What has a smaller share of all instructions is not hot, in percent.
const HOT_PERCENT: f64 = 1.0;
/// So many paths are shown, two lines or more each.
const MOST_PATHS: usize = 30;
/// About so many blocks are shown.
const MOST_BLOCKS: usize = 100;

/// What of it is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ExactView {
    Paths,
    Blocks,
}

/// What is asked for.
pub(super) struct ExactAsked<'a> {
    pub(super) view: ExactView,
    /// The newest one here, if none is named.
    pub(super) measurement: Option<&'a Path>,
    pub(super) procedure: Option<&'a str>,
    /// In percent, as `hot`.
    pub(super) threshold: Option<f64>,
    pub(super) hot: Option<f64>,
    pub(super) json: bool,
    pub(super) width: Option<usize>,
    pub(super) screen: &'a ScreenOptions,
    /// An option that says something of samples only, if there is one.
    pub(super) of_other_views: Option<&'static str>,
}

pub(super) fn show(asked: &ExactAsked<'_>) -> anyhow::Result<()> {
    let view = asked.view;
    if let Some(option) = asked.of_other_views {
        let view = if view == ExactView::Paths { "paths" } else { "blocks" };
        anyhow::bail!(
            "failed to show {view}: {option} is for other views; these take --procedure, --threshold, --hot and --json"
        );
    }
    let counts = load(asked.measurement)?;
    anyhow::ensure!(
        view == ExactView::Blocks || !counts.is_of_edges(),
        "failed to show paths: edges were counted, and no paths; --view blocks shows them"
    );
    let procedures = match asked.procedure {
        None => (0..counts.procedures.len()).collect(),
        Some(name) => named(&counts, name)?,
    };
    let hot_share = asked.hot.unwrap_or(HOT_PERCENT) / 100.0;
    if asked.json {
        let min_share = asked.threshold.unwrap_or(0.0) / 100.0;
        let written = ExactJson { counts: &counts, procedures: &procedures, min_share };
        let mut out = output::stdout();
        match view {
            ExactView::Paths => exact_json::paths(written, &mut out)?,
            ExactView::Blocks => exact_json::blocks(written, &mut out)?,
        }
        return Ok(out.flush()?);
    }
    let shown = ExactText {
        counts: &counts,
        procedures: &procedures,
        hot_share,
        // Of a procedure that is asked for by name all is asked for.
        min_share: match (asked.threshold, asked.procedure) {
            (Some(percent), _) => percent / 100.0,
            (None, Some(_)) => 0.0,
            (None, None) => hot_share,
        },
        max_rows: match (asked.threshold, view) {
            (Some(_), _) => usize::MAX,
            (None, ExactView::Paths) => MOST_PATHS,
            (None, ExactView::Blocks) => MOST_BLOCKS,
        },
        width: asked.width.unwrap_or_else(surroundings::width),
        color: asked.screen.color(),
    };
    let mut out = asked.screen.open();
    match view {
        ExactView::Paths => text::paths(shown, &mut out)?,
        ExactView::Blocks => text::blocks(shown, &mut out)?,
    }
    Ok(out.end()?)
}

/// The metric of calls that were counted.
const CALLS: &str = "calls";

/// What was counted in a measurement, the newest one here if none is named.
fn load(directory: Option<&Path>) -> anyhow::Result<ExactCounts> {
    if let Some(file) = directory.filter(|file| is_database(file)) {
        anyhow::bail!(
            "failed to show paths: {} is a database, which has none; name the measurement that it was merged from",
            file.display()
        );
    }
    let measurement = read(directory)?;
    let mut paths = measurement.read_paths().map_err(|error| anyhow::anyhow!("failed to {}", plain(error)))?;
    if paths.processes.is_empty() {
        anyhow::ensure!(
            !paths.unreadable.is_empty(),
            "failed to show paths: {} has no counts of paths; record them with: callpath record --exact=paths PROGRAM",
            measurement.directory.display()
        );
        anyhow::bail!("failed to {}", plain(paths.unreadable.swap_remove(0)));
    }
    let mut progress = Progress::new("reading modules");
    let counts = exact_counts(&measurement, &paths, &analysis_options(), &mut |done, of| progress.step(done, of));
    anyhow::ensure!(
        counts.quality.paths || counts.quality.counted == 0,
        "failed to show paths: {} has counts of calls, in its other views; record paths with: callpath record --exact=paths PROGRAM",
        measurement.directory.display()
    );
    Ok(counts)
}

/// Whether all calls were counted exactly, and not those of probes alone.
pub(super) fn has_calls(profile: &Profile) -> bool {
    profile.metrics.iter().any(|metric| metric.name == CALLS) && has_paths(Path::new(&profile.info.directory))
}

/// Says in the profile of a measurement that it has exact counts, if it has, and, for JSON, how they were counted.
pub(super) fn add_account(profile: &mut Profile, is_json: bool) -> anyhow::Result<()> {
    let directory = PathBuf::from(&profile.info.directory);
    if !has_paths(&directory) {
        return Ok(());
    }
    let besides = if profile.is_sampled() { ", too" } else { "" };
    let note = if has_calls(profile) {
        "All calls of procedures were counted exactly, in their contexts: the metric calls. --view contexts shows the tree's shape."
            .to_owned()
    } else {
        format!("There are exact counts{besides}: see them with --view paths, or --view blocks if they are of edges.")
    };
    profile.info.notes.push(note);
    if is_json {
        let failed = |error: MeasurementError| anyhow::anyhow!("failed to {}", plain(error));
        let measurement = Measurement::read(&directory).map_err(failed)?;
        let paths = measurement.read_paths().map_err(failed)?;
        profile.quality.exact = Some(exact_quality(&measurement, &paths, &analysis_options()));
    }
    Ok(())
}

/// The procedures that a name means.
fn named(counts: &ExactCounts, name: &str) -> anyhow::Result<Vec<usize>> {
    let found = counts.named(name);
    if found.is_empty() {
        let near = nearest(name, counts.procedures.iter().map(|procedure| procedure.name.as_str()));
        let near = if near.is_empty() { String::new() } else { format!("; similar names: {}", near.join(", ")) };
        let refused = counts.quality.refused.iter().find(|refused| refused.function == name);
        let why = refused.map_or(String::new(), |refused| format!("; it was not counted: {}", refused.reason));
        anyhow::bail!("failed to find a procedure {name:?} with paths that were executed{why}{near}");
    }
    Ok(found)
}
