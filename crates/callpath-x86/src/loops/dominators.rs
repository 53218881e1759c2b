//! Dominators: which blocks lie on every way to a block.
//! Knows nothing of loops.
//!
//! Cooper, Harvey and Kennedy 2001: "A Simple, Fast Dominance Algorithm".

use crate::loops::FlowGraph;

/// No block.
const NONE: u32 = u32::MAX;

/// The immediate dominators of a graph's blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dominators {
    /// For each block that is reached, its immediate dominator.
    immediate: Vec<u32>,
    /// Where each block stands in the order of the search; a dominator stands before what it dominates.
    order: Vec<u32>,
}

/// The dominators of the blocks that the roots lead to. Several roots are as if a block before the first led to all.
pub fn dominators(graph: &impl FlowGraph) -> Dominators {
    let len = graph.len() as usize;
    let reversed = reverse_postorder(graph);
    let mut order = vec![NONE; len];
    for (number, &block) in (0u32..).zip(&reversed) {
        order[block as usize] = number;
    }
    let mut before: Vec<Vec<u32>> = vec![Vec::new(); reversed.len()];
    for (number, &block) in (0u32..).zip(&reversed) {
        for &to in graph.successors(block) {
            if let Some(&to) = order.get(to as usize).filter(|&&to| to != NONE) {
                before[to as usize].push(number);
            }
        }
    }
    // All in numbers of the order, one higher: 0 is the block before the first.
    let mut immediate = vec![NONE; reversed.len() + 1];
    immediate[0] = 0;
    for &root in graph.roots() {
        if let Some(&root) = order.get(root as usize).filter(|&&root| root != NONE) {
            immediate[root as usize + 1] = 0;
        }
    }
    let is_root: Vec<bool> = immediate.iter().map(|&above| above == 0).collect();
    let mut changes = true;
    while changes {
        changes = false;
        for number in 1..immediate.len() {
            if is_root[number] {
                continue;
            }
            let known = before[number - 1].iter().map(|&from| from + 1).filter(|&b| immediate[b as usize] != NONE);
            let common = known.reduce(|a, b| common(&immediate, a, b)).unwrap_or(NONE);
            if immediate[number] != common {
                immediate[number] = common;
                changes = true;
            }
        }
    }
    let mut result = Dominators { immediate: vec![NONE; len], order };
    for (&block, &above) in reversed.iter().zip(immediate.iter().skip(1)) {
        if above != 0 && above != NONE {
            result.immediate[block as usize] = reversed[above as usize - 1];
        }
    }
    result
}

fn common(immediate: &[u32], mut a: u32, mut b: u32) -> u32 {
    while a != b {
        if a > b {
            a = immediate[a as usize];
        } else {
            b = immediate[b as usize];
        }
    }
    a
}

/// The blocks that are reached, each before those that it alone leads to.
fn reverse_postorder(graph: &impl FlowGraph) -> Vec<u32> {
    let mut is_seen = vec![false; graph.len() as usize];
    let mut postorder = Vec::new();
    let mut path: Vec<(u32, usize)> = Vec::new();
    // The last root first: in the reversed order, the first comes first.
    for &root in graph.roots().iter().rev() {
        if is_seen.get(root as usize).is_none_or(|&seen| seen) {
            continue;
        }
        is_seen[root as usize] = true;
        path.push((root, 0));
        while let Some((block, next)) = path.last_mut() {
            match graph.successors(*block).get(*next) {
                Some(&to) => {
                    *next += 1;
                    if is_seen.get(to as usize) == Some(&false) {
                        is_seen[to as usize] = true;
                        path.push((to, 0));
                    }
                }
                None => {
                    postorder.push(*block);
                    path.pop();
                }
            }
        }
    }
    postorder.reverse();
    postorder
}

impl Dominators {
    /// The nearest block that lies on every way to `block`; none of a root, or of a block that is not reached.
    pub fn immediate(&self, block: u32) -> Option<u32> {
        self.immediate.get(block as usize).copied().filter(|&above| above != NONE)
    }

    /// `above` lies on every way to `block`; a block dominates itself. False if `block` is not reached.
    pub fn dominates(&self, above: u32, block: u32) -> bool {
        let order = |block: u32| self.order.get(block as usize).copied().filter(|&order| order != NONE);
        let Some(top) = order(above) else { return false };
        let mut at = Some(block).filter(|&block| order(block).is_some());
        while let Some(here) = at {
            if here == above {
                return true;
            }
            at = self.immediate(here).filter(|&next| order(next).is_some_and(|order| order >= top));
        }
        false
    }
}
