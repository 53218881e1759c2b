//! The lines of a procedure, with what each costs.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use callpath_db::{Name, Profile, Query, Recursion, Scope, ScopeKind};

use super::page::Page;
use super::paint::{Ink, Paint};
use super::printable::{columns, cut_end, printable};
use super::quantity::{count, percent, value};
use crate::ViewError;

/// Lines that are listed.
const MOST_LINES: usize = 15;

/// The query whose view has the lines of the procedures that `query` means.
pub(super) fn query(query: &Query) -> Query {
    Query {
        recursion: Recursion::Full,
        fold: vec![ScopeKind::Process, ScopeKind::Thread, ScopeKind::Loop, ScopeKind::SystemCall],
        min_share: 0.0,
        max_depth: None,
        order: None,
        ..query.clone()
    }
}

/// `file.c:33`
pub(super) fn place(profile: &Profile, file: Name, line: Option<u32>) -> String {
    let file = printable(profile.strings.get(file));
    let file = file.rsplit('/').next().unwrap_or_default();
    line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}"))
}

/// What procedures cost by their lines.
pub(super) struct Lines {
    /// The procedures, most costly first.
    pub(super) procedures: Vec<Scope>,
    keys: HashSet<Key>,
    /// By line, the costliest first.
    pub(super) costs: Vec<(Line, LineCost)>,
    /// The same of code without a known line.
    pub(super) unknown: LineCost,
}

/// A line of a procedure, or of what is inlined in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Line {
    pub(super) file: Name,
    pub(super) line: u32,
    /// The inlined procedure that it is a line of.
    pub(super) inlined: Option<Name>,
}

/// What lines cost, by metric 0.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct LineCost {
    /// With what is called or inlined there, each sample once.
    pub(super) total: u64,
    /// Without what is called there.
    pub(super) own: u64,
}

/// What a node is to the procedures.
#[derive(Clone, Copy)]
enum Place {
    /// Neither one of the procedures nor in the body of one.
    Elsewhere,
    /// One of them, or inlined in one.
    Body { inlined: Option<Name> },
    /// A line of it.
    At(Option<Line>),
}

/// What tells procedures apart.
type Key = (Name, Option<Name>, Option<u64>);

fn key(scope: &Scope) -> Key {
    (scope.name, scope.module, if scope.name == Name::EMPTY { scope.address } else { None })
}

impl Lines {
    /// Whether a scope is one of the procedures.
    pub(super) fn is_one(&self, scope: &Scope) -> bool {
        scope.kind.is_frame() && self.keys.contains(&key(scope))
    }

