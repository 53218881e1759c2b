//! `callpath report`: a measurement in, text or JSON out.

mod contexts;
mod exact;
mod perf_options;
mod shape;
mod statistics;

use std::io::Write;
use std::path::PathBuf;

use callpath_db::database::{Database, Mapped, is_database};
use callpath_db::{Answers, ColumnError, Inlined, MetricId, Order, Profile, Query, ScopeKind, ViewKind};
use callpath_view::text::{self, TextOptions};
use clap::ValueEnum;
use exact::{ExactAsked, ExactView};
use perf_options::Report;
use shape::ShapeAsked;

use super::perf_options::PerfOptions;
use super::profile::{load, load_and_pack, load_inferred, load_novel, need_samples, shown};
use super::selection::Selection;
use crate::outcome::Outcome;
use crate::screen::ScreenOptions;
use crate::{output, surroundings};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Measurement directory or database [default: the newest *.callpath in the current directory]
    measurement: Option<PathBuf>,
    /// Show one view alone: context (top down), callers (bottom up), flat (by code); or what `record --exact=paths` has counted:
    /// paths (through procedures) or blocks (with the edges between them); or of `record --exact=calls` contexts: the shape of
    /// their tree
    #[arg(long, value_name = "VIEW")]
    view: Option<ReportView>,
    /// Show the sample statistics alone: classes, links between frames, time in handlers
    #[arg(long, conflicts_with = "view")]
    quality: bool,
    /// Show how the cost of each call path is distributed over the threads of all runs: mean, least, greatest, standard
    /// deviation. A thread that never was there counts as 0. Of the first metric, or of that of --columns
    #[arg(long, conflicts_with_all = ["view", "quality", "procedure", "per_thread", "per_process", "process", "thread",
        "focus", "ignore", "hide", "prune_from", "recursion", "metric", "order_by", "flatten", "pack"])]
    statistics: bool,
    /// Show the call paths of these contexts: numbers that the program has logged (callpath probe -m context)
    #[arg(long, value_name = "NUMBER,...", value_delimiter = ',', value_parser = contexts::number,
        conflicts_with_all = ["view", "quality", "statistics", "procedure", "ranks", "per_thread", "per_process", "process",
        "thread", "focus", "ignore", "hide", "prune_from", "recursion", "metric", "columns", "order_by", "flatten", "pack"])]
    context: Vec<u64>,
    /// Find the call paths of samples that walked no stack (record --unwind=infer) in this map (callpath map train)
    #[arg(long, value_name = "MAP", value_hint = clap::ValueHint::FilePath, conflicts_with_all = ["pack", "context"])]
    map: Option<PathBuf>,
    /// Show only call paths that the map never saw: what this run did that no training run has done
    #[arg(long, conflicts_with_all = ["pack", "context"])]
    novel: bool,
    /// Print a view as JSON (context unless --view names another), complete unless limited
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    selection: Selection,
    /// Show this procedure: its callers, its callees, its lines; with --view or --json, that view as seen from there
    #[arg(long, value_name = "NAME", conflicts_with = "quality")]
    procedure: Option<String>,
    /// Show each thread separately [default: text shows all in one tree, JSON adds up those with the same name]
    #[arg(long)]
    per_thread: bool,
    /// Show all threads in one tree (the default in text): what a parallel region's workers did stands below its caller
    #[arg(long, conflicts_with = "per_thread")]
    merge_threads: bool,
    /// Show each process separately (the default in JSON)
    #[arg(long)]
    per_process: bool,
    /// Add up processes with the same name (the default in text)
    #[arg(long, conflicts_with = "per_process")]
    merge_processes: bool,
    /// Show processes by control group: those of one container or service are one. Groups are known of what was sampled from outside (-p, -a)
    #[arg(long, conflicts_with = "per_process")]
    per_container: bool,
    /// Add a metric that is computed of others, with + - * /, brackets, min(a, b), max(a, b) and total(a), which is a of
    /// everything shown: --metric 'ipc=instructions/cycles'
    #[arg(long, value_name = "NAME=FORMULA")]
    metric: Vec<String>,
    /// Show these metrics alone, in this order; shares, thresholds and order are by the first one
    #[arg(long, value_name = "METRIC,...", value_delimiter = ',', conflicts_with = "quality")]
    columns: Vec<String>,
    /// Put rows of a tree in order of this metric, with :self of what each row costs itself. With --view paths: instructions,
    /// or a metric that was sampled, of which paths then have a part
    #[arg(long, value_name = "METRIC[:self]", conflicts_with = "quality")]
    order_by: Option<String>,
    /// With --view flat, leave out so many outer levels: 1 modules, 2 files, too, 3 procedures, too
    #[arg(long, value_name = "LEVELS", value_parser = levels, allow_negative_numbers = true)]
    flatten: Option<usize>,
    /// Show what ranks of an MPI job differ in: the cost of each as a plot, and procedures and call paths by how much more the
    /// costliest rank takes than the average one; with --procedure, --focus or --process, of these
    #[arg(long, conflicts_with_all = ["view", "quality", "per_thread", "per_process", "per_rank"])]
    ranks: bool,
    /// With --ranks, plot what call paths through this procedure cost, or through these that call each other
    #[arg(long, value_name = "NAME[ > NAME]...", requires = "ranks", conflicts_with = "json")]
    plot: Option<String>,
    /// Show each rank of an MPI job separately (the default in JSON)
    #[arg(long)]
    per_rank: bool,
    /// Add up all ranks (the default in text)
    #[arg(long, conflicts_with = "per_rank")]
    merge_ranks: bool,
    /// Hide what costs less than this share of the total, in percent [default: 1, in JSON 0]
    #[arg(long, value_name = "PERCENT", value_parser = percentage, allow_negative_numbers = true)]
    threshold: Option<f64>,
    /// With --view paths, the share of all that the rows are in order of that makes a path or procedure hot, in percent
    /// [default: 1]
    #[arg(long, value_name = "PERCENT", value_parser = percentage, allow_negative_numbers = true)]
    hot: Option<f64>,
    /// Show at most this many levels
    #[arg(long, value_name = "LEVELS", value_parser = levels, allow_negative_numbers = true)]
    depth: Option<usize>,
    /// Show each frame in a row of its own, also those that cost nothing themselves
    #[arg(long)]
    all: bool,
    /// List inlined procedures apart; otherwise their bodies count for the procedures that they are in
    #[arg(long, conflicts_with = "json")]
    inlines: bool,
    /// Show source lines as rows of their own
    #[arg(long)]
    lines: bool,
    /// Also keep with the measurement what reports need of the program's files: names, lines, loops. The measurement can
    /// then be reported on any machine, as after `record --pack`
    #[arg(long)]
    pack: bool,
    /// Width in columns [default: the terminal's, else COLUMNS, else 100]
    #[arg(long, value_name = "COLUMNS", value_parser = columns, allow_negative_numbers = true)]
    width: Option<usize>,
    #[command(flatten)]
    screen: ScreenOptions,
    #[command(flatten)]
    perf: PerfOptions<Report>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum ViewArgument {
    Context,
    Callers,
    Flat,
}

