//! Copies of one jump, taken for the one that they are in the source.
//!
//! Compilers copy the jump of a computed `goto` to the end of each case. As edges, n cases are n * n, and a nest of nearly n loops
//! that are entered everywhere. Here a block of its own stands for the jump: its copies lead to it, and it leads to the cases. The
//! ways through the graph are the same. What goes round through the jump is one loop.

use rustc_hash::FxHashMap;

use crate::loops::{FlowGraph, LoopForest};

const NONE: u32 = u32::MAX;

/// A graph in which copied jumps have blocks of their own, numbered behind the others.
pub(crate) struct Joined<'g, G> {
    graph: &'g G,
    /// For each block, the number of the jump that it ends with a copy of.
    jump_of: Vec<u32>,
    /// A block with each jump.
    copies: Vec<u32>,
    /// The blocks of the jumps.
    numbers: Vec<u32>,
}

impl<'g, G: FlowGraph> Joined<'g, G> {
    /// Nothing if there are no copies.
    pub(crate) fn of(graph: &'g G) -> Option<Joined<'g, G>> {
        let copied = (0..graph.len()).filter_map(|block| Some((block, graph.copied_jump(block)?)));
        let mut joined = Joined { graph, jump_of: Vec::new(), copies: Vec::new(), numbers: Vec::new() };
        let mut known: FxHashMap<u32, u32> = FxHashMap::default();
        for (block, first) in copied {
            joined.jump_of.resize(graph.len() as usize, NONE);
            let jump = *known.entry(first).or_insert_with(|| {
                joined.copies.push(first);
                joined.numbers.push(graph.len() + joined.copies.len() as u32 - 1);
                joined.copies.len() as u32 - 1
            });
            joined.jump_of[block as usize] = jump;
        }
        (!joined.copies.is_empty()).then_some(joined)
    }

    /// The same forest without the blocks of the jumps. Where loops end is known, and nothing else that follows.
    pub(super) fn taken_out(&self, forest: LoopForest) -> LoopForest {
        let len = self.graph.len();
        let deepest = deepest_copies(self.graph, &forest);
        let is_in = |number: u32, block: u32| forest.contains(number, forest.inner_of(block));
        let mut loops = forest.loops.clone();
        for (number, here) in (0u32..).zip(&mut loops) {
            if let Some(&first) = here.header.checked_sub(len).and_then(|jump| self.copies.get(jump as usize)) {
                here.is_dispatch = true;
                let cases = self.graph.successors(first);
                let own = cases.iter().find(|&&case| forest.inner_of(case) == Some(number));
                let case = own.or_else(|| cases.iter().find(|&&case| is_in(number, case)));
                here.header = case.copied().unwrap_or(first);
            }
            // All loops that a jump is in hold its deepest copy.
            for latch in &mut here.back_edges {
                let first = latch.checked_sub(len).and_then(|jump| self.copies.get(jump as usize));
                *latch = first.and_then(|first| deepest.get(first)).map_or(*latch, |copy| copy.0);
            }
            here.back_edges.sort_unstable();
            here.back_edges.dedup();
        }
        let mut innermost = forest.innermost;
        innermost.truncate(len as usize);
        LoopForest { loops, innermost }
    }
}

impl<G: FlowGraph> FlowGraph for Joined<'_, G> {
    fn len(&self) -> u32 {
        self.graph.len() + self.copies.len() as u32
    }

    fn roots(&self) -> &[u32] {
        self.graph.roots()
    }

    fn successors(&self, block: u32) -> &[u32] {
        if let Some(jump) = block.checked_sub(self.graph.len()) {
            return self.copies.get(jump as usize).map_or(&[], |&first| self.graph.successors(first));
        }
        let jump = self.jump_of.get(block as usize).map_or(NONE, |&jump| jump) as usize;
        self.numbers.get(jump..jump.saturating_add(1)).unwrap_or_else(|| self.graph.successors(block))
    }
}

/// Of each jump, by the first of its copies: the copy that most loops are around, with its innermost loop. Each copy is in some of
/// these loops, and in no other.
fn deepest_copies(graph: &impl FlowGraph, forest: &LoopForest) -> FxHashMap<u32, (u32, Option<u32>)> {
    let depth = |inner: Option<u32>| {
        inner.and_then(|inner| forest.loops.get(inner as usize)).map_or(0, |inner| u64::from(inner.depth) + 1)
    };
    let mut deepest: FxHashMap<u32, (u32, Option<u32>)> = FxHashMap::default();
    for block in 0..graph.len() {
        if let Some(first) = graph.copied_jump(block) {
            let inner = forest.inner_of(block);
            let known = deepest.entry(first).or_insert((block, inner));
            if depth(inner) > depth(known.1) {
                *known = (block, inner);
            }
        }
    }
    deepest
}

