//! Nodes of a view as lines of text: who calls whom, without running off to the right.
//!
//! A chain of calls stays in one column: a line without a branch mark is called by the one above it in its column.
//! Branches are marked, and lie one step to the right:
//!
//! ```text
//! 100.0%    4.18 s          main                has no caller
//!  99.8%    4.17 s    0.4%  compress            called by main
//!   2.1%   87.8 ms    2.1%  ├ write_out         called by compress, beside:
//!  96.0%    4.01 s    9.0%  find_match          called by compress: has nearly all of its cost
//!  50.0%    2.09 s   50.0%  ├ hash              called by find_match
//!  37.0%    1.55 s   37.0%  └ compare           called by find_match
//! ```

use std::io::{self, Write};
use std::rc::Rc;

use callpath_db::{Formula, Metric, MetricKind, MetricSource, MetricType, Profile, ScopeKind, View, ViewKind};

use super::chain::{self, Link, condense};
use super::label::{label, module_label};
use super::page::Page;
use super::paint::{Ink, Paint};
use super::printable::{columns, cut_end, printable};
use super::quantity::{self, percent, value};

/// A child with at least this share of its parent's cost continues the parent's column. So each step to the right loses
/// a fifth of the cost, and a threshold of 1% allows for 20 steps.
const CONTINUES: f64 = 0.8;

/// Dull lines in a row that are shown at each end of a chain: of calls, and of callers, where the near ones tell most.
const DULL_CALLS: (usize, usize) = (12, 12);
const DULL_CALLERS: (usize, usize) = (6, 2);

/// Further metrics get one half of the width that the first one leaves; names of procedures keep the other.
const ROOM_SHARE: usize = 2;

/// Which columns a tree has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Columns {
    /// Inclusive share, inclusive cost, self share.
    TotalAndSelf,
    /// Share and cost.
    One,
}

/// A chain, from its first node to where it ends or branches.
struct Chain {
    head: usize,
    /// The marks before its first line, and before the others.
    first: Rc<str>,
    rest: Rc<str>,
    /// What the line right above costs by each column, if that is where it is called from.
    above: Option<Vec<u64>>,
}

/// A line to be drawn.
struct Line {
    node: usize,
    times: usize,
    own: u64,
    marks: Rc<str>,
    /// The line above it in its column costs the same: the cost is not repeated.
    same_cost: bool,
    /// The frame above it is not shown, so its module has to be said again.
    after_gap: bool,
}

/// How a tree is drawn.
pub(super) struct Drawing<'a> {
    pub(super) view: &'a View,
    pub(super) page: Page<'a>,
    pub(super) columns: Columns,
}

/// What is still to be drawn; the last on the stack comes next.
enum Pending {
    Chain(Chain),
    Line(Line),
    /// A line for frames left out, from the node `first` in to the node `last`.
    Skipped {
        first: usize,
        last: usize,
        frames: usize,
        own: u64,
        marks: Rc<str>,
    },
}

