//! Which nodes of a profile's tree a query is about: processes and threads, paths through procedures, frames that are
//! hidden.

use super::question::{Query, QueryError, ViewKind};
use crate::pattern::{matches_glob, meant, nearest};
use crate::{Name, NodeId, ScopeKind, Strings, Tree};
use rustc_hash::FxHashSet;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Selected {
    /// Neither the node nor what is below it.
    No,
    /// The node as the way to something below it, without its own cost.
    Way,
    /// The node and its own cost.
    Whole,
}

/// What is asked for.
pub(super) struct Chosen {
    /// By node.
    pub(super) selected: Vec<Selected>,
    /// By node, whether it is a frame that is hidden, or in the body of one; empty where none is.
    hidden: Vec<bool>,
    /// By node, whether a procedure that everything is seen from makes it vanish; empty where there is none.
    beyond: Vec<bool>,
}

impl Chosen {
    /// Whether the node gives its cost and its children to the node above.
    pub(super) fn vanishes(&self, node: NodeId) -> bool {
        self.is_hidden(node) || self.beyond.get(node.index()).is_some_and(|beyond| *beyond)
    }

    /// Whether the node is a frame that is hidden, or in the body of one.
    pub(super) fn is_hidden(&self, node: NodeId) -> bool {
        self.hidden.get(node.index()).is_some_and(|hidden| *hidden)
    }
}

/// For every node whether it is asked for.
pub(super) fn select(strings: &Strings, tree: &Tree, query: &Query) -> Result<Chosen, QueryError> {
    let mut inside = inside(strings, tree, query)?;
    if !query.ignore.is_empty() {
        let ignored = below(tree, &frames_meant(strings, tree, &query.ignore, &inside)?);
        inside.iter_mut().zip(ignored).for_each(|(inside, ignored)| *inside &= !ignored);
    }
    let mut hidden = Vec::new();
    if !query.hide.is_empty() {
        hidden = frames_meant(strings, tree, &query.hide, &inside)?;
        for node in tree.nodes().filter(|&node| tree.scope(node).kind.is_body()) {
            hidden[node.index()] = tree.parent(node).is_some_and(|around| hidden[around.index()]);
        }
    }
    if !query.focus.is_empty() {
        let focused = below(tree, &frames_meant(strings, tree, &query.focus, &inside)?);
        inside.iter_mut().zip(focused).for_each(|(inside, focused)| *inside &= focused);
    }
    let mut beyond = Vec::new();
    if let Some(wanted) = &query.procedure {
        let frames = frames_meant(strings, tree, std::slice::from_ref(wanted), &inside)?;
        let active = below(tree, &frames);
        inside.iter_mut().zip(&active).for_each(|(inside, active)| *inside &= active);
        // Its callers see what it costs with all that it calls; its callees see nothing outside.
        let vanishes = |node: NodeId| match query.view {
            ViewKind::Callers => tree.parent(node).is_some_and(|parent| active[parent.index()]),
            ViewKind::Context | ViewKind::Flat => !active[node.index()],
        };
        beyond = tree.nodes().map(vanishes).collect();
    }
    let mut selected = vec![Selected::No; tree.len()];
    for node in tree.nodes() {
        if !inside[node.index()] {
            continue;
        }
        selected[node.index()] = Selected::Whole;
        let mut above = tree.parent(node);
        while let Some(way) = above.filter(|way| selected[way.index()] == Selected::No) {
            selected[way.index()] = Selected::Way;
            above = tree.parent(way);
        }
    }
    Ok(Chosen { selected, hidden, beyond })
}

