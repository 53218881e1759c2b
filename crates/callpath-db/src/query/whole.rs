//! What views of a whole tree are made of, so that a database can keep it: the tree as views show it, without lines, and with
//! recursion collapsed; costs by code and by procedure; and which nodes have the costs that the callers view begins with.
//!
//! All of it is what [`Profile::view`] and [`Profile::procedures`] would find, by the same code.

use rustc_hash::FxHashMap;

use super::question::{Query, Recursion};
use super::reshape::{Counted, is_recursive, reshape};
use super::{callers, flat, procedures};
use crate::rows::{Moves, Rows};
use crate::{Inlined, NodeId, Profile, Scope, ScopeKind, Tree};

/// The scopes that are no rows of a report, where it shows all processes and threads as one.
pub(crate) const FOLDED: [ScopeKind; 5] =
    [ScopeKind::Line, ScopeKind::SystemCall, ScopeKind::Rank, ScopeKind::Process, ScopeKind::Thread];

/// Whether a query is about the whole of all processes and threads, and folds neither more nor less than [`FOLDED`].
pub(crate) fn is_of_whole(query: &Query) -> bool {
    let Query { process, thread, procedure, focus, ignore, hide, prune_from, fold, recursion, flatten, .. } = query;
    process.is_none()
        && thread.is_none()
        && procedure.is_none()
        && [focus, ignore, hide, prune_from].iter().all(|names| names.is_empty())
        && FOLDED.iter().all(|kind| fold.contains(kind))
        && fold.iter().all(|kind| FOLDED.contains(kind))
        && !matches!(recursion, Recursion::Suffix(_))
        && *flatten == 0
}

/// A tree as views show it.
pub(crate) struct Shown {
    pub(crate) tree: Tree,
    /// For each node how many activations it adds up on one path, at most.
    pub(crate) recursion: Vec<u32>,
}

/// A tree of contexts without what is folded. `None`: it has nothing of that.
pub(crate) fn folded(contexts: &Profile) -> Option<Shown> {
    let is_folded = |node: NodeId| FOLDED.contains(&contexts.tree.scope(node).kind);
    contexts.tree.nodes().any(is_folded).then(|| reshaped(contexts, false))
}

/// A folded tree with recursion collapsed. `None`: there is none.
pub(crate) fn collapsed(folded: &Profile) -> Option<Shown> {
    is_recursive(&folded.tree).then(|| reshaped(folded, true))
}

fn reshaped(profile: &Profile, collapse: bool) -> Shown {
    let query = Query { fold: FOLDED.to_vec(), ..Query::default() };
    // Nothing is asked for by a name that could be missing.
    match reshape(profile, &query, collapse, &[]) {
        Ok(Counted { tree, recursion, .. }) => Shown { tree, recursion },
        Err(_) => Shown { tree: profile.tree.clone(), recursion: vec![1; profile.tree.len()] },
    }
}

/// Scopes with costs.
pub(crate) struct Table {
    pub(crate) scopes: Vec<Scope>,
    /// Of each scope that around it; only of code. The root's is its own.
    pub(crate) parents: Vec<u32>,
    pub(crate) own: Rows,
    pub(crate) inclusive: Rows,
}

/// The flat view's tree of code, of a folded tree.
pub(crate) fn code(folded: &Tree) -> Table {
    let (Counted { tree, .. }, inclusive) = flat::code(folded);
    let scopes = tree.nodes().map(|node| *tree.scope(node)).collect();
    Table { scopes, parents: tree.parents(), own: tree.own().clone(), inclusive }
}

/// The procedures of a folded tree.
pub(crate) fn procedures(folded: &Tree, inlined: Inlined) -> Table {
    let procedures::Tally { scopes, self_cost, inclusive, .. } = procedures::tally(folded, inlined);
    Table { scopes, parents: Vec::new(), own: self_cost, inclusive }
}

/// The first level of the callers view.
pub(crate) struct FirstLevel {
    /// The first is the root, for what no other has.
    pub(crate) scopes: Vec<Scope>,
    pub(crate) totals: Rows,
    /// Of each node with a cost of its own the scope that has it: the scope's number and the node's, ascending by node.
    pub(crate) origins: Vec<(u32, u32)>,
}

/// The first level of the callers view of a tree.
pub(crate) fn first_level(tree: &Tree) -> FirstLevel {
    let mut level = Tree::with_rules(tree.own().rules());
    let owners = callers::owners(tree);
    let has_cost = tree.own().occupied();
    let mut of_owner: FxHashMap<u32, NodeId> = FxHashMap::default();
    let mut origins = Vec::new();
    let mut moves = Moves::new();
    for node in tree.nodes().filter(|node| has_cost[node.index()]) {
        let owner = owners[node.index()];
        let mut enter = || match owner {
            0 => NodeId::ROOT,
            owner => level.child(NodeId::ROOT, Scope { call_site: None, ..*tree.scope(NodeId::at(owner as usize)) }),
        };
        // Of most scopes each node is its own owner.
        let class = if owner as usize == node.index() { enter() } else { *of_owner.entry(owner).or_insert_with(enter) };
        origins.push((class.index() as u32, node.index() as u32));
        moves.push((node.index() as u32, class.index() as u32));
    }
    let mut totals = level.own().zeros_like(level.len());
    totals.take(tree.own(), &moves);
    FirstLevel { scopes: level.nodes().map(|node| *level.scope(node)).collect(), totals, origins }
}