impl ViewArgument {
    pub(super) fn kind(self) -> ViewKind {
        match self {
            ViewArgument::Context => ViewKind::Context,
            ViewArgument::Callers => ViewKind::Callers,
            ViewArgument::Flat => ViewKind::Flat,
        }
    }
}

/// The views of a report: those of samples, and those of what was counted exactly.
#[derive(Clone, Copy, ValueEnum)]
enum ReportView {
    Context,
    Callers,
    Flat,
    Paths,
    Blocks,
    Contexts,
}

/// What a view shows.
enum Viewed {
    Samples(ViewKind),
    Exact(ExactView),
    /// The shape of the calling context tree.
    Shape,
}

impl ReportView {
    fn viewed(self) -> Viewed {
        match self {
            ReportView::Context => Viewed::Samples(ViewKind::Context),
            ReportView::Callers => Viewed::Samples(ViewKind::Callers),
            ReportView::Flat => Viewed::Samples(ViewKind::Flat),
            ReportView::Paths => Viewed::Exact(ExactView::Paths),
            ReportView::Blocks => Viewed::Exact(ExactView::Blocks),
            ReportView::Contexts => Viewed::Shape,
        }
    }

    /// If it is one of samples.
    fn kind(self) -> Option<ViewKind> {
        match self.viewed() {
            Viewed::Samples(kind) => Some(kind),
            Viewed::Exact(_) | Viewed::Shape => None,
        }
    }
}

