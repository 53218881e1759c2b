//! A guess of how often control passes each way, where no profile tells it.

use super::ways::Ways;
use crate::graph::{ProcedureGraph, Terminator};
use crate::loops::{LoopForest, forest};

/// The weight of a block outside of all loops: ways that are passed less often weigh less.
const ONCE: u64 = 1 << 10;
/// A loop goes round so often each time.
const ROUNDS: u64 = 8;
/// Loops deeper than this weigh no more.
const DEEPEST: u32 = 12;

/// Guesses how often control passes each way of a procedure, by its number. A loop goes round eight times, all ways from
/// a block are passed equally often, and blocks behind which the program ends, hardly ever.
pub fn weights(graph: &ProcedureGraph, ways: &Ways) -> Vec<u64> {
    let forest = forest(graph);
    let depth = |block: u32| depth(&forest, block);
    let times = |depth: u32| ONCE.saturating_mul(ROUNDS.saturating_pow(depth.min(DEEPEST)));
    let is_cold = |block: u32| {
        let terminator = graph.blocks.get(block as usize).map(|block| block.terminator);
        matches!(terminator, Some(Terminator::Trap | Terminator::NoReturnCall))
    };
    let weight = |number: usize| {
        let way = &ways.ways[number];
        let warm = ways.from(way.from).filter(|&other| ways.ways[other].to.is_none_or(|to| !is_cold(to)));
        match way.to {
            Some(to) if is_cold(to) => 1,
            Some(to) => times(depth(way.from).min(depth(to))) / warm.count().max(1) as u64,
            None if is_cold(way.from) => 1,
            None => ONCE / warm.count().max(1) as u64,
        }
    };
    (0..ways.ways.len()).map(weight).collect()
}

/// The number of loops around a block.
fn depth(forest: &LoopForest, block: u32) -> u32 {
    let inner = forest.inner_of(block).and_then(|inner| forest.loops.get(inner as usize));
    inner.map_or(0, |inner| inner.depth + 1)
}
