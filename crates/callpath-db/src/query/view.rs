//! The answer to a query: nodes in preorder with their costs, in order of cost, pruned as asked.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::costs::Costs;
use super::question::{Query, ViewKind};
use super::regions::Regions;
use super::reshape::Counted;
use crate::metric::{Counts, fill_derived};
use crate::rows::{Moves, Row, Rows};
use crate::{Metric, Name, NodeId, Profile, Scope, ScopeKind, Strings, Tree};

/// What stands for the frames that are left out at the outer end of a path.
const TRUNCATED: &str = "outer frames left out";

/// One node of a view.
#[derive(Clone, Copy, Debug)]
pub struct ViewNode {
    /// Index of the node above, which is less than this one's; none at the root.
    pub parent: Option<usize>,
    /// What it stands for. Its strings are the profile's.
    pub scope: Scope,
    /// How many scopes of the profile's tree it adds up: merged threads, contexts of one procedure.
    pub contexts: u32,
    /// How many activations of it are added up on one path, at most: 1 unless recursion was collapsed.
    pub recursion: u32,
    /// One past the last node below it.
    end: usize,
}

/// Which cost of the procedures on its first level the callers view hands out to their callers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandedOut {
    /// Their own. The first level adds up to the whole.
    SelfCost,
    /// That of all that they call, too: the view is of the procedures that a query names.
    Inclusive,
}

/// The answer to a query.
#[derive(Clone, Debug)]
pub struct View {
    /// Which view it is.
    pub kind: ViewKind,
    /// The nodes in preorder; the first is the root.
    pub nodes: Vec<ViewNode>,
    /// What became of the regions that workers executed.
    pub regions: Regions,
    /// What the callers view hands out to callers.
    pub handed_out: HandedOut,
    inclusive: Rows,
    exclusive: Rows,
    own_body: Rows,
}

impl View {
    /// Cost of a node and all below, one value per metric.
    pub fn inclusive(&self, node: usize) -> Row<'_> {
        self.inclusive.row(node)
    }

    /// Cost of a node that is in no child, one value per metric.
    pub fn exclusive(&self, node: usize) -> Row<'_> {
        self.exclusive.row(node)
    }

    /// Cost of a node's own body with its loops and lines, without calls and inlined calls; one value per metric.
    pub fn self_cost(&self, node: usize) -> Row<'_> {
        self.own_body.row(node)
    }

    /// What a metric has counted of a node itself and not of what it calls. In the callers view everything is the
    /// procedure's of the first level; 0 where that includes what it calls, which cannot be told apart.
    pub fn own_count(&self, node: usize, metric: usize) -> u64 {
        own_counts(self.kind, self.handed_out, &self.inclusive, &self.exclusive).map_or(0, |own| own.get(node, metric))
    }

    /// The nodes directly below, most costly first.
    pub fn children(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        let end = self.nodes[node].end;
        let next = move |child: usize| (child < end).then_some(child);
        std::iter::successors(next(node + 1), move |&child| next(self.nodes[child].end))
    }

    /// A node and all below it, as indices.
    pub fn subtree(&self, node: usize) -> std::ops::Range<usize> {
        node..self.nodes[node].end
    }

    /// What a node is called: of the root the program, of a pruned node how many it stands for.
    pub fn name<'a>(&self, node: usize, profile: &'a Profile) -> Cow<'a, str> {
        let scope = &self.nodes[node].scope;
        match scope.kind {
            ScopeKind::Pruned => format!("({} more)", scope.discriminator).into(),
            ScopeKind::Truncated => TRUNCATED.into(),
            ScopeKind::Root if scope.name == Name::EMPTY && profile.info.program.is_empty() => "all".into(),
            ScopeKind::Root if scope.name == Name::EMPTY => profile.info.program.as_str().into(),
            _ => profile.strings.get(scope.name).into(),
        }
    }
}

/// What the walk has still to do.
enum Next {
    Node(NodeId),
    Rest(Rest),
}

/// The children of one node that are left out.
#[derive(Default)]
struct Rest {
    count: u64,
    /// What they weigh.
    weight: u64,
    children: Vec<NodeId>,
}

