//! The first half of every query: selects processes and threads, merges equal ones, folds kinds of scopes.
//! It must not depend on which view will be built from the result.

use super::question::{Query, QueryError};
use crate::rows::Moves;
use crate::{CallSite, NodeId, Profile, Scope, ScopeKind, Tree};

/// A tree, and what each of its nodes stands for.
pub(super) struct Counted {
    pub(super) tree: Tree,
    /// For every node how many scopes of the profile's tree became this one.
    pub(super) contexts: Vec<u32>,
    /// For every node how many of these are active at once, at most.
    pub(super) recursion: Vec<u32>,
}

impl Counted {
    pub(super) fn new(like: &Tree) -> Self {
        Counted { tree: Tree::with_rules(like.own().rules()), contexts: vec![1], recursion: vec![1] }
    }

    /// [`Tree::child`], counting.
    pub(super) fn child(&mut self, parent: NodeId, scope: Scope) -> NodeId {
        let node = self.tree.child(parent, scope);
        if node.index() == self.contexts.len() {
            self.contexts.push(0);
            self.recursion.push(1);
        }
        self.contexts[node.index()] += 1;
        node
    }
}

/// The tree that `query` is about. Nodes of the kinds in `query.fold` and `fold` vanish: their own cost goes to the
/// node above, their children move there, and equal siblings merge. A call that moves up from a line is called from
/// there: the line becomes its call site (unknown again where several merge).
pub(super) fn reshape(
    profile: &Profile,
    query: &Query,
    collapse: bool,
    fold: &[ScopeKind],
) -> Result<Counted, QueryError> {
    let from = &profile.tree;
    let selected = select(profile, query)?;
    let folded = |kind| kind != ScopeKind::Root && (query.fold.contains(&kind) || fold.contains(&kind));
    let mut activations = collapse.then(|| Activations::of(from));
    let mut to = Counted::new(from);
    let mut here = vec![NodeId::ROOT; from.len()];
    let mut order = vec![NodeId::ROOT];
    from.walk(|node, entering| {
        let Some(parent) = from.parent(node) else {
            return;
        };
        let mut scope = *from.scope(node);
        let skipped = folded(scope.kind) || selected[node.index()] == Selected::No;
        let activations = activations.as_mut().filter(|_| scope.kind == ScopeKind::Procedure && !skipped);
        if !entering {
            return activations.map_or((), |activations| activations.leave(node));
        }
        let above = here[parent.index()];
        if let Some((outermost, depth)) = activations.as_ref().and_then(|activations| activations.outermost(node)) {
            here[node.index()] = outermost;
            to.tree.agree(outermost, &scope);
            to.contexts[outermost.index()] += 1;
            to.recursion[outermost.index()] = to.recursion[outermost.index()].max(depth + 1);
        } else if skipped {
            here[node.index()] = above;
        } else {
            let line = from.scope(parent);
            if line.kind == ScopeKind::Line && folded(ScopeKind::Line) && scope.kind.is_frame() {
                scope.call_site = line.file.zip(line.line).map(|(file, line)| CallSite { file, line });
            }
            match scope.kind {
                ScopeKind::Thread if !query.per_thread => scope.discriminator = 0,
                ScopeKind::Process if query.merge_processes => scope.discriminator = 0,
                _ => {}
            }
            here[node.index()] = to.child(above, scope);
        }
        if let Some(activations) = activations {
            activations.enter(node, here[node.index()]);
        }
        order.push(node);
    });
    // In the order of the walk.
    let whole = order.iter().filter(|node| selected[node.index()] == Selected::Whole);
    let moves: Moves = whole.map(|node| (node.index() as u32, here[node.index()].index() as u32)).collect();
    to.tree.take(from.own(), &moves);
    Ok(to)
}

/// The procedures that are active at one point of a walk over a tree.
struct Activations {
    /// For every node of the tree the procedure that it is: equal scopes have equal numbers.
    procedures: Vec<NodeId>,
    /// For every procedure its outermost activation, and how many there are.
    active: Vec<(NodeId, u32)>,
}

impl Activations {
    fn of(tree: &Tree) -> Self {
        let mut procedures = Tree::with_rules(Vec::new());
        let number = |node| match tree.scope(node) {
            scope if scope.kind == ScopeKind::Procedure => procedures.child(NodeId::ROOT, *scope),
            _ => NodeId::ROOT,
        };
        let numbers = tree.nodes().map(number).collect();
        Activations { procedures: numbers, active: vec![(NodeId::ROOT, 0); procedures.len()] }
    }

    fn outermost(&self, node: NodeId) -> Option<(NodeId, u32)> {
        let active = self.active[self.procedures[node.index()].index()];
        (active.1 > 0).then_some(active)
    }

    fn enter(&mut self, node: NodeId, here: NodeId) {
        let active = &mut self.active[self.procedures[node.index()].index()];
        *active = (if active.1 == 0 { here } else { active.0 }, active.1 + 1);
    }

    fn leave(&mut self, node: NodeId) {
        self.active[self.procedures[node.index()].index()].1 -= 1;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Selected {
    /// Neither the node nor what is below it.
    No,
    /// The node as the way to something below it, without its own cost.
    Way,
    /// The node and its own cost.
    Whole,
}

/// For every node whether it is asked for.
fn select(profile: &Profile, query: &Query) -> Result<Vec<Selected>, QueryError> {
    let tree = &profile.tree;
    if query.process.is_none() && query.thread.is_none() {
        return Ok(vec![Selected::Whole; tree.len()]);
    }
    let asked = |wanted: &Option<String>, node: NodeId| {
        wanted.as_ref().is_none_or(|wanted| {
            let scope = tree.scope(node);
            profile.strings.get(scope.name) == wanted || scope.discriminator.to_string() == *wanted
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
        return Err(QueryError::NoSuchProcess { wanted, there: there(profile, ScopeKind::Process, |_| true) });
    }
    if let Some(wanted) = query.thread.clone().filter(|_| !found.1) {
        let there = there(profile, ScopeKind::Thread, |node| inside[node.index()].0);
        return Err(QueryError::NoSuchThread { wanted, there });
    }
    let mut selected = vec![Selected::No; tree.len()];
    for node in tree.nodes() {
        if inside[node.index()] != (true, true) {
            continue;
        }
        selected[node.index()] = Selected::Whole;
        let mut above = tree.parent(node);
        while let Some(way) = above.filter(|way| selected[way.index()] == Selected::No) {
            selected[way.index()] = Selected::Way;
            above = tree.parent(way);
        }
    }
    Ok(selected)
}

/// The scopes of a kind, as `name (id)`.
fn there(profile: &Profile, kind: ScopeKind, within: impl Fn(NodeId) -> bool) -> Vec<String> {
    let tree = &profile.tree;
    let those = tree.nodes().filter(|&node| tree.scope(node).kind == kind && within(node));
    let scopes = those.map(|node| tree.scope(node));
    scopes.map(|scope| format!("{} ({})", profile.strings.get(scope.name), scope.discriminator)).collect()
}
