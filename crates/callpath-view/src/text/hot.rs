//! The two short answers: the path on which most of the cost lies, and the procedures that cost most themselves.

use std::io::{self, Write};

use callpath_db::{ProcedureCost, Profile, Query, Recursion, ScopeKind, View};

use super::chain::{self, repeats};
use super::label::{label, label_among, module_label};
use super::outline::Step;
use super::page::Page;
use super::paint::{Ink, Paint};
use super::printable::columns;
use super::quantity::{self, count, percent, value};
use super::run::Run;
use super::tree::{heading_of, is_of_sharing, is_shared_out_by};

/// A child that has less than this share of its parent's cost begins a new line of the hottest path.
const BRANCHES: f64 = 0.95;

/// A share of the whole that is worth a word where it stays on the hottest path.
const LEAST_STAYS: f64 = 0.01;

/// Lines of the hottest path.
const MOST_STRETCHES: usize = 8;

/// Steps of the hottest path between two places where the cost divides.
#[derive(Default)]
struct Stretch {
    steps: Vec<Step>,
    /// What they cost themselves.
    own: u64,
}

/// The query whose view has the hottest path of what `query` selects: down to a leaf, however little it costs, and most
/// costly children first.
pub(super) fn whole(query: &Query) -> Query {
    Query { min_share: 0.0, recursion: Recursion::Collapse, max_depth: None, order: None, ..query.clone() }
}

/// From the outermost frame down to a leaf, always to the child that costs most, with the share at each branching, and with
/// the cost that stays on the way. The title names the place where most of it stays.
pub(super) fn hottest_path(view: &View, page: Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let cost = |node: usize| view.inclusive(node).get(0);
    let is_place = |child: &usize| view.nodes[*child].scope.kind != ScopeKind::Pruned;
    let mut path = Vec::new();
    let mut node = 0;
    while let Some(child) = view.children(node).find(is_place).filter(|&child| cost(child) > 0) {
        path.push(child);
        node = child;
    }
    let Some(&leaf) = path.last() else { return Ok(()) };

    let mut stretches: Vec<Stretch> = Vec::new();
    let keys: Vec<u64> = path.iter().map(|&node| chain::key(&view.nodes[node].scope)).collect();
    let mut above = cost(0);
    // The innermost of those that cost most themselves.
    let (mut hottest, mut most) = (leaf, 0);
    for repeat in repeats(&keys) {
        let node = path[repeat.first];
        let times = repeat.times.max(view.nodes[node].recursion as usize);
        let step = Step { node, times, frames: repeat.times };
        let here = (0..repeat.times).map(|i| path[repeat.first + i * repeat.period]);
        let own = here.map(|node| view.exclusive(node).get(0)).fold(0, u64::saturating_add);
        if own >= most {
            (hottest, most) = (node, own);
        }
        if stretches.is_empty() || (cost(node) as f64) < BRANCHES * above as f64 {
            above = cost(node);
            stretches.push(Stretch::default());
        }
        let Some(stretch) = stretches.last_mut() else { continue };
        stretch.steps.push(step);
        stretch.own = stretch.own.saturating_add(own);
    }
    // What calls others on the path costs something besides.
    let innermost = stretches.last().and_then(|stretch| stretch.steps.last()).map(|step| step.node);
    let itself = if innermost == Some(hottest) { "" } else { " itself" };
    let title = format!("Hottest path: {} of {} in ", percent(most, cost(0)), page.metric_name());
    let room = page.options.width.saturating_sub(columns(&title) + columns(itself)).max(16);
    let title = title + &place(view, hottest, page.profile, room) + itself;
    writeln!(out, "\n{}", page.ink(Ink::Bold, &title))?;
    let left_out = stretches.len().saturating_sub(MOST_STRETCHES);
    for (index, Stretch { steps, own }) in stretches.iter().enumerate() {
        if left_out > 0 && index == MOST_STRETCHES / 2 {
            writeln!(
                out,
                "        {}",
                page.ink(Ink::Dim, &format!("… {}", count(left_out as u64, "more step", "more steps")))
            )?;
        }
        if left_out > 0 && (MOST_STRETCHES / 2..MOST_STRETCHES / 2 + left_out).contains(&index) {
            continue;
        }
        let (share, stays) = (percent(cost(steps[0].node), cost(0)), percent(*own, cost(0)));
        let is_said = *own as f64 >= page.options.query.min_share.max(LEAST_STAYS) * cost(0) as f64 && stays != share;
        let aside = if is_said { format!("  ({stays} self)") } else { String::new() };
        let room = page.options.width.saturating_sub(8 + columns(&aside)).max(24);
        let names = Run::new(view, page.profile, steps).fit(room);
        writeln!(out, "{share:>6}  {names}{}", page.ink(Ink::Dim, &aside))?;
    }
    Ok(())
}

/// What a place is called where nothing stands around it: a loop with its procedure.
fn place(view: &View, node: usize, profile: &Profile, room: usize) -> String {
    let own = label(view, node, profile, false).fit(room);
    let above = std::iter::successors(view.nodes[node].parent, |&above| view.nodes[above].parent);
    let mut frames = above.filter(|&above| view.nodes[above].scope.kind.is_frame());
    match frames.next().filter(|_| view.nodes[node].scope.kind.is_body()) {
        Some(frame) => {
            let room = room.saturating_sub(columns(&own) + 2).max(8);
            format!("{}, {own}", label(view, frame, profile, false).fit(room))
        }
        None => own,
    }
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
    let is_further = |metric: usize| options.columns.is_some() || is_of_sharing(profile, metric);
    let further: Vec<usize> =
        page.further_metrics().map(|(metric, _)| metric).filter(|&metric| is_further(metric)).collect();
    let mut heading = format!("{:>6} {:>9}  {:>6}  ", "self", page.cost_heading(), "total");
    further.iter().for_each(|&metric| heading += &format!("{:>10}  ", heading_of(&profile.metrics[metric])));
    writeln!(out, "{}", page.ink(Ink::Bold, &(heading + "procedure")))?;
    let listed = &costly[..costly.len().min(options.top)];
    for (index, procedure) in listed.iter().enumerate() {
        let (own, all) = (first(&procedure.self_cost), first(&procedure.inclusive));
        let module = module_label(&procedure.scope, profile).map_or(String::new(), |module| format!("  {module}"));
        let room = options.width.saturating_sub(26 + 12 * further.len() + columns(&module)).max(24);
        let others = listed.iter().enumerate().filter(|(other, _)| *other != index);
        let name = label_among(&procedure.scope, others.map(|(_, other)| &other.scope), profile).fit(room);
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
