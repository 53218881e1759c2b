//! Dominators: which blocks lie on every way to a block.
//!
//! Lengauer and Tarjan 1979, "A Fast Algorithm for Finding Dominators in a Flowgraph", with their simple way of linking. Nothing
//! recurses.

use crate::loops::FlowGraph;
use crate::loops::copies::Joined;

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

/// The dominators of the blocks that the roots lead to. Several roots are as if a block before the first led to all. Takes
/// time nearly in proportion to the number of edges.
pub fn dominators(graph: &impl FlowGraph) -> Dominators {
    match Joined::of(graph) {
        Some(joined) => Search::new(&joined).dominators(&joined).0.first(graph.len()),
        None => Search::new(graph).dominators(graph).0,
    }
}

/// A depth-first search, in its own numbers: 0 is the block before the roots, the others follow in the order in which
/// they were met.
struct Search {
    /// The block of each number.
    blocks: Vec<u32>,
    /// The number from which each was met.
    parent: Vec<u32>,
    /// The number of each block.
    order: Vec<u32>,
}

impl Search {
    fn new(graph: &impl FlowGraph) -> Search {
        let mut search = Search { blocks: vec![NONE], parent: vec![0], order: vec![NONE; graph.len() as usize] };
        let mut path: Vec<(u32, usize)> = Vec::new();
        for &root in graph.roots() {
            path.extend(search.enter(root, 0).map(|number| (number, 0)));
            while let Some((from, next)) = path.last_mut() {
                let from = *from;
                match graph.successors(search.blocks[from as usize]).get(*next) {
                    Some(&to) => {
                        *next += 1;
                        path.extend(search.enter(to, from).map(|number| (number, 0)));
                    }
                    None => _ = path.pop(),
                }
            }
        }
        search
    }

    /// The number of a block that is met for the first time.
    fn enter(&mut self, block: u32, parent: u32) -> Option<u32> {
        let order = self.order.get_mut(block as usize).filter(|order| **order == NONE)?;
        *order = self.blocks.len() as u32;
        self.blocks.push(block);
        self.parent.push(parent);
        Some(*order)
    }

    /// For each number, those from which an edge leads to it.
    fn predecessors(&self, graph: &impl FlowGraph) -> Vec<Vec<u32>> {
        let mut before: Vec<Vec<u32>> = vec![Vec::new(); self.blocks.len()];
        let mut add = |from: u32, to: u32| {
            if let Some(&to) = self.order.get(to as usize).filter(|&&to| to != NONE) {
                before[to as usize].push(from);
            }
        };
        graph.roots().iter().for_each(|&root| add(0, root));
        for (from, &block) in (0u32..).zip(&self.blocks).skip(1) {
            graph.successors(block).iter().for_each(|&to| add(from, to));
        }
        before
    }

    /// The dominators, and how many links were followed to find them.
    fn dominators(self, graph: &impl FlowGraph) -> (Dominators, usize) {
        let before = self.predecessors(graph);
        let len = self.blocks.len();
        let mut known = Known::new(len);
        let mut immediate = vec![0u32; len];
        // Numbers by their semidominator, until those between are known.
        let mut waiting: Vec<Vec<u32>> = vec![Vec::new(); len];
        for number in (1..len as u32).rev() {
            for &from in &before[number as usize] {
                let least = known.least(from);
                let semi = known.semi[least as usize];
                known.semi[number as usize] = known.semi[number as usize].min(semi);
            }
            waiting[known.semi[number as usize] as usize].push(number);
            let parent = self.parent[number as usize];
            known.above[number as usize] = parent;
            for waits in std::mem::take(&mut waiting[parent as usize]) {
                let least = known.least(waits);
                let is_less = known.semi[least as usize] < known.semi[waits as usize];
                immediate[waits as usize] = if is_less { least } else { parent };
            }
        }
        let mut of_block = vec![NONE; self.order.len()];
        for number in 1..len {
            if immediate[number] != known.semi[number] {
                immediate[number] = immediate[immediate[number] as usize];
            }
            of_block[self.blocks[number] as usize] = self.blocks[immediate[number] as usize];
        }
        (Dominators { immediate: of_block, order: self.order }, known.steps)
    }
}

/// What is known of the numbers that were looked at: a forest, in which ways up are made shorter whenever they are taken.
struct Known {
    /// The semidominator, at first the number itself.
    semi: Vec<u32>,
    /// A number nearer to the tree's root; none of the root, and of what was not looked at.
    above: Vec<u32>,
    /// Of the numbers from here up to `above`, that one without, the one with the least semidominator.
    label: Vec<u32>,
    way: Vec<u32>,
    steps: usize,
}

impl Known {
    fn new(len: usize) -> Known {
        let own: Vec<u32> = (0..len as u32).collect();
        Known { semi: own.clone(), above: vec![NONE; len], label: own, way: Vec::new(), steps: 0 }
    }

    /// Of the numbers from `number` up to the root of its tree, that one without, the one with the least semidominator;
    /// a root itself.
    fn least(&mut self, number: u32) -> u32 {
        let mut at = number;
        while let Some(&above) = self.above.get(at as usize).filter(|&&above| above != NONE) {
            self.way.push(at);
            at = above;
        }
        // What is right below the root is known.
        let mut nearer = self.way.pop();
        self.steps += self.way.len() + 1;
        while let (Some(known), Some(here)) = (nearer, self.way.pop()) {
            let (label, own) = (self.label[known as usize], self.label[here as usize]);
            if self.semi[label as usize] < self.semi[own as usize] {
                self.label[here as usize] = label;
            }
            self.above[here as usize] = self.above[known as usize];
            nearer = Some(here);
        }
        self.label[number as usize]
    }
}

impl Dominators {
    /// Those of the first blocks alone; of the others, none is above another.
    fn first(mut self, len: u32) -> Dominators {
        // What is above another comes first.
        let mut others: Vec<u32> = (len..self.immediate.len() as u32).collect();
        others.sort_unstable_by_key(|&other| self.order[other as usize]);
        for block in others.into_iter().chain(0..len) {
            let above = self.immediate[block as usize];
            if above != NONE && above >= len {
                self.immediate[block as usize] = self.immediate[above as usize];
            }
        }
        self.immediate.truncate(len as usize);
        self.order.truncate(len as usize);
        self
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::listed::Graph;

    /// Each block may leave for the last one: an error that is looked for everywhere. The ways to it have ever more in common.
    fn ladder(len: u32) -> Graph {
        Graph((0..len).map(|block| if block + 1 < len { vec![block + 1, len - 1] } else { Vec::new() }).collect())
    }

    #[test]
    fn ten_times_the_blocks_take_some_ten_times_the_steps() {
        let steps = |len: u32| {
            let graph = ladder(len);
            let (dominators, steps) = Search::new(&graph).dominators(&graph);
            assert_eq!((dominators.immediate(len - 1), dominators.immediate(len - 2)), (Some(0), Some(len - 3)));
            steps
        };
        let (few, many) = (steps(5_000), steps(50_000));
        assert!(many < 15 * few, "{few} steps, then {many}");
    }
}
