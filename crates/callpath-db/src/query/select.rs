//! Which nodes of a profile's tree a query is about: processes and threads, paths through procedures, frames that are
//! hidden.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::meant::{Meant, MeantByQuery};
use super::question::{Query, QueryError, ViewKind};
use crate::pattern::{matches_glob, nearest};
use crate::{Name, NodeId, Profile, ScopeKind, Strings, Tree};

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
    /// By node, whether it is called by a procedure below which nothing is shown; empty where there is none.
    called: Vec<bool>,
}

impl Chosen {
    /// Whether the node gives its cost and its children to the node above.
    pub(super) fn vanishes(&self, node: NodeId) -> bool {
        let is = |those: &[bool]| those.get(node.index()).is_some_and(|is| *is);
        self.is_hidden(node) || is(&self.beyond) || is(&self.called)
    }

    /// Whether the node is a frame that is hidden, or in the body of one.
    pub(super) fn is_hidden(&self, node: NodeId) -> bool {
        self.hidden.get(node.index()).is_some_and(|hidden| *hidden)
    }
}

/// For every node of `tree`, the profile's or one that was made of it, whether it is asked for.
pub(super) fn select(profile: &Profile, tree: &Tree, query: &Query) -> Result<Chosen, QueryError> {
    let strings = &profile.strings;
    let mut inside = inside(strings, tree, query)?;
    let MeantByQuery { focus, ignore, hide, prune_from, procedure } = MeantByQuery::of(profile, query)?;
    if !ignore.is_empty() {
        let ignored = below(tree, &frames_meant(strings, tree, &ignore, &inside));
        inside.iter_mut().zip(ignored).for_each(|(inside, ignored)| *inside &= !ignored);
    }
    let mut hidden = Vec::new();
    if !hide.is_empty() {
        hidden = frames_meant(strings, tree, &hide, &inside);
        for node in tree.nodes().filter(|&node| tree.scope(node).kind.is_body()) {
            hidden[node.index()] = tree.parent(node).is_some_and(|around| hidden[around.index()]);
        }
    }
    let mut called = Vec::new();
    if !prune_from.is_empty() {
        let active = below(tree, &frames_meant(strings, tree, &prune_from, &inside));
        let is_call = |node: NodeId| {
            tree.scope(node).kind.is_frame() && tree.parent(node).is_some_and(|parent| active[parent.index()])
        };
        called = below(tree, &tree.nodes().map(is_call).collect::<Vec<bool>>());
    }
    if !focus.is_empty() {
        let focused = below(tree, &frames_meant(strings, tree, &focus, &inside));
        inside.iter_mut().zip(focused).for_each(|(inside, focused)| *inside &= focused);
    }
    let mut beyond = Vec::new();
    if !procedure.is_empty() {
        let frames = frames_meant(strings, tree, &procedure, &inside);
        let active = below(tree, &frames);
        inside.iter_mut().zip(&active).for_each(|(inside, active)| *inside &= active);
        // Its callers see what it costs with all that it calls; its callees see nothing outside.
        let vanishes = |node: NodeId| match query.view {
            ViewKind::Callers => tree.parent(node).is_some_and(|parent| active[parent.index()]),
            ViewKind::Context | ViewKind::Flat => !active[node.index()],
        };
        beyond = tree.nodes().map(vanishes).collect();
    }
    let is_by_path = !(focus.is_empty() && ignore.is_empty() && procedure.is_empty());
    let is_frame_left = || tree.nodes().any(|node| inside[node.index()] && tree.scope(node).kind.is_frame());
    if is_by_path && !is_frame_left() {
        return Err(QueryError::NoPathLeft { asked: asked(query) });
    }
    // Hiding all frames leaves nothing to look at.
    let mut frames = tree.nodes().filter(|&node| inside[node.index()] && tree.scope(node).kind.is_frame());
    if !hide.is_empty() && frames.all(|node| hidden[node.index()]) {
        return Err(QueryError::AllHidden);
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
    Ok(Chosen { selected, hidden, beyond, called })
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
    let of_kind = |kind| tree.nodes().filter(move |&node| tree.scope(node).kind == kind);
    if let Some(wanted) = query.process.clone().filter(|_| !found.0) {
        let there = there(strings, tree, &wanted, of_kind(ScopeKind::Process));
        let glob = glob(strings, tree, &wanted, of_kind(ScopeKind::Process));
        return Err(QueryError::NoSuchProcess { wanted, there, glob });
    }
    if let Some(wanted) = query.thread.clone().filter(|_| !found.1) {
        let threads = || of_kind(ScopeKind::Thread).filter(|node| inside[node.index()].0);
        let there = there(strings, tree, &wanted, threads());
        let glob = glob(strings, tree, &wanted, threads());
        return Err(QueryError::NoSuchThread { wanted, there, glob });
    }
    Ok(inside.into_iter().map(|inside| inside == (true, true)).collect())
}

/// What paths are asked for, in words.
fn asked(query: &Query) -> String {
    let quoted = |names: &[String]| names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" or ");
    let mut words = Vec::new();
    words.extend(query.process.as_ref().map(|name| format!("in process {name:?}")));
    words.extend(query.thread.as_ref().map(|name| format!("in thread {name:?}")));
    for (procedures, how) in [
        (query.procedure.as_slice(), "through"),
        (query.focus.as_slice(), "through"),
        (query.ignore.as_slice(), "not through"),
    ] {
        if !procedures.is_empty() {
            words.push(format!("{how} {}", quoted(procedures)));
        }
    }
    words.join(", ")
}

