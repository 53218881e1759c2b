//! How often control passes each way, from samples of the blocks' instructions: a guess, fitted to the samples by iterative proportional
//! fitting (Deming and Stephan 1940), so that about as many come to each block as leave it. Short blocks have few samples: what their
//! neighbours have tells of them, too.

use std::ops::Range;

use callpath_format::address::LinkAddr;

use super::ways::Ways;
use crate::graph::{ModuleFlow, ProcedureGraph};

/// How often ways are fitted to blocks.
const ROUNDS: usize = 30;
/// A block's neighbours tell as much of it as so many samples of its own, and as so many instructions, since not all instructions take the
/// same time. With these figures increments of six programs were fewest (callpath-analyze, `examples/guided_increments.rs`).
const NEIGHBOURS_SAMPLES: f64 = 1.0;
const NEIGHBOURS_INSTRUCTIONS: f64 = 20.0;
/// The greatest weight.
const GREATEST: f64 = (1u64 << 40) as f64;

/// What is known of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SampledBlock {
    /// Samples that were taken in it.
    pub samples: u64,
    /// How many instructions it has. Time is about proportional to those that are executed.
    pub instructions: u64,
}

/// The blocks of a procedure. `samples`: how many were taken in a range of code.
pub fn sampled_blocks(
    flow: &ModuleFlow<'_>,
    graph: &ProcedureGraph,
    samples: impl Fn(&Range<LinkAddr>) -> u64,
) -> Vec<SampledBlock> {
    let block = |code: &Range<LinkAddr>| SampledBlock {
        samples: samples(code),
        instructions: flow.instructions(code).len() as u64,
    };
    graph.blocks.iter().map(|found| block(&found.code)).collect()
}

/// Weights of ways by samples of the blocks, by number. `guess`: weights without samples, which decide where these tell nothing.
/// `None`: there are no samples.
pub fn weights_by_samples(ways: &Ways, guess: &[u64], blocks: &[SampledBlock]) -> Option<Vec<u64>> {
    let all: f64 = blocks.iter().map(|block| block.samples as f64).sum();
    let weight = |way: usize| guess.get(way).copied().unwrap_or(0).max(1) as f64;
    let mut fit = Fit {
        ways,
        blocks,
        is_entered: vec![false; blocks.len()],
        passed: (0..ways.ways.len()).map(weight).collect(),
        executed: Vec::new(),
    };
    for block in ways.arrived_at().into_iter().map(|arrival| arrival.block).chain([ways.entry]) {
        fit.is_entered.get_mut(block as usize).into_iter().for_each(|is_entered| *is_entered = true);
    }
    fit.executed = fit.left();
    let expected: f64 = fit.executed.iter().zip(blocks).map(|(left, block)| left * block.instructions as f64).sum();
    if all == 0.0 || expected == 0.0 || blocks.len() != ways.starts.len() {
        return None;
    }
    let scaled = fit.passed.iter_mut().chain(&mut fit.executed);
    scaled.for_each(|times| *times *= all / expected);
    for _ in 0..ROUNDS {
        fit.improve();
    }
    let greatest = fit.passed.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    Some(fit.passed.iter().map(|passed| 1 + (passed / greatest * GREATEST) as u64).collect())
}

/// Ways that are being fitted. Times are so that an instruction which is executed once has one sample.
struct Fit<'f> {
    ways: &'f Ways,
    blocks: &'f [SampledBlock],
    /// By block: control comes there from elsewhere, too.
    is_entered: Vec<bool>,
    /// How often each way is passed.
    passed: Vec<f64>,
    /// How often each block is executed.
    executed: Vec<f64>,
}

impl Fit<'_> {
    /// How often control leaves each block by ways.
    fn left(&self) -> Vec<f64> {
        let mut left = vec![0.0; self.blocks.len()];
        for (way, passed) in self.ways.ways.iter().zip(&self.passed) {
            left.get_mut(way.from as usize).into_iter().for_each(|left| *left += passed);
        }
        left
    }

    /// How often control comes to each block by ways, of which each is passed so often.
    fn came(&self, passed: &[f64]) -> Vec<f64> {
        let mut came = vec![0.0; self.blocks.len()];
        for (way, passed) in self.ways.ways.iter().zip(passed) {
            let to = way.to.and_then(|to| came.get_mut(to as usize));
            to.into_iter().for_each(|came| *came += passed);
        }
        came
    }

    /// How often each way is passed if the block that it comes from says so, and if the one that it leads to does, where it knows.
    fn by_both_ends(&self) -> Vec<(f64, Option<f64>)> {
        let (left, came) = (self.left(), self.came(&self.passed));
        let share = |all: &[f64], block: u32, passed: f64| {
            let all = all.get(block as usize).copied().unwrap_or(0.0);
            let executed = self.executed.get(block as usize).copied().unwrap_or(0.0);
            if all > 0.0 { executed * passed / all } else { 0.0 }
        };
        let ways = self.ways.ways.iter().zip(&self.passed);
        let both = ways.map(|(way, &passed)| {
            let knows = |to: &u32| !self.is_entered.get(*to as usize).copied().unwrap_or(true);
            let by_target = way.to.filter(knows).map(|to| share(&came, to, passed));
            (share(&left, way.from, passed), by_target)
        });
        both.collect()
    }

    fn improve(&mut self) {
        let both = self.by_both_ends();
        let came = self.came(&both.iter().map(|(by_source, _)| *by_source).collect::<Vec<f64>>());
        let mut known = vec![0.0; self.blocks.len()];
        let mut share_known = vec![0.0; self.blocks.len()];
        let left = self.left();
        for ((way, passed), (_, by_target)) in self.ways.ways.iter().zip(&self.passed).zip(&both) {
            let from = way.from as usize;
            if let Some(by_target) = by_target
                && left[from] > 0.0
            {
                known[from] += by_target;
                share_known[from] += passed / left[from];
            }
        }
        for (index, block) in self.blocks.iter().enumerate() {
            let before = if self.is_entered[index] { self.executed[index] } else { came[index] };
            // What leads to where nothing is known is passed as the block is executed.
            let behind = known[index] + (1.0 - share_known[index]).max(0.0) * before;
            let by_neighbours = match (self.is_entered[index], left[index] > 0.0) {
                (true, true) => behind,
                (false, true) => (before + behind) / 2.0,
                (_, false) => before,
            };
            self.executed[index] = likely(by_neighbours, *block);
        }
        let passed = |(by_source, by_target): (f64, Option<f64>)| {
            by_target.map_or(by_source, |by_target| (by_source * by_target).sqrt())
        };
        self.passed = self.by_both_ends().into_iter().map(passed).collect();
    }
}

/// How often a block is executed, if its neighbours say so often: the mean of a gamma distribution about that, after its samples (of a
/// Poisson distribution) are known.
fn likely(by_neighbours: f64, block: SampledBlock) -> f64 {
    let shape = NEIGHBOURS_SAMPLES + NEIGHBOURS_INSTRUCTIONS * by_neighbours;
    by_neighbours * (block.samples as f64 + shape) / (block.instructions as f64 * by_neighbours + shape)
}
