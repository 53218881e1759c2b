//! `callpath report --view paths` and `--view blocks`: what was counted exactly.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use callpath_analyze::exact::{Counted, exact_counts, exact_quality, sampled_metrics};
use callpath_db::database::is_database;
use callpath_db::exact::{ExactCounts, ExactRanking};
use callpath_db::{Metric, Profile, nearest};
use callpath_format::address::LinkAddr;
use callpath_format::frame::ModuleIndex;
use callpath_measurement::{MeasuredPaths, Measurement, MeasurementError, PathCounts, has_paths, plain};
use callpath_view::exact_json::{self, ExactJson};
use callpath_view::text::{self, ExactText, count};

use crate::command::profile::{analysis_options_of, has_calls, read};
use crate::screen::ScreenOptions;
use crate::surroundings::Progress;
use crate::{output, surroundings};

/// What has a smaller share of all instructions is not hot, in percent.
const HOT_PERCENT: f64 = 1.0;
/// What paths are in order of if it is named so, or if there are few samples.
const INSTRUCTIONS: &str = "instructions";
/// Of fewer samples in procedures that were counted, each alone would make a path hot.
const LEAST_SAMPLES: u64 = 100;
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
    /// [`INSTRUCTIONS`], what was measured, or a metric that was sampled.
    pub(super) order_by: Option<&'a str>,
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
            "failed to show {view}: {option} is for other views; these take --procedure, --threshold, --hot and --json, paths --order-by, too"
        );
    }
    let shown = if view == ExactView::Paths { "paths" } else { "blocks" };
    let counts = load(asked, shown)?;
    anyhow::ensure!(
        view == ExactView::Blocks || !counts.is_of_edges(),
        "failed to show paths: edges were counted, and no paths; --view blocks shows them"
    );
    let procedures = match asked.procedure {
        None => (0..counts.procedures.len()).collect(),
        Some(name) => named(&counts, name)?,
    };
    let ranking = ranking(asked, &counts)?;
    let hot_share = asked.hot.unwrap_or(HOT_PERCENT) / 100.0;
    if asked.json {
        let min_share = asked.threshold.unwrap_or(0.0) / 100.0;
        let written = ExactJson { counts: &counts, procedures: &procedures, ranking, min_share };
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
        ranking,
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

/// Why calls were dropped that found no memory for their context.
const NO_MEMORY: &str = "no-memory";
/// So many programs are named in which nothing was counted.
const PROGRAMS_NAMED: usize = 3;

/// By what paths are in order. JSON is by instructions unless something else is asked for: how many samples came does not matter.
fn ranking(asked: &ExactAsked<'_>, counts: &ExactCounts) -> anyhow::Result<ExactRanking> {
    let samples = counts.sampling.as_ref().map_or(0, |sampling| sampling.samples);
    match asked.order_by {
        _ if asked.view == ExactView::Blocks => Ok(ExactRanking::Instructions),
        Some(metric) => {
            // Instructions, too, may have been counted by the processor.
            if let Some(number) = counts.timings.iter().position(|timing| timing.name == metric) {
                return Ok(ExactRanking::Timed(number));
            }
            if metric == INSTRUCTIONS {
                return Ok(ExactRanking::Instructions);
            }
            anyhow::ensure!(
                samples > 0,
                "failed to order paths by {metric}: no sample is in a procedure that was counted"
            );
            Ok(ExactRanking::Sampled)
        }
        None if !counts.timings.is_empty() && !asked.json => Ok(ExactRanking::Timed(0)),
        None if samples < LEAST_SAMPLES || asked.json => Ok(ExactRanking::Instructions),
        None => Ok(ExactRanking::Sampled),
    }
}

/// What paths are to be in order of.
#[derive(Clone, Copy)]
struct Ordered<'a> {
    by: Option<&'a str>,
    /// What was measured of them.
    timings: &'a [&'a str],
}

/// What of the samples is divided among paths: what they are to be in order of, else the first metric.
fn divided<'m>(measurement: &'m Measurement, asked: Ordered<'_>) -> anyhow::Result<Option<&'m Metric>> {
    let mut metrics = sampled_metrics(measurement);
    let is_counted = |name: &&str| *name == INSTRUCTIONS || asked.timings.contains(name);
    let Some(name) = asked.by.filter(|name| !is_counted(name)) else { return Ok(metrics.next()) };
    let found = metrics.find(|metric| metric.name == name);
    let names = || {
        let timed = asked.timings.iter().copied();
        [INSTRUCTIONS].into_iter().chain(timed).chain(sampled_metrics(measurement).map(|metric| metric.name.as_str()))
    };
    anyhow::ensure!(
        found.is_some(),
        "failed to order paths by {name}: there are {}",
        names().collect::<Vec<_>>().join(", ")
    );
    Ok(found)
}

