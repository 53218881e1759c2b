//! Paths cut down to their innermost frames. What is left out is shown by a scope of its own, between
//! the root of a path and what is kept of it.

use super::question::QueryError;
use super::reshape::Counted;
use crate::rows::Moves;
use crate::{Name, NodeId, Scope, ScopeKind};

/// What is put together of paths, one after the other, ends somewhere: a tree has as many suffixes as nodes, and
/// each may be as long as the tree is deep.
const MAX_STEPS: usize = 40_000_000;
const MAX_NODES: usize = 4_000_000;

/// The same costs, each at the innermost `kept` procedures of its path, with
/// the inlined calls, loops and lines in them.
pub(super) fn suffix(asked: &Counted, kept: usize) -> Result<Counted, QueryError> {
    let from = &asked.tree;
    let mut to = Counted::new(from);
    // For each node the root of its path, and how many procedures there are from there.
    let mut beginnings: Vec<(NodeId, usize)> = Vec::with_capacity(from.len());
    // What a node of a path that is kept whole has become, if it has.
    let mut here: Vec<Option<NodeId>> = vec![None; from.len()];
    here[NodeId::ROOT.index()] = Some(NodeId::ROOT);
    let has_cost = from.own().occupied();
    let mut moves = Moves::new();
    let mut steps = 0;
    let mut path = Vec::new();
    for node in from.nodes() {
        let kind = from.scope(node).kind;
        let (root, depth) = match from.parent(node) {
            Some(parent) if !is_root(kind) => {
                let (root, above) = beginnings[parent.index()];
                (root, above + usize::from(kind == ScopeKind::Procedure))
            }
            _ => (node, 0),
        };
        beginnings.push((root, depth));
        if !has_cost[node.index()] && !is_root(kind) {
            continue;
        }
        let is_whole = depth <= kept;
        let mut at = node;
        let mut left = kept;
        path.clear();
        while !is_whole || here[at.index()].is_none() {
            path.push(at);
            left -= usize::from(!is_whole && from.scope(at).kind == ScopeKind::Procedure);
            match from.parent(at).filter(|_| left > 0) {
                Some(parent) => at = parent,
                None => break,
            }
        }
        steps += path.len();
        if steps > MAX_STEPS || to.tree.len() > MAX_NODES {
            return Err(QueryError::TooManyFrames { kept });
        }
        let mut place = match here[if is_whole { at } else { root }.index()] {
            Some(begin) if is_whole || from.scope(root).kind == ScopeKind::Truncated => begin,
            begin => to.child(begin.unwrap_or(NodeId::ROOT), Scope::new(ScopeKind::Truncated, Name::EMPTY)),
        };
        for &frame in path.iter().rev() {
            place = to.child(place, *from.scope(frame));
            if is_whole {
                here[frame.index()] = Some(place);
                to.contexts[place.index()] = asked.contexts[frame.index()];
            }
        }
        moves.push((node.index() as u32, place.index() as u32));
    }
    to.tree.take(from.own(), &moves);
    Ok(to)
}

/// Whether it is no part of a path, but what paths begin at.
fn is_root(kind: ScopeKind) -> bool {
    use ScopeKind::{Gap, Partial, Process, Rank, Root, Thread, Truncated};
    matches!(kind, Root | Process | Rank | Thread | Partial | Truncated | Gap)
}