/// The scopes of a kind, each name once, the nearest to what was asked for first: `name (id)`, or `name ×12`.
fn there(strings: &Strings, tree: &Tree, wanted: &str, those: impl Iterator<Item = NodeId>) -> Vec<String> {
    let mut ids: FxHashMap<&str, BTreeSet<u64>> = FxHashMap::default();
    for node in those {
        let scope = tree.scope(node);
        ids.entry(strings.get(scope.name)).or_default().insert(scope.unit_id());
    }
    let mut names: Vec<&str> = ids.keys().copied().collect();
    names.sort_unstable();
    let near = nearest(wanted, names.iter().copied());
    let place = |name: &&str| near.iter().position(|near| near == name).unwrap_or(near.len());
    // A glob would have found those that have it as a part.
    names.sort_by_key(|name| (place(name), !name.contains(wanted)));
    let listed = names.into_iter().map(|name| match ids[name].len() {
        1 => format!("{name} ({})", ids[name].iter().next().copied().unwrap_or_default()),
        more => format!("{name} ×{more}"),
    });
    listed.collect()
}

/// A glob that finds names of which `wanted` is a part, if there are any.
fn glob(strings: &Strings, tree: &Tree, wanted: &str, mut those: impl Iterator<Item = NodeId>) -> Option<String> {
    let has_it = |node: NodeId| strings.get(tree.scope(node).name).contains(wanted);
    (!wanted.is_empty() && !wanted.contains(['*', '?']) && those.any(has_it)).then(|| format!("*{wanted}*"))
}

/// For each node whether it is a frame of a procedure that one of `meant` is, among those `inside`.
fn frames_meant(strings: &Strings, tree: &Tree, meant: &[Meant], inside: &[bool]) -> Vec<bool> {
    // What is inlined is in the module of the code around it.
    let mut modules: Vec<Option<Name>> = Vec::with_capacity(tree.len());
    let mut is_meant = |node: NodeId| {
        let scope = tree.scope(node);
        let around = tree.parent(node).and_then(|parent| modules[parent.index()]);
        let module = scope.module.or(around);
        modules.push(module);
        meant.iter().any(|meant| meant.is(strings, scope, module))
    };
    tree.nodes().map(|node| is_meant(node) && inside[node.index()]).collect()
}

/// For each node whether it or one above it is among `those`.
fn below(tree: &Tree, those: &[bool]) -> Vec<bool> {
    let mut below: Vec<bool> = Vec::with_capacity(those.len());
    for node in tree.nodes() {
        below.push(those[node.index()] || tree.parent(node).is_some_and(|parent| below[parent.index()]));
    }
    below
}
