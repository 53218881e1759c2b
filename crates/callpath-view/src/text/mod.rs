//! A profile as text: the report that a person reads from top to bottom in a minute, and single views.
//! Whether it writes to a terminal, and how wide one is, the caller says.
//!
//! Whatever comes from a program or its binaries is shown with control characters escaped.

mod account;
mod chain;
mod head;
mod hot;
mod label;
mod levels;
mod paint;
mod printable;
mod quantity;
mod tree;

use std::io::{self, BufWriter, Write};

use callpath_db::{MetricKind, Profile, Query, Recursion, View, ViewKind};

use crate::ViewError;
pub use account::account;
use paint::{Ink, Paint};
pub(crate) use printable::acts_on_terminals;
pub use printable::{printable, shell_word};
use tree::{Columns, Drawing};

/// How a profile is shown as text.
#[derive(Clone, Debug)]
pub struct TextOptions {
    /// What is shown. Scopes of processes and threads are left out besides, where there is only one.
    pub query: Query,
    /// Columns of the terminal or page; names are shortened to fit, down to a readable minimum.
    pub width: usize,
    /// Whether escape sequences for colour and weight may be used.
    pub color: bool,
    /// Procedures in the report's list by self cost.
    pub top: usize,
    /// Lines of the report's tree: where it has more, the share below which nodes are left out is raised, up to 10%.
    pub max_lines: usize,
    /// Shows every frame. Otherwise a long chain in which nothing happens is cut.
    pub whole: bool,
    /// Whether recursion that the query leaves whole may be collapsed all the same, where that halves a long tree.
    pub may_collapse: bool,
}

impl Default for TextOptions {
    /// The context view without what costs less than 1%, 100 columns, no colour.
    fn default() -> Self {
        TextOptions {
            query: Query { min_share: 0.01, ..Query::default() },
            width: 100,
            color: false,
            top: 15,
            max_lines: 100,
            whole: false,
            may_collapse: true,
        }
    }
}

/// Writes the default report: what ran, how its samples were accounted for, the hottest path, the calling context tree
/// as `options.query` prunes it, the procedures by self cost, notes, and what to type next.
pub fn report(profile: &Profile, options: &TextOptions, out: &mut dyn Write) -> Result<(), ViewError> {
    let mut options = levels::without_single_levels(profile, options, ViewKind::Context);
    let views = Views::within(profile, &mut options)?;
    let procedures = profile.procedures(&options.query)?;
    let mut out = BufWriter::new(out);

    head::what_ran(profile, &options, &mut out)?;
    head::quality(profile, &options, &mut out)?;
    if has_cost(&views.folded) {
        hot::hottest_path(&views.folded, profile, &options, &mut out)?;
        writeln!(out)?;
        views.write("Call paths", profile, &options, &mut out)?;
        hot::procedures(&procedures, &views.folded, profile, &options, &mut out)?;
    } else if profile.info.processes.is_empty() {
        writeln!(out, "\nNo process's data can be read: none has been written yet, or its file is gone or damaged.")?;
    } else {
        let who = selected(&options.query).map_or("the program".into(), |selected| printable(&selected));
        writeln!(out, "\nNothing was measured: {who} took less {} than one sample.", metric_name(profile))?;
    }
    head::notes(profile, &options, &mut out)?;
    if has_cost(&views.folded) {
        head::next_command(profile, &procedures, &options, &mut out)?;
    }
    out.flush()?;
    Ok(())
}

/// Writes one view, the one that `options.query` names, under a line that says what it shows, and below it how the samples
/// were accounted for.
pub fn view(profile: &Profile, options: &TextOptions, out: &mut dyn Write) -> Result<(), ViewError> {
    let options = levels::without_single_levels(profile, options, options.query.view);
    let views = Views::of(profile, &options)?;
    let mut out = BufWriter::new(out);
    let title = match options.query.view {
        ViewKind::Context => "Call paths",
        ViewKind::Callers => "Procedures and their callers",
        ViewKind::Flat => "Modules and procedures",
    };
    if has_cost(&views.folded) {
        views.write(title, profile, &options, &mut out)?;
        writeln!(out)?;
    } else {
        writeln!(out, "{title} by {}: nothing was measured", metric_name(profile))?;
    }
    head::quality(profile, &options, &mut out)?;
    out.flush()?;
    Ok(())
}

/// How a tree is read.
fn how_to_read(kind: ViewKind) -> String {
    const SELF: &str = "self = its own code, with its loops and inlined calls.";
    const BRANCHES: &str = "├ and └ branch off.";
    match kind {
        ViewKind::Context => format!("A row is called by the row above it in its column; {BRANCHES} {SELF}"),
        ViewKind::Callers => {
            format!("Below a procedure, a row calls the row above it in its column; {BRANCHES} {SELF}")
        }
        ViewKind::Flat => format!("A row is part of the row above it that stands further left. {SELF}"),
    }
}

/// Trees of at most so many lines are left as they are.
const SHORT_LINES: usize = 40;

/// Shares that are tried for the threshold, in turn, while the report's tree is too long.
const COARSER: [f64; 3] = [0.02, 0.05, 0.1];

/// A view with recursion folded or cut, and drawn the way that reads best.
struct Views {
    folded: View,
    is_folded: bool,
    tree: Vec<u8>,
}

