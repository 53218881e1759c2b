//! Nodes of a view as rows of text.
//!
//! ```text
//! 100.0%    4.18 s          main                      lzma.c:20
//!  99.8%    4.17 s    0.4%  ├ compress                lzma.c:88      called by main
//!  96.0%    4.01 s    9.0%  │ ├ find_match            match.c:12     called by compress
//!  50.0%    2.09 s   50.0%  │ │ ├ hash                hash.h:7       called by find_match
//!  37.0%    1.55 s   37.0%  │ │ └ compare             match.c:40
//!   2.1%   87.8 ms    2.1%  │ └ open › … 3 more › write_out   io.c:9    calls in a row without cost of their own
//! ```

use std::io::{self, Write};

use callpath_db::{
    Formula, HandedOut, Metric, MetricKind, MetricSource, MetricType, Profile, ScopeKind, View, ViewKind,
};

use super::label::{label, module_label, source_label};
use super::outline::{Outline, Row};
use super::page::Page;
use super::paint::{Ink, Paint};
use super::printable::{columns, cut_end, cut_start, printable};
use super::quantity::{self, percent, value};
use super::run::Run;

/// Further metrics get one half of the width that the first one leaves; names of procedures keep the other.
const ROOM_SHARE: usize = 2;

/// The column of source lines is at most this wide, and at most a quarter of the page.
const SOURCE_COLUMNS: usize = 26;

const SOURCE: &str = "source";

/// A name has at least this much room, columns.
const LEAST_NAME_COLUMNS: usize = 24;

/// Which columns a tree has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Columns {
    /// Inclusive share, inclusive cost, self share.
    TotalAndSelf,
    /// Share and cost: of a callers view, where they are both.
    One,
}

/// What stands beside a row's name.
struct Beside {
    marks: String,
    /// The width of the column of source lines; 0 if there is none.
    source_columns: usize,
}

/// How a tree is drawn.
pub(super) struct Drawing<'a> {
    pub(super) view: &'a View,
    pub(super) page: Page<'a>,
    pub(super) columns: Columns,
}

