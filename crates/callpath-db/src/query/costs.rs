//! Inclusive, exclusive and self cost of every node of a tree.
//! Refuses to know views, names and order.

use callpath_schema::Rule;

use crate::metric::accumulate;
use crate::{ScopeKind, Tree};

/// Rows of values, one per node of a tree and in its order.
pub(super) struct Costs {
    /// The node and everything below it.
    pub(super) inclusive: Vec<u64>,
    /// The node and nothing below it.
    pub(super) exclusive: Vec<u64>,
    /// The node with the loops and lines in its body.
    pub(super) own_body: Vec<u64>,
}

impl Costs {
    /// The costs of the context view.
    pub(super) fn of(tree: &Tree) -> Self {
        let exclusive = tree.own().to_vec();
        let mut own_body = exclusive.clone();
        for node in tree.nodes().rev().filter(|&node| tree.scope(node).kind.is_body()) {
            if let Some(parent) = tree.parent(node) {
                add_row(tree.rules(), &mut own_body, parent.index(), node.index());
            }
        }
        Costs { inclusive: sum_up(tree, exclusive.clone()), exclusive, own_body }
    }

    /// For every node the self cost of it and of all below, each counted once: not again as a part of a body, file or
    /// module.
    pub(super) fn own_body_below(&self, tree: &Tree) -> Vec<u64> {
        let width = tree.width();
        let mut rows = self.own_body.clone();
        for node in tree.nodes() {
            let kind = tree.scope(node).kind;
            if kind.is_body() || matches!(kind, ScopeKind::Module | ScopeKind::File) {
                rows[node.index() * width..][..width].fill(0);
            }
        }
        sum_up(tree, rows)
    }
}

/// Adds to every row those of all nodes below.
pub(super) fn sum_up(tree: &Tree, mut rows: Vec<u64>) -> Vec<u64> {
    for node in tree.nodes().rev() {
        if let Some(parent) = tree.parent(node) {
            add_row(tree.rules(), &mut rows, parent.index(), node.index());
        }
    }
    rows
}

/// Adds row `from` to row `into`, which comes before it.
fn add_row(rules: &[Rule], rows: &mut [u64], into: usize, from: usize) {
    let width = rules.len();
    let (head, tail) = rows.split_at_mut(from * width);
    accumulate(rules, &mut head[into * width..][..width], &tail[..width]);
}
