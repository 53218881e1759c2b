//! The loops around a dispatch that only go round through it, taken for one with it.
//!
//! An interpreter that is written with computed `goto` begins and resumes procedures of its language before it goes to the first
//! case, and cases jump back there: loops around that of the dispatch, by their headers, each of whose iterations goes through the
//! jump. In the source there is one loop, or none.

use crate::loops::{FlowGraph, LoopForest};

/// So many blocks and edges are looked at for each block of a procedure, and at least. Loops that are left then stay apart.
const STEPS_FOR_BLOCK: usize = 64;
const LEAST_STEPS: usize = 1 << 18;

impl LoopForest {
    /// The same forest, in which each loop through copies of a jump is one with those around it that go round through them only.
    pub(super) fn one_for_each_dispatch(mut self, graph: &impl FlowGraph) -> LoopForest {
        let mut is_joined = vec![false; self.loops.len()];
        let mut search =
            Search { seen: Vec::new(), searches: 0, left: LEAST_STEPS + STEPS_FOR_BLOCK * self.innermost.len() };
        for number in 0..self.loops.len() as u32 {
            let here = &self.loops[number as usize];
            let jump = here.back_edges.iter().find_map(|&latch| graph.copied_jump(latch)).filter(|_| here.is_dispatch);
            let Some(jump) = jump else { continue };
            let (mut inner, mut around) = (number, here.parent);
            while let Some(outer) = around.filter(|&outer| !search.avoids(&self, graph, (outer, jump))) {
                is_joined[inner as usize] = true;
                self.loops[outer as usize].is_dispatch = true;
                self.loops[outer as usize].back_edges = self.loops[inner as usize].back_edges.clone();
                (inner, around) = (outer, self.loops[outer as usize].parent);
            }
        }
        if !is_joined.contains(&true) {
            return self;
        }
        self.keep(graph, |number, _| !is_joined.get(number as usize).is_some_and(|is_joined| *is_joined))
    }
}

struct Search {
    /// The last search that came to each block.
    seen: Vec<u32>,
    searches: u32,
    left: usize,
}

impl Search {
    /// Control may come back to a loop's header without copies of a jump; or no steps are left to tell.
    fn avoids(&mut self, forest: &LoopForest, graph: &impl FlowGraph, (number, jump): (u32, u32)) -> bool {
        let Some(header) = forest.loops.get(number as usize).map(|outer| outer.header) else { return true };
        self.seen.resize(forest.innermost.len(), 0);
        self.searches += 1;
        let mut pending = vec![header];
        while let Some(block) = pending.pop() {
            if graph.copied_jump(block) == Some(jump) {
                continue;
            }
            let successors = graph.successors(block);
            let Some(left) = self.left.checked_sub(1 + successors.len()) else { return true };
            self.left = left;
            for &to in successors {
                if to == header {
                    return true;
                }
                let is_new = self
                    .seen
                    .get_mut(to as usize)
                    .is_some_and(|seen| std::mem::replace(seen, self.searches) != self.searches);
                if is_new && forest.contains(number, forest.inner_of(to)) {
                    pending.push(to);
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use crate::loops::{FlowGraph, LoopForest, forest};

    /// A graph with blocks that end with copies of one jump.
    struct Interpreter {
        to: Vec<Vec<u32>>,
        copies: Vec<u32>,
    }

    impl FlowGraph for Interpreter {
        fn len(&self) -> u32 {
            self.to.len() as u32
        }

        fn roots(&self) -> &[u32] {
            &[0]
        }

        fn successors(&self, block: u32) -> &[u32] {
            &self.to[block as usize]
        }

        fn copied_jump(&self, block: u32) -> Option<u32> {
            self.copies.contains(&block).then(|| self.copies[0])
        }
    }

    fn shapes(forest: &LoopForest) -> Vec<(u32, Option<u32>, u32, bool)> {
        forest.loops.iter().map(|l| (l.header, l.parent, l.depth, l.is_dispatch)).collect()
    }

    /// 0 enters; 1 begins a procedure, 2 resumes one and dispatches; 3 and 4 are cases, 5 calls, 6 returns, 7 leaves. `begin`: where
    /// else 1 leads to.
    fn interpreter(begin: &[u32]) -> Interpreter {
        let cases = vec![3, 4, 5, 6, 7];
        let one = [&[2], begin].concat();
        Interpreter {
            to: vec![vec![1], one, cases.clone(), cases.clone(), cases, vec![1], vec![2], vec![]],
            copies: vec![2, 3, 4],
        }
    }

    #[test]
    fn what_only_goes_round_through_the_dispatch_is_one_with_it() {
        let graph = interpreter(&[]);
        let one = forest(&graph);
        assert_eq!(shapes(&one), [(1, None, 0, true)]);
        assert_eq!(one.blocks(0), [1, 2, 3, 4, 5, 6]);
        assert_eq!(one.loops[0].own_blocks, [1, 2, 3, 4, 5, 6]);
        assert!(one.exits(0).iter().all(|exit| exit.1 == 7));
    }

    #[test]
    fn a_loop_around_that_may_go_round_by_itself_is_another() {
        // 1 leads to 5 as well, and from there back.
        let two = forest(&interpreter(&[5]));
        assert_eq!(shapes(&two), [(1, None, 0, false), (2, Some(0), 1, true)]);
        assert_eq!(two.blocks(1), [2, 3, 4, 6]);
    }
}
