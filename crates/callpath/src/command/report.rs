//! `callpath report`: a measurement in, text or JSON out.
//! Knows nothing of how either is made.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use callpath_analyze::attribute::{AttributeOptions, attribute};
use callpath_analyze::measurement::{Measurement, newest};
use callpath_db::{Profile, Query, ScopeKind, ViewKind};
use callpath_view::text::{self, TextOptions};
use clap::ValueEnum;

use super::Outcome;
use crate::surroundings::{self, Progress};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The measurement directory [default: the newest *.callpath here]
    measurement: Option<PathBuf>,
    /// One view instead of the report: context (top down), callers (bottom up) or flat (by code)
    #[arg(long, value_name = "VIEW")]
    view: Option<ViewArgument>,
    /// JSON of a view (the context view unless --view says otherwise), whole unless limited
    #[arg(long)]
    json: bool,
    /// Only processes with this name or number
    #[arg(long, value_name = "NAME|PID")]
    process: Option<String>,
    /// Only threads with this name or number
    #[arg(long, value_name = "NAME|TID")]
    thread: Option<String>,
    /// Keep threads apart that would be added up
    #[arg(long)]
    per_thread: bool,
    /// Add up processes of the same name
    #[arg(long)]
    merge_processes: bool,
    /// Leave out what costs less than this many percent of the whole [default: 1, in JSON 0]
    #[arg(long, value_name = "PERCENT")]
    threshold: Option<f64>,
    /// Show so many levels
    #[arg(long, value_name = "LEVELS")]
    depth: Option<usize>,
    /// Show source lines as scopes of their own
    #[arg(long)]
    lines: bool,
    /// Add up each recursive procedure's activations on a path
    #[arg(long)]
    fold_recursion: bool,
    /// Columns [default: the terminal's, or 100]
    #[arg(long, value_name = "COLUMNS")]
    width: Option<usize>,
}

#[derive(Clone, Copy, ValueEnum)]
enum ViewArgument {
    Context,
    Callers,
    Flat,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let profile = load(arguments.measurement.as_deref())?;
    show(&profile, arguments)?;
    Ok(0)
}

/// The profile of a measurement, the newest one here if none is named.
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
    let options = AttributeOptions { debug_roots: surroundings::debug_roots(), vdso: callpath_target::own_vdso() };
    let mut progress = Progress::new("reading modules");
    Ok(attribute(&measurement, &options, &mut |done, of| progress.step(done, of)))
}

fn show(profile: &Profile, arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.threshold.is_some_and(|t| !(0.0..=100.0).contains(&t)) {
        anyhow::bail!("--threshold: a percentage is from 0 to 100");
    }
    let query = Query {
        view: match arguments.view {
            None | Some(ViewArgument::Context) => ViewKind::Context,
            Some(ViewArgument::Callers) => ViewKind::Callers,
            Some(ViewArgument::Flat) => ViewKind::Flat,
        },
        process: arguments.process.clone(),
        thread: arguments.thread.clone(),
        per_thread: arguments.per_thread,
        merge_processes: arguments.merge_processes,
        fold_recursion: arguments.fold_recursion,
        fold: if arguments.lines { Vec::new() } else { vec![ScopeKind::Line] },
        min_share: arguments.threshold.unwrap_or(if arguments.json { 0.0 } else { 1.0 }) / 100.0,
        max_depth: arguments.depth,
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    if arguments.json {
        let view = profile.view(&query)?;
        callpath_view::json::write(&view, profile, &mut out).and_then(|()| out.flush()).map_err(Into::into)
    } else {
        let defaults = TextOptions::default();
        let options = TextOptions {
            query,
            width: arguments.width.unwrap_or_else(surroundings::width),
            color: surroundings::color(),
            max_lines: if arguments.threshold.is_some() { usize::MAX } else { defaults.max_lines },
            ..defaults
        };
        let result = match arguments.view {
            None => text::report(profile, &options, &mut out),
            Some(_) => text::view(profile, &options, &mut out),
        };
        result.map_err(anyhow::Error::from)
    }
}