    /// Of the procedures that `asked.procedure` means, also where others of them call them.
    pub(super) fn of(profile: &Profile, asked: &Query) -> Result<Lines, ViewError> {
        let view = &profile.view(&query(asked))?;
        let meant = profile.meant(&Query { procedure: asked.procedure.clone(), ..Query::default() })?;
        let is_meant = |scope: &Scope| meant.iter().any(|meant| meant.is(&profile.strings, scope, scope.module));
        let inner = view.nodes.iter().map(|node| node.scope).filter(|scope| scope.kind == ScopeKind::Procedure);
        let frames = view.children(0).map(|child| view.nodes[child].scope).filter(|scope| scope.kind.is_frame());
        let mut keys = HashSet::new();
        let all = frames.chain(inner.filter(is_meant));
        let procedures: Vec<Scope> = all.filter(|scope| keys.insert(key(scope))).collect();
        let is_one = |scope: &Scope| scope.kind.is_frame() && keys.contains(&key(scope));
        let mut ends: Vec<usize> = (1..=view.nodes.len()).collect();
        for node in (1..view.nodes.len()).rev() {
            let above = view.nodes[node].parent.unwrap_or(0);
            ends[above] = ends[above].max(ends[node]);
        }
        let mut costs: HashMap<Option<Line>, LineCost> = HashMap::new();
        // A line counts once for all below it: up to which node it is active.
        let mut active: HashMap<Option<Line>, usize> = HashMap::new();
        let mut places: Vec<Place> = vec![Place::Elsewhere];
        for node in 1..view.nodes.len() {
            let scope = &view.nodes[node].scope;
            let above = places[view.nodes[node].parent.unwrap_or(0)];
            let line = |at: Option<(Name, u32)>, inlined| at.map(|(file, line)| Line { file, line, inlined });
            let inside = match above {
                Place::Elsewhere => None,
                Place::Body { inlined } => Some(inlined),
                Place::At(line) => Some(line.and_then(|line| line.inlined)),
            };
            let (place, at) = match (inside, scope.kind) {
                _ if is_one(scope) => (Place::Body { inlined: None }, None),
                (None, _) => (Place::Elsewhere, None),
                (Some(inlined), ScopeKind::Line) => {
                    let line = line(scope.file.zip(scope.line), inlined);
                    (Place::At(line), Some(line))
                }
                (Some(inlined), ScopeKind::Inlined) => {
                    let line = line(scope.call_site.map(|site| (site.file, site.line)), inlined);
                    (Place::Body { inlined: Some(scope.name) }, Some(line))
                }
                // Called from a line that is known where the line is above it.
                (Some(_), _) => (Place::Elsewhere, matches!(above, Place::Body { .. }).then_some(None)),
            };
            places.push(place);
            let own = view.exclusive(node).get(0);
            if let Some(at) = at {
                let until = active.entry(at).or_default();
                let is_counted = node >= *until;
                *until = (*until).max(ends[node]);
                let cost = costs.entry(at).or_default();
                if is_counted {
                    cost.total = cost.total.saturating_add(view.inclusive(node).get(0));
                }
            }
            // What has a line has its cost there.
            let of = match place {
                Place::At(line) => line,
                Place::Body { .. } if own > 0 => None,
                _ => continue,
            };
            let cost = costs.entry(of).or_default();
            cost.own = cost.own.saturating_add(own);
            if matches!(place, Place::Body { .. }) && node >= active.get(&None).copied().unwrap_or(0) {
                cost.total = cost.total.saturating_add(own);
            }
        }
        let unknown = costs.remove(&None).unwrap_or_default();
        let mut costs: Vec<_> = costs.into_iter().filter_map(|(line, costs)| Some((line?, costs))).collect();
        costs.sort_by(|a, b| (b.1.total, b.1.own).cmp(&(a.1.total, a.1.own)).then(a.0.cmp(&b.0)));
        Ok(Lines { procedures, keys, costs, unknown })
    }

