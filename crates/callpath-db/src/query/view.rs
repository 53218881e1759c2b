//! The answer to a query: nodes in preorder with their costs, in order of cost, pruned as asked.
//! Refuses to know how the tree that it is made from came about.

use std::borrow::Cow;

use super::costs::Costs;
use super::question::{Query, ViewKind};
use super::reshape::Counted;
use crate::metric::{PerOwn, accumulate, fill_derived};
use crate::{Metric, Name, NodeId, Profile, Scope, ScopeKind};

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

/// The answer to a query.
#[derive(Clone, Debug)]
pub struct View {
    /// Which view it is.
    pub kind: ViewKind,
    /// The nodes in preorder; the first is the root.
    pub nodes: Vec<ViewNode>,
    width: usize,
    inclusive: Vec<u64>,
    exclusive: Vec<u64>,
    own_body: Vec<u64>,
}

impl View {
    /// Cost of a node and all below, one value per metric.
    pub fn inclusive(&self, node: usize) -> &[u64] {
        &self.inclusive[node * self.width..][..self.width]
    }

    /// Cost of a node that is in no child, one value per metric.
    pub fn exclusive(&self, node: usize) -> &[u64] {
        &self.exclusive[node * self.width..][..self.width]
    }

    /// Cost of a node's own body with its loops and lines, without calls and inlined calls; one value per metric.
    pub fn self_cost(&self, node: usize) -> &[u64] {
        &self.own_body[node * self.width..][..self.width]
    }

    /// What a metric has counted of a node itself and not of what it calls. In the callers view everything is the
    /// procedure's of the first level.
    pub fn own_count(&self, node: usize, metric: usize) -> u64 {
        let row = match self.kind {
            ViewKind::Callers => self.inclusive(node),
            ViewKind::Context | ViewKind::Flat => self.exclusive(node),
        };
        row.get(metric).copied().unwrap_or(0)
    }

