//! The two short answers: the path on which most of the cost lies, and the procedures that cost most themselves.

use std::io::{self, Write};

use callpath_db::{ProcedureCost, ScopeKind, View};

use super::chain::{self, Link, condense};
use super::label::{label, module_label, scope_label};
use super::page::Page;
use super::paint::{Ink, Paint};
use super::printable::columns;
use super::quantity::{self, count, percent, value};
use super::tree::{heading_of, is_of_sharing, is_shared_out_by};

/// The path continues to a child with at least this share of its parent's cost.
const CONTINUES: f64 = 0.5;

/// Frames at each end of a path that are named.
const ENDS: usize = 8;

/// From the outermost frame to where the cost parts ways, in a few lines.
pub(super) fn hottest_path(view: &View, page: Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let Page { profile, options } = page;
    let cost = |node: usize| view.inclusive(node).get(0);
    let mut path = Vec::new();
    let mut node = 0;
    while let Some(child) = view.children(node).next() {
        // However many processes and threads share the cost, the path goes to a procedure.
        let in_code = view.nodes[node].scope.kind.is_frame() || view.nodes[node].scope.kind.is_body();
        let hot = !in_code || cost(child) as f64 >= CONTINUES * cost(node) as f64;
        if !hot || matches!(view.nodes[child].scope.kind, ScopeKind::Pruned | ScopeKind::Line) {
            break;
        }
        path.push(child);
        node = child;
    }
    let Some(&end) = path.last() else { return Ok(()) };

    let links = condense(0..path.len(), |i| chain::key(&view.nodes[path[i]].scope), |_| true, (ENDS, ENDS));
    let shown = links.iter().map(|link| match *link {
        Link::Frame { first, times, .. } => {
            let times = times.max(view.nodes[path[first]].recursion as usize);
            let times = if times > 1 { format!(" (x {times})") } else { String::new() };
            label(view, path[first], profile, false).fit(48) + &times
        }
        Link::Skipped { frames, .. } => format!("… {frames} more"),
    });
    let steps: Vec<String> = shown.collect();

    let share = percent(cost(end), cost(0));
    let mut title = format!("Hottest path: {share} of {}", page.metric_name());
    if view.self_cost(end).get(0) < cost(end) {
        title += " (stops where the cost divides)";
    }
    writeln!(out, "\n{}", page.ink(Ink::Bold, &title))?;
    let mut line = String::from(" ");
    for (i, step) in steps.iter().enumerate() {
        let step = if i == 0 { format!(" {step}") } else { format!(" > {step}") };
        if i > 0 && columns(&line) + columns(&step) > options.width {
            writeln!(out, "{line}")?;
            line = String::from("   ");
        }
        line.push_str(&step);
    }
    writeln!(out, "{line}")
}

/// The list of procedures by self cost.
pub(super) fn procedures(
    procedures: &[ProcedureCost],
    view: &View,
    page: Page<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Page { profile, options } = page;
    let total = view.inclusive(0).get(0);
    let unit = profile.metrics.first().map_or("", |metric| &metric.unit);
    let first = |values: &[u64]| values.first().copied().unwrap_or(0);
    let costly: Vec<_> = procedures.iter().filter(|procedure| first(&procedure.self_cost) > 0).collect();
    let title = format!("Procedures by self {}", page.metric_name());
    writeln!(out, "\n{}", page.ink(Ink::Bold, &title))?;
    // The count by which costs are divided, and the quotient: how often, and how much each time.
    let further: Vec<usize> = (1..profile.metrics.len()).filter(|&metric| is_of_sharing(profile, metric)).collect();
    let mut heading = format!("{:>6} {:>9}  {:>6}  ", "self", page.cost_heading(), "total");
    further.iter().for_each(|&metric| heading += &format!("{:>10}  ", heading_of(&profile.metrics[metric])));
    writeln!(out, "{}", page.ink(Ink::Bold, &(heading + "procedure")))?;
    for procedure in costly.iter().take(options.top) {
        let (own, all) = (first(&procedure.self_cost), first(&procedure.inclusive));
        let module = module_label(&procedure.scope, profile).map_or(String::new(), |module| format!("  {module}"));
        let room = options.width.saturating_sub(26 + 12 * further.len() + columns(&module)).max(24);
        let name = scope_label(&procedure.scope, profile).fit(room);
        let cell = |&metric: &usize| {
            let values = if is_shared_out_by(profile, metric) { &procedure.self_cost } else { &procedure.inclusive };
            let cell = values.get(metric).copied().filter(|&cost| cost > 0);
            format!("{:>10}  ", cell.map_or_else(String::new, |bits| quantity::cell(bits, &profile.metrics[metric])))
        };
        let cells: String = further.iter().map(cell).collect();
        let share = page.ink(Paint::heat(own, total), &format!("{:>6}", percent(own, total)));
        let module = page.ink(Ink::Dim, &module);
        writeln!(out, "{share} {:>9}  {:>6}  {cells}{name}{module}", value(own, unit), percent(all, total))?;
    }
    let rest = costly.get(options.top..).unwrap_or_default();
    if !rest.is_empty() {
        let own = rest.iter().fold(0u64, |sum, procedure| sum.saturating_add(first(&procedure.self_cost)));
        let words = page.ink(Ink::Dim, &count(rest.len() as u64, "more procedure", "more procedures"));
        let cells = " ".repeat(12 * further.len());
        writeln!(out, "{:>6} {:>9}  {:>6}  {cells}{words}", percent(own, total), value(own, unit), "")?;
    }
    Ok(())
}
