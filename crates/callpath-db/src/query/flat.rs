//! The flat view: cost by the code it is in, whoever called it.
//! Files and modules are names here, nothing more.

use super::costs::Costs;
use super::reshape::Counted;
use crate::rows::{Moves, Rows};
use crate::{Name, NodeId, Scope, ScopeKind, Tree};

/// Module, file where known, procedure; inside it the loops, inlined calls, lines and system calls as they are nested. A partial root
/// or thread with a cost of its own stands beside the modules.
///
/// Inclusive counts outermost activations only: a node counts for its code unless the same code is active above it.
///
/// The outermost `flattened` levels vanish.
pub(super) fn flat(asked: &Tree, flattened: usize) -> (Counted, Costs) {
    let (to, inclusive) = code(asked);
    let costs = costs(&to.tree, inclusive);
    if flattened == 0 { (to, costs) } else { flatten(&to, &costs, flattened) }
}

/// The tree of code with exclusive costs, and inclusive ones.
pub(super) fn code(from: &Tree) -> (Counted, Rows) {
    let (to, place) = lay_out(from);
    let total = super::costs::sum_up(from, from.own());
    let mut moves = Moves::new();
    walk_active(from, &place, &to.tree, |node, code| moves.push((node.index() as u32, code.index() as u32)));
    let mut inclusive = total.zeros_like(to.tree.len());
    inclusive.take(&total, &moves);
    (to, inclusive)
}

/// All costs of a tree of code.
pub(super) fn costs(code: &Tree, inclusive: Rows) -> Costs {
    let mut costs = Costs { inclusive, ..Costs::of(code) };
    // Of a module or file: what is in it.
    let below = costs.own_body_below(code);
    let holds_code = |node: &NodeId| matches!(code.scope(*node).kind, ScopeKind::Module | ScopeKind::File);
    let holders: Vec<usize> = code.nodes().filter(holds_code).map(NodeId::index).collect();
    costs.own_body.replace(&below, &holders);
    costs
}

/// The same without the outermost `levels` below the root: what is in them stands on the first level. A scope of these
/// levels in which nothing is stays, as does one with a cost besides what is in it, with that cost alone.
fn flatten(from: &Counted, costs: &Costs, levels: usize) -> (Counted, Costs) {
    let tree = &from.tree;
    let mut to = Counted::new(tree);
    let (mut kept, mut emptied) = (Moves::new(), Moves::new());
    // For each node its level, and the module that it is in.
    let mut outer: Vec<(usize, Option<Name>)> = Vec::with_capacity(tree.len());
    let mut here: Vec<NodeId> = Vec::with_capacity(tree.len());
    for node in tree.nodes() {
        let above = tree.parent(node).map(NodeId::index);
        let (above_level, above_module) = above.map_or((0, None), |above| outer[above]);
        let mut scope = *tree.scope(node);
        // Where no file is known, procedures are in the module.
        let level = match scope.kind {
            ScopeKind::Root => 0,
            ScopeKind::Module => 1,
            ScopeKind::File => 2,
            _ => (above_level + 1).max(3),
        };
        scope.module = scope.module.or(above_module);
        outer.push((level, scope.module));
        let parent = above.map_or(NodeId::ROOT, |above| here[above]);
        let is_flattened = (1..=levels).contains(&level);
        let is_leaf = tree.first_child(node).is_none();
        if is_flattened && !is_leaf && tree.values(node).is_zero() {
            here.push(NodeId::ROOT);
            continue;
        }
        let place = match node {
            NodeId::ROOT => NodeId::ROOT,
            // Equal scopes of different places stay apart.
            _ => to.append(parent, scope),
        };
        to.contexts[place.index()] = from.contexts[node.index()];
        to.recursion[place.index()] = from.recursion[node.index()];
        let moved = (node.index() as u32, place.index() as u32);
        if is_flattened && !is_leaf {
            emptied.push(moved)
        } else {
            kept.push(moved)
        }
        here.push(if is_flattened { NodeId::ROOT } else { place });
    }
    let table = |of_kept: &Rows, of_emptied: &Rows| {
        let mut rows = of_kept.zeros_like(to.tree.len());
        rows.take(of_kept, &kept);
        rows.take(of_emptied, &emptied);
        rows
    };
    let costs = Costs {
        inclusive: table(&costs.inclusive, &costs.exclusive),
        exclusive: table(&costs.exclusive, &costs.exclusive),
        own_body: table(&costs.own_body, &costs.exclusive),
    };
    (to, costs)
}

/// The flat tree with exclusive costs, and for each node of the calling context tree its place there (the root where it
/// has none).
fn lay_out(from: &Tree) -> (Counted, Vec<NodeId>) {
    let mut to = Counted::new(from);
    let mut place: Vec<NodeId> = Vec::with_capacity(from.len());
    for node in from.nodes() {
        let scope = *from.scope(node);
        let above = from.parent(node).map_or(NodeId::ROOT, |parent| place[parent.index()]);
        let here = match scope.kind {
            ScopeKind::Loop | ScopeKind::Line | ScopeKind::Inlined | ScopeKind::SystemCall
                if from.parent(node).is_some() =>
            {
                to.child(above, scope)
            }
            ScopeKind::Procedure => {
                let mut module = Scope::new(ScopeKind::Module, scope.module.unwrap_or(Name::EMPTY));
                module.module = scope.module;
                let mut above = to.child(NodeId::ROOT, module);
                if let Some(file) = scope.file {
                    let file = Scope { module: scope.module, file: Some(file), ..Scope::new(ScopeKind::File, file) };
                    above = to.child(above, file);
                }
                to.child(above, Scope { call_site: None, ..scope })
            }
            // No code: a place of its own only for a cost of its own.
            _ if node != NodeId::ROOT && !from.values(node).is_zero() => to.child(NodeId::ROOT, scope),
            _ => NodeId::ROOT,
        };
        place.push(here);
    }
    let moves: Moves = place.iter().enumerate().map(|(node, here)| (node as u32, here.index() as u32)).collect();
    to.tree.take(from.own(), &moves);
    (to, place)
}

/// Calls `outermost(node, code)` for every node and every piece of code that becomes active with it: its place in
/// `codes` and all above that.
fn walk_active(tree: &Tree, place: &[NodeId], codes: &Tree, mut outermost: impl FnMut(NodeId, NodeId)) {
    let mut active = vec![0u32; codes.len()];
    tree.walk(|node, entering| {
        let mut code = Some(place[node.index()]);
        // What the parent is in is active already, and all around it.
        let around = tree.parent(node).map(|parent| place[parent.index()]);
        while let Some(here) = code.filter(|_| code != around) {
            let depth = &mut active[here.index()];
            if entering {
                if *depth == 0 {
                    outermost(node, here);
                }
                *depth += 1;
            } else {
                *depth -= 1;
            }
            code = codes.parent(here);
        }
    });
}
