//! What a probe has counted so far, on a screen that is drawn again and again: a function of two profiles.
//! When it is drawn, where to, and what keys do, the caller says.

use std::hash::{Hash, Hasher};

use callpath_db::{Metric, Name, Profile, Query, ScopeKind, View};
use rustc_hash::{FxHashMap, FxHasher};

use crate::ViewError;

use super::inner_path::{NAME_COLUMNS, inner_path};
use super::paint::{Ink, Paint};
use super::printable::{columns, cut_end, printable};
use super::quantity::{duration, percent, thousands, value};

/// Before the call path: the cost, its rate, its share.
const CELLS: usize = 10 + 1 + 11 + 1 + 6 + 2;
/// The metric that everything is counted in.
const CALLS: &str = "calls";

/// How a live screen is drawn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveOptions {
    /// Columns.
    pub width: usize,
    /// Lines.
    pub rows: usize,
    /// Whether escape sequences for colour and weight may be used.
    pub color: bool,
    /// The metric by which call paths are ordered: the number of its column, the first one if there is none.
    pub metric: usize,
    /// What is probed, for the first line.
    pub title: String,
    /// What keys do, for the last line.
    pub keys: String,
}

/// The screen that shows `now`, with rates since `earlier`, an earlier profile of the same measurement: `options.rows`
/// lines at most, each at most `options.width` columns, without a newline at the end.
///
/// First how long it has run, and its calls; then the call paths that have most of the metric: how much, how much a
/// second, its share (of all calls; of times, of the time that has passed), and the innermost frames.
///
/// # Errors
/// None is known: a view of everything has an answer.
pub fn live(earlier: Option<&Profile>, now: &Profile, options: &LiveOptions) -> Result<String, ViewError> {
    let drawn = Drawn::new(earlier, now, options.metric)?;
    let paint = Paint { color: options.color };
    let mut lines = vec![paint.with(Ink::Bold, &cut_end(&drawn.head(&options.title), options.width))];
    let metric = drawn.metric.map_or_else(|| CALLS.to_owned(), |metric| printable(&metric.name));
    let heading = format!("{:>10} {:>11} {:>6}  call path", cut_end(&metric, 10), "a second", "share");
    lines.push(paint.with(Ink::Bold, &cut_end(&heading, options.width)));
    let keys = Some(&options.keys).filter(|keys| !keys.is_empty());
    let room = options.rows.saturating_sub(lines.len() + usize::from(keys.is_some()));
    let costly = drawn.costly(room);
    if costly.is_empty() {
        lines.push(cut_end("nothing was counted yet", options.width));
    }
    for node in costly {
        let cost = drawn.cost(node);
        let ink = Paint::heat(cost, drawn.whole());
        let rate = drawn.rate_of(node).unwrap_or_else(|| "-".to_owned());
        let cells = format!("{:>10} {rate:>11} {:>6}  ", drawn.shown(cost), percent(cost, drawn.whole()));
        let path = inner_path(&drawn.view, now, node, options.width.saturating_sub(CELLS));
        lines.push(paint.with(ink, &cut_end(&cells, options.width)) + &path);
    }
    lines.truncate(options.rows.saturating_sub(usize::from(keys.is_some())));
    lines.extend(keys.map(|keys| paint.with(Ink::Dim, &cut_end(keys, options.width))));
    Ok(lines.join("\n"))
}

/// The same in a line, for a terminal that others write on, too: time, calls, and the call path that has most.
///
/// # Errors
/// As [`live`].
pub fn live_line(earlier: Option<&Profile>, now: &Profile, options: &LiveOptions) -> Result<String, ViewError> {
    let drawn = Drawn::new(earlier, now, options.metric)?;
    let head = drawn.head(&options.title);
    let Some(node) = drawn.costly(1).first().copied() else { return Ok(cut_end(&head, options.width)) };
    let head = format!("{head}; {} of {}: ", percent(drawn.cost(node), drawn.whole()), drawn.of_whole());
    let room = options.width.saturating_sub(columns(&head)).max(NAME_COLUMNS / 2);
    Ok(head + &inner_path(&drawn.view, now, node, room))
}

/// What is drawn.
struct Drawn<'a> {
    now: &'a Profile,
    view: View,
    /// Its column.
    column: usize,
    metric: Option<&'a Metric>,
    /// By node of the view, a number that is the same for the same path in any profile.
    keys: Vec<u64>,
    since: Option<Since>,
}

/// What there was earlier.
struct Since {
    calls: u64,
    by_path: FxHashMap<u64, u64>,
    /// How long ago that was, in nanoseconds; not 0.
    elapsed_ns: u64,
}