/// Puts `asked` in order and prunes it.
pub(crate) fn emit(profile: &Profile, query: &Query, asked: Counted, costs: Costs) -> View {
    let tree = &asked.tree;
    let weight = |node: NodeId| costs.inclusive.get(node.index(), 0);
    let first_rule = tree.own().rules().next();
    let threshold = query.min_share * weight(NodeId::ROOT) as f64;
    let max_depth = query.max_depth.unwrap_or(usize::MAX);
    let kept = |node: NodeId, depth: usize| {
        let cheap = (weight(node) as f64) < threshold;
        depth < max_depth && !cheap
    };
    let prunes = query.min_share > 0.0 || query.max_depth.is_some();
    let below = if prunes { costs.own_body_below(tree) } else { tree.own().zeros_like(tree.len()) };
    // In the flat view one sample may be in the inclusive cost of several siblings:
    // what is left out adds up self cost instead.
    let left_out = if query.view == ViewKind::Flat { &below } else { &costs.inclusive };

    let ranks = ranks(&profile.metrics, query, tree, &costs);
    let rank = |node: NodeId| ranks.as_ref().map_or_else(|| weight(node), |ranks| ranks[node.index()]);

    let mut nodes: Vec<ViewNode> = Vec::with_capacity(tree.len());
    // From nodes of the tree to those of the view: the ones that are shown, and the ones that are left out.
    let (mut shown, mut pruned) = (Moves::with_capacity(tree.len()), Moves::new());
    let moved = |from: NodeId, to: usize| (from.index() as u32, to as u32);
    let mut stack = vec![(Next::Node(NodeId::ROOT), None, 0)];
    let mut children = Vec::new();
    while let Some((next, parent, depth)) = stack.pop() {
        let here = nodes.len();
        let node = match next {
            Next::Node(node) => node,
            Next::Rest(rest) => {
                let (scope, contexts) = scope_of_pruned(rest.count);
                nodes.push(ViewNode { parent, scope, contexts, recursion: 1, end: here + 1 });
                pruned.extend(rest.children.iter().map(|child| moved(*child, here)));
                continue;
            }
        };
        let contexts = asked.contexts[node.index()];
        let (scope, contexts, recursion) = match tree.scope(node) {
            scope if scope.kind == ScopeKind::Pruned => {
                let (scope, contexts) = scope_of_pruned(u64::from(contexts));
                (scope, contexts, 1)
            }
            scope => (*scope, contexts, asked.recursion[node.index()]),
        };
        nodes.push(ViewNode { parent, scope, contexts, recursion, end: here + 1 });
        shown.push(moved(node, here));

        let mut rest: Option<Rest> = None;
        children.clear();
        let least = least_of_units(tree, node, |scope| is_apart(scope, query), weight);
        for child in tree.children(node) {
            let is_unit = is_apart(tree.scope(child), query) && weight(child) >= least && depth < max_depth;
            if is_unit || kept(child, depth) {
                children.push(child);
                continue;
            }
            let rest = rest.get_or_insert_default();
            rest.count += match tree.scope(child).kind {
                ScopeKind::Pruned => u64::from(asked.contexts[child.index()]),
                _ => 1,
            };
            let its = left_out.get(child.index(), 0);
            rest.weight = first_rule.map_or(0, |rule| rule.combine(rest.weight, its));
            rest.children.push(child);
        }
        children.sort_by(|&a, &b| {
            rank(b).cmp(&rank(a)).then_with(|| among_equals(tree.scope(a), tree.scope(b), &profile.strings))
        });
        // What is left out comes last in another order.
        let rest_weight = rest.as_ref().filter(|_| ranks.is_none()).map_or(0, |rest| rest.weight);
        let (costlier, cheaper) = children.split_at(children.partition_point(|&child| weight(child) >= rest_weight));
        // The last on the stack comes first.
        let below_here = |child: &NodeId| (Next::Node(*child), Some(here), depth + 1);
        stack.extend(cheaper.iter().rev().map(below_here));
        stack.extend(rest.map(|rest| (Next::Rest(rest), Some(here), depth + 1)));
        stack.extend(costlier.iter().rev().map(below_here));
    }
    let table = |of_shown: &Rows, of_pruned: &Rows| {
        let mut rows = of_shown.zeros_like(nodes.len());
        rows.take(of_shown, &shown);
        rows.take(of_pruned, &pruned);
        rows
    };
    let mut view = View {
        kind: query.view,
        regions: asked.regions,
        handed_out: handed_out(query),
        inclusive: table(&costs.inclusive, left_out),
        exclusive: table(&costs.exclusive, left_out),
        own_body: table(&costs.own_body, &below),
        nodes,
    };
    view.close(&profile.metrics);
    view
}

