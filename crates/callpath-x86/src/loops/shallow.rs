//! Loops that nest deeper than anybody can use, taken as one with those around them.
//!
//! Who looks at each loop with all that is in it takes as many steps as the blocks have loops around them, together: in code
//! that jumps anywhere, the square of its length.

use crate::loops::{FlowGraph, Loop, LoopForest};

/// So many loops around blocks are kept, all together, for each block of a procedure, and at least. A block counts as often as it weighs.
const LOOPS_FOR_BLOCK: usize = 64;
const LEAST_LOOPS: usize = 1 << 18;

/// What was left out of a forest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooDeep {
    /// So many loops.
    pub left_out: usize,
    /// Loops were so deep in one another.
    pub deepest: usize,
    /// So deep they still are.
    pub kept: usize,
}

impl LoopForest {
    /// How many loops are around the blocks, all together.
    pub fn loops_around_blocks(&self) -> usize {
        self.levels().sum()
    }

    /// For each block, how many loops are around it.
    fn levels(&self) -> impl Iterator<Item = usize> + '_ {
        let of = |number: u32| self.loops.get(number as usize).map_or(0, |inner| inner.depth as usize + 1);
        self.innermost.iter().map(move |inner| inner.map_or(0, of))
    }

    /// The same forest where it is not too deep, nearly always; else only the outer loops, as deep as there is room for. `weight` of a
    /// block: how much there is to look at in it, 1 where that is little.
    pub fn shallow(self, graph: &impl FlowGraph, weight: impl Fn(u32) -> usize) -> (LoopForest, Option<TooDeep>) {
        let weights: Vec<usize> = (0..self.innermost.len() as u32).map(weight).collect();
        let most = LEAST_LOOPS + LOOPS_FOR_BLOCK * weights.iter().sum::<usize>();
        if self.levels().zip(&weights).map(|(level, weight)| level * weight).sum::<usize>() <= most {
            return (self, None);
        }
        // How much there is in blocks that are at least so deep.
        let deepest = self.loops.iter().map(|inner| inner.depth as usize + 1).max().unwrap_or(0);
        let mut blocks = vec![0usize; deepest + 1];
        self.levels().zip(&weights).for_each(|(level, weight)| blocks[level] += weight);
        for level in (1..deepest).rev() {
            blocks[level] += blocks[level + 1];
        }
        let mut room = most;
        let fits = |at_least: &&usize| {
            let left = room.checked_sub(**at_least);
            room = left.unwrap_or(room);
            left.is_some()
        };
        let kept = blocks.iter().skip(1).take_while(fits).count();
        let before = self.loops.len();
        let forest = self.cut(graph, kept);
        let left_out = before - forest.loops.len();
        (forest, Some(TooDeep { left_out, deepest, kept }))
    }

    /// Only the loops with fewer than `levels` around them.
    fn cut(self, graph: &impl FlowGraph, levels: usize) -> LoopForest {
        self.keep(graph, |_, here| (here.depth as usize) < levels)
    }

    /// Only some of the loops, by their number: what is in another is in the one around it.
    pub(super) fn keep(self, graph: &impl FlowGraph, is_kept: impl Fn(u32, &Loop) -> bool) -> LoopForest {
        let LoopForest { loops, innermost } = self;
        // The new number of each loop, or of the one around it that is kept; outer loops come first.
        let mut numbers: Vec<Option<u32>> = Vec::with_capacity(loops.len());
        let mut kept: Vec<Loop> = Vec::new();
        for (number, mut here) in (0u32..).zip(loops) {
            let around = here.parent.and_then(|parent| numbers.get(parent as usize).copied().flatten());
            if !is_kept(number, &here) {
                numbers.push(around);
                continue;
            }
            numbers.push(Some(kept.len() as u32));
            here.parent = around;
            here.depth = around.and_then(|around| kept.get(around as usize)).map_or(0, |around| around.depth + 1);
            here.end = 0;
            here.own_blocks.clear();
            here.exits.clear();
            kept.push(here);
        }
        let number = |inner: u32| numbers.get(inner as usize).copied().flatten();
        let innermost = innermost.into_iter().map(|inner| inner.and_then(number)).collect();
        let mut forest = LoopForest { loops: kept, innermost };
        forest.derive(graph);
        forest
    }
}
