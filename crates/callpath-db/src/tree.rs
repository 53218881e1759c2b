//! The tree: scopes by parent, found or inserted in constant time, each with a cost of its own.

use rustc_hash::FxHashMap;

use callpath_schema::Rule;

use crate::rows::{Row, Rows};
use crate::{Metric, Name, Scope, ScopeKind};

/// A node of one [`Tree`]. A parent's id is always less than its children's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NodeId(u32);

impl NodeId {
    /// The root of every tree.
    pub const ROOT: NodeId = NodeId(0);

    /// From 0 at the root to `Tree::len() - 1`, in order of insertion.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn at(index: usize) -> Self {
        NodeId(u32::try_from(index).expect("memory runs out long before 2^32 nodes"))
    }
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Node {
    scope: Scope,
    parent: u32,
    first_child: u32,
    last_child: u32,
    next_sibling: u32,
}

impl Node {
    fn new(scope: Scope, parent: u32) -> Self {
        Node { scope, parent, first_child: NONE, last_child: NONE, next_sibling: NONE }
    }
}

/// A calling context tree. Its nodes are in order of insertion, so every parent comes before its children and every
/// traversal is a loop over the array, forwards or backwards.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    /// By node, the cost in the node itself and in no child.
    own: Rows,
    /// Hash of (parent, identity) -> node; a hash that is taken by another scope is followed by its successor.
    index: FxHashMap<u64, NodeId>,
}

impl Tree {
    /// A root without children, for costs by these metrics.
    pub fn new(metrics: &[Metric]) -> Self {
        Self::with_rules(metrics.iter().map(|metric| metric.rule()))
    }

    pub(crate) fn with_rules(rules: impl IntoIterator<Item = Rule>) -> Self {
        let root = Node::new(Scope::new(ScopeKind::Root, Name::EMPTY), NONE);
        let mut own = Rows::new(rules);
        own.push();
        Tree { own, nodes: vec![root], index: FxHashMap::default() }
    }

    /// The same tree with other costs.
    pub(crate) fn with_costs(self, own: Rows) -> Self {
        Tree { own, ..self }
    }

    /// The child of `parent` that is the same scope as `scope`, inserted where there is none. Of a found one, what
    /// `scope` says otherwise (call site, address, line) becomes unknown.
    pub fn child(&mut self, parent: NodeId, scope: Scope) -> NodeId {
        let mut hash = scope.hash_under(parent.0);
        while let Some(&found) = self.index.get(&hash) {
            let node = &mut self.nodes[found.index()];
            if node.parent == parent.0 && node.scope.same(&scope) {
                node.scope.agree(&scope);
                return found;
            }
            hash = hash.wrapping_add(1);
        }
        self.index.insert(hash, NodeId::at(self.nodes.len()));
        self.append(parent, scope)
    }

    /// Another child of `parent`, whether or not the same scope is there already; [`Tree::child`] does not find it.
    pub(crate) fn append(&mut self, parent: NodeId, scope: Scope) -> NodeId {
        let id = NodeId::at(self.nodes.len());
        self.nodes.push(Node::new(scope, parent.0));
        self.own.push();
        let above = &mut self.nodes[parent.index()];
        let last = std::mem::replace(&mut above.last_child, id.0);
        if last == NONE {
            above.first_child = id.0;
        } else {
            self.nodes[last as usize].next_sibling = id.0;
        }
        id
    }

    /// Combines `values`, one per metric, with the cost in `node` itself: sums add up, high-water marks rise.
    pub fn add(&mut self, node: NodeId, values: &[u64]) {
        debug_assert_eq!(values.len(), self.width(), "one value per metric");
        self.own.add_row(node.index(), values);
    }

    /// The same of one metric.
    pub(crate) fn add_one(&mut self, node: NodeId, metric: usize, value: u64) {
        self.own.add(node.index(), metric, value);
    }

    /// Combines costs of the nodes of a tree with the same metrics with those of nodes here, in order.
    pub(crate) fn take(&mut self, from: &Rows, moves: &[(u32, u32)]) {
        self.own.take(from, moves);
    }

    /// Gives `node` another name; [`Tree::child`] finds it by neither any more.
    pub(crate) fn rename(&mut self, node: NodeId, name: Name) {
        self.nodes[node.index()].scope.name = name;
    }

    /// Makes `node` stand for `scope` too: what the two say differently becomes unknown.
    pub(crate) fn agree(&mut self, node: NodeId, scope: &Scope) {
        self.nodes[node.index()].scope.agree(scope);
    }

    /// What `node` stands for.
    pub fn scope(&self, node: NodeId) -> &Scope {
        &self.nodes[node.index()].scope
    }

    /// The node above; none at the root.
    pub fn parent(&self, node: NodeId) -> Option<NodeId> {
        let parent = self.nodes[node.index()].parent;
        (parent != NONE).then_some(NodeId(parent))
    }

    /// The nodes below, in order of insertion.
    pub fn children(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::successors(self.first_child(node), |&child| self.next_sibling(child))
    }

    pub(crate) fn first_child(&self, node: NodeId) -> Option<NodeId> {
        let child = self.nodes[node.index()].first_child;
        (child != NONE).then_some(NodeId(child))
    }

    pub(crate) fn next_sibling(&self, node: NodeId) -> Option<NodeId> {
        let sibling = self.nodes[node.index()].next_sibling;
        (sibling != NONE).then_some(NodeId(sibling))
    }

    /// The cost in `node` itself and in no child, one value per metric.
    pub fn values(&self, node: NodeId) -> Row<'_> {
        self.own.row(node.index())
    }

    /// All nodes, every parent before its children.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// Visits every node twice: with true before all below it, with false after them. Depth first, children in order of
    /// insertion.
    pub(crate) fn walk(&self, mut visit: impl FnMut(NodeId, bool)) {
        let mut node = NodeId::ROOT;
        visit(node, true);
        loop {
            if let Some(child) = self.first_child(node) {
                node = child;
                visit(node, true);
                continue;
            }
            // Up, until there is a way to the right.
            loop {
                visit(node, false);
                if let Some(sibling) = self.next_sibling(node) {
                    node = sibling;
                    visit(node, true);
                    break;
                }
                match self.parent(node) {
                    Some(parent) => node = parent,
                    None => return,
                }
            }
        }
    }

    /// How many nodes there are; at least 1, the root.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is nothing below the root.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    /// Values per node.
    pub fn width(&self) -> usize {
        self.own.width()
    }

    /// The cost of each node in itself and in no child, in order of the nodes.
    pub(crate) fn own(&self) -> &Rows {
        &self.own
    }

    /// For each node the index of the one above; of the root its own.
    pub(crate) fn parents(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| if node.parent == NONE { 0 } else { node.parent }).collect()
    }

    /// Puts the columns in another order.
    pub(crate) fn reorder(&mut self, order: &[usize]) {
        self.own.reorder(order);
    }

    /// Adds columns of zeros on the right.
    pub(crate) fn widen(&mut self, added: &[Rule]) {
        self.own.widen(added);
    }
}
