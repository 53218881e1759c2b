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

use callpath_db::{Formula, HandedOut, Metric, MetricKind, Profile, ScopeKind, View, ViewKind};

use super::label::{module_label, source_label};
use super::outline::{Outline, Row, Shows};
use super::page::Page;
use super::paint::{Ink, Paint};
use super::printable::{columns, cut_end, cut_start, printable};
use super::quantity::{self, percent, value};
use super::row_name::{Place, RowNames, procedure};
use super::run::nearest;

/// Further metrics get one half of the width that the first one leaves; names of procedures keep the other.
const ROOM_SHARE: usize = 2;

/// The column of source lines is at most this wide, and at most a quarter of the page.
const SOURCE_COLUMNS: usize = 26;

const SOURCE: &str = "source";

/// A name has at least this much room, columns.
const LEAST_NAME_COLUMNS: usize = 8;

/// What stands beside the names of a fold leaves them so much room, columns.
const LEAST_FOLD_COLUMNS: usize = 28;

/// What leaves a fold is said where its names have so much room, columns.
const LEAST_BESIDE_LEAVES_COLUMNS: usize = 36;

/// Pages of so many columns show costs besides shares.
const LEAST_WIDTH_WITH_COST: usize = 60;

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
    /// What leaves a run.
    leaves: String,
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
        let mut rows = Outline { view: self.view, threshold, is_whole: options.whole, counted }.rows();
        // What would be 0.0% is no row.
        rows.retain(|row| row.shows != Shows::LeftOutElsewhere || !is_next_to_nothing(row.own, self.total()));
        let source_columns = self.source_columns(&rows);
        let mut heading = self.heading(words);
        if source_columns > 0 {
            let room = options.width.saturating_sub(source_columns).saturating_sub(columns(&heading));
            let indent = source_columns.saturating_sub(SOURCE.len());
            heading = heading + &" ".repeat(room + indent) + SOURCE;
        }
        writeln!(out, "{}", self.ink(Ink::Bold, &cut_end(&heading, options.width)))?;
        // For each level that is open, whether its row was the last one.
        let mut lasts = Vec::new();
        let mut besides = Vec::with_capacity(rows.len());
        let mut places = Vec::with_capacity(rows.len());
        for row in &rows {
            lasts.truncate(row.depth);
            lasts.push(row.is_last);
            let (beside, place) = self.beside(row, self.marks(&lasts), source_columns);
            besides.push(beside);
            places.push(place);
        }
        let is_cut = options.query.max_depth.is_some();
        let names = RowNames { view: self.view, profile: self.page.profile, is_cut }.names(&places);
        for ((place, beside), name) in places.iter().zip(&besides).zip(&names) {
            writeln!(out, "{}", self.line(place, beside, name))?;
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

    /// What stands beside a row's name, and how much room the name has.
    fn beside<'r>(&self, row: &'r Row, marks: String, source_columns: usize) -> (Beside, Place<'r>) {
        let taken = self.cells_width() + columns(&marks) + if source_columns > 0 { source_columns + 2 } else { 0 };
        let all = self.page.options.width.saturating_sub(taken).max(LEAST_NAME_COLUMNS);
        let mut leaves = self.leaves(row);
        if all < columns(&leaves) + LEAST_BESIDE_LEAVES_COLUMNS {
            leaves.clear();
        }
        let source = if source_columns > 0 { self.source(row) } else { String::new() };
        let room = all - columns(&leaves);
        (Beside { marks, leaves, source_columns }, Place { row, source, room })
    }

    fn line(&self, place: &Place<'_>, beside: &Beside, name: &str) -> String {
        let Place { row, source, room } = place;
        let Beside { marks, leaves, source_columns } = beside;
        let kind = self.view.nodes[row.steps[nearest(self.view, &row.steps)].node].scope.kind;
        let ink = match kind {
            ScopeKind::Pruned => Ink::Dim,
            kind if kind.is_frame() || kind.is_body() => Ink::Plain,
            _ => Ink::Bold,
        };
        let cells = self.cells(row);
        let mut line =
            format!("{cells}{}{}{}", self.ink(Ink::Dim, marks), self.ink(ink, name), self.ink(Ink::Dim, leaves));
        let source = cut_start(source, *source_columns);
        if !source.is_empty() {
            line += &" ".repeat((room + 2).saturating_sub(columns(name)) + source_columns - columns(&source));
            line += &self.ink(Ink::Dim, &source);
        }
        line
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
        if self.view.kind == ViewKind::Flat && self.page.options.query.flatten == 0 {
            return String::new();
        }
        let nearest = &self.view.nodes[row.steps[nearest(self.view, &row.steps)].node].scope;
        if let Some(source) = source_label(nearest, self.page.profile) {
            return source;
        }
        if self.view.kind == ViewKind::Flat {
            return module_label(nearest, self.page.profile).unwrap_or_default();
        }
        // A loop is where its procedure is.
        let Some(scope) = procedure(self.view, row) else { return String::new() };
        let above = self.view.nodes[row.steps[0].node].parent.map(|above| self.view.nodes[above].scope.module);
        let is_other = above != Some(scope.module);
        module_label(scope, self.page.profile).filter(|_| is_other).unwrap_or_default()
    }

    /// How wide the column of source lines is: 0 if there are none.
    fn source_columns(&self, rows: &[Row]) -> usize {
        let of = |row: &Row| columns(&self.source(row));
        let most = SOURCE_COLUMNS.min(self.page.options.width / 4);
        let widest = rows.iter().map(of).max().unwrap_or(0).min(most);
        let room = self.page.options.width.saturating_sub(self.cells_width());
        if widest == 0 || room < widest + 2 + LEAST_FOLD_COLUMNS { 0 } else { widest.max(SOURCE.len()) }
    }

    /// The numbers before a row.
    fn cells(&self, row: &Row) -> String {
        let total = self.total();
        let cost = self.sum(row, |node| self.cost(node));
        let mut cells = format!("{:>6} ", percent(cost, total));
        if self.has_room_for_cost() {
            cells += &format!("{:>9} ", value(cost, self.unit()));
        }
        cells.push(' ');
        if self.columns == Columns::TotalAndSelf {
            // Next to nothing is left blank: most frames only call.
            let is_blank = is_next_to_nothing(row.own, total);
            let own_share = if is_blank { String::new() } else { percent(row.own, total) };
            cells += &self.ink(Paint::heat(row.own, total), &format!("{own_share:>6}"));
            cells += "  ";
        }
        for (metric, width) in self.further() {
            // What does not add up is said of one node.
            let adds_up = self.page.profile.metrics[metric].kind == MetricKind::Sum || row.steps.len() == 1;
            let cell =
                if adds_up || row.shows == Shows::Code { self.sum(row, |node| self.cell(node, metric)) } else { 0 };
            let cell = Some(cell).filter(|bits| *bits != 0);
            let cell = cell.map(|bits| quantity::cell(bits, &self.page.profile.metrics[metric]));
            cells += &format!("{:>width$}  ", cell.unwrap_or_default());
        }
        cells
    }

    /// What a row costs with everything below it: as much as its first frame, or all together that was left out.
    fn sum(&self, row: &Row, cost: impl Fn(usize) -> u64) -> u64 {
        match row.shows {
            Shows::Code => cost(row.steps[0].node),
            Shows::LeftOut | Shows::LeftOutElsewhere => {
                row.steps.iter().map(|step| cost(step.node)).fold(0, u64::saturating_add)
            }
        }
    }

    /// A narrow page has no column for the cost, but for its shares.
    fn has_room_for_cost(&self) -> bool {
        self.page.options.width >= LEAST_WIDTH_WITH_COST
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

    /// The metrics that could have a column besides the first one, each with its column's width.
    fn candidates(&self) -> impl Iterator<Item = (usize, usize)> {
        self.page.further_metrics().map(|(index, metric)| (index, columns(&heading_of(metric)).max(9)))
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
        let width = (self.first_width_with_cost() + ROOM_SHARE * room).max(LEAST_WIDTH_WITH_COST);
        let (width, them) = (width, if names.len() == 1 { "it" } else { "them" });
        Some(format!("No room for {}: --width {width} shows {them}; --json has every metric.", names.join(", ")))
    }

    /// Columns that the first metric takes.
    fn first_width(&self) -> usize {
        self.first_width_with_cost() - if self.has_room_for_cost() { 0 } else { 10 }
    }

    fn first_width_with_cost(&self) -> usize {
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
        let unit = if self.has_room_for_cost() { format!("{unit:>9} ") } else { String::new() };
        let mut line = match self.columns {
            Columns::One => format!("{:>6} {unit} ", self.word_of_one()),
            Columns::TotalAndSelf => format!("{:>6} {unit} {:>6}  ", "total", "self"),
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

/// Whether a share of the total is said to be 0.0%.
fn is_next_to_nothing(cost: u64, total: u64) -> bool {
    (cost as f64) * 2000.0 < total as f64
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
