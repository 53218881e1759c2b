//! One procedure on a page: what it costs, who calls it, what it calls, and its lines.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufWriter, Write};

use callpath_db::{Name, Profile, Query, Recursion, Scope, ScopeKind, View, ViewKind};

use super::label::{label_among, module_label};
use super::options::TextOptions;
use super::page::Page;
use super::paint::{Ink, Paint};
use super::printable::printable;
use super::quantity::{count, percent, value};
use super::views::Views;
use super::{groups, head, levels};
use crate::ViewError;

/// Rows of each tree, where its threshold can be raised to keep it short.
const MOST_ROWS: usize = 40;

/// Procedures that one name means: so many are named.
const MOST_NAMED: usize = 5;

/// Lines that are listed.
const MOST_LINES: usize = 15;

/// Writes the page of the procedures that `options.query.procedure` means. What they cost while one of them was active
/// is the whole of each of its three parts.
pub fn procedure(profile: &Profile, options: &TextOptions, out: &mut dyn Write) -> Result<(), ViewError> {
    let for_view = |view: ViewKind| {
        let mut options = levels::without_single_levels(profile, options, view);
        if options.max_lines != usize::MAX {
            options.max_lines = options.max_lines.min(MOST_ROWS);
        }
        options
    };
    let mut of_callers = for_view(ViewKind::Callers);
    let callers = Views::within(profile, &mut of_callers)?;
    let mut of_callees = for_view(ViewKind::Context);
    let callees = Views::within(profile, &mut of_callees)?;
    let query = Query {
        recursion: Recursion::Full,
        fold: vec![ScopeKind::Process, ScopeKind::Thread, ScopeKind::Loop, ScopeKind::SystemCall],
        min_share: 0.0,
        max_depth: None,
        ..of_callees.query.clone()
    };
    let lines = Lines::of(&profile.view(&query)?);

    let page = Page { profile, options: &of_callees };
    let mut out = BufWriter::new(out);
    head::what_ran(page, &mut out)?;
    head::quality(page, &mut out)?;
    groups::members(page, &mut out)?;
    writeln!(out)?;
    let as_procedure = |scope: &Scope| Scope { kind: ScopeKind::Procedure, ..*scope };
    let named: Vec<Scope> = lines.procedures.iter().take(MOST_NAMED).map(as_procedure).collect();
    for (index, scope) in named.iter().enumerate() {
        let module = module_label(scope, profile).map_or(String::new(), |module| format!("  {module}"));
        let others = named.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, other)| other);
        let name = label_among(scope, others, profile).fit(page.options.width);
        let place = scope.file.map(|file| place(profile, file, scope.line)).map(|place| format!("  {place}"));
        let asides = page.ink(Ink::Dim, &format!("{module}{}", place.unwrap_or_default()));
        writeln!(out, "{}{asides}", page.ink(Ink::Bold, &name))?;
    }
    if lines.procedures.len() > MOST_NAMED {
        let more = (lines.procedures.len() - MOST_NAMED) as u64;
        writeln!(out, "{}", page.ink(Ink::Dim, &count(more, "more procedure", "more procedures")))?;
    }
    if callees.has_cost() {
        writeln!(out)?;
        callers.write("Callers", Page { profile, options: &of_callers }, &mut out)?;
        writeln!(out)?;
        callees.write("Callees", page, &mut out)?;
        lines.write(page, &mut out)?;
    } else {
        writeln!(out, "\nNothing was measured there.")?;
    }
    out.flush()?;
    Ok(())
}

/// `file.c:33`
fn place(profile: &Profile, file: Name, line: Option<u32>) -> String {
    let file = printable(profile.strings.get(file));
    let file = file.rsplit('/').next().unwrap_or_default();
    line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}"))
}

/// What procedures cost by their lines.
struct Lines {
    /// The procedures, most costly first.
    procedures: Vec<Scope>,
    /// By file and line: with what is called from there, and without.
    costs: Vec<((Name, u32), [u64; 2])>,
    /// The same of code without a known line.
    unknown: [u64; 2],
}

