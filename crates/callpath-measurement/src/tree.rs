//! A thread's calling context tree outside the program: paths of frames in, nodes with values out.
//! Knows nothing of how samples were taken.

use callpath_format::frame::FrameKey;
use callpath_format::shared::MAX_METRICS;
use rustc_hash::FxHashMap;

/// The node that full paths begin at.
pub const FULL_ROOT: u32 = 0;
/// The node that partial paths begin at.
pub const PARTIAL_ROOT: u32 = 1;

/// A node: a frame in its calling context.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TreeNode {
    /// Index of the parent, which is lower than the node's own; the roots are their own parents.
    pub parent: u32,
    /// The frame; of no meaning at the roots.
    pub key: FrameKey,
    /// Samples at this very node.
    pub samples: u64,
    /// What they weigh, by metric.
    pub values: [u64; MAX_METRICS],
}

/// Nodes, parents before children; 0 and 1 are the roots.
#[derive(Clone, Debug)]
pub struct PathTree {
    nodes: Vec<TreeNode>,
    children: FxHashMap<(u32, u64), u32>,
}

impl PartialEq for PathTree {
    fn eq(&self, other: &PathTree) -> bool {
        self.nodes == other.nodes
    }
}

impl Eq for PathTree {}

impl Default for PathTree {
    fn default() -> PathTree {
        let root = |parent| TreeNode { parent, ..TreeNode::default() };
        PathTree { nodes: vec![root(FULL_ROOT), root(PARTIAL_ROOT)], children: FxHashMap::default() }
    }
}

impl PathTree {
    /// The nodes.
    pub fn nodes(&self) -> &[TreeNode] {
        &self.nodes
    }

    /// Whether there is nothing but two roots without values.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 2 && self.nodes.iter().all(|n| n.samples == 0 && n.values == [0; MAX_METRICS])
    }

    /// The child of `parent` with this key, made if there is none.
    pub fn child(&mut self, parent: u32, key: FrameKey) -> u32 {
        let next = self.nodes.len() as u32;
        let child = *self.children.entry((parent, key.0)).or_insert(next);
        if child == next {
            self.nodes.push(TreeNode { parent, key, ..TreeNode::default() });
        }
        child
    }

    /// The same, or `parent` or the node above it that has this key: a frame whose call is on the path already goes on from
    /// there (Ammons, Ball and Larus 1997, by call where they go by procedure). No two nodes of a path have one key.
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

    /// The node of the same path in another tree, made there if there is none.
    pub fn copy_path(&self, node: u32, to: &mut PathTree) -> u32 {
        let mut keys = Vec::new();
        let mut at = node;
        while at > PARTIAL_ROOT {
            let Some(frame) = self.nodes.get(at as usize) else { return FULL_ROOT };
            keys.push(frame.key);
            at = frame.parent;
        }
        keys.iter().rev().fold(at, |node, key| to.child(node, *key))
    }

    /// Adds samples and what they weigh to a node; there must be such a node.
    pub fn add(&mut self, node: u32, samples: u64, values: [u64; MAX_METRICS]) {
        if let Some(node) = self.nodes.get_mut(node as usize) {
            node.samples = node.samples.wrapping_add(samples);
            for (to, from) in node.values.iter_mut().zip(values) {
                *to = to.wrapping_add(from);
            }
        }
    }

    /// The whole of each metric.
    pub fn totals(&self) -> [u64; MAX_METRICS] {
        self.nodes.iter().fold([0; MAX_METRICS], |mut sums: [u64; MAX_METRICS], node| {
            sums.iter_mut().zip(node.values).for_each(|(sum, value)| *sum = sum.wrapping_add(value));
            sums
        })
    }

    /// Multiplies a metric by `by / of`, rounded at each node.
    pub fn scale(&mut self, metric: usize, by: u64, of: u64) {
        for value in self.nodes.iter_mut().filter_map(|node| node.values.get_mut(metric)) {
            let scaled = (u128::from(*value) * u128::from(by) + u128::from(of) / 2) / u128::from(of.max(1));
            *value = u64::try_from(scaled).unwrap_or(u64::MAX);
        }
    }

    /// Adds all of another tree's nodes, which come with parents before children. Returns each one's index here.
    pub fn merge<'n>(&mut self, nodes: impl IntoIterator<Item = &'n TreeNode>) -> Vec<u32> {
        let mut here: Vec<u32> = Vec::new();
        for (index, node) in nodes.into_iter().enumerate() {
            let at = match index as u32 {
                root @ (FULL_ROOT | PARTIAL_ROOT) => root,
                _ => match here.get(node.parent as usize) {
                    Some(parent) => self.child(*parent, node.key),
                    None => PARTIAL_ROOT,
                },
            };
            here.push(at);
            self.add(at, node.samples, node.values);
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
                let values: [u64; MAX_METRICS] = std::array::from_fn(|_| below(1000));
                tree.add(node, 1, values);
                let node = path.iter().fold(root, |node, key| whole.child(node, FrameKey(*key)));
                whole.add(node, 1, values);
            }
            assert_eq!(tree.totals(), whole.totals());
            assert!(tree.nodes().len() <= whole.nodes().len());
        }
    }
}