    pub(super) fn write(&self, page: Page<'_>, out: &mut dyn Write) -> io::Result<()> {
        let Page { profile, options } = page;
        writeln!(out, "\n{}", page.ink(Ink::Bold, &format!("Lines by {}", page.metric_name())))?;
        if self.costs.is_empty() {
            return writeln!(out, "No line is known: there is no debug information (compile with -g).");
        }
        let total = profile.view(&Query { max_depth: Some(1), ..options.query.clone() });
        let total = total.map_or(0, |view| view.inclusive(0).get(0));
        let unit = profile.metrics.first().map_or("", |metric| &metric.unit);
        let heading = format!("{:>6} {:>9}  {:>6}  line", "total", page.cost_heading(), "self");
        writeln!(out, "{}", page.ink(Ink::Bold, &heading))?;
        let mut row = |LineCost { total: inclusive, own }: LineCost, label: &str| {
            let share = page.ink(Paint::heat(inclusive, total), &format!("{:>6}", percent(inclusive, total)));
            let own = if own > 0 { percent(own, total) } else { String::new() };
            writeln!(out, "{share} {:>9}  {own:>6}  {label}", value(inclusive, unit))
        };
        for (line, cost) in self.costs.iter().take(MOST_LINES) {
            let inlined = line.inlined.map(|name| format!("  in {} (inlined)", printable(profile.strings.get(name))));
            let label = format!("{}{}", place(profile, line.file, Some(line.line)), inlined.unwrap_or_default());
            row(*cost, &cut_end(&label, options.width.saturating_sub(columns(&heading) - 4)))?;
        }
        // Of lines that are active together, the total counts more than once: what is left out has only its own cost.
        let rest = self.costs.get(MOST_LINES..).unwrap_or_default();
        if !rest.is_empty() {
            let own = rest.iter().fold(0u64, |sum, (_, cost)| sum.saturating_add(cost.own));
            row(
                LineCost { total: own, own },
                &page.ink(Ink::Dim, &count(rest.len() as u64, "more line", "more lines")),
            )?;
        }
        if self.unknown != LineCost::default() {
            row(self.unknown, &page.ink(Ink::Dim, "no known line"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use callpath_db::{CallSite, Metric, NodeId};

    use super::*;

    /// A recursive procedure with another inlined in it: a line counts once for each sample, at whatever depth, and what is
    /// inlined has the cost of its own lines.
    #[test]
    fn a_line_of_a_recursive_procedure_counts_once() {
        let mut profile = Profile::new(vec![Metric::sum("cost", "count")]);
        let [walk, file, inner] = ["walk", "a.c", "inner"].map(|name| profile.strings.intern(name));
        let procedure = Scope { file: Some(file), ..Scope::new(ScopeKind::Procedure, walk) };
        let line = |line| Scope { file: Some(file), line: Some(line), ..Scope::new(ScopeKind::Line, Name::EMPTY) };
        let call_site = Some(CallSite { file, line: 30 });
        let inlined = Scope { call_site, line: Some(5), file: Some(file), ..Scope::new(ScopeKind::Inlined, inner) };
        let mut node = NodeId::ROOT;
        for depth in 0..5 {
            node = profile.tree.child(node, procedure);
            let leaf = profile.tree.child(node, line(16));
            profile.tree.add(leaf, &[10]);
            let inside = profile.tree.child(node, inlined);
            let leaf = profile.tree.child(inside, line(6));
            profile.tree.add(leaf, &[depth]);
            node = profile.tree.child(node, line(17));
        }
        let query = Query { procedure: Some("walk".into()), fold: vec![ScopeKind::Loop], ..Query::default() };
        let lines = Lines::of(&profile, &query).expect("lines");
        let costs: Vec<_> = lines.costs.iter().map(|(line, cost)| (line.line, cost.total, cost.own)).collect();
        // Line 17 calls all but the outermost activation's lines.
        assert_eq!(costs, [(16, 50, 50), (17, 50, 0), (6, 10, 10), (30, 10, 0)]);
        assert!(lines.unknown == LineCost::default());
        assert!(lines.costs.iter().all(|(line, _)| line.inlined == (line.line == 6).then_some(inner)));
    }

    /// Of a file, what others of the file call is there by its own lines.
    #[test]
    fn all_procedures_of_a_file_have_their_lines() {
        let mut profile = Profile::new(vec![Metric::sum("cost", "count")]);
        let file = profile.strings.intern("a.c");
        let mut node = NodeId::ROOT;
        for (name, number) in [("outer", 3), ("inner", 7)] {
            let name = profile.strings.intern(name);
            node = profile.tree.child(node, Scope { file: Some(file), ..Scope::new(ScopeKind::Procedure, name) });
            let line = Scope { file: Some(file), line: Some(number), ..Scope::new(ScopeKind::Line, Name::EMPTY) };
            node = profile.tree.child(node, line);
            profile.tree.add(node, &[u64::from(number)]);
        }
        let lines = |asked: &str| {
            let query = Query { procedure: Some(asked.into()), ..Query::default() };
            let lines = Lines::of(&profile, &query).expect("lines");
            let costs = lines.costs.iter().map(|(line, cost)| (line.line, cost.total, cost.own));
            (lines.procedures.len(), costs.collect::<Vec<_>>())
        };
        assert_eq!(lines("file:a.c"), (2, vec![(3, 10, 3), (7, 7, 7)]));
        assert_eq!(lines("outer"), (1, vec![(3, 10, 3)]));
    }
}