/// What a node is to the procedures.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// Neither one of the procedures nor in the body of one.
    Elsewhere,
    /// One of them; whether none of them is active above it.
    Procedure { is_outermost: bool },
    /// In the body of one, at a line of it or no known one.
    At(Option<(Name, u32)>),
}

impl Lines {
    /// Of a view with lines and without loops whose first level are the procedures.
    fn of(view: &View) -> Lines {
        let key =
            |scope: &Scope| (scope.name, scope.module, if scope.name == Name::EMPTY { scope.address } else { None });
        let mut keys = HashSet::new();
        let frames = view.children(0).map(|child| view.nodes[child].scope).filter(|scope| scope.kind.is_frame());
        let procedures: Vec<Scope> = frames.filter(|scope| keys.insert(key(scope))).collect();
        let is_one = |scope: &Scope| scope.kind.is_frame() && keys.contains(&key(scope));
        let mut costs: HashMap<Option<(Name, u32)>, [u64; 2]> = HashMap::new();
        let mut places: Vec<Place> = vec![Place::Elsewhere];
        for node in 1..view.nodes.len() {
            let scope = &view.nodes[node].scope;
            let above = view.nodes[node].parent.unwrap_or(0);
            let line = match scope.kind {
                ScopeKind::Inlined => scope.call_site.map(|site| (site.file, site.line)),
                _ => scope.file.zip(scope.line),
            };
            let place = match (places[above], scope.kind) {
                _ if is_one(scope) => Place::Procedure { is_outermost: above == 0 },
                (Place::Elsewhere, _) => Place::Elsewhere,
                (Place::Procedure { .. }, ScopeKind::Line | ScopeKind::Inlined) => Place::At(line),
                // Called from a line that is not known.
                (Place::Procedure { .. }, _) => Place::Elsewhere,
                (Place::At(line), ScopeKind::Line | ScopeKind::Inlined) => Place::At(line),
                (Place::At(_), _) => Place::Elsewhere,
            };
            places.push(place);
            let (inclusive, own) = (view.inclusive(node).get(0), view.exclusive(node).get(0));
            let mut add = |line, [inclusive, own]: [u64; 2]| {
                let cost = costs.entry(line).or_default();
                *cost = [cost[0].saturating_add(inclusive), cost[1].saturating_add(own)];
            };
            let is_outermost = places[above] == Place::Procedure { is_outermost: true };
            match place {
                Place::At(line) => add(line, [if is_outermost { inclusive } else { 0 }, own]),
                Place::Procedure { is_outermost } => add(None, [if is_outermost { own } else { 0 }, own]),
                Place::Elsewhere if is_outermost => add(None, [inclusive, 0]),
                Place::Elsewhere => {}
            }
        }
        let unknown = costs.remove(&None).unwrap_or_default();
        let mut costs: Vec<_> = costs.into_iter().filter_map(|(line, costs)| Some((line?, costs))).collect();
        costs.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        Lines { procedures, costs, unknown }
    }

    fn write(&self, page: Page<'_>, out: &mut dyn Write) -> io::Result<()> {
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
        let mut row = |[inclusive, own]: [u64; 2], label: &str| {
            let share = page.ink(Paint::heat(inclusive, total), &format!("{:>6}", percent(inclusive, total)));
            let own = if own > 0 { percent(own, total) } else { String::new() };
            writeln!(out, "{share} {:>9}  {own:>6}  {label}", value(inclusive, unit))
        };
        for ((file, line), costs) in self.costs.iter().take(MOST_LINES) {
            row(*costs, &place(profile, *file, Some(*line)))?;
        }
        let add = |sum: [u64; 2], costs: &[u64; 2]| [0, 1].map(|i| sum[i].saturating_add(costs[i]));
        let rest = self.costs.get(MOST_LINES..).unwrap_or_default();
        if !rest.is_empty() {
            let costs = rest.iter().fold([0; 2], |sum, (_, costs)| add(sum, costs));
            row(costs, &page.ink(Ink::Dim, &count(rest.len() as u64, "more line", "more lines")))?;
        }
        if self.unknown != [0; 2] {
            row(self.unknown, &page.ink(Ink::Dim, "no known line"))?;
        }
        Ok(())
    }
}