fn percentage(typed: &str) -> Result<f64, &'static str> {
    let number = typed.strip_suffix('%').unwrap_or(typed);
    number.parse().ok().filter(|percent| (0.0..=100.0).contains(percent)).ok_or("must be from 0 to 100")
}

fn levels(typed: &str) -> Result<usize, &'static str> {
    typed.parse().ok().filter(|levels| *levels > 0).ok_or("must be 1 or more")
}

pub(super) fn columns(typed: &str) -> Result<usize, &'static str> {
    typed.parse().ok().filter(|columns| *columns >= surroundings::LEAST_COLUMNS).ok_or("must be 40 or more")
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    arguments.perf.answer(|words| output::say(words))?;
    let directory = arguments.measurement.as_deref();
    if arguments.statistics {
        statistics::show(arguments)?;
        return Ok(0);
    }
    match arguments.view.map(ReportView::viewed) {
        Some(Viewed::Exact(view)) => {
            exact::show(&exactly_asked(arguments, view))?;
            return Ok(0);
        }
        Some(Viewed::Shape) => {
            shape::show(&shape_asked(arguments))?;
            return Ok(0);
        }
        Some(Viewed::Samples(_)) | None => {}
    }
    if arguments.hot.is_some() {
        return Err(anyhow::anyhow!("failed to find what is hot: --hot is for --view paths").into());
    }
    if !arguments.context.is_empty() {
        contexts::show(arguments)?;
        return Ok(0);
    }
    if let Some(file) = directory.filter(|file| arguments.map.is_some() && is_database(file)) {
        return Err(anyhow::anyhow!(
            "failed to look up call paths of {}: a database has none to look up; --map is for a measurement directory",
            file.display()
        )
        .into());
    }
    if let Some(file) = directory.filter(|file| may_be_lazy(arguments) && is_database(file)) {
        let database = Database::open(file).and_then(Mapped::new);
        let database = database.map_err(|error| anyhow::anyhow!("failed to {error}"))?.called(&file.to_string_lossy());
        show_text(&database, arguments, query(arguments), None)?;
        return Ok(0);
    }
    let mut profile = if arguments.novel {
        let (profile, nothing) = load_novel(directory, arguments.map.as_deref())?;
        if let Some(nothing) = nothing.filter(|_| !arguments.json) {
            let mut out = output::stdout();
            writeln!(out, "{nothing}")?;
            out.flush()?;
            return Ok(0);
        }
        profile
    } else if let Some(map) = &arguments.map {
        load_inferred(directory, map)?
    } else if arguments.pack {
        let (profile, said) = load_and_pack(directory)?;
        output::say(said);
        profile
    } else {
        load(directory)?
    };
    if arguments.per_container && !profile.name_processes_by_group() {
        return Err(anyhow::anyhow!(
            "failed to show processes by container: no control groups are known of {}; they are of what is sampled from outside (record -a, -p PID)",
            profile.info.directory
        )
        .into());
    }
    if arguments.ranks || arguments.procedure.is_some() {
        need_samples(&profile)?;
    }
    exact::add_account(&mut profile, arguments.json)?;
    let columns = columns_of(&mut profile, arguments)?;
    show(&profile, arguments, columns)?;
    Ok(0)
}