impl Views {
    fn of(profile: &Profile, options: &TextOptions) -> Result<Self, ViewError> {
        let recursion = match options.query.recursion {
            Recursion::Full => Recursion::Collapse,
            asked @ (Recursion::Collapse | Recursion::Suffix(_)) => asked,
        };
        let folded = profile.view(&Query { recursion, ..options.query.clone() })?;
        let is_recursive = folded.nodes.iter().any(|node| node.recursion > 1);
        if options.query.recursion == recursion || !is_recursive {
            let tree = drawn(&folded, profile, options)?;
            return Ok(Views { folded, is_folded: is_recursive, tree });
        }
        let tree = drawn(&profile.view(&options.query)?, profile, options)?;
        if !options.whole && options.may_collapse && lines(&tree) > SHORT_LINES {
            let shorter = drawn(&folded, profile, options)?;
            if 2 * lines(&shorter) <= lines(&tree) {
                return Ok(Views { folded, is_folded: true, tree: shorter });
            }
        }
        Ok(Views { folded, is_folded: false, tree })
    }

    /// With a threshold that makes the tree short enough, which `options` has afterwards.
    fn within(profile: &Profile, options: &mut TextOptions) -> Result<Self, ViewError> {
        let mut views = Views::of(profile, options)?;
        for share in COARSER {
            if lines(&views.tree) <= options.max_lines {
                break;
            }
            if share > options.query.min_share {
                options.query.min_share = share;
                views = Views::of(profile, options)?;
            }
        }
        Ok(views)
    }

    /// The tree under a title.
    fn write(&self, title: &str, profile: &Profile, options: &TextOptions, out: &mut dyn Write) -> io::Result<()> {
        let title = titled(title, profile, options, self.is_folded);
        writeln!(out, "{}", Paint { color: options.color }.with(Ink::Bold, &title))?;
        for line in head::lines_of(&[how_to_read(self.folded.kind)], " ", options.width.max(40)) {
            writeln!(out, "{}", Paint { color: options.color }.with(Ink::Dim, &line))?;
        }
        for metric in &profile.metrics {
            // What follows from it has the same note.
            if let Some(note) = metric.note.as_ref().filter(|_| !matches!(metric.kind, MetricKind::Derived(_))) {
                let note = format!("{}: {}", printable(&metric.name), printable(note));
                writeln!(out, "{}", Paint { color: options.color }.with(Ink::Dim, &note))?;
            }
        }
        out.write_all(&self.tree)
    }
}

fn lines(text: &[u8]) -> usize {
    text.iter().filter(|&&byte| byte == b'\n').count()
}

fn drawn(view: &View, profile: &Profile, options: &TextOptions) -> io::Result<Vec<u8>> {
    let (columns, words) = match view.kind {
        ViewKind::Context => (Columns::TotalAndSelf, "calls"),
        ViewKind::Callers => (Columns::One, "procedure, and below it who calls it"),
        ViewKind::Flat => (Columns::TotalAndSelf, "module, file, procedure"),
    };
    let drawing = Drawing { view, profile, options, columns };
    let mut text = Vec::new();
    writeln!(text, "{}", drawing.heading(words))?;
    drawing.draw(&mut text)?;
    Ok(text)
}

fn has_cost(view: &View) -> bool {
    view.inclusive(0).first().is_some_and(|&cost| cost > 0)
}

fn metric_name(profile: &Profile) -> String {
    profile.metrics.first().map_or_else(|| "cost".into(), |metric| printable(&metric.name))
}

/// What stands above a column of costs.
fn cost_heading(profile: &Profile) -> String {
    match profile.metrics.first().map_or("", |metric| &metric.unit) {
        "ns" => "time".into(),
        unit => printable::cut_end(&printable(unit), 9),
    }
}

/// A title that says what is shown and what is not.
fn titled(what: &str, profile: &Profile, options: &TextOptions, is_folded: bool) -> String {
    let mut left_out = Vec::new();
    if options.query.min_share > 0.0 {
        // Hundredths of 14 are 14.000000000000002 otherwise.
        left_out.push(format!("below {}%", (options.query.min_share * 1e8).round() / 1e6));
    }
    if let Some(depth) = options.query.max_depth {
        left_out.push(format!("below level {depth}"));
    }
    let mut asides = Vec::new();
    if !left_out.is_empty() {
        asides.push(format!("{} left out", left_out.join(" and ")));
    }
    match options.query.recursion {
        Recursion::Suffix(kept) => asides.push(format!("{kept} innermost frames of each path")),
        Recursion::Full | Recursion::Collapse if is_folded => asides.push("recursion folded".into()),
        Recursion::Full | Recursion::Collapse => {}
    }
    let asides = if asides.is_empty() { String::new() } else { format!(" ({})", asides.join(", ")) };
    let selected = selected(&options.query).map_or(String::new(), |selected| format!(" of {}", printable(&selected)));
    format!("{what}{selected} by {}{asides}", metric_name(profile))
}

/// The processes and threads that are shown, unless it is all of them.
fn selected(query: &Query) -> Option<String> {
    match (&query.process, &query.thread) {
        (None, None) => None,
        (Some(process), None) => Some(format!("process {process}")),
        (None, Some(thread)) => Some(format!("thread {thread}")),
        (Some(process), Some(thread)) => Some(format!("thread {thread} of process {process}")),
    }
}