/// Of each jump, by the first of its copies, the case that is in the fewest of the loops around the jump.
pub(super) fn farthest_cases(graph: &impl FlowGraph, forest: &LoopForest) -> FxHashMap<u32, u32> {
    let farthest = deepest_copies(graph, forest).into_iter().filter_map(|(first, (_, inner))| {
        let parent = |&inner: &u32| forest.loops.get(inner as usize)?.parent;
        let mut around: Vec<u32> = std::iter::successors(inner, parent).collect();
        around.reverse();
        let shared = |case: u32| around.partition_point(|&outer| forest.contains(outer, forest.inner_of(case)));
        Some((first, graph.successors(first).iter().copied().min_by_key(|&case| shared(case))?))
    });
    farthest.collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use crate::loops::dominators::dominators;
    use crate::loops::{FlowGraph, LoopForest, forest};

    /// Block 0 leads to the jump, and so do all cases but the last: each by a copy of its own. Case number 1 is in a loop of
    /// its own before it does. Counts how often edges were asked for, and those of a copy other than the first: as many as there are cases.
    struct Interpreter {
        cases: Vec<u32>,
        asked: Cell<usize>,
        asked_of_copies: Cell<usize>,
    }

    impl Interpreter {
        fn new(cases: u32) -> Interpreter {
            Interpreter { cases: (1..=cases).collect(), asked: Cell::new(0), asked_of_copies: Cell::new(0) }
        }

        fn behind_loop(&self) -> u32 {
            self.cases.len() as u32 + 1
        }
    }

    impl FlowGraph for Interpreter {
        fn len(&self) -> u32 {
            self.behind_loop() + 1
        }

        fn roots(&self) -> &[u32] {
            &[0]
        }

        fn successors(&self, block: u32) -> &[u32] {
            self.asked.set(self.asked.get() + 1);
            match block {
                1 => &[1],
                _ if self.copied_jump(block).is_some() => {
                    self.asked_of_copies.set(self.asked_of_copies.get() + usize::from(block != 0));
                    &self.cases
                }
                _ => &[],
            }
        }

        fn copied_jump(&self, block: u32) -> Option<u32> {
            (block != 1 && block != self.cases.len() as u32).then_some(0)
        }
    }

    fn shapes(forest: &LoopForest) -> Vec<(u32, Option<u32>, bool, bool)> {
        forest.loops.iter().map(|l| (l.header, l.parent, l.is_dispatch, l.is_irreducible)).collect()
    }

    #[test]
    fn what_goes_round_through_a_copied_jump_is_one_loop() {
        let graph = Interpreter::new(6);
        let forest = forest(&graph);
        // Case 1 goes round by itself for ever, and block 7 is never run.
        assert_eq!(shapes(&forest), [(2, None, true, false), (1, None, false, false)]);
        assert_eq!(forest.blocks(0), [2, 3, 4, 5]);
        assert_eq!(forest.loops[0].back_edges, [2, 3, 4, 5]);
        // Of each copy one edge, that leaves the most loops: both cases out of the loop do.
        assert_eq!(forest.exits(0), [(2, 1), (3, 1), (4, 1), (5, 1)]);
        let dominators = dominators(&graph);
        assert!((1..=6).all(|case| dominators.immediate(case) == Some(0)));
        assert_eq!(dominators.immediate(7), None);
    }

    #[test]
    fn cases_are_looked_at_once_and_not_once_for_each_case() {
        let steps = |cases: u32| {
            let graph = Interpreter::new(cases);
            let forest = forest(&graph);
            assert_eq!(forest.loops.len(), 2);
            let dominators = dominators(&graph);
            assert_eq!(dominators.immediate(cases), Some(0));
            let inner = [(0, vec![2, 3])];
            assert_eq!(forest.clone().split(&graph, &inner), forest);
            assert_eq!(graph.asked_of_copies.get(), 0);
            graph.asked.get()
        };
        let (few, many) = (steps(500), steps(5_000));
        assert!(many < 12 * few, "{few} steps, then {many}");
    }
}