/// The order of siblings that cost the same.
pub(crate) fn among_equals(a: &Scope, b: &Scope, strings: &Strings) -> Ordering {
    let name = |scope: &Scope| match scope.kind {
        ScopeKind::Truncated => TRUNCATED,
        _ => strings.get(scope.name),
    };
    name(a).cmp(name(b)).then_with(|| a.order(b, strings))
}

fn handed_out(query: &Query) -> HandedOut {
    if query.procedure.is_some() { HandedOut::Inclusive } else { HandedOut::SelfCost }
}

/// The table that has what was counted of each scope itself. `None`: it cannot be told.
fn own_counts<'r>(kind: ViewKind, handed_out: HandedOut, inclusive: &'r Rows, exclusive: &'r Rows) -> Option<&'r Rows> {
    match (kind, handed_out) {
        (ViewKind::Callers, HandedOut::Inclusive) => None,
        (ViewKind::Callers, HandedOut::SelfCost) => Some(inclusive),
        (ViewKind::Context | ViewKind::Flat, _) => Some(exclusive),
    }
}

/// For each node a number that is greater the further ahead of its siblings it stands. `None`: no order is asked for.
fn ranks(metrics: &[Metric], query: &Query, tree: &Tree, costs: &Costs) -> Option<Vec<u64>> {
    let order = query.order?;
    let mut rows = if order.by_self { costs.own_body.clone() } else { costs.inclusive.clone() };
    let own = own_counts(query.view, handed_out(query), &costs.inclusive, &costs.exclusive);
    let counts = Counts::of(metrics, own, tree.nodes().map(|node| tree.scope(node).kind));
    let totals = costs.inclusive.row(NodeId::ROOT.index()).to_vec();
    fill_derived(metrics, &mut [&mut rows], &totals, &counts);
    let rule = metrics.get(order.metric).map(Metric::rule);
    Some((0..tree.len()).map(|node| rule.map_or(0, |rule| rule.rank(rows.get(node, order.metric)))).collect())
}

/// So many of the processes or threads that were asked for one by one are shown, however little of the whole they are: of
/// hundreds, each may be below any threshold.
const KEPT_UNITS: usize = 20;

fn is_apart(scope: &Scope, query: &Query) -> bool {
    match scope.kind {
        ScopeKind::Rank => true,
        ScopeKind::Process => !query.merge_processes,
        ScopeKind::Thread => query.per_thread,
        _ => false,
    }
}

/// What a process or thread below `node` weighs at least to be shown by that rule.
fn least_of_units(tree: &Tree, node: NodeId, is_unit: impl Fn(&Scope) -> bool, weight: impl Fn(NodeId) -> u64) -> u64 {
    let units = tree.children(node).filter(|child| is_unit(tree.scope(*child)));
    let mut weights: Vec<u64> = units.map(weight).filter(|weight| *weight > 0).collect();
    weights.sort_unstable_by(|a, b| b.cmp(a));
    weights.get(KEPT_UNITS - 1).or(weights.last()).copied().unwrap_or(u64::MAX)
}

/// The scope of `count` scopes that were left out, and how many contexts it adds up.
fn scope_of_pruned(count: u64) -> (Scope, u32) {
    let scope = Scope { discriminator: count, ..Scope::new(ScopeKind::Pruned, Name::EMPTY) };
    (scope, u32::try_from(count).unwrap_or(u32::MAX))
}

impl View {
    /// Once all nodes are there: says where each one's descendants end, and computes derived metrics.
    fn close(&mut self, metrics: &[Metric]) {
        for node in (1..self.nodes.len()).rev() {
            if let Some(parent) = self.nodes[node].parent {
                self.nodes[parent].end = self.nodes[parent].end.max(self.nodes[node].end);
            }
        }
        let own = own_counts(self.kind, self.handed_out, &self.inclusive, &self.exclusive);
        let counts = Counts::of(metrics, own, self.nodes.iter().map(|node| node.scope.kind));
        let totals = self.inclusive.row(0).to_vec();
        fill_derived(metrics, &mut [&mut self.inclusive, &mut self.exclusive, &mut self.own_body], &totals, &counts);
    }
}
