//! The callers view: from every procedure outwards, along the paths that led to it.
//! It neither orders nor prunes (`view` does); it only does not grow what will be pruned anyway.

use super::costs::{Costs, sum_up};
use super::question::Query;
use super::reshape::Counted;
use crate::rows::{Moves, Rows};
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

/// The callers tree of `asked`, which has no lines: the callers of a procedure, and the loops that
/// they call from. What a loop costs itself is its procedure's. Grows by levels, as `query` prunes: a
/// node under the threshold has no callers.
pub(super) fn callers(asked: &Counted, query: &Query) -> (Counted, Costs) {
    let from = &asked.tree;
    let costs = with_loops(from);
    let weigh = |origin: NodeId| costs.get(origin.index(), 0);
    let total = sum_up(from, from.own()).get(NodeId::ROOT.index(), 0);
    let threshold = query.min_share * total as f64;

    let mut to = Counted::new(from);
    let moved = |from: NodeId, to: NodeId| (from.index() as u32, to.index() as u32);
    // Where costs are exclusive, and where they are a procedure's own.
    let (mut exclusive, mut own) = (Moves::new(), Moves::new());
    exclusive.push(moved(NodeId::ROOT, NodeId::ROOT));
    own.push(moved(NodeId::ROOT, NodeId::ROOT));
    let mut level: Vec<Climber> = Vec::new();
    let has_cost = costs.occupied();
    for origin in from.nodes().skip(1).filter(|node| has_cost[node.index()]) {
        let scope = Scope { call_site: None, ..*from.scope(origin) };
        let at = to.child(NodeId::ROOT, scope);
        to.recursion[at.index()] = to.recursion[at.index()].max(asked.recursion[origin.index()]);
        own.push(moved(origin, at));
        level.push(Climber { at, context: origin, origin });
    }

    let first_rule = costs.rules().next();
    let (mut steps, mut depth) = (asked.origins_left_out, 1);
    while !level.is_empty() {
        steps += level.len();
        let full = steps > MAX_STEPS || to.tree.len() > MAX_NODES;
        // The nodes of this level are the last ones of the tree, in a row: weigh them.
        let first = level.iter().map(|climber| climber.at.index()).min().unwrap_or(0);
        let mut weights = vec![0u64; to.tree.len() - first];
        for climber in &level {
            let weight = &mut weights[climber.at.index() - first];
            *weight = first_rule.map_or(0, |rule| rule.combine(*weight, weigh(climber.origin)));
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
                    exclusive.push(moved(origin, rest));
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
                _ => exclusive.push(moved(origin, at)),
            }
        }
        level = next;
        depth += 1;
    }
    to.tree.take(&costs, &exclusive);
    let mut own_body = costs.zeros_like(to.tree.len());
    own_body.take(&costs, &own);
    let exclusive = to.tree.own().clone();
    let costs = Costs { inclusive: sum_up(&to.tree, &exclusive), exclusive, own_body };
    (to, costs)
}

/// The own cost of each node, that of its loops included; a loop has none.
fn with_loops(from: &Tree) -> Rows {
    let owners = owners(from);
    from.own().mapped(|rule, values| {
        for (node, owner) in owners.iter().enumerate().filter(|(node, owner)| *node != **owner as usize) {
            let its = std::mem::take(&mut values[node]);
            let owner = &mut values[*owner as usize];
            *owner = rule.combine(*owner, its);
        }
    })
}

/// For each node the one that has its cost on the first level: of a loop what it is in, else itself.
pub(super) fn owners(tree: &Tree) -> Vec<u32> {
    let mut owners: Vec<u32> = Vec::with_capacity(tree.len());
    for node in tree.nodes() {
        let owner = match tree.parent(node).filter(|_| tree.scope(node).kind == ScopeKind::Loop) {
            Some(around) => owners[around.index()],
            None => node.index() as u32,
        };
        owners.push(owner);
    }
    owners
}