/// What is asked of exact counts.
fn exactly_asked(arguments: &Arguments, view: ExactView) -> ExactAsked<'_> {
    ExactAsked {
        view,
        measurement: arguments.measurement.as_deref(),
        procedure: arguments.procedure.as_deref(),
        threshold: arguments.threshold,
        hot: arguments.hot,
        order_by: arguments.order_by.as_deref().filter(|_| view == ExactView::Paths),
        json: arguments.json,
        width: arguments.width,
        screen: &arguments.screen,
        of_other_views: of_other_views(arguments).filter(|option| !(view == ExactView::Paths && *option == ORDER_BY)),
    }
}

/// What is asked of the tree of calls.
fn shape_asked(arguments: &Arguments) -> ShapeAsked<'_> {
    let of_paths = arguments.procedure.is_some().then_some("--procedure");
    let of_paths = of_paths.or(arguments.hot.is_some().then_some("--hot"));
    ShapeAsked {
        measurement: arguments.measurement.as_deref(),
        threshold: arguments.threshold,
        json: arguments.json,
        width: arguments.width,
        screen: &arguments.screen,
        of_other_views: of_paths.or(of_other_views(arguments)),
    }
}

/// Of the views of what was counted exactly, that of paths takes it.
const ORDER_BY: &str = "--order-by";

/// An option that says something of samples only, if one is given; [`ORDER_BY`] if there is no other.
fn of_other_views(arguments: &Arguments) -> Option<&'static str> {
    let options = [
        (
            "a selection of call paths (--process, --thread, --focus, --ignore, --recursion, ...)",
            !arguments.selection.is_of_whole(),
        ),
        ("--per-thread", arguments.per_thread),
        ("--merge-threads", arguments.merge_threads),
        ("--per-process", arguments.per_process),
        ("--per-container", arguments.per_container),
        ("--merge-processes", arguments.merge_processes),
        ("--metric", !arguments.metric.is_empty()),
        ("--columns", !arguments.columns.is_empty()),
        ("--flatten", arguments.flatten.is_some()),
        ("--per-rank", arguments.per_rank),
        ("--merge-ranks", arguments.merge_ranks),
        ("--depth", arguments.depth.is_some()),
        ("--all", arguments.all),
        ("--inlines", arguments.inlines),
        ("--lines", arguments.lines),
        ("--pack", arguments.pack),
        ("--map", arguments.map.is_some()),
        (ORDER_BY, arguments.order_by.is_some()),
    ];
    options.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
}

/// Whether what is asked for may not need the whole tree of a database: what does need it, in the end, loads it.
fn may_be_lazy(arguments: &Arguments) -> bool {
    let asks_for_more =
        arguments.json || arguments.ranks || arguments.pack || arguments.procedure.is_some() || arguments.per_container;
    let has_columns = !arguments.metric.is_empty() || !arguments.columns.is_empty() || arguments.order_by.is_some();
    !asks_for_more && !has_columns && arguments.flatten.is_none()
}

/// Gives `profile` the metrics that are asked for, in the order asked for. Returns how many of them are shown, if not as many
/// as there is room for.
fn columns_of(profile: &mut Profile, arguments: &Arguments) -> anyhow::Result<Option<usize>> {
    arguments.metric.iter().try_for_each(|definition| profile.define(definition))?;
    if arguments.columns.is_empty() {
        return Ok(None);
    }
    Ok(Some(profile.put_first(&arguments.columns)?))
}