impl Drawing<'_> {
    /// Draws what is below the root, and the root itself where it has several children to hold together; `words` head the names. Gives what
    /// else has to be known to read it.
    pub(super) fn draw(&self, words: &str, out: &mut dyn Write) -> io::Result<Option<String>> {
        let options = self.page.options;
        let threshold = options.query.min_share * self.total() as f64;
        let counted = (0..self.page.profile.metrics.len()).find(|&metric| is_shared_out_by(self.page.profile, metric));
        let rows = Outline { view: self.view, threshold, is_whole: options.whole, counted }.rows();
        let source_columns = self.source_columns(&rows);
        let mut heading = self.heading(words);
        if source_columns > 0 {
            let room = options.width.saturating_sub(source_columns);
            heading = format!("{heading:<room$}{SOURCE:>source_columns$}");
        }
        writeln!(out, "{}", self.ink(Ink::Bold, &heading))?;
        // For each level that is open, whether its row was the last one.
        let mut lasts = Vec::new();
        for row in &rows {
            lasts.truncate(row.depth);
            lasts.push(row.is_last);
            let line = self.line(row, &Beside { marks: self.marks(&lasts), source_columns });
            writeln!(out, "{line}")?;
        }
        Ok(self.how_to_read_deep(&rows))
    }

    /// What stands before a row's name: of the levels above it, and of itself. Marks leave room for a name: behind so many levels they begin
    /// again at the left, behind the level that those rows hang on.
    fn marks(&self, lasts: &[bool]) -> String {
        let Some((is_last, above)) = lasts.split_last().filter(|(_, above)| !above.is_empty()) else {
            return String::new();
        };
        // The outermost rows have no marks.
        let between = &above[1..];
        let skipped = between.len() - between.len() % self.most_marks();
        let mut marks = if skipped > 0 { format!("{}… ", skipped + 1) } else { String::new() };
        between[skipped..].iter().for_each(|is_last| marks += if *is_last { "  " } else { "│ " });
        marks + if *is_last { "└ " } else { "├ " }
    }

    /// Levels that have marks on one line.
    fn most_marks(&self) -> usize {
        (self.page.options.width / 6).max(4)
    }

    /// How rows are read that lie too deep for marks of all their levels. `None` if there are none.
    fn how_to_read_deep(&self, rows: &[Row]) -> Option<String> {
        let most = self.most_marks();
        let is_deep = rows.iter().any(|row| row.depth > most);
        let level = most + 1;
        is_deep.then(|| {
            format!("Deeper rows begin at the left again: what is right behind {level}… hangs on the nearest row of level {level} above.")
        })
    }

    fn line(&self, row: &Row, beside: &Beside) -> String {
        let Beside { marks, source_columns } = beside;
        let last = row.steps[row.steps.len() - 1].node;
        let cells = self.cells(self.cost(row.steps[0].node), row.steps[0].node, row.own);
        let taken = self.cells_width() + columns(marks) + if *source_columns > 0 { source_columns + 2 } else { 0 };
        let room = self.page.options.width.saturating_sub(taken).max(LEAST_NAME_COLUMNS);
        let leaves = self.leaves(row);
        let name = match row.steps.as_slice() {
            [_] => self.name(row, room),
            steps => {
                let has_source = !self.source(row).is_empty();
                let run = Run { view: self.view, profile: self.page.profile, steps, has_source };
                run.fit(room.saturating_sub(columns(&leaves)))
            }
        };
        let used = columns(&name) + columns(&leaves);
        let kind = self.view.nodes[last].scope.kind;
        let ink = match kind {
            ScopeKind::Pruned => Ink::Dim,
            kind if kind.is_frame() || kind.is_body() => Ink::Plain,
            _ => Ink::Bold,
        };
        let mut line =
            format!("{cells}{}{}{}", self.ink(Ink::Dim, marks), self.ink(ink, &name), self.ink(Ink::Dim, &leaves));
        let source = cut_start(&self.source(row), *source_columns);
        if *source_columns > 0 && !source.is_empty() {
            line += &" ".repeat((room + 2).saturating_sub(used) + source_columns - columns(&source));
            line += &self.ink(Ink::Dim, &source);
        }
        line
    }

    /// The name of a row of one step.
    fn name(&self, row: &Row, room: usize) -> String {
        let step = row.steps[0];
        let times = if step.times > 1 { format!(" ×{}", step.times) } else { String::new() };
        let room = room.saturating_sub(times.chars().count());
        // Its line stands in the column beside it.
        if self.view.nodes[step.node].scope.kind == ScopeKind::Loop && !self.source(row).is_empty() {
            return format!("loop{times}");
        }
        let is_cut = self.page.options.query.max_depth.is_some();
        label(self.view, step.node, self.page.profile, is_cut).fit(room) + &times
    }

    /// How much of a run's cost continues below it, where more than the threshold leaves it on the way.
    fn leaves(&self, row: &Row) -> String {
        let first = self.cost(row.steps[0].node);
        let threshold = self.page.options.query.min_share * self.total() as f64;
        match row.continues.filter(|_| row.steps.len() > 1) {
            Some(next) if first.saturating_sub(next).saturating_sub(row.own) as f64 > threshold => {
                format!("  {} → {}", percent(first, self.total()), percent(next, self.total()))
            }
            _ => String::new(),
        }
    }

    /// Where a row's code is: file and line, else the module, if it is another one than the caller's.
    fn source(&self, row: &Row) -> String {
        if self.view.kind == ViewKind::Flat {
            return String::new();
        }
        let scope = &self.view.nodes[row.steps[row.steps.len() - 1].node].scope;
        if let Some(source) = source_label(scope, self.page.profile) {
            return source;
        }
        let above = self.view.nodes[row.steps[0].node].parent.map(|above| self.view.nodes[above].scope.module);
        let is_other = above != Some(scope.module);
        module_label(scope, self.page.profile).filter(|_| is_other).unwrap_or_default()
    }

    /// How wide the column of source lines is: 0 if there are none.
    fn source_columns(&self, rows: &[Row]) -> usize {
        let of = |row: &Row| columns(&self.source(row));
        let most = SOURCE_COLUMNS.min(self.page.options.width / 4);
        let widest = rows.iter().map(of).max().unwrap_or(0).min(most);
        if widest == 0 { 0 } else { widest.max(SOURCE.len()) }
    }

    /// The numbers before a row.
    fn cells(&self, cost: u64, node: usize, own: u64) -> String {
        let total = self.total();
        let mut cells = format!("{:>6} {:>9}  ", percent(cost, total), value(cost, self.unit()));
        if self.columns == Columns::TotalAndSelf {
            // Next to nothing is left blank: most frames only call.
            let own_share = if own as f64 * 2000.0 < total as f64 { String::new() } else { percent(own, total) };
            cells += &self.ink(Paint::heat(own, total), &format!("{own_share:>6}"));
            cells += "  ";
        }
        for (metric, width) in self.further() {
            let cell = Some(self.cell(node, metric)).filter(|cost| *cost > 0);
            let cell = cell.map(|bits| quantity::cell(bits, &self.page.profile.metrics[metric]));
            cells += &format!("{:>width$}  ", cell.unwrap_or_default());
        }
        cells
    }

    fn cells_width(&self) -> usize {
        self.first_width() + self.further().map(|(_, width)| width + 2).sum::<usize>()
    }

    /// The metrics with a column of their own besides the first one, each with its column's width.
    fn further(&self) -> impl Iterator<Item = (usize, usize)> {
        let mut room = self.page.options.width.saturating_sub(self.first_width()) / ROOM_SHARE;
        self.candidates().map_while(move |(metric, width)| {
            room = room.checked_sub(width + 2)?;
            Some((metric, width))
        })
    }

    /// The metrics that could have a column besides the first one. The number of samples says nothing
    /// of cost, and a histogram is not a number.
    fn candidates(&self) -> impl Iterator<Item = (usize, usize)> {
        let metrics = self.page.profile.metrics.iter().enumerate().skip(1);
        let is_number = |metric: &Metric| !matches!(metric.value, MetricType::Histogram { .. });
        let is_shown = move |metric: &Metric| metric.source != MetricSource::Samples && is_number(metric);
        metrics
            .filter(move |(_, metric)| is_shown(metric))
            .map(|(index, metric)| (index, columns(&heading_of(metric)).max(9)))
    }

    /// Says which metrics have no column for lack of room, and how to see them. `None` if each has one.
    pub(super) fn without_column(&self) -> Option<String> {
        let left_out = self.candidates().skip(self.further().count());
        let names: Vec<String> =
            left_out.map(|(metric, _)| printable(&self.page.profile.metrics[metric].name)).collect();
        if names.is_empty() {
            return None;
        }
        let room: usize = self.candidates().map(|(_, width)| width + 2).sum();
        let (width, them) = (self.first_width() + ROOM_SHARE * room, if names.len() == 1 { "it" } else { "them" });
        Some(format!("No room for {}: --width {width} shows {them}; --json has every metric.", names.join(", ")))
    }

    /// Columns that the first metric takes.
    fn first_width(&self) -> usize {
        if self.columns == Columns::One { 18 } else { 26 }
    }

    /// What stands in a node's line by a metric: the cost of it and of all below, but of what others are shared out by
    /// the procedure's own.
    fn cell(&self, node: usize, metric: usize) -> u64 {
        match is_shared_out_by(self.page.profile, metric) {
            true => self.view.own_count(node, metric),
            false => self.view.inclusive(node).get(metric),
        }
    }

    /// The words above [`Drawing::cells`].
    fn heading(&self, words: &str) -> String {
        let unit = self.page.cost_heading();
        let mut line = match self.columns {
            Columns::One => format!("{:>6} {unit:>9}  ", self.word_of_one()),
            Columns::TotalAndSelf => format!("{:>6} {unit:>9}  {:>6}  ", "total", "self"),
        };
        for (metric, width) in self.further() {
            line += &format!("{:>width$}  ", heading_of(&self.page.profile.metrics[metric]));
        }
        line + words
    }

    /// What the only share of a row is.
    fn word_of_one(&self) -> &'static str {
        match self.view.handed_out {
            HandedOut::SelfCost => "self",
            HandedOut::Inclusive => "total",
        }
    }

    fn ink(&self, ink: Ink, text: &str) -> String {
        self.page.ink(ink, text)
    }

    fn total(&self) -> u64 {
        self.cost(0)
    }

    fn cost(&self, node: usize) -> u64 {
        self.view.inclusive(node).get(0)
    }

    fn unit(&self) -> &str {
        self.page.profile.metrics.first().map_or("", |metric| &metric.unit)
    }
}

/// Whether a metric is shared out by another one, or that one.
pub(super) fn is_of_sharing(profile: &Profile, metric: usize) -> bool {
    let formula = profile.metrics.get(metric).map(|metric| &metric.kind);
    matches!(formula, Some(MetricKind::Derived(Formula::PerOwn { .. }))) || is_shared_out_by(profile, metric)
}

/// Whether another metric is shared out by this one.
pub(super) fn is_shared_out_by(profile: &Profile, metric: usize) -> bool {
    profile.metrics.iter().any(|other| match &other.kind {
        MetricKind::Derived(Formula::PerOwn { count, .. }) => {
            profile.metrics.get(metric).is_some_and(|m| m.name == *count)
        }
        _ => false,
    })
}

/// A metric's name above its column.
pub(super) fn heading_of(metric: &Metric) -> String {
    let name = match &metric.kind {
        // What is shared out stands in the first column.
        MetricKind::Derived(Formula::PerOwn { count, .. }) => {
            format!("per {}", count.strip_suffix('s').unwrap_or(count))
        }
        _ => metric.name.clone(),
    };
    cut_end(&printable(&name), 18)
}
