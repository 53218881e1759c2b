//! Loops: how the blocks of a control flow graph nest.
//! It sees blocks and edges, and no instructions.

pub(crate) mod copies;
mod dispatch;
pub mod dominators;
mod havlak;
mod shallow;
mod split;

pub use crate::dataflow::FlowGraph;
pub use havlak::forest;
pub use shallow::TooDeep;
pub use split::{Bodies, LoopPart};

impl FlowGraph for crate::graph::ProcedureGraph {
    fn len(&self) -> u32 {
        self.blocks.len() as u32
    }

    fn roots(&self) -> &[u32] {
        &self.roots
    }

    fn successors(&self, block: u32) -> &[u32] {
        self.successors(block)
    }

    fn copied_jump(&self, block: u32) -> Option<u32> {
        self.copied_jump(block)
    }
}

/// How blocks nest.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LoopForest {
    /// A loop comes just before those in it; loops at one level by their headers' order in the search from the roots.
    pub loops: Vec<Loop>,
    /// For each block, the innermost loop that it is in.
    pub innermost: Vec<Option<u32>>,
}

/// A loop, as machine code has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loop {
    /// Where the search from the roots entered it first. The only way in, if it is reducible.
    pub header: u32,
    /// The loop around it.
    pub parent: Option<u32>,
    /// Loops around it.
    pub depth: u32,
    /// One past the number of the last loop in it; those up to there are all in it.
    pub end: u32,
    /// There are other ways in than through the header.
    pub is_irreducible: bool,
    /// Control goes round through copies of one jump, its back edges: see [`FlowGraph::copied_jump`]. Then the header is the first of
    /// the places in the loop that they lead to, or where control enters it before it gets to the jump; that they lead to others is
    /// no second way in.
    pub is_dispatch: bool,
    /// Its blocks that are in no inner loop, ascending; the header is one of them, unless an inner loop shares it.
    pub own_blocks: Vec<u32>,
    /// Blocks from which control goes back to the header, ascending. Of the copies of a jump, one, unless the loop is theirs.
    pub back_edges: Vec<u32>,
    /// Edges out of it from its own blocks: `(from, to)`, sorted. Exits of a loop in it may leave it, too: see
    /// [`LoopForest::exits`]. Of a copied jump only the one that leaves the most loops.
    pub exits: Vec<(u32, u32)>,
}

impl LoopForest {
    /// Tells of each loop what follows from parents and innermost loops: where it ends, its own blocks, and its exits.
    fn derive(&mut self, graph: &impl FlowGraph) {
        self.find_ends();
        let farthest = copies::farthest_cases(graph, self);
        for block in 0..graph.len() {
            let Some(number) = self.innermost[block as usize] else { continue };
            let successors = match graph.copied_jump(block) {
                Some(first) => farthest.get(&first).map_or(&[][..], std::slice::from_ref),
                None => graph.successors(block),
            };
            let is_exit = |to: &&u32| !self.contains(number, self.inner_of(**to));
            let mut exits: Vec<_> = successors.iter().filter(is_exit).map(|&to| (block, to)).collect();
            let own = &mut self.loops[number as usize];
            own.own_blocks.push(block);
            own.exits.append(&mut exits);
        }
        for own in &mut self.loops {
            own.exits.sort_unstable();
            own.exits.dedup();
        }
    }

    /// Tells of each loop where it ends.
    fn find_ends(&mut self) {
        // An inner loop comes behind its outer one, so that the ends are known from behind.
        for number in (0..self.loops.len()).rev() {
            let end = self.loops[number].end.max(number as u32 + 1);
            self.loops[number].end = end;
            if let Some(parent) = self.loops[number].parent {
                let outer = &mut self.loops[parent as usize];
                outer.end = outer.end.max(end);
            }
        }
    }

    /// The innermost loop that a block is in.
    pub fn inner_of(&self, block: u32) -> Option<u32> {
        self.innermost.get(block as usize).copied().flatten()
    }

    /// All blocks of a loop, those of inner loops too, ascending.
    pub fn blocks(&self, number: u32) -> Vec<u32> {
        (0u32..).zip(&self.innermost).filter(|(_, inner)| self.contains(number, **inner)).map(|(at, _)| at).collect()
    }

    /// Loop `outer` is `inner`, or around it.
    pub fn contains(&self, outer: u32, inner: Option<u32>) -> bool {
        let end = self.loops.get(outer as usize).map_or(0, |l| l.end);
        inner.is_some_and(|inner| (outer..end).contains(&inner))
    }

    /// All edges out of a loop, those from the blocks of inner loops too: `(from, to)`, sorted.
    pub fn exits(&self, number: u32) -> Vec<(u32, u32)> {
        let end = self.loops.get(number as usize).map_or(0, |l| l.end);
        let loops = self.loops.get(number as usize..end as usize).unwrap_or(&[]);
        let mut exits: Vec<_> = loops.iter().flat_map(|l| &l.exits).copied().collect();
        exits.retain(|exit| !self.contains(number, self.inner_of(exit.1)));
        exits.sort_unstable();
        exits
    }
}

#[cfg(test)]
pub(crate) mod listed {
    use super::FlowGraph;

    /// A graph that is entered at block 0: where control goes from each.
    pub(crate) struct Graph(pub(crate) Vec<Vec<u32>>);

    impl FlowGraph for Graph {
        fn len(&self) -> u32 {
            self.0.len() as u32
        }

        fn roots(&self) -> &[u32] {
            &[0]
        }

        fn successors(&self, block: u32) -> &[u32] {
            &self.0[block as usize]
        }
    }
}