/// By what rows are put in order.
fn order(profile: &Profile, asked: &str) -> Result<Order, ColumnError> {
    let order = match (profile.column(asked), asked.strip_suffix(":self")) {
        (Err(_), Some(name)) => Order { metric: profile.column(name)?, by_self: true },
        (found, _) => Order { metric: found?, by_self: false },
    };
    let metric = profile.metrics.get(order.metric).filter(|metric| metric.is_of_histogram());
    metric.map_or(Ok(order), |metric| Err(ColumnError::NoNumber { name: metric.name.clone() }))
}

/// What is asked of the profile.
fn query(arguments: &Arguments) -> Query {
    let selected = arguments.selection.query();
    Query {
        view: arguments.view.and_then(ReportView::kind).unwrap_or_default(),
        per_thread: arguments.per_thread,
        merge_processes: arguments.merge_processes
            || arguments.per_container
            || !(arguments.json || arguments.per_process),
        procedure: arguments.procedure.clone(),
        regions_meet: !arguments.json || arguments.merge_threads,
        fold: folded(arguments, selected.fold.clone()),
        min_share: arguments.threshold.unwrap_or(if arguments.json { 0.0 } else { 1.0 }) / 100.0,
        max_depth: arguments.depth,
        flatten: arguments.flatten.unwrap_or(0),
        ..selected
    }
}

fn show(profile: &Profile, arguments: &Arguments, columns: Option<usize>) -> anyhow::Result<()> {
    let order = arguments.order_by.as_ref().map(|asked| order(profile, asked)).transpose()?;
    // Whoever recorded it asked for this.
    let off_cpu = profile.metrics.iter().position(|metric| metric.id == Some(MetricId::OFF_CPU));
    let query = Query { order: order.or(off_cpu.map(|metric| Order { metric, by_self: false })), ..query(arguments) };
    if query.flatten > 0 && query.view != ViewKind::Flat {
        anyhow::bail!("failed to leave out levels: --flatten is for --view flat");
    }
    if arguments.json && arguments.ranks {
        let mut out = output::stdout();
        callpath_view::ranks_json::write(profile, &query, &mut out).map_err(shown)?;
        out.flush().map_err(Into::into)
    } else if arguments.json {
        let mut out = output::stdout();
        if arguments.quality {
            callpath_view::json::quality(profile, &mut out)?;
            return Ok(out.flush()?);
        }
        let view = profile.view(&query)?;
        let columns = columns.unwrap_or(profile.metrics.len());
        let written = callpath_view::json::write_columns(&view, profile, columns, &mut out);
        written.and_then(|()| out.flush()).map_err(Into::into)
    } else if arguments.ranks || arguments.procedure.is_some() && arguments.view.is_none() && !arguments.quality {
        let mut out = arguments.screen.open();
        let options = text_options(arguments, query, columns);
        match arguments.ranks {
            true => text::ranks(profile, &options, &chain(arguments.plot.as_deref()), &mut out).map_err(shown)?,
            false => text::procedure(profile, &options, &mut out).map_err(shown)?,
        }
        Ok(out.end()?)
    } else {
        show_text(profile, arguments, query, columns)
    }
}

/// The report, or a view.
fn show_text(answers: &dyn Answers, arguments: &Arguments, query: Query, columns: Option<usize>) -> anyhow::Result<()> {
    let mut out = arguments.screen.open();
    let options = text_options(arguments, query, columns);
    let result = match arguments.view {
        None if arguments.quality => text::quality(answers.profile(), &options, &mut out),
        None => text::report(answers, &options, &mut out),
        Some(_) => text::view(answers, &options, &mut out),
    };
    result.map_err(shown)?;
    Ok(out.end()?)
}

fn text_options(arguments: &Arguments, query: Query, columns: Option<usize>) -> TextOptions {
    let defaults = TextOptions::default();
    TextOptions {
        by_group: arguments.per_container,
        query,
        width: arguments.width.unwrap_or_else(surroundings::width),
        color: arguments.screen.color(),
        may_collapse: arguments.selection.recursion.is_none(),
        whole: arguments.all,
        columns,
        inlined: if arguments.inlines { Inlined::Apart } else { Inlined::InTheirProcedures },
        max_lines: if arguments.threshold.is_some() { usize::MAX } else { defaults.max_lines },
        command: surroundings::typed_command(),
        ..defaults
    }
}