/// For each node whether it is inside a process and a thread asked for.
pub(super) fn inside(strings: &Strings, tree: &Tree, query: &Query) -> Result<Vec<bool>, QueryError> {
    if query.process.is_none() && query.thread.is_none() {
        return Ok(vec![true; tree.len()]);
    }
    let asked = |wanted: &Option<String>, node: NodeId| {
        wanted.as_ref().is_none_or(|wanted| {
            let scope = tree.scope(node);
            scope.unit_id().to_string() == *wanted || matches_glob(wanted, strings.get(scope.name))
        })
    };
    // Whether the node is inside a process asked for, and a thread asked for, where any is.
    let mut inside: Vec<(bool, bool)> = Vec::with_capacity(tree.len());
    let mut found = (query.process.is_none(), query.thread.is_none());
    for node in tree.nodes() {
        let (mut process, mut thread) = match tree.parent(node) {
            None => (query.process.is_none(), query.thread.is_none()),
            Some(parent) => inside[parent.index()],
        };
        match tree.scope(node).kind {
            ScopeKind::Process => process = asked(&query.process, node),
            ScopeKind::Thread => thread = asked(&query.thread, node),
            _ => {}
        }
        inside.push((process, thread));
        found.0 |= process;
        found.1 |= process && thread;
    }
    if let Some(wanted) = query.process.clone().filter(|_| !found.0) {
        return Err(QueryError::NoSuchProcess { wanted, there: there(strings, tree, ScopeKind::Process, |_| true) });
    }
    if let Some(wanted) = query.thread.clone().filter(|_| !found.1) {
        let there = there(strings, tree, ScopeKind::Thread, |node| inside[node.index()].0);
        return Err(QueryError::NoSuchThread { wanted, there });
    }
    Ok(inside.into_iter().map(|inside| inside == (true, true)).collect())
}

/// The scopes of a kind, as `name (id)`.
fn there(strings: &Strings, tree: &Tree, kind: ScopeKind, within: impl Fn(NodeId) -> bool) -> Vec<String> {
    let those = tree.nodes().filter(|&node| tree.scope(node).kind == kind && within(node));
    let scopes = those.map(|node| tree.scope(node));
    scopes.map(|scope| format!("{} ({})", strings.get(scope.name), scope.unit_id())).collect()
}

/// For each node whether it is a frame of a procedure that one of `wanted` means, among those `inside`.
fn frames_meant(strings: &Strings, tree: &Tree, wanted: &[String], inside: &[bool]) -> Result<Vec<bool>, QueryError> {
    let frames = || tree.nodes().filter(|node| inside[node.index()] && tree.scope(*node).kind.is_frame());
    let of_frames: FxHashSet<Name> = frames().map(|node| tree.scope(node).name).collect();
    // Procedures without a name are called by their module and address.
    let mut names: Vec<&str> = of_frames.iter().map(|name| strings.get(*name)).collect();
    let address = |node: NodeId| {
        let scope = tree.scope(node);
        let unnamed = scope.name == Name::EMPTY;
        let module = scope.module.filter(|_| unnamed)?;
        Some(format!("{}+{:#x}", strings.get(module), scope.address?))
    };
    let addresses: FxHashSet<String> = match of_frames.contains(&Name::EMPTY) {
        true => frames().filter_map(address).collect(),
        false => FxHashSet::default(),
    };
    names.extend(addresses.iter().map(String::as_str));
    names.retain(|name| !name.is_empty());
    let mut found: FxHashSet<&str> = FxHashSet::default();
    for wanted in wanted {
        let those = meant(wanted, &names);
        if those.is_empty() {
            return Err(QueryError::NoSuchProcedure { wanted: wanted.clone(), near: nearest(wanted, names) });
        }
        found.extend(those);
    }
    let found_names: FxHashSet<Name> =
        of_frames.iter().copied().filter(|name| found.contains(strings.get(*name))).collect();
    let mut those = vec![false; tree.len()];
    for node in frames() {
        let name = tree.scope(node).name;
        those[node.index()] = found_names.contains(&name)
            || name == Name::EMPTY && address(node).is_some_and(|address| found.contains(address.as_str()));
    }
    Ok(those)
}

/// For each node whether it or one above it is among `those`.
fn below(tree: &Tree, those: &[bool]) -> Vec<bool> {
    let mut below: Vec<bool> = Vec::with_capacity(those.len());
    for node in tree.nodes() {
        below.push(those[node.index()] || tree.parent(node).is_some_and(|parent| below[parent.index()]));
    }
    below
}
