//! Maximum spanning trees, and sums along them: the instrumentation of some edges tells what all edges would.

/// An edge of an undirected graph, with the direction in which control passes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Edge {
    pub(super) from: u32,
    pub(super) to: u32,
    /// How often control passes it, about.
    pub(super) weight: u64,
}

/// Disjoint sets of numbers.
pub(super) struct Sets {
    parents: Vec<u32>,
}

impl Sets {
    /// Each number below `len` in a set of its own.
    pub(super) fn new(len: usize) -> Sets {
        Sets { parents: (0..len as u32).collect() }
    }

    /// The number that stands for a set.
    pub(super) fn find(&mut self, mut number: u32) -> u32 {
        while self.parents[number as usize] != number {
            let above = self.parents[self.parents[number as usize] as usize];
            self.parents[number as usize] = above;
            number = above;
        }
        number
    }

    /// Makes two sets one. Returns whether they were two.
    pub(super) fn join(&mut self, a: u32, b: u32) -> bool {
        let (a, b) = (self.find(a), self.find(b));
        self.parents[a.max(b) as usize] = a.min(b);
        a != b
    }
}

/// Which edges are in a maximum spanning tree (Kruskal 1956); a forest, if not all is connected. Of equal weights, the
/// first edges.
pub(super) fn maximum_spanning_tree(nodes: u32, edges: &[Edge]) -> Vec<bool> {
    let mut order: Vec<u32> = (0..edges.len() as u32).collect();
    order.sort_by_key(|&edge| std::cmp::Reverse(edges[edge as usize].weight));
    let mut sets = Sets::new(nodes as usize);
    let mut is_in_tree = vec![false; edges.len()];
    for edge in order {
        let Edge { from, to, .. } = edges[edge as usize];
        is_in_tree[edge as usize] = sets.join(from, to);
    }
    is_in_tree
}

/// The tree's edges at each node.
fn incident(nodes: u32, edges: &[Edge], is_in_tree: &[bool]) -> Vec<Vec<u32>> {
    let mut incident: Vec<Vec<u32>> = vec![Vec::new(); nodes as usize];
    for (number, edge) in (0u32..).zip(edges).filter(|&(number, _)| is_in_tree[number as usize]) {
        incident[edge.from as usize].push(number);
        incident[edge.to as usize].push(number);
    }
    incident
}

/// The nodes, those above first, each with the edge of the tree that leads up.
fn from_roots(nodes: u32, edges: &[Edge], is_in_tree: &[bool]) -> Vec<(u32, Option<u32>)> {
    let incident = incident(nodes, edges, is_in_tree);
    let mut order: Vec<(u32, Option<u32>)> = Vec::with_capacity(nodes as usize);
    let mut is_seen = vec![false; nodes as usize];
    // The last node is the outside.
    for root in (0..nodes).rev() {
        if std::mem::replace(&mut is_seen[root as usize], true) {
            continue;
        }
        let first = order.len();
        order.push((root, None));
        let mut next = first;
        while let Some(&(node, _)) = order.get(next) {
            next += 1;
            for &number in &incident[node as usize] {
                let Edge { from, to, .. } = edges[number as usize];
                let other = if from == node { to } else { from };
                if !std::mem::replace(&mut is_seen[other as usize], true) {
                    order.push((other, Some(number)));
                }
            }
        }
    }
    order
}

/// For each node, the sum of `values` along the tree from the root to it; edges passed against their direction count
/// negative.
///
/// With `Inc(u -> v) = Val(u -> v) + sum(u) - sum(v)` the increment is 0 for edges of the tree, and the increments along
/// each closed walk add up to its values (Ball 1994, "Efficiently counting program events with support for on-line
/// queries").
pub(super) fn sums(nodes: u32, edges: &[Edge], is_in_tree: &[bool], values: &[i64]) -> Vec<i64> {
    let mut sums = vec![0i64; nodes as usize];
    for (node, up) in from_roots(nodes, edges, is_in_tree) {
        let Some(up) = up else { continue };
        let (Edge { from, to, .. }, value) = (edges[up as usize], values[up as usize]);
        sums[node as usize] =
            if to == node { sums[from as usize].wrapping_add(value) } else { sums[to as usize].wrapping_sub(value) };
    }
    sums
}

/// What can be said of the edges of a tree from the others.
pub(super) struct Solved {
    /// For each edge, the least and the greatest count. Of edges that are not in the tree both are what was counted.
    pub(super) bounds: Vec<(i128, i128)>,
    /// What came to nodes and did not go, all together.
    pub(super) lost: i128,
}

/// The counts of all edges from those of the edges that are not in the tree: at each node as many come as go (Knuth 1973,
/// 2.3.4.1), or more, where some are lost there. The last node is the outside, where no edge of the tree leads; where none is lost, bounds
/// are equal. `None`: more go than come somewhere.
pub(super) fn solve(nodes: u32, edges: &[Edge], is_in_tree: &[bool], counts: &[i128]) -> Option<Solved> {
    // What comes to each node, less what goes; then, to all nodes below it in the tree.
    let mut surplus = vec![0i128; nodes as usize];
    for ((edge, _), count) in edges.iter().zip(is_in_tree).zip(counts).filter(|((_, is_in_tree), _)| !**is_in_tree) {
        surplus[edge.to as usize] += count;
        surplus[edge.from as usize] -= count;
    }
    let order = from_roots(nodes, edges, is_in_tree);
    let above = |node: u32, up: u32| {
        let Edge { from, to, .. } = edges[up as usize];
        if from == node { to } else { from }
    };
    for &(node, up) in order.iter().rev() {
        if let Some(up) = up {
            surplus[above(node, up) as usize] += surplus[node as usize];
        }
    }
    // What is lost in the tree that a node is in may be lost on either side of an edge.
    let mut lost = surplus.clone();
    let mut bounds: Vec<(i128, i128)> = counts.iter().map(|&count| (count, count)).collect();
    let mut all_lost = 0;
    for (node, up) in order {
        let Some(up) = up else {
            if node + 1 < nodes {
                all_lost += lost[node as usize];
                if lost[node as usize] < 0 {
                    return None;
                }
            }
            continue;
        };
        let in_tree = lost[above(node, up) as usize];
        lost[node as usize] = in_tree;
        let missing = surplus[node as usize];
        let (least, most) =
            if edges[up as usize].from == node { (missing - in_tree, missing) } else { (-missing, in_tree - missing) };
        if most < 0 {
            return None;
        }
        bounds[up as usize] = (least.max(0), most);
    }
    Some(Solved { bounds, lost: all_lost })
}
