//! The worklist that the analyses of procedures share: facts are carried along the edges of a control flow graph until
//! nothing changes.
//!
//! Kildall 1973, "A Unified Approach to Global Program Optimization". Blocks are taken in the order of a depth-first
//! search, so a graph without loops takes one round. Copies of one jump share an artificial block ([`Joined`]):
//! otherwise the number of edges would be the square of the number of copies.

use crate::loops::copies::Joined;
use crate::worklist::Ordered;

/// A control flow graph. Its blocks are numbered from 0.
pub trait FlowGraph {
    /// The number of blocks.
    fn len(&self) -> u32;
    /// The blocks where control enters, the entry first.
    fn roots(&self) -> &[u32];
    /// The blocks that control reaches from a block.
    fn successors(&self, block: u32) -> &[u32];

    /// If a block ends with one of several copies of a jump: the first block with a copy. All of them have the same
    /// successors.
    fn copied_jump(&self, block: u32) -> Option<u32> {
        let _ = block;
        None
    }

    /// Whether there are no blocks.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The direction in which facts are carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// From a block to its successors.
    Forward,
    /// From a block to its predecessors.
    Backward,
}

/// An analysis: its facts, and how blocks change them.
pub(crate) trait Analysis {
    /// What holds at one end of a block.
    type Fact: Clone;

    const DIRECTION: Direction;

    /// The fact at the other end of a block. A block number beyond the graph's is a copied jump, which changes nothing.
    fn transfer(&mut self, block: u32, fact: &Self::Fact) -> Self::Fact;

    /// The fact where an edge arrives, if that is not the one where it leaves. For facts that go forward.
    fn along(&self, from: u32, to: u32, fact: &Self::Fact) -> Option<Self::Fact> {
        let _ = (from, to, fact);
        None
    }

    /// Joins the fact of another edge to `known`. Returns whether `known` changed; a fact may change only a bounded
    /// number of times.
    fn join(&self, known: &mut Self::Fact, new: &Self::Fact) -> bool;

    /// The same, for facts that depend on where they meet.
    fn join_at(&self, block: u32, known: &mut Self::Fact, new: &Self::Fact) -> bool {
        let _ = block;
        self.join(known, new)
    }
}

/// The facts where they enter each block that is reachable from `seeds`: at its start if they go forward, at its end if
/// backward.
pub(crate) fn solve<G: FlowGraph, A: Analysis>(
    graph: &G,
    analysis: &mut A,
    seeds: impl IntoIterator<Item = (u32, A::Fact)>,
) -> Vec<Option<A::Fact>> {
    let mut facts = match Joined::of(graph) {
        Some(joined) => solve_joined(&joined, analysis, seeds),
        None => solve_joined(graph, analysis, seeds),
    };
    facts.truncate(graph.len() as usize);
    facts
}

fn solve_joined<G: FlowGraph, A: Analysis>(
    graph: &G,
    analysis: &mut A,
    seeds: impl IntoIterator<Item = (u32, A::Fact)>,
) -> Vec<Option<A::Fact>> {
    let edges = match A::DIRECTION {
        Direction::Forward => None,
        Direction::Backward => Some(Predecessors::of(graph)),
    };
    let next = |block: u32| edges.as_ref().map_or_else(|| graph.successors(block), |edges| edges.of_block(block));
    let order = order(graph, A::DIRECTION);
    let mut facts: Vec<Option<A::Fact>> = vec![None; graph.len() as usize];
    let mut pending = Ordered::new(&order);
    let add = |analysis: &A, facts: &mut [Option<A::Fact>], block: u32, fact: &A::Fact| {
        let Some(known) = facts.get_mut(block as usize) else { return false };
        match known {
            Some(known) => analysis.join_at(block, known, fact),
            None => {
                *known = Some(fact.clone());
                true
            }
        }
    };
    for (block, fact) in seeds {
        if add(analysis, &mut facts, block, &fact) {
            pending.add(block);
        }
    }
    while let Some(block) = pending.next() {
        let Some(Some(fact)) = facts.get(block as usize) else { continue };
        let behind = analysis.transfer(block, fact);
        for &to in next(block) {
            let arrived = analysis.along(block, to, &behind);
            if add(analysis, &mut facts, to, arrived.as_ref().unwrap_or(&behind)) {
                pending.add(to);
            }
        }
    }
    facts
}

/// The rank of each block in the order that carries facts fastest: reverse postorder, or postorder if they go backward.
fn order(graph: &impl FlowGraph, direction: Direction) -> Vec<u32> {
    let mut place = vec![u32::MAX; graph.len() as usize];
    let postorder = postorder(graph);
    let last = postorder.len() as u32;
    for (index, block) in (0u32..).zip(postorder) {
        place[block as usize] = if direction == Direction::Forward { last - index } else { index };
    }
    place
}

