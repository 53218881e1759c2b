//! A view as it reads best: with recursion folded where that shortens it, under a title that says what is shown.

use std::io::{self, Write};

use callpath_db::{Answers, MetricKind, Query, Recursion, View, ViewKind};

use super::head;
use super::histograms::histograms;
use super::options::TextOptions;
use super::page::Page;
use super::paint::Ink;
use super::printable::printable;
use super::tree::{Columns, Drawing};
use crate::ViewError;

/// How a tree is read.
fn how_to_read(kind: ViewKind) -> &'static str {
    match kind {
        ViewKind::Context => {
            "A row is called by the row it hangs on; a › … 2 more › b: a calls b through 2 others; self adds up."
        }
        ViewKind::Callers => "A row calls the row it hangs on; a ‹ … 2 more ‹ b: b calls a through 2 others.",
        ViewKind::Flat => "A row is part of the row it hangs on.",
    }
}

/// Trees of at most so many lines are left as they are.
const SHORT_LINES: usize = 40;

/// Of more activations on one path the outer ones alone have rows, and their number would be wrong: recursion is folded.
const MANY_ACTIVATIONS: u32 = 32;

/// Shares that are tried for the threshold, in turn, while the report's tree is too long.
const COARSER: [f64; 3] = [0.02, 0.05, 0.1];

/// A view with recursion folded or cut, and drawn the way that reads best.
pub(super) struct Views {
    pub(super) folded: View,
    is_folded: bool,
    tree: Drawn,
}

/// A tree's lines.
struct Drawn {
    text: Vec<u8>,
    /// What else has to be known to read them.
    how_to_read: Option<String>,
}

impl Views {
    /// As asked.
    pub(super) fn of(answers: &dyn Answers, options: &TextOptions) -> Result<Self, ViewError> {
        let page = Page { profile: answers.profile(), options };
        let recursion = match options.query.recursion {
            Recursion::Full => Recursion::Collapse,
            asked @ (Recursion::Collapse | Recursion::Suffix(_)) => asked,
        };
        let folded = answers.view(&Query { recursion, ..options.query.clone() })?;
        let is_recursive = folded.nodes.iter().any(|node| node.recursion > 1);
        if options.query.recursion == recursion || !is_recursive {
            let tree = drawn(&folded, page)?;
            return Ok(Views { folded, is_folded: is_recursive, tree });
        }
        let may_collapse = !options.whole && options.may_collapse;
        if may_collapse && folded.nodes.iter().any(|node| node.recursion > MANY_ACTIVATIONS) {
            let tree = drawn(&folded, page)?;
            return Ok(Views { folded, is_folded: true, tree });
        }
        let tree = drawn(&answers.view(&options.query)?, page)?;
        if may_collapse && lines(&tree) > SHORT_LINES {
            let shorter = drawn(&folded, page)?;
            let is_brief = lines(&shorter) <= options.max_lines && options.max_lines < lines(&tree);
            if is_brief || 3 * lines(&shorter) <= 2 * lines(&tree) {
                return Ok(Views { folded, is_folded: true, tree: shorter });
            }
        }
        Ok(Views { folded, is_folded: false, tree })
    }

    /// With a threshold that makes the tree short enough, which `options` has afterwards.
    pub(super) fn within(answers: &dyn Answers, options: &mut TextOptions) -> Result<Self, ViewError> {
        let mut views = Views::of(answers, options)?;
        for share in COARSER {
            if lines(&views.tree) <= options.max_lines {
                break;
            }
            if share > options.query.min_share {
                options.query.min_share = share;
                views = Views::of(answers, options)?;
            }
        }
        Ok(views)
    }

    /// Whether there is anything to show.
    pub(super) fn has_cost(&self) -> bool {
        self.folded.inclusive(0).get(0) > 0
    }

    /// The tree under a title.
    pub(super) fn write(&self, title: &str, page: Page<'_>, out: &mut dyn Write) -> io::Result<()> {
        let title = titled(title, page, self.is_folded);
        for line in head::lines_of(&[title], " ", page.options.width) {
            writeln!(out, "{}", page.ink(Ink::Bold, &line))?;
        }
        let mut how = vec![how_to_read(self.folded.kind).to_owned()];
        how.extend(self.tree.how_to_read.clone());
        for line in head::lines_of(&how, " ", page.options.width.max(40)) {
            writeln!(out, "{}", page.ink(Ink::Dim, &line))?;
        }
        for metric in &page.profile.metrics {
            // What follows from it has the same note.
            if let Some(note) = metric.note.as_ref().filter(|_| !matches!(metric.kind, MetricKind::Derived(_))) {
                let note = format!("{}: {}", printable(&metric.name), printable(note));
                writeln!(out, "{}", page.ink(Ink::Dim, &note))?;
            }
        }
        out.write_all(&self.tree.text)?;
        if let Some(left_out) = drawing(&self.folded, page).without_column() {
            for line in head::lines_of(&[left_out], " ", page.options.width.max(40)) {
                writeln!(out, "{}", page.ink(Ink::Dim, &line))?;
            }
        }
        histograms(&self.folded, page, out)
    }
}

fn lines(tree: &Drawn) -> usize {
    tree.text.iter().filter(|&&byte| byte == b'\n').count()
}

fn drawing<'a>(view: &'a View, page: Page<'a>) -> Drawing<'a> {
    let columns = match view.kind {
        ViewKind::Callers => Columns::One,
        ViewKind::Context | ViewKind::Flat => Columns::TotalAndSelf,
    };
    Drawing { view, page, columns }
}

fn drawn(view: &View, page: Page<'_>) -> io::Result<Drawn> {
    let words = match view.kind {
        ViewKind::Context => "call path",
        ViewKind::Callers => "procedure, and below it its callers",
        ViewKind::Flat => "module, file, procedure",
    };
    let mut text = Vec::new();
    let how_to_read = drawing(view, page).draw(words, &mut text)?;
    Ok(Drawn { text, how_to_read })
}

/// A title that says what is shown and what is not.
fn titled(what: &str, page: Page<'_>, is_folded: bool) -> String {
    let options = page.options;
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
    if !options.query.hide.is_empty() {
        asides.push(format!("frames of {} hidden", printable(&options.query.hide.join(" and "))));
    }
    if !options.query.prune_from.is_empty() {
        asides.push(format!("calls of {} left out", printable(&options.query.prune_from.join(" and "))));
    }
    if let Some(order) = options.query.order {
        let metric = page.profile.metrics.get(order.metric).map_or(String::new(), |metric| printable(&metric.name));
        asides.push(format!("in order of {}{metric}", if order.by_self { "self " } else { "" }));
    }
    match options.query.recursion {
        Recursion::Suffix(kept) => asides.push(format!("{kept} innermost frames of each path")),
        Recursion::Full | Recursion::Collapse if is_folded => asides.push("recursion folded".into()),
        Recursion::Full | Recursion::Collapse => {}
    }
    let asides = if asides.is_empty() { String::new() } else { format!(" ({})", asides.join(", ")) };
    let selected = options.selected().map_or(String::new(), |selected| format!(" of {}", printable(&selected)));
    format!("{what}{selected} by {}{asides}", page.metric_name())
}
