//! A profile in the formats of other tools, each written by one file here.
//!
//! What a format cannot hold becomes a frame with a mark: `loop at f.c:12`, `g (inlined)`. The costs of all that is
//! written add up to the total of what was selected, exactly. Everything is written as it goes.

mod callgrind;
mod diff_flamegraph;
mod exported;
mod firefox;
mod flamegraph;
mod folded;
mod frames;
mod pprof;
mod protobuf;
mod speedscope;
mod units;

use std::io::Write;

use callpath_db::{MetricKind, MetricType, Profile, Query, ScopeKind, ViewKind};
pub use diff_flamegraph::write_diff;
use exported::Exported;

use crate::ViewError;

/// A format of another tool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// A line for each call path: its frames, outermost first, with `;` between them, and its cost.
    Folded,
    /// A flame graph, one SVG with a script of its own.
    Flamegraph,
    /// profile.proto of pprof, gzipped.
    Pprof,
    /// JSON for profiler.firefox.com.
    Firefox,
    /// JSON for speedscope.app.
    Speedscope,
    /// For callgrind_annotate and KCachegrind.
    Callgrind,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 6] =
        [Format::Folded, Format::Flamegraph, Format::Pprof, Format::Firefox, Format::Speedscope, Format::Callgrind];

    /// The word of the command line.
    pub fn word(self) -> &'static str {
        match self {
            Format::Folded => "folded",
            Format::Flamegraph => "flamegraph",
            Format::Pprof => "pprof",
            Format::Firefox => "firefox",
            Format::Speedscope => "speedscope",
            Format::Callgrind => "callgrind",
        }
    }

    /// Whether it is no text.
    pub fn is_binary(self) -> bool {
        self == Format::Pprof
    }

    /// Whether it keeps processes and threads apart without making frames of them.
    fn has_threads(self) -> bool {
        matches!(self, Format::Pprof | Format::Firefox | Format::Speedscope)
    }

    /// Whether a frame has lines in it.
    fn has_lines(self) -> bool {
        matches!(self, Format::Pprof | Format::Firefox | Format::Callgrind)
    }

    /// The greatest total that its readers take.
    fn greatest(self) -> u64 {
        match self {
            Format::Pprof => i64::MAX as u64,
            // Numbers of JavaScript are exact up to here.
            Format::Firefox | Format::Speedscope | Format::Flamegraph => 1 << 53,
            Format::Folded | Format::Callgrind => u64::MAX,
        }
    }
}

/// What is to be exported.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    /// Which processes, threads and paths, and what is folded away. The format says what the tree looks like: its view,
    /// thresholds, and whether processes and threads are merged do not matter.
    pub query: Query,
    /// The metric by name; `None`: metric 0. [`Format::Pprof`] has all, this one first.
    pub metric: Option<String>,
}

/// Writes `profile` as `format`. Fails where the query has no answer, the metric is not there or does not add up in whole
/// numbers, or `out` takes no more.
pub fn write(profile: &Profile, format: Format, options: &ExportOptions, out: &mut dyn Write) -> Result<(), ViewError> {
    let metric = metric(profile, options)?;
    let view = profile.view(&query(profile, format, &options.query))?;
    let source = Exported { profile, view: &view, metric };
    let total = source.total();
    if total > format.greatest() {
        return Err(ViewError::TooLarge { metric: profile.metrics[metric].name.clone(), total });
    }
    match format {
        Format::Folded => folded::write(&source, out),
        Format::Flamegraph => flamegraph::write(&source, out),
        Format::Pprof => pprof::write(&source, out),
        Format::Firefox => firefox::write(&source, out),
        Format::Speedscope => speedscope::write(&source, out),
        Format::Callgrind => callgrind::write(&source, out),
    }
    .map_err(ViewError::Write)
}

/// The column to be shown.
fn metric(profile: &Profile, options: &ExportOptions) -> Result<usize, ViewError> {
    let adds_up = |column: usize| {
        let metric = &profile.metrics[column];
        metric.kind == MetricKind::Sum && metric.value == MetricType::Integer
    };
    let names = |wanted: &dyn Fn(usize) -> bool| {
        let columns = (0..profile.metrics.len()).filter(|column| wanted(*column));
        let mut names: Vec<String> = columns.map(|column| profile.metrics[column].name.clone()).collect();
        names.dedup();
        names
    };
    let found = match &options.metric {
        Some(wanted) => profile.metrics.iter().position(|metric| metric.name == *wanted),
        None => (!profile.metrics.is_empty()).then_some(0),
    };
    match found {
        Some(column) if adds_up(column) => Ok(column),
        Some(column) => {
            let metric = profile.metrics[column].name.clone();
            Err(ViewError::NotASum { metric, there: names(&adds_up) })
        }
        None => {
            let wanted = options.metric.clone().unwrap_or_default();
            Err(ViewError::NoSuchMetric { wanted, there: names(&|_| true) })
        }
    }
}

/// `asked`, with the tree that `format` wants.
fn query(profile: &Profile, format: Format, asked: &Query) -> Query {
    let apart = format.has_threads();
    let mut query = Query {
        view: ViewKind::Context,
        per_thread: apart,
        merge_processes: !apart,
        regions_meet: !apart,
        min_share: 0.0,
        max_depth: None,
        procedure: None,
        ..asked.clone()
    };
    query.fold.retain(|kind| !matches!(kind, ScopeKind::Line | ScopeKind::Process | ScopeKind::Thread));
    if !format.has_lines() {
        query.fold.push(ScopeKind::Line);
    }
    if !apart {
        query.fold.push(ScopeKind::Thread);
        // Of one, the root has the name.
        if profile.process_count() <= 1 {
            query.fold.push(ScopeKind::Process);
        }
    }
    query
}