/// All blocks, each after its successors, except along back edges. The search begins at the roots.
pub(crate) fn postorder(graph: &impl FlowGraph) -> Vec<u32> {
    let mut order = Vec::with_capacity(graph.len() as usize);
    let mut is_seen = vec![false; graph.len() as usize];
    let mut path: Vec<(u32, usize)> = Vec::new();
    for root in graph.roots().iter().copied().chain(0..graph.len()) {
        let enter = |is_seen: &mut [bool], path: &mut Vec<(u32, usize)>, block: u32| {
            if is_seen.get(block as usize) == Some(&false) {
                is_seen[block as usize] = true;
                path.push((block, 0));
            }
        };
        enter(&mut is_seen, &mut path, root);
        while let Some((block, next)) = path.last_mut() {
            match graph.successors(*block).get(*next) {
                Some(&to) => {
                    *next += 1;
                    enter(&mut is_seen, &mut path, to);
                }
                None => {
                    order.push(*block);
                    path.pop();
                }
            }
        }
    }
    order
}

/// The blocks that lead to each block.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Predecessors {
    offsets: Vec<u32>,
    blocks: Vec<u32>,
}

impl Predecessors {
    /// The predecessors of all blocks of a graph. A block with two edges to another is listed twice.
    pub fn of(graph: &impl FlowGraph) -> Predecessors {
        let edges = || (0..graph.len()).flat_map(|from| graph.successors(from).iter().map(move |&to| (from, to)));
        let mut offsets = vec![0u32; graph.len() as usize + 1];
        for (_, to) in edges().filter(|&(_, to)| to < graph.len()) {
            offsets[to as usize + 1] += 1;
        }
        for at in 1..offsets.len() {
            offsets[at] += offsets[at - 1];
        }
        let mut free = offsets.clone();
        let mut blocks = vec![0u32; offsets.last().map_or(0, |&len| len as usize)];
        for (from, to) in edges().filter(|&(_, to)| to < graph.len()) {
            let place = &mut free[to as usize];
            blocks[*place as usize] = from;
            *place += 1;
        }
        Predecessors { offsets, blocks }
    }

    /// The predecessors of one block, ascending; empty if there is no such block.
    pub fn of_block(&self, block: u32) -> &[u32] {
        let at = |index: usize| self.offsets.get(index).copied().unwrap_or(0) as usize;
        self.blocks.get(at(block as usize)..at(block as usize + 1)).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::listed::Graph;

    /// The least number of blocks on a path to each block, itself included.
    struct Distance {
        is_joined: bool,
        transfers: usize,
    }

    impl Analysis for Distance {
        type Fact = u32;
        const DIRECTION: Direction = Direction::Forward;

        fn transfer(&mut self, _: u32, fact: &u32) -> u32 {
            self.transfers += 1;
            fact + 1
        }

        fn join(&self, known: &mut u32, new: &u32) -> bool {
            let is_less = self.is_joined && new < known;
            *known = if is_less { *new } else { *known };
            is_less
        }
    }

    /// Blocks from which one of the seeds is reached.
    struct Reaches;

    impl Analysis for Reaches {
        type Fact = ();
        const DIRECTION: Direction = Direction::Backward;

        fn transfer(&mut self, _: u32, (): &()) {}

        fn join(&self, (): &mut (), (): &()) -> bool {
            false
        }
    }

    #[test]
    fn facts_meet_where_control_does() {
        // 0 -> 1 -> 2 -> 3, 0 -> 3, 3 -> 1 (a loop), 4 apart
        let graph = Graph(vec![vec![1, 3], vec![2], vec![3], vec![1], vec![3]]);
        let mut distance = Distance { is_joined: true, transfers: 0 };
        let found = solve(&graph, &mut distance, [(0, 1)]);
        assert_eq!(found, [Some(1), Some(2), Some(3), Some(2), None]);
        let found = solve(&graph, &mut Reaches, [(2, ())]);
        let reaching: Vec<bool> = found.iter().map(Option::is_some).collect();
        assert_eq!(reaching, [true, true, true, true, true]);
        assert_eq!(Predecessors::of(&graph).of_block(3), [0, 2, 4]);
        assert_eq!(Predecessors::of(&graph).of_block(9), []);
    }

    #[test]
    fn without_loops_each_block_is_looked_at_once() {
        // Each block leads to the next two: as a tree of paths these are many.
        let graph = Graph((0..200).map(|block| vec![block + 1, block + 2]).collect());
        let mut distance = Distance { is_joined: true, transfers: 0 };
        let found = solve(&graph, &mut distance, [(0, 0)]);
        assert_eq!(found.last(), Some(&Some(100)));
        assert_eq!(distance.transfers, 200);
    }
}