impl Drawing<'_> {
    /// Draws what is below `node`, and `node` itself where it has several children to hold together.
    pub(super) fn draw(&self, out: &mut dyn Write) -> io::Result<()> {
        let tops: Vec<usize> = self.shown_children(0);
        let none: Rc<str> = "".into();
        let chain = |head: usize| Pending::Chain(Chain { head, first: none.clone(), rest: none.clone(), above: None });
        let mut stack: Vec<Pending> = match (self.view.kind, tops.as_slice()) {
            (ViewKind::Context, [_, _, ..]) => vec![chain(0)],
            _ => tops.into_iter().rev().map(chain).collect(),
        };
        while let Some(pending) = stack.pop() {
            match pending {
                Pending::Chain(chain) => self.lay_out(chain, &mut stack),
                Pending::Line(line) => self.line(&line, out)?,
                Pending::Skipped { first, last, frames, own, marks } => {
                    let [outer, inner] = [first, last].map(|node| percent(self.cost(node), self.total()));
                    let words = match outer == inner {
                        true => format!("… {frames} more levels"),
                        false => format!("… {frames} more levels ({outer} -> {inner})"),
                    };
                    writeln!(out, "{}{}{}", self.cells(None, None, own), marks, self.ink(Ink::Dim, &words))?;
                }
            }
        }
        Ok(())
    }

    /// Puts the lines of a chain and its branches on the stack.
    fn lay_out(&self, chain: Chain, stack: &mut Vec<Pending>) {
        // The frames of the chain, each with the branches between it and the next.
        let mut frames = vec![chain.head];
        let mut branches: Vec<Vec<usize>> = Vec::new();
        loop {
            let node = frames[frames.len() - 1];
            let mut children = self.shown_children(node);
            let next = self.continuation(node, &children);
            if next.is_some() {
                children.remove(0);
            }
            branches.push(children);
            match next {
                Some(next) => frames.push(next),
                None => break,
            }
        }

        let mut lines = Vec::new();
        let mut from = 0;
        let mut above = chain.above;
        let mut after_gap = false;
        while from < frames.len() {
            let to = (from..frames.len()).find(|&i| !branches[i].is_empty()).unwrap_or(frames.len() - 1) + 1;
            for link in self.condensed(&frames, from, to) {
                let marks = if lines.is_empty() { &chain.first } else { &chain.rest };
                lines.push(match link {
                    Link::Skipped { first, frames: count } => {
                        (above, after_gap) = (None, true);
                        let own = (first..first + count).map(|i| self.own(frames[i])).fold(0, u64::saturating_add);
                        let (first, last) = (frames[first], frames[first + count - 1]);
                        Pending::Skipped { first, last, frames: count, own, marks: marks.clone() }
                    }
                    Link::Frame { first, times, period } => {
                        let all = (0..times).map(|i| self.own(frames[first + i * period]));
                        let own = all.fold(0, u64::saturating_add);
                        let node = frames[first];
                        let costs = self.costs(node);
                        let same_cost = above.as_ref() == Some(&costs);
                        above = Some(costs);
                        let after_gap = std::mem::take(&mut after_gap);
                        Pending::Line(Line { node, times, own, marks: marks.clone(), same_cost, after_gap })
                    }
                });
            }
            let ends = to == frames.len();
            let beside = &branches[to - 1];
            for (i, &branch) in beside.iter().enumerate() {
                let last = ends && i + 1 == beside.len();
                // An only caller of all there is.
                let above = above.clone().filter(|_| beside.len() == 1 && self.view.kind == ViewKind::Callers);
                let (first, rest) = self.branch_marks(last, &chain.rest);
                lines.push(Pending::Chain(Chain { head: branch, first, rest, above }));
            }
            from = to;
        }
        stack.extend(lines.into_iter().rev());
    }

    /// The marks of a chain one step to the right of `marks`: before its first line, and before the others.
    fn branch_marks(&self, last: bool, marks: &str) -> (Rc<str>, Rc<str>) {
        let marks = self.bounded(marks);
        let (first, rest) = match (self.view.kind, last) {
            (ViewKind::Flat, _) => ("  ", "  "),
            (_, false) => ("├ ", "│ "),
            (_, true) => ("└ ", "  "),
        };
        (format!("{marks}{first}").into(), format!("{marks}{rest}").into())
    }

    /// Marks that leave room for a name: the outermost steps give way to an ellipsis.
    fn bounded(&self, marks: &str) -> String {
        let max = (self.page.options.width / 3).max(8);
        let count = marks.chars().count();
        if count + 2 <= max {
            return marks.into();
        }
        let kept: String = marks.chars().skip(count + 4 - max).collect();
        format!("… {kept}")
    }

    /// The child that continues the column of `node`: the first of `children`, if any does.
    fn continuation(&self, node: usize, children: &[usize]) -> Option<usize> {
        let &first = children.first()?;
        let top_level = self.view.nodes[node].parent == Some(0);
        let alone = children.len() == 1;
        let most = self.cost(first) as f64 >= CONTINUES * self.cost(node) as f64;
        let continues = match self.view.kind {
            ViewKind::Flat => false,
            // Below a procedure come its callers: they are a tree of their own.
            ViewKind::Callers => !top_level && node != 0 && (alone || most),
            // Processes and threads are beside each other, however little some cost.
            ViewKind::Context => {
                let kind = self.view.nodes[node].scope.kind;
                alone || (most && (kind.is_frame() || kind.is_body()))
            }
        };
        (continues && self.view.nodes[first].scope.kind != ScopeKind::Pruned).then_some(first)
    }

    /// Children worth a line, most costly first; what was pruned comes last, if it is worth one.
    fn shown_children(&self, node: usize) -> Vec<usize> {
        let pruned = |&child: &usize| self.view.nodes[child].scope.kind == ScopeKind::Pruned;
        let (rest, mut shown): (Vec<_>, Vec<_>) = self.view.children(node).partition(pruned);
        let threshold = self.page.options.query.min_share * self.total() as f64;
        shown.extend(rest.into_iter().filter(|&rest| self.cost(rest) as f64 >= threshold.max(1.0)));
        shown
    }

    fn condensed(&self, frames: &[usize], from: usize, to: usize) -> Vec<Link> {
        let key = |i: usize| chain::key(&self.view.nodes[frames[i]].scope);
        let threshold = self.page.options.query.min_share * self.total() as f64;
        let dull = |link: &Link| match link {
            Link::Frame { first, times: 1, .. } => {
                let node = frames[*first];
                let call = self.view.nodes[node].scope.kind.is_frame() && self.view.nodes[node].recursion == 1;
                call && self.own(node) as f64 <= threshold
            }
            _ => false,
        };
        let ends = match self.view.kind {
            _ if self.page.options.whole => (usize::MAX, usize::MAX),
            ViewKind::Callers => DULL_CALLERS,
            ViewKind::Context | ViewKind::Flat => DULL_CALLS,
        };
        condense(from..to, key, dull, ends)
    }

    fn line(&self, line: &Line, out: &mut dyn Write) -> io::Result<()> {
        let Line { node, times, own, ref marks, same_cost, after_gap } = *line;
        let scope = &self.view.nodes[node].scope;
        let above = self.view.nodes[node].parent.map(|parent| &self.view.nodes[parent].scope);
        let changed = above.is_none_or(|above| above.module != scope.module) && self.view.kind != ViewKind::Flat;
        let module = if changed || after_gap { module_label(scope, self.page.profile) } else { None };
        let cells = self.cells((!same_cost).then_some(self.cost(node)), (!same_cost).then_some(node), own);
        let times = times.max(self.view.nodes[node].recursion as usize);
        let times = if times > 1 { format!(" (x {times})") } else { String::new() };
        let module = module.map_or(String::new(), |module| format!("  {module}"));
        let beside = self.cells_width() + columns(marks) + times.len() + columns(&module);
        let room = self.page.options.width.saturating_sub(beside).max(24);
        let label = label(self.view, node, self.page.profile, self.page.options.query.max_depth.is_some()).fit(room);
        let label = match scope.kind {
            ScopeKind::Pruned => self.ink(Ink::Dim, &label),
            kind if kind.is_frame() || kind.is_body() => label,
            _ => self.ink(Ink::Bold, &label),
        };
        let (marks, times, module) =
            (self.ink(Ink::Dim, marks), self.ink(Ink::Bold, &times), self.ink(Ink::Dim, &module));
        writeln!(out, "{cells}{marks}{label}{times}{module}")
    }

    /// The numbers before a line, those of further metrics if a node is given.
    fn cells(&self, cost: Option<u64>, node: Option<usize>, own: u64) -> String {
        let total = self.total();
        let (share, cost) = match cost {
            Some(cost) => (percent(cost, total), value(cost, self.unit())),
            None => (String::new(), String::new()),
        };
        let mut cells = format!("{share:>6} {cost:>9}  ");
        if self.columns == Columns::TotalAndSelf {
            // Next to nothing is left blank: most frames only call.
            let own_share = if own as f64 * 2000.0 < total as f64 { String::new() } else { percent(own, total) };
            cells += &self.ink(Paint::heat(own, total), &format!("{own_share:>6}"));
            cells += "  ";
        }
        for (metric, width) in self.further() {
            let cost = node.map(|node| self.cell(node, metric)).filter(|cost| *cost > 0);
            let cell = cost.map(|bits| quantity::cell(bits, &self.page.profile.metrics[metric]));
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

    /// What a node costs by each column.
    fn costs(&self, node: usize) -> Vec<u64> {
        std::iter::once(0).chain(self.further().map(|(metric, _)| metric)).map(|m| self.cell(node, m)).collect()
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
    pub(super) fn heading(&self, words: &str) -> String {
        let unit = self.page.cost_heading();
        let mut line = match self.columns {
            Columns::One => format!("{:>6} {unit:>9}  ", "self"),
            Columns::TotalAndSelf => format!("{:>6} {unit:>9}  {:>6}  ", "total", "self"),
        };
        for (metric, width) in self.further() {
            line += &format!("{:>width$}  ", heading_of(&self.page.profile.metrics[metric]));
        }
        line += words;
        self.ink(Ink::Bold, &line)
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

    fn own(&self, node: usize) -> u64 {
        // What was pruned has no body: its cost is in its total.
        if self.view.nodes[node].scope.kind == ScopeKind::Pruned {
            return 0;
        }
        self.view.self_cost(node).get(0)
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
