//! Inclusive, exclusive and self cost of every node of a tree.

use crate::rows::Rows;
use crate::{ScopeKind, Tree};

/// Tables of costs, a row per node of a tree and in its order.
pub(crate) struct Costs {
    /// The node and everything below it.
    pub(super) inclusive: Rows,
    /// The node and nothing below it.
    pub(super) exclusive: Rows,
    /// The node with the loops and lines in its body.
    pub(super) own_body: Rows,
}

impl Costs {
    /// The costs of the context view.
    pub(super) fn of(tree: &Tree) -> Self {
        let parents = tree.parents();
        let is_body: Vec<bool> = tree.nodes().map(|node| tree.scope(node).kind.is_body()).collect();
        let own_body = tree.own().mapped(|rule, values| {
            for node in (1..values.len()).rev().filter(|node| is_body[*node]) {
                let parent = parents[node] as usize;
                values[parent] = rule.combine(values[parent], values[node]);
            }
        });
        Costs { inclusive: sum_up(tree, tree.own()), exclusive: tree.own().clone(), own_body }
    }

    /// For every node the self cost of it and of all below, each counted once: not again as a part of a body, file or
    /// module.
    pub(super) fn own_body_below(&self, tree: &Tree) -> Rows {
        let is_again = |kind: ScopeKind| kind.is_body() || matches!(kind, ScopeKind::Module | ScopeKind::File);
        let again: Vec<bool> = tree.nodes().map(|node| is_again(tree.scope(node).kind)).collect();
        let once = self.own_body.mapped(|_, values| {
            values.iter_mut().zip(&again).filter(|(_, again)| **again).for_each(|(value, _)| *value = 0);
        });
        sum_up(tree, &once)
    }
}

/// Adds to every row those of all nodes below.
pub(super) fn sum_up(tree: &Tree, rows: &Rows) -> Rows {
    let parents = tree.parents();
    rows.mapped(|rule, values| {
        for node in (1..values.len()).rev() {
            let parent = parents[node] as usize;
            values[parent] = rule.combine(values[parent], values[node]);
        }
    })
}