/// What was counted in the measurement, the newest one here if none is named. `shown`: what is asked for.
fn load(asked: &ExactAsked<'_>, shown: &str) -> anyhow::Result<ExactCounts> {
    let directory = asked.measurement;
    if let Some(file) = directory.filter(|file| is_database(file)) {
        anyhow::bail!(
            "failed to show {shown}: {} is a database, which has none; name the measurement that it was merged from",
            file.display()
        );
    }
    let measurement = read(directory)?;
    let mut paths = measurement.read_paths().map_err(|error| anyhow::anyhow!("failed to {}", plain(error)))?;
    if paths.processes.is_empty() {
        anyhow::ensure!(
            !paths.unreadable.is_empty(),
            "failed to show {shown}: {} has no counts of them; record them with: callpath record --exact=paths PROGRAM",
            measurement.directory.display()
        );
        anyhow::bail!("failed to {}", plain(paths.unreadable.swap_remove(0)));
    }
    let mut progress = Progress::new("reading modules");
    let of_first = paths.processes.iter().map(|(_, counts)| &counts.metrics).find(|metrics| !metrics.is_empty());
    let timings: Vec<&str> = of_first.into_iter().flatten().map(|metric| metric.name.as_str()).collect();
    let sampled = divided(&measurement, Ordered { by: asked.order_by, timings: &timings })?;
    let counted = Counted { measurement: &measurement, paths: &paths, sampled };
    let counts =
        exact_counts(counted, &analysis_options_of(&measurement.directory), &mut |done, of| progress.step(done, of));
    anyhow::ensure!(
        counts.quality.paths || counts.quality.counted == 0,
        "failed to show {shown}: {} has counts of calls, in its other views; record {shown} with: callpath record --exact=paths PROGRAM",
        measurement.directory.display()
    );
    Ok(counts)
}

/// Says in the profile of a measurement that it has exact counts, if it has, and what was not counted; for JSON, how they were counted.
pub(super) fn add_account(profile: &mut Profile, is_json: bool) -> anyhow::Result<()> {
    let directory = PathBuf::from(&profile.info.directory);
    if !has_paths(&directory) {
        return Ok(());
    }
    let failed = |error: MeasurementError| anyhow::anyhow!("failed to {}", plain(error));
    let measurement = Measurement::read(&directory).map_err(failed)?;
    let paths = measurement.read_paths().map_err(failed)?;
    let is_of_calls = has_calls(profile);
    let mut note = if is_of_calls {
        let counted = distinct(&measurement, &paths, |counts| {
            let without_paths = counts.refused.iter().filter(|refused| refused.has_calls());
            let without_paths = without_paths.map(|procedure| (procedure.module, procedure.entry));
            let with_paths = counts.procedures.iter().map(|procedure| (procedure.module, procedure.entry));
            with_paths.chain(without_paths).collect()
        });
        let procedures = count(counted, "procedure", "procedures");
        let paths = match paths.processes.iter().any(|(_, counts)| counts.has_paths()) {
            true => ", --view paths the paths in each context",
            false => "",
        };
        format!(
            "Calls of {procedures} were counted exactly, in their contexts: the metric calls. --view contexts shows the tree's shape{paths}."
        )
    } else {
        let is_of_edges = paths.processes.iter().any(|(_, counts)| counts.is_of_edges());
        let views = if is_of_edges { "--view blocks" } else { "--view paths and --view blocks" };
        let besides = if profile.is_sampled() { ", too" } else { "" };
        format!("There are exact counts{besides}: see them with {views}.")
    };
    let unmeasured = distinct(&measurement, &paths, |counts| {
        let unmeasured = counts.refused.iter().filter(|refused| refused.is_unmeasured());
        unmeasured.map(|procedure| (procedure.module, procedure.entry)).collect()
    });
    if unmeasured > 0 {
        let procedures = count(unmeasured, "procedure", "procedures");
        note += &format!(
            " The calls of {procedures} were counted but not measured, so no row includes their cost; --json names them."
        );
    }
    note += &not_counted(&measurement, &paths, is_of_calls);
    if is_of_calls && profile.quality.dropped.get(NO_MEMORY).is_some_and(|dropped| *dropped > 0) {
        note += " Calls that found no memory are not counted: they are among what was dropped (no-memory).";
    }
    profile.info.notes.push(note);
    if is_json {
        profile.quality.exact = Some(exact_quality(&measurement, &paths, &analysis_options_of(&measurement.directory)));
    }
    Ok(())
}