impl<'a> Drawn<'a> {
    fn new(earlier: Option<&Profile>, now: &'a Profile, metric: usize) -> Result<Drawn<'a>, ViewError> {
        let column = if metric < now.metrics.len() { metric } else { 0 };
        let (view, keys) = paths(now)?;
        let since = earlier.map(|earlier| Since::new(earlier, now, column)).transpose()?.flatten();
        Ok(Drawn { now, view, column, metric: now.metrics.get(column), keys, since })
    }

    /// `prog, process 123: 12.3 s, 1,234 calls, 100 a second`
    fn head(&self, title: &str) -> String {
        let all = calls(self.now, &self.view);
        let rate = self
            .since
            .as_ref()
            .map_or_else(String::new, |since| format!(", {} a second", thousands(since.rate(all, since.calls))));
        let title = printable(title);
        let word = if all == 1 { "call" } else { "calls" };
        format!("{title}: {}, {} {word}{rate}", duration(self.now.info.duration_ns), thousands(all))
    }

    fn cost(&self, node: usize) -> u64 {
        self.view.exclusive(node).get(self.column)
    }

    fn is_time(&self) -> bool {
        self.metric.is_some_and(|metric| metric.unit == "ns")
    }

    /// What shares are of.
    fn whole(&self) -> u64 {
        if self.is_time() { self.now.info.duration_ns } else { self.view.inclusive(0).get(self.column) }
    }

    fn of_whole(&self) -> String {
        if self.is_time() { "the time".to_owned() } else { "calls".to_owned() }
    }

    /// The nodes that have most themselves, so many at most.
    fn costly(&self, most: usize) -> Vec<usize> {
        let mut nodes: Vec<usize> = (0..self.view.nodes.len()).filter(|&node| self.cost(node) > 0).collect();
        // Equal ones in the order of the tree.
        let order = |node: &usize| (std::cmp::Reverse(self.cost(*node)), *node);
        if nodes.len() > most {
            nodes.select_nth_unstable_by_key(most, order);
            nodes.truncate(most);
        }
        nodes.sort_unstable_by_key(order);
        nodes
    }

    fn shown(&self, cost: u64) -> String {
        value(cost, self.metric.map_or("", |metric| &metric.unit))
    }

    fn rate_of(&self, node: usize) -> Option<String> {
        let since = self.since.as_ref()?;
        let before = self.keys.get(node).and_then(|key| since.by_path.get(key)).copied().unwrap_or(0);
        Some(self.shown(since.rate(self.cost(node), before)))
    }
}

impl Since {
    /// `None`: no time has passed.
    fn new(earlier: &Profile, now: &Profile, column: usize) -> Result<Option<Since>, ViewError> {
        let elapsed_ns = now.info.duration_ns.saturating_sub(earlier.info.duration_ns);
        if elapsed_ns == 0 {
            return Ok(None);
        }
        let (view, keys) = paths(earlier)?;
        let mut by_path: FxHashMap<u64, u64> = FxHashMap::default();
        for (node, key) in keys.iter().enumerate() {
            let sum = by_path.entry(*key).or_default();
            *sum = sum.saturating_add(view.exclusive(node).get(column));
        }
        Ok(Some(Since { calls: calls(earlier, &view), by_path, elapsed_ns }))
    }

    /// Per second.
    fn rate(&self, now: u64, before: u64) -> u64 {
        (now.saturating_sub(before) as f64 * 1e9 / self.elapsed_ns as f64).round() as u64
    }
}

fn calls(profile: &Profile, view: &View) -> u64 {
    let column = profile.metrics.iter().position(|metric| metric.name == CALLS);
    column.map_or(0, |column| view.inclusive(0).get(column))
}

/// The paths of a profile, of all threads and processes together, with a key for each.
fn paths(profile: &Profile) -> Result<(View, Vec<u64>), ViewError> {
    let fold = [
        ScopeKind::Line,
        ScopeKind::Loop,
        ScopeKind::SystemCall,
        ScopeKind::Rank,
        ScopeKind::Process,
        ScopeKind::Thread,
    ];
    let query = Query { fold: fold.to_vec(), merge_processes: true, ..Query::default() };
    let view = profile.view(&query)?;
    let text = |name: Name| profile.strings.get(name);
    let mut keys: Vec<u64> = Vec::with_capacity(view.nodes.len());
    for node in &view.nodes {
        let above = node.parent.and_then(|parent| keys.get(parent)).copied().unwrap_or(0);
        let scope = &node.scope;
        let mut hasher = FxHasher::default();
        (above, scope.kind, text(scope.name), scope.module.map(text)).hash(&mut hasher);
        (scope.file.map(text), scope.line, scope.address, scope.discriminator).hash(&mut hasher);
        keys.push(hasher.finish());
    }
    Ok((view, keys))
}