    /// The nodes directly below, most costly first.
    pub fn children(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        let end = self.nodes[node].end;
        let next = move |child: usize| (child < end).then_some(child);
        std::iter::successors(next(node + 1), move |&child| next(self.nodes[child].end))
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
struct Rest {
    count: u64,
    inclusive: Vec<u64>,
    own_body: Vec<u64>,
}

/// Puts `asked` in order and prunes it.
pub(super) fn emit(profile: &Profile, query: &Query, asked: Counted, costs: Costs) -> View {
    let tree = &asked.tree;
    let width = tree.width();
    let weight = |node: NodeId| if width == 0 { 0 } else { costs.inclusive[node.index() * width] };
    let name = |node: NodeId| match tree.scope(node) {
        scope if scope.kind == ScopeKind::Truncated => TRUNCATED,
        scope => profile.strings.get(scope.name),
    };
    let threshold = query.min_share * weight(NodeId::ROOT) as f64;
    let max_depth = query.max_depth.unwrap_or(usize::MAX);
    let kept = |node: NodeId, depth: usize| {
        let cheap = (weight(node) as f64) < threshold;
        depth < max_depth && !cheap
    };
    let prunes = query.min_share > 0.0 || query.max_depth.is_some();
    let below = if prunes { costs.own_body_below(tree) } else { Vec::new() };

    let mut view = View {
        kind: query.view,
        nodes: Vec::with_capacity(tree.len()),
        width,
        inclusive: Vec::with_capacity(tree.len() * width),
        exclusive: Vec::with_capacity(tree.len() * width),
        own_body: Vec::with_capacity(tree.len() * width),
    };
    let mut stack = vec![(Next::Node(NodeId::ROOT), None, 0)];
    let mut children = Vec::new();
    while let Some((next, parent, depth)) = stack.pop() {
        let here = view.nodes.len();
        let node = match next {
            Next::Node(node) => node,
            Next::Rest(rest) => {
                let (scope, contexts) = pruned(rest.count);
                view.push(parent, (scope, contexts, 1), [&rest.inclusive, &rest.inclusive, &rest.own_body]);
                continue;
            }
        };
        let cells = node.index() * width..(node.index() + 1) * width;
        let rows = [&costs.inclusive, &costs.exclusive, &costs.own_body].map(|rows| &rows[cells.clone()]);
        let contexts = asked.contexts[node.index()];
        match tree.scope(node) {
            scope if scope.kind == ScopeKind::Pruned => {
                let (scope, contexts) = pruned(u64::from(contexts));
                view.push(parent, (scope, contexts, 1), rows);
            }
            scope => view.push(parent, (*scope, contexts, asked.recursion[node.index()]), rows),
        }

        let mut rest: Option<Rest> = None;
        children.clear();
        for child in tree.children(node) {
            if kept(child, depth) {
                children.push(child);
                continue;
            }
            let rest =
                rest.get_or_insert_with(|| Rest { count: 0, inclusive: vec![0; width], own_body: vec![0; width] });
            let cells = child.index() * width..(child.index() + 1) * width;
            rest.count += match tree.scope(child).kind {
                ScopeKind::Pruned => u64::from(asked.contexts[child.index()]),
                _ => 1,
            };
            // In the flat view one sample may be in the inclusive cost of several siblings: add up self cost instead.
            let inclusive = if query.view == ViewKind::Flat { &below } else { &costs.inclusive };
            accumulate(tree.rules(), &mut rest.inclusive, &inclusive[cells.clone()]);
            accumulate(tree.rules(), &mut rest.own_body, &below[cells]);
        }
        children.sort_by(|&a, &b| weight(b).cmp(&weight(a)).then_with(|| name(a).cmp(name(b))));
        let rest_weight = rest.as_ref().and_then(|rest| rest.inclusive.first().copied()).unwrap_or(0);
        let (costlier, cheaper) = children.split_at(children.partition_point(|&child| weight(child) >= rest_weight));
        // The last on the stack comes first.
        let below_here = |child: &NodeId| (Next::Node(*child), Some(here), depth + 1);
        stack.extend(cheaper.iter().rev().map(below_here));
        stack.extend(rest.map(|rest| (Next::Rest(rest), Some(here), depth + 1)));
        stack.extend(costlier.iter().rev().map(below_here));
    }
    view.close(&profile.metrics);
    view
}

/// The scope of `count` scopes that were left out, and how many contexts it adds up.
fn pruned(count: u64) -> (Scope, u32) {
    let scope = Scope { discriminator: count, ..Scope::new(ScopeKind::Pruned, Name::EMPTY) };
    (scope, u32::try_from(count).unwrap_or(u32::MAX))
}

impl View {
    fn push(&mut self, parent: Option<usize>, node: (Scope, u32, u32), rows: [&[u64]; 3]) {
        let (scope, contexts, recursion) = node;
        self.nodes.push(ViewNode { parent, scope, contexts, recursion, end: self.nodes.len() + 1 });
        let [inclusive, exclusive, own_body] = rows;
        self.inclusive.extend_from_slice(inclusive);
        self.exclusive.extend_from_slice(exclusive);
        self.own_body.extend_from_slice(own_body);
    }

    /// Once all nodes are there: says where each one's descendants end, and computes derived metrics.
    fn close(&mut self, metrics: &[Metric]) {
        for node in (1..self.nodes.len()).rev() {
            if let Some(parent) = self.nodes[node].parent {
                self.nodes[parent].end = self.nodes[parent].end.max(self.nodes[node].end);
            }
        }
        for rows in [&mut self.inclusive, &mut self.exclusive, &mut self.own_body] {
            fill_derived(metrics, rows);
        }
        for per_own in PerOwn::all(metrics) {
            for node in (0..self.nodes.len()).filter(|&node| self.nodes[node].scope.kind.is_frame()) {
                let count = self.own_count(node, per_own.count);
                let cells = node * self.width..(node + 1) * self.width;
                for rows in [&mut self.inclusive, &mut self.exclusive, &mut self.own_body] {
                    per_own.fill(&mut rows[cells.clone()], count);
                }
            }
        }
    }
}
