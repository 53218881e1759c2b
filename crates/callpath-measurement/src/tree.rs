//! A thread's calling context tree outside the program: paths of frames in, nodes with costs out.
//! How samples were taken does not belong here.
//!
//! A node holds a cell for each metric that it has a cost of, so that a measurement may have any number of metrics. The
//! tree notes which nodes have changed since it was written: only those are written again.

use callpath_format::frame::FrameKey;
use callpath_schema::Rule;
use rustc_hash::FxHashMap;

/// The node that full paths begin at.
pub const FULL_ROOT: u32 = 0;
/// The node that partial paths begin at.
pub const PARTIAL_ROOT: u32 = 1;

/// No cell follows.
const NO_CELL: u32 = u32::MAX;

/// A node: a frame in its calling context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeNode {
    /// Index of the parent, which is lower than the node's own; the roots are their own parents.
    pub parent: u32,
    /// The frame; of no meaning at the roots.
    pub key: FrameKey,
    /// Samples at this very node.
    pub samples: u64,
    /// The first of its cells, in ascending order of their metrics.
    cell: u32,
    /// It is in the list of changed nodes.
    is_listed: bool,
}

/// What a node's samples weigh in one metric; never 0 when it is made.
#[derive(Clone, Copy, Debug)]
struct Cell {
    metric: u32,
    next: u32,
    value: u64,
}

/// Nodes, parents before children; 0 and 1 are the roots.
#[derive(Clone, Debug)]
pub struct PathTree {
    nodes: Vec<TreeNode>,
    cells: Vec<Cell>,
    children: FxHashMap<(u32, u64), u32>,
    totals: Vec<u64>,
    /// Nodes from here on are new since the tree was written.
    settled: usize,
    /// Nodes below that have changed since.
    changed: Vec<u32>,
}

impl PartialEq for PathTree {
    fn eq(&self, other: &PathTree) -> bool {
        let is_same = |(index, (one, two)): (usize, (&TreeNode, &TreeNode))| {
            let index = index as u32;
            (one.parent, one.key, one.samples) == (two.parent, two.key, two.samples)
                && self.values(index).eq(other.values(index))
        };
        self.nodes.len() == other.nodes.len() && self.nodes.iter().zip(&other.nodes).enumerate().all(is_same)
    }
}

impl Eq for PathTree {}

impl Default for PathTree {
    fn default() -> PathTree {
        let mut tree = PathTree::without_nodes();
        tree.push(FULL_ROOT, FrameKey::default());
        tree.push(PARTIAL_ROOT, FrameKey::default());
        tree
    }
}

impl PathTree {
    /// The nodes.
    pub fn nodes(&self) -> &[TreeNode] {
        &self.nodes
    }