/// The names of a chain of procedures that call each other. A name may have `->` and `>` in it, but no blanks around these.
fn chain(typed: Option<&str>) -> Vec<String> {
    let names = typed.into_iter().flat_map(|typed| typed.split(" > ")).flat_map(|part| part.split(" › "));
    names.map(|name| name.trim().to_owned()).collect()
}

/// What is left out, besides what was not `selected`.
fn folded(arguments: &Arguments, selected: Vec<ScopeKind>) -> Vec<ScopeKind> {
    let shows_ranks = arguments.per_rank || arguments.json && !(arguments.merge_ranks || arguments.ranks);
    let selected = selected.into_iter().filter(|kind| !(shows_ranks && *kind == ScopeKind::Rank));
    let asked = [(!arguments.lines, ScopeKind::Line), (arguments.merge_threads, ScopeKind::Thread)];
    let folded = asked.into_iter().filter(|(is_folded, _)| *is_folded).map(|(_, kind)| kind);
    selected.chain(folded).collect()
}

#[cfg(test)]
mod tests {
    use callpath_db::{Metric, NodeId, Scope};
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        arguments: Arguments,
    }

    /// The names on the way to each node of `region`, outermost first, with what it costs there.
    fn regions(profile: &Profile, options: &[&str]) -> Vec<(String, u64)> {
        let typed = Typed::try_parse_from([&["report", "--json"], options].concat()).map_err(|error| error.to_string());
        let view = profile.view(&query(&typed.unwrap().arguments)).expect("an answer");
        let name = |node: usize| view.name(node, profile).into_owned();
        let is_region = |&node: &usize| name(node) == "region";
        let path = |node: usize| {
            let mut names: Vec<String> =
                std::iter::successors(Some(node), |&node| view.nodes[node].parent).map(name).collect();
            names.reverse();
            names[1..].join(" ")
        };
        (0..view.nodes.len()).filter(is_region).map(|node| (path(node), view.inclusive(node).get(0))).collect()
    }

    #[test]
    fn merged_threads_of_json_have_regions_where_the_page_has_them() {
        let mut profile = Profile::new(vec![Metric::sum("cost", "count")]);
        let process = Scope::new(ScopeKind::Process, profile.strings.intern("app"));
        let process = profile.tree.child(NodeId::ROOT, process);
        let master = [("app", "main"), ("libgomp.so.1", "GOMP_parallel"), ("app", "region")];
        let worker = [("libc.so.6", "clone3"), ("libgomp.so.1", "gomp_thread_start"), ("app", "region")];
        for (tid, path) in [(1, master), (2, worker)] {
            let thread = Scope::new(ScopeKind::Thread, profile.strings.intern("app"));
            let mut node = profile.tree.child(process, Scope { discriminator: tid, ..thread });
            for (module, name) in path {
                let scope = Scope::new(ScopeKind::Procedure, profile.strings.intern(name));
                let module = profile.strings.intern(module);
                node = profile.tree.child(node, Scope { module: Some(module), ..scope });
            }
            profile.tree.add(node, &[10]);
        }
        let is = |path: &str, cost: u64| (path.to_owned(), cost);
        let [of_master, of_worker] = ["main GOMP_parallel region", "clone3 gomp_thread_start region"];
        let as_it_ran = [is(&format!("app app {of_worker}"), 10), is(&format!("app app {of_master}"), 10)];
        assert_eq!(regions(&profile, &[]), as_it_ran);
        assert_eq!(regions(&profile, &["--merge-threads"]), [is(&format!("app {of_master}"), 20)]);
        assert!(Typed::try_parse_from(["report", "--merge-threads", "--per-thread"]).is_err());
    }
}
