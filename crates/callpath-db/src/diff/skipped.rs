//! Frames that one build has and the other lacks: a tail call ends its caller's frame before the callee's begins, and what
//! is inlined has a frame only where debug information says so.
//!
//! One side has `p > x`, the other `p > m > x` with up to three such frames `m`. The cost of `x` below `p` is then compared at
//! one context. Both must be met often enough that neither is missing by chance.

use rustc_hash::FxHashMap;

use super::matching::Joined;

/// The most frames that a side may lack between two.
pub(super) const MOST_FRAMES: usize = 3;
/// Of so many samples of one context half are on either side, or, with a probability of 1 in 128, all on one.
const LEAST_SAMPLES: f64 = 8.0;

/// Contexts that are to become one with others: which, and with which, where one side lacks so many frames. No node is below one
/// that moves and holds what another one moves to.
pub(super) fn moves(joined: &Joined, frames: usize) -> FxHashMap<usize, usize> {
    let tree = Tree::new(joined);
    let mut moves = FxHashMap::default();
    let mut is_taken = vec![false; joined.nodes.len()];
    for parent in 0..joined.nodes.len() {
        is_taken[parent] |= parent > 0 && is_taken[joined.nodes[parent].parent];
        if is_taken[parent] {
            continue;
        }
        for &child in &tree.below[parent] {
            if is_taken[child] {
                continue;
            }
            let mut found = tree.deeper(parent, child, frames);
            found.retain(|other| !is_taken[*other]);
            match found[..] {
                [] => continue,
                [other] => {
                    moves.insert(child, other);
                }
                // Which of the frames it went through is not known: what is known is that it is below `parent`.
                _ => moves.extend(found.iter().map(|&other| (other, child))),
            }
            is_taken[child] = true;
            found.iter().for_each(|&other| is_taken[other] = true);
        }
    }
    moves
}

struct Tree<'a> {
    joined: &'a Joined,
    below: Vec<Vec<usize>>,
    /// By side, by node, samples with all below.
    samples: [Vec<f64>; 2],
}

impl<'a> Tree<'a> {
    fn new(joined: &'a Joined) -> Self {
        let count = joined.nodes.len();
        let mut below = vec![Vec::new(); count];
        for (number, node) in joined.nodes.iter().enumerate().skip(1) {
            below[node.parent].push(number);
        }
        let mut tree = Tree { joined, below, samples: [vec![0.0; count], vec![0.0; count]] };
        for (run, costs) in joined.inclusive().iter().enumerate() {
            let samples = &mut tree.samples[usize::from(run >= joined.runs_of_a)];
            let cost_of_one = joined.sample_costs[run];
            for (sum, cost) in samples.iter_mut().zip(costs) {
                *sum += if cost_of_one > 0.0 { cost / cost_of_one } else { 0.0 };
            }
        }
        tree
    }

    /// The side that alone has a procedure's context, often enough for that to be no chance.
    fn only_side(&self, node: usize) -> Option<usize> {
        let [a, b] = [0, 1].map(|side: usize| self.samples[side][node]);
        let side = match (a > 0.0, b > 0.0) {
            (true, false) => 0,
            (false, true) => 1,
            _ => return None,
        };
        (self.joined.nodes[node].procedure.is_some() && a + b >= LEAST_SAMPLES).then_some(side)
    }

    /// Contexts of the procedure of `child` that only `side` has, with so many frames between them and `parent`.
    fn deeper(&self, parent: usize, child: usize, frames: usize) -> Vec<usize> {
        let Some(side) = self.only_side(child).map(|side| 1 - side) else { return Vec::new() };
        let procedure = self.joined.nodes[child].procedure;
        let mut level: Vec<usize> = self.below[parent].iter().copied().filter(|start| *start != child).collect();
        for _ in 0..frames {
            // What is between them are frames, of another procedure, and that side has them.
            level.retain(|&node| {
                let own = self.joined.nodes[node].procedure;
                own.is_some() && own != procedure && self.samples[side][node] > 0.0
            });
            level = level.iter().flat_map(|&node| &self.below[node]).copied().collect();
        }
        let is_same = |node: &usize| self.joined.nodes[*node].procedure == procedure;
        level.retain(|node| {
            is_same(node) && self.only_side(*node) == Some(side) && !self.leads_back(child, *node, parent)
        });
        level
    }

    /// Whether a procedure between `parent` and `other` is called below `child`: one activation of it would become another.
    fn leads_back(&self, child: usize, other: usize, parent: usize) -> bool {
        let mut between = Vec::new();
        let mut node = self.joined.nodes[other].parent;
        while node != parent && node != 0 {
            between.push(self.joined.nodes[node].procedure);
            node = self.joined.nodes[node].parent;
        }
        let mut open = vec![child];
        while let Some(node) = open.pop() {
            if between.contains(&self.joined.nodes[node].procedure) {
                return true;
            }
            open.extend(&self.below[node]);
        }
        false
    }
}