    /// What a node costs by itself: metrics in ascending order, those that are 0 left out.
    pub fn values(&self, node: u32) -> impl Iterator<Item = (usize, u64)> + '_ {
        let mut at = self.nodes.get(node as usize).map_or(NO_CELL, |node| node.cell);
        let cells = std::iter::from_fn(move || {
            let cell = self.cells.get(at as usize)?;
            at = cell.next;
            Some((cell.metric as usize, cell.value))
        });
        cells.filter(|(_, value)| *value != 0)
    }

    fn push(&mut self, parent: u32, key: FrameKey) {
        self.nodes.push(TreeNode { parent, key, samples: 0, cell: NO_CELL, is_listed: false });
    }

    /// The child of `parent` with this key, made if there is none.
    pub fn child(&mut self, parent: u32, key: FrameKey) -> u32 {
        let next = self.nodes.len() as u32;
        let child = *self.children.entry((parent, key.0)).or_insert(next);
        if child == next {
            self.push(parent, key);
        }
        child
    }

    /// The same, or `parent` or the node above it that has this key: a frame whose call is on the
    /// path already continues there (Ammons, Ball and Larus 1997, by call instead of by
    /// procedure). No two nodes of a path have one key.
    pub fn child_or_active(&mut self, parent: u32, key: FrameKey) -> u32 {
        if let Some(child) = self.children.get(&(parent, key.0)) {
            return *child;
        }
        let mut at = parent;
        while at > PARTIAL_ROOT {
            if self.nodes[at as usize].key == key {
                return at;
            }
            at = self.nodes[at as usize].parent;
        }
        self.child(parent, key)
    }

    /// Adds samples and what they weigh, by metric, to a node; there must be such a node.
    pub fn add(&mut self, node: u32, samples: u64, values: &[u64]) {
        let Some(at) = self.nodes.get_mut(node as usize) else { return };
        at.samples = at.samples.wrapping_add(samples);
        self.list(node);
        for (metric, value) in values.iter().enumerate().filter(|(_, value)| **value != 0) {
            self.add_value(node, metric, *value);
        }
    }

    /// Adds to what a node costs in one metric.
    fn add_value(&mut self, node: u32, metric: usize, value: u64) {
        if self.totals.len() <= metric {
            self.totals.resize(metric + 1, 0);
        }
        self.totals[metric] = self.totals[metric].wrapping_add(value);
        let cell = self.cell(node, metric);
        cell.value = cell.value.wrapping_add(value);
    }

    /// Combines a value with what a node has of a metric, by its rule.
    pub fn put(&mut self, node: u32, metric: usize, (value, rule): (u64, Rule)) {
        if value == 0 || node as usize >= self.nodes.len() {
            return;
        }
        self.list(node);
        let there = self.cell(node, metric).value;
        self.set_value(node, metric, rule.combine(there, value));
    }

    pub(crate) fn set_samples(&mut self, node: u32, samples: u64) {
        self.nodes[node as usize].samples = samples;
    }

    pub(crate) fn set_value(&mut self, node: u32, metric: usize, value: u64) {
        let before = self.cell(node, metric).value;
        self.add_value(node, metric, value.wrapping_sub(before));
    }

    /// A tree without even the roots, to be read from a file.
    pub(crate) fn without_nodes() -> PathTree {
        PathTree {
            nodes: Vec::new(),
            cells: Vec::new(),
            children: FxHashMap::default(),
            totals: Vec::new(),
            settled: 0,
            changed: Vec::new(),
        }
    }

    /// Appends a node; the first two are the roots. `false`: it is there already.
    pub(crate) fn append(&mut self, parent: u32, key: FrameKey) -> bool {
        let index = self.nodes.len() as u32;
        let is_new = index <= PARTIAL_ROOT || self.children.insert((parent, key.0), index).is_none();
        self.push(parent, key);
        is_new
    }

    /// Reserves memory for this many more nodes.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.nodes.reserve(count);
        self.children.reserve(count);
    }

    /// Nothing counts as written.
    pub(crate) fn unsettle(&mut self) {
        self.settle();
        self.settled = 0;
    }

    /// The cell of a node and a metric, made if there is none.
    fn cell(&mut self, node: u32, metric: usize) -> &mut Cell {
        let metric = metric as u32;
        let (mut before, mut at) = (NO_CELL, self.nodes[node as usize].cell);
        while let Some(cell) = self.cells.get(at as usize).filter(|cell| cell.metric < metric) {
            (before, at) = (at, cell.next);
        }
        if self.cells.get(at as usize).is_none_or(|cell| cell.metric != metric) {
            let new = self.cells.len() as u32;
            self.cells.push(Cell { metric, next: at, value: 0 });
            match self.cells.get_mut(before as usize) {
                Some(before) => before.next = new,
                None => self.nodes[node as usize].cell = new,
            }
            at = new;
        }
        &mut self.cells[at as usize]
    }

    fn list(&mut self, node: u32) {
        let at = &mut self.nodes[node as usize];
        if (node as usize) < self.settled && !at.is_listed {
            at.is_listed = true;
            self.changed.push(node);
        }
    }

    /// Whether anything has changed since the tree was written.
    pub(crate) fn has_changed(&self) -> bool {
        self.settled < self.nodes.len() || !self.changed.is_empty()
    }

    /// How many nodes had been written, and which of those have changed since, in ascending
    /// order. From now on everything counts as written.
    pub(crate) fn settle(&mut self) -> (usize, Vec<u32>) {
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        for &node in &changed {
            self.nodes[node as usize].is_listed = false;
        }
        (std::mem::replace(&mut self.settled, self.nodes.len()), changed)
    }

    /// The nodes that came since the tree was written.
    pub fn fresh_nodes(&self) -> &[TreeNode] {
        self.nodes.get(self.settled..).unwrap_or_default()
    }

    /// The sum of a metric over all nodes.
    pub fn total(&self, metric: usize) -> u64 {
        self.totals.get(metric).copied().unwrap_or(0)
    }

    /// Multiplies a metric by `by / of`, rounded at each node.
    pub(crate) fn scale(&mut self, metric: usize, by: u64, of: u64) {
        let mut total = 0u64;
        for cell in self.cells.iter_mut().filter(|cell| cell.metric as usize == metric) {
            let scaled = (u128::from(cell.value) * u128::from(by) + u128::from(of) / 2) / u128::from(of.max(1));
            cell.value = u64::try_from(scaled).unwrap_or(u64::MAX);
            total = total.wrapping_add(cell.value);
        }
        if let Some(whole) = self.totals.get_mut(metric) {
            *whole = total;
        }
    }

    /// Adds all nodes of another tree. Returns each one's index in this tree.
    pub fn merge(&mut self, other: &PathTree, rule_of: impl Fn(usize) -> Rule) -> Vec<u32> {
        let mut here: Vec<u32> = Vec::with_capacity(other.nodes.len());
        for (index, node) in other.nodes.iter().enumerate() {
            let index = index as u32;
            let at = match index {
                root @ (FULL_ROOT | PARTIAL_ROOT) => root,
                _ => self.child(here[node.parent as usize], node.key),
            };
            here.push(at);
            self.add(at, node.samples, &[]);
            for (metric, value) in other.values(index) {
                let rule = rule_of(metric);
                if rule.adds_up() {
                    self.add_value(at, metric, value);
                } else {
                    self.put(at, metric, (value, rule));
                }
            }
        }
        here
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ammons, Ball and Larus 1997 for one path, without a tree: what is on the path already is gone back to.
    fn collapsed(path: &[u64]) -> Vec<u64> {
        let mut kept: Vec<u64> = Vec::new();
        for key in path {
            match kept.iter().position(|on_the_path| on_the_path == key) {
                Some(at) => kept.truncate(at + 1),
                None => kept.push(*key),
            }
        }
        kept
    }

    fn path_to(tree: &PathTree, node: u32) -> Vec<u64> {
        let mut path = Vec::new();
        let mut at = node;
        while at > PARTIAL_ROOT {
            path.push(tree.nodes()[at as usize].key.0);
            at = tree.nodes()[at as usize].parent;
        }
        path.reverse();
        path
    }

    #[test]
    fn recursion_collapses_the_same_whatever_the_tree_holds() {
        let mut seed = 1u64;
        let mut below = |bound: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % bound
        };
        for round in 0..300 {
            let (mut tree, mut whole) = (PathTree::default(), PathTree::default());
            for _ in 0..40 {
                let names = 1 + round % 9;
                let path: Vec<u64> = (0..below(30)).map(|_| 100 + below(names)).collect();
                let root = if below(4) == 0 { PARTIAL_ROOT } else { FULL_ROOT };
                let node = path.iter().fold(root, |node, key| tree.child_or_active(node, FrameKey(*key)));
                assert_eq!(path_to(&tree, node), collapsed(&path), "{path:?}");
                let values: [u64; 8] = std::array::from_fn(|_| below(1000));
                tree.add(node, 1, &values);
                let node = path.iter().fold(root, |node, key| whole.child(node, FrameKey(*key)));
                whole.add(node, 1, &values);
            }
            assert!((0..9).all(|metric| tree.total(metric) == whole.total(metric)));
            assert!(tree.nodes().len() <= whole.nodes().len());
        }
    }

    #[test]
    fn costs_are_kept_by_metric_and_changes_are_noted() {
        let mut tree = PathTree::default();
        let node = tree.child(FULL_ROOT, FrameKey(7));
        tree.add(node, 2, &[0, 5]);
        assert!(tree.has_changed());
        assert_eq!(tree.settle(), (0, vec![]));
        assert!(!tree.has_changed());
        let other = tree.child(node, FrameKey(8));
        let mut many = [0; 300];
        many[299] = 9;
        tree.add(other, 1, &many);
        tree.add(node, 1, &[1, 0, 2]);
        tree.add(node, 1, &[1]);
        assert_eq!(tree.values(node).collect::<Vec<_>>(), [(0, 2), (1, 5), (2, 2)]);
        assert_eq!(tree.values(other).collect::<Vec<_>>(), [(299, 9)]);
        assert_eq!((tree.total(0), tree.total(299), tree.total(300)), (2, 9, 0));
        assert_eq!(tree.fresh_nodes().len(), 1);
        assert_eq!(tree.settle(), (3, vec![node]));
        let mut twice = tree.clone();
        let sum = callpath_schema::Metric::sum("cost", "count").rule();
        let (least, most) = (callpath_schema::Metric::min("least", "ns"), callpath_schema::Metric::max("most", "ns"));
        let mut marks = tree.clone();
        for (value, rule) in [(7, least.rule()), (9, least.rule())] {
            marks.put(other, 5, (value, rule));
            marks.put(other, 6, (value, most.rule()));
        }
        let rules = |metric| if metric == 5 { least.rule() } else { most.rule() };
        marks.merge(&marks.clone(), rules);
        assert_eq!(marks.values(other).collect::<Vec<_>>(), [(5, 7), (6, 9), (299, 9)]);
        assert_eq!((marks.total(5), marks.total(6)), (7, 9));
        assert_eq!(twice.merge(&tree, |_| sum), [0, 1, 2, 3]);
        assert_eq!(twice.values(node).collect::<Vec<_>>(), [(0, 4), (1, 10), (2, 4)]);
        assert_eq!(twice.nodes()[node as usize].samples, 8);
        twice.scale(1, 3, 2);
        assert_eq!((twice.total(1), twice.values(node).nth(1)), (15, Some((1, 15))));
    }
}
