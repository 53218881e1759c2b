//! The callers view: from every procedure outwards, along the paths that led to it.
//! Refuses to know order and pruning beyond not growing what will be pruned anyway.

use super::costs::{Costs, sum_up};
use super::question::Query;
use super::reshape::Counted;
use crate::metric::accumulate;
use crate::{Name, NodeId, Scope, ScopeKind, Tree};

/// A path of n frames has n callers for each of its contexts with a cost of their own, so a tree of n frames in one
/// line may have n * n / 2 callers. What exceeds these bounds is shown as pruned, level by level.
const MAX_STEPS: usize = 40_000_000;
const MAX_NODES: usize = 4_000_000;

/// A cost on its way outwards.
#[derive(Clone, Copy)]
struct Climber {
    /// Where in the callers tree it is: a path of callers read from the inside.
    at: NodeId,
    /// The context that this node is on this path.
    context: NodeId,
    /// The context whose own cost it carries.
    origin: NodeId,
}

/// The callers tree of `asked`, which has no lines: who calls a procedure, and from within which loops. What a loop costs
/// itself is its procedure's. Grows by levels, as `query` prunes: a node under the
/// threshold has no callers.
pub(super) fn callers(asked: &Counted, query: &Query) -> (Counted, Costs) {
    let from = &asked.tree;
    let width = from.width();
    let costs = with_loops(from);
    let values = |node: NodeId| &costs[node.index() * width..][..width];
    let weigh = |origin: NodeId| values(origin).first().copied().unwrap_or(0);
    let total = sum_up(from, from.own().to_vec()).first().copied().unwrap_or(0);
    let threshold = query.min_share * total as f64;

    let mut to = Counted::new(from);
    to.tree.add(NodeId::ROOT, values(NodeId::ROOT));
    let mut own_body = values(NodeId::ROOT).to_vec();
    let mut level: Vec<Climber> = Vec::new();
    for origin in from.nodes().skip(1).filter(|&node| values(node).iter().any(|&value| value != 0)) {
        let scope = Scope { call_site: None, ..*from.scope(origin) };
        let at = to.child(NodeId::ROOT, scope);
        to.recursion[at.index()] = to.recursion[at.index()].max(asked.recursion[origin.index()]);
        own_body.resize(to.tree.len() * width, 0);
        accumulate(from.rules(), &mut own_body[at.index() * width..][..width], values(origin));
        level.push(Climber { at, context: origin, origin });
    }

    let (mut steps, mut depth) = (0, 1);
    while !level.is_empty() {
        steps += level.len();
        let full = steps > MAX_STEPS || to.tree.len() > MAX_NODES;
        // The nodes of this level are the last ones of the tree, in a row: weigh them.
        let first = level.iter().map(|climber| climber.at.index()).min().unwrap_or(0);
        let mut weights = vec![0u64; to.tree.len() - first];
        for climber in &level {
            let weight = &mut weights[climber.at.index() - first];
            *weight = from.rules().first().map_or(0, |rule| rule.combine(*weight, weigh(climber.origin)));
        }
        let grows = |at: NodeId| {
            let pruned = (weights[at.index() - first] as f64) < threshold;
            query.max_depth.is_none_or(|max| depth <= max) && !pruned
        };
        let mut next = Vec::new();
        let mut last: Option<(NodeId, Scope, NodeId)> = None;
        for Climber { at, context, origin } in level {
            let caller = from.parent(context).filter(|&caller| {
                let kind = from.scope(caller).kind;
                kind.is_frame() || matches!(kind, ScopeKind::Partial | ScopeKind::Truncated | ScopeKind::Loop)
            });
            match caller {
                Some(_) if full => {
                    // Its count is that of its contexts.
                    let rest = to.child(at, Scope::new(ScopeKind::Pruned, Name::EMPTY));
                    to.tree.add(rest, values(origin));
                }
                Some(caller) if grows(at) => {
                    let scope = Scope { call_site: from.scope(context).call_site, ..*from.scope(caller) };
                    let above = match last {
                        Some((same_at, same_scope, node)) if same_at == at && same_scope == scope => {
                            to.contexts[node.index()] += 1;
                            node
                        }
                        _ => to.child(at, scope),
                    };
                    to.recursion[above.index()] = to.recursion[above.index()].max(asked.recursion[caller.index()]);
                    last = Some((at, scope, above));
                    next.push(Climber { at: above, context: caller, origin });
                }
                _ => to.tree.add(at, values(origin)),
            }
        }
        level = next;
        depth += 1;
    }
    own_body.resize(to.tree.len() * width, 0);
    let exclusive = to.tree.own().to_vec();
    let costs = Costs { inclusive: sum_up(&to.tree, exclusive.clone()), exclusive, own_body };
    (to, costs)
}

/// The own cost of each node, that of its loops included; a loop has none.
fn with_loops(from: &Tree) -> Vec<u64> {
    let width = from.width();
    let mut costs = from.own().to_vec();
    // Parents come before their children.
    for node in from.nodes().rev() {
        let Some(around) = from.parent(node).filter(|_| from.scope(node).kind == ScopeKind::Loop) else { continue };
        let (before, here) = costs.split_at_mut(node.index() * width);
        let its = &mut here[..width];
        accumulate(from.rules(), &mut before[around.index() * width..][..width], its);
        its.fill(0);
    }
    costs
}