/// What there are no exact counts of: procedures, and programs that others have executed.
fn not_counted(measurement: &Measurement, paths: &MeasuredPaths, is_of_calls: bool) -> String {
    let mut words = String::new();
    let refused = distinct(measurement, paths, |counts| {
        let refused = counts.refused.iter().filter(|refused| !is_of_calls || !refused.has_calls());
        refused.map(|procedure| (procedure.module, procedure.entry)).collect()
    });
    // The views of paths and blocks name them.
    if is_of_calls && refused > 0 {
        let were = count(refused, "procedure was", "procedures were");
        words += &format!(" {were} not counted, which --json names.");
    }
    // Counts are written when a process ends; of a file that cannot be read it is not known whose they are.
    if measurement.session.ended.is_none() || !paths.unreadable.is_empty() {
        return words;
    }
    let program = |index: usize| Some(measurement.processes.get(index)?.program.file_name()?.to_string_lossy());
    let counted: BTreeSet<_> = paths.processes.iter().filter_map(|(process, _)| program(*process)).collect();
    let all: BTreeSet<_> = (0..measurement.processes.len()).filter_map(program).collect();
    let others: Vec<&str> = all.difference(&counted).map(AsRef::as_ref).collect();
    if !others.is_empty() {
        let (named, more) = others.split_at(others.len().min(PROGRAMS_NAMED));
        let more = match more.len() as u64 {
            0 => String::new(),
            more => format!(" and {}", count(more, "other", "others")),
        };
        words += &format!(" Nothing was counted in programs that were executed later: {}{more}.", named.join(", "));
    }
    words
}

/// How many procedures `of` finds in all processes together: those of one file count once.
fn distinct(
    measurement: &Measurement,
    paths: &MeasuredPaths,
    of: impl Fn(&PathCounts) -> Vec<(ModuleIndex, LinkAddr)>,
) -> u64 {
    let mut all = BTreeSet::new();
    for (process, counts) in &paths.processes {
        let modules = measurement.processes.get(*process).map_or(&[][..], |process| &process.modules);
        let file = |module: ModuleIndex| modules.get(module.0 as usize).map(|module| &module.path);
        all.extend(of(counts).into_iter().map(|(module, entry)| (file(module), entry)));
    }
    all.len() as u64
}

/// The procedures that a name means.
fn named(counts: &ExactCounts, name: &str) -> anyhow::Result<Vec<usize>> {
    let found = counts.named(name);
    // A procedure with exactly this name is meant, also if others have it as a part of theirs.
    let is_meant = |called: &str| called == name || called.strip_prefix(name).is_some_and(|rest| rest.starts_with('('));
    let refused = counts.quality.refused.iter().find(|refused| is_meant(&refused.function));
    let is_refused = refused.is_some() && !found.iter().any(|index| is_meant(&counts.procedures[*index].name));
    if found.is_empty() || is_refused {
        let near = nearest(name, counts.procedures.iter().map(|procedure| procedure.name.as_str()));
        let near = if near.is_empty() { String::new() } else { format!("; similar names: {}", near.join(", ")) };
        let why = refused.map_or(String::new(), |refused| format!("; it was not counted: {}", refused.reason));
        anyhow::bail!("failed to find a procedure {name:?} with paths that were executed{why}{near}");
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use callpath_db::exact::{ExactProcedure, ExactQuality, RefusedFunction};

    use super::*;

    #[test]
    fn a_procedure_that_was_not_counted_is_not_mistaken_for_others() {
        let called = |name: &str| ExactProcedure { name: name.to_owned(), ..ExactProcedure::default() };
        let refused = |function: &str| RefusedFunction {
            function: function.to_owned(),
            module: "app".to_owned(),
            reason: "no free register at 0x10".to_owned(),
        };
        let quality = ExactQuality { refused: vec![refused("main"), refused("turn(int)")], ..ExactQuality::default() };
        let procedures = vec![called("__libc_start_main"), called("turn(long)"), called("main_loop")];
        let counts = ExactCounts { procedures, quality, ..ExactCounts::default() };
        let error = |name: &str| named(&counts, name).unwrap_err().to_string();
        assert!(error("main").contains("it was not counted: no free register at 0x10"));
        assert!(error("turn(int)").contains("it was not counted"));
        // Another one of this name was counted.
        assert_eq!(named(&counts, "turn").unwrap(), [1]);
        assert_eq!(named(&counts, "main_loop").unwrap(), [2]);
        assert_eq!(named(&counts, "libc_start").unwrap(), [0]);
    }
}
