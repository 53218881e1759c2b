//! What was counted exactly: how often each path through a procedure was executed. Counts of blocks and edges follow from
//! it ([`ExactProcedure::edges`]), and what is hot ([`ExactSummary`]). Or edges were counted, without paths ([`ExactFlow`]); or calls, in the
//! calling context tree ([`ContextTree`]); paths with calls, in each context ([`ExactCallers`]).
//!
//! Ammons, Ball and Larus 1997. Instructions are the cost here: how often a path was executed, times the instructions in its blocks. Where samples
//! were taken beside, what they say of each block is divided among the paths through it ([`ExactSampling`]).

mod callers;
mod contexts;
mod edges;
mod sampled;
mod summary;
#[cfg(test)]
mod testing;
mod timing;

use std::ops::Range;

pub use callers::{ExactCallers, InContext};
use callpath_schema::{Bounds, MeasuredTime, PATH_METRICS, PathCategory, TimesAccount};
pub use contexts::{
    CalledFrom, ContextProcedure, ContextShape, ContextTree, NodeBytes, OnePath, Replication, TreeSize,
};
pub use edges::ExactEdge;
pub use sampled::{ExactSampling, FewPaths};
pub use summary::{ExactClass, ExactGroup, ExactRanking, ExactSummary};
pub use timing::{ExactTiming, Unmeasured};

pub use crate::quality::{ExactQuality, RefusedFunction};
use crate::{AskedName, RunInfo, Way};

/// All that was counted in a run.
#[derive(Clone, Default, Debug)]
pub struct ExactCounts {
    /// What ran.
    pub info: RunInfo,
    /// Procedures that were executed, those that executed most instructions first.
    pub procedures: Vec<ExactProcedure>,
    /// The callers in the contexts that paths were counted in, if they were.
    pub callers: Option<ExactCallers>,
    /// What was measured of paths, at most [`PATH_METRICS`].
    pub timings: Vec<ExactTiming>,
    /// What samples were taken of beside, if any were.
    pub sampling: Option<ExactSampling>,
    /// How it was counted.
    pub quality: ExactQuality,
    /// What else a reader should know, a sentence each.
    pub notes: Vec<String>,
}

/// A line of source.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ExactPlace {
    /// The file's path.
    pub file: String,
    /// From 1.
    pub line: u32,
}

/// A procedure whose paths were counted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ExactProcedure {
    /// Its name.
    pub name: String,
    /// The file of its module.
    pub module: String,
    /// Where it is declared.
    pub place: Option<ExactPlace>,
    /// Its first instruction, as the file counts.
    pub address: u64,
    /// How many paths its numbering has.
    pub possible: u64,
    /// Edges at which its graph was cut to have no more.
    pub cuts: u32,
    /// Its loops.
    pub loops: Vec<ExactLoop>,
    /// Blocks that were executed, by address.
    pub blocks: Vec<ExactBlock>,
    /// Those that were executed, the one that executed most instructions first. None if edges were counted.
    pub paths: Vec<ExactPath>,
    /// What was counted if edges were, and not paths.
    pub flow: Option<ExactFlow>,
    /// What was counted of its activations besides paths, if that was.
    pub activations: Option<ExactActivations>,
    /// What samples say that it cost at addresses of its blocks that are not among `blocks`.
    pub sampled_unexecuted: u64,
    /// What samples say that it cost at its other addresses, which are in no block.
    pub sampled_outside: u64,
}

/// How often a procedure was entered, counted where it begins.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ExactActivations {
    /// How often.
    pub entries: u64,
    /// How many of these activations were not left: what they executed last is in no path. `None`: activations went on in a
    /// fork, and that is not known.
    pub cut_short: Option<u64>,
}

/// How often blocks were executed and edges passed, where edges were counted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ExactFlow {
    /// How often the procedure was entered at its first instruction.
    pub entries: u64,
    /// Activations that came and did not leave. `None`: that is not known.
    pub cut_short: Option<u64>,
    /// How often each block was executed, by its index.
    pub blocks: Vec<Bounds>,
    /// The edges that were passed.
    pub edges: Vec<ExactEdge>,
}

/// A loop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExactLoop {
    /// Where it begins.
    pub place: Option<ExactPlace>,
    /// Which one it is of those of the procedure that begin in the same place, from 1.
    pub ordinal: u32,
    /// Its header's address.
    pub address: u64,
}

/// A block: instructions that control enters at the first and leaves at the last.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ExactBlock {
    /// Its code. Empty: only its beginning is known.
    pub code: Range<u64>,
    /// How many instructions it has.
    pub instructions: u64,
    /// The line of its first instruction.
    pub place: Option<ExactPlace>,
    /// The lines that it has code of, in the order of its code, one behind itself once.
    pub lines: Vec<ExactPlace>,
    /// The innermost loop around it, by its index.
    pub inside: Option<usize>,
    /// The calls that it makes.
    pub calls: Vec<ExactCall>,
    /// Where control may continue in the procedure, by address.
    pub successors: Vec<u64>,
    /// What samples say that it cost.
    pub sampled: u64,
}

/// A call, or a jump to another procedure.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ExactCall {
    /// The callee; `None`: an indirect call.
    pub name: Option<String>,
    /// The line of the call.
    pub place: Option<ExactPlace>,
}

/// A path that was executed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExactPath {
    /// Its number.
    pub number: u64,
    /// Where it begins and ends.
    pub category: PathCategory,
    /// Its blocks in order, by their indices.
    pub blocks: Vec<u32>,
    /// How often it was executed.
    pub executions: u64,
    /// If paths were counted in contexts: those that it was executed in, each chain of callers once, most executions first. What is missing to
    /// `executions` was executed in contexts that are not known.
    pub contexts: Vec<InContext>,
    /// Its part of what samples say of its blocks: [`ExactProcedure::divide_samples`].
    pub sampled: u64,
    /// What executions of it took that were measured and not interrupted, of each of [`ExactCounts::timings`].
    pub times: [MeasuredTime; PATH_METRICS],
    /// How many were measured and interrupted.
    pub interruptions: [u64; PATH_METRICS],
}

/// How much was executed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ExactCost {
    /// Paths, as often as they were executed.
    pub executions: u64,
    /// Instructions on these.
    pub instructions: u64,
    /// What samples say, in the unit of [`ExactSampling::metric`]; of paths an estimate.
    pub sampled: u64,
    /// What measured executions say of all, of each of [`ExactCounts::timings`] in its unit: an estimate. 0 if none was measured.
    pub timed: [u64; PATH_METRICS],
}

fn pairs(a: [u64; PATH_METRICS], b: [u64; PATH_METRICS], of: fn(u64, u64) -> u64) -> [u64; PATH_METRICS] {
    std::array::from_fn(|number| of(a[number], b[number]))
}

impl std::ops::Add for ExactCost {
    type Output = ExactCost;

    fn add(self, other: ExactCost) -> ExactCost {
        ExactCost {
            executions: self.executions.saturating_add(other.executions),
            instructions: self.instructions.saturating_add(other.instructions),
            sampled: self.sampled.saturating_add(other.sampled),
            timed: pairs(self.timed, other.timed, u64::saturating_add),
        }
    }
}

impl std::ops::Sub for ExactCost {
    type Output = ExactCost;

    fn sub(self, other: ExactCost) -> ExactCost {
        ExactCost {
            executions: self.executions.saturating_sub(other.executions),
            instructions: self.instructions.saturating_sub(other.instructions),
            sampled: self.sampled.saturating_sub(other.sampled),
            timed: pairs(self.timed, other.timed, u64::saturating_sub),
        }
    }
}

impl std::iter::Sum for ExactCost {
    fn sum<I: Iterator<Item = ExactCost>>(costs: I) -> ExactCost {
        costs.fold(ExactCost::default(), |sum, cost| sum + cost)
    }
}

impl ExactProcedure {
    /// The blocks of a path, in order.
    pub fn blocks_of<'a>(&'a self, path: &'a ExactPath) -> impl Iterator<Item = &'a ExactBlock> + 'a {
        path.blocks.iter().filter_map(|block| self.blocks.get(*block as usize))
    }

    /// What a path cost.
    pub fn cost_of(&self, path: &ExactPath) -> ExactCost {
        let each = self.blocks_of(path).fold(0u64, |sum, block| sum.saturating_add(block.instructions));
        ExactCost {
            executions: path.executions,
            instructions: path.executions.saturating_mul(each),
            sampled: path.sampled,
            timed: path.times.map(|time| time.total_ns(path.executions).map_or(0, |total| total.round() as u64)),
        }
    }

    /// What all its paths cost, or all its blocks.
    pub fn cost(&self) -> ExactCost {
        if self.flow.is_some() {
            return self.block_costs().into_iter().sum();
        }
        self.paths.iter().map(|path| self.cost_of(path)).sum()
    }

    /// How far what all executions of a path took may be from [`MeasuredTime::total_ns`] either way, in 95 of 100 runs, nanoseconds: by chance,
    /// and by the clock; or as many events. `number`: which of [`ExactCounts::timings`]. `None`: that is not known.
    pub fn interval_ns(&self, path: &ExactPath, (number, account): (usize, TimesAccount)) -> Option<f64> {
        let calls = self.blocks_of(path).map(|block| block.calls.len() as u64).sum::<u64>();
        let by_clock = account.clock_error_ns(1 + calls) * path.executions as f64;
        Some(path.times.get(number)?.interval_ns(path.executions)? + by_clock)
    }

    /// How often it was entered at its first instruction; of paths, where nothing else counts that, by those that were ended.
    pub fn entries(&self) -> u64 {
        if let Some(flow) = &self.flow {
            return flow.entries;
        }
        if let Some(activations) = self.activations {
            return activations.entries;
        }
        let entered = self.paths.iter().filter(|path| path.category.is_from_entry());
        entered.fold(0, |sum, path| sum.saturating_add(path.executions))
    }

    /// How often each block was executed, by its index.
    pub fn block_executions(&self) -> Vec<Bounds> {
        if let Some(flow) = &self.flow {
            return flow.blocks.clone();
        }
        let mut executions = vec![0u64; self.blocks.len()];
        for path in &self.paths {
            for block in &path.blocks {
                if let Some(sum) = executions.get_mut(*block as usize) {
                    *sum = sum.saturating_add(path.executions);
                }
            }
        }
        executions.into_iter().map(Bounds::exactly).collect()
    }

    /// What each block cost at least, by its index: executions are its own.
    pub fn block_costs(&self) -> Vec<ExactCost> {
        let cost = |(executions, block): (Bounds, &ExactBlock)| ExactCost {
            executions: executions.least,
            instructions: executions.least.saturating_mul(block.instructions),
            sampled: block.sampled,
            timed: [0; PATH_METRICS],
        };
        self.block_executions().into_iter().zip(&self.blocks).map(cost).collect()
    }

    /// The loop that a path that begins behind a back edge goes round in: the innermost one around its first block.
    pub fn loop_of(&self, path: &ExactPath) -> Option<&ExactLoop> {
        let head = path.blocks.first().filter(|_| !path.category.is_from_entry())?;
        self.loops.get(self.blocks.get(*head as usize)?.inside?)
    }
}

impl ExactCounts {
    /// Whether edges were counted, and no paths.
    pub fn is_of_edges(&self) -> bool {
        self.procedures.iter().any(|procedure| procedure.flow.is_some())
    }

    /// What was executed and not measured, of one of [`ExactCounts::timings`].
    pub fn unmeasured(&self, number: usize) -> Unmeasured {
        let paths = self.procedures.iter().flat_map(|procedure| &procedure.paths);
        let is_measured = |path: &ExactPath| path.times.get(number).is_some_and(|time| time.measured > 0);
        paths.filter(|path| !is_measured(path)).fold(Unmeasured::default(), |sum, path| Unmeasured {
            paths: sum.paths + 1,
            executions: sum.executions.saturating_add(path.executions),
        })
    }

    /// What all cost.
    pub fn cost(&self) -> ExactCost {
        self.procedures.iter().map(ExactProcedure::cost).sum()
    }

    /// Puts procedures and their paths in order: the costliest first, of equal ones that with the lowest address or number.
    pub fn sort(&mut self) {
        let falling = std::cmp::Reverse::<u64>;
        for procedure in &mut self.procedures {
            let mut paths = std::mem::take(&mut procedure.paths);
            paths.sort_by_cached_key(|path| (falling(procedure.cost_of(path).instructions), path.number));
            let in_order = |its: &InContext| (falling(its.executions), its.callers);
            paths.iter_mut().for_each(|path| path.contexts.sort_unstable_by_key(in_order));
            procedure.paths = paths;
        }
        self.procedures.sort_by_cached_key(|procedure| {
            (falling(procedure.cost().instructions), procedure.module.clone(), procedure.address)
        });
        self.quality.refused.sort();
    }

    /// The indices of the procedures that a name means, found in the most exact way in which any is.
    pub fn named(&self, asked: &str) -> Vec<usize> {
        let asked = AskedName::new(asked);
        let by = |way: Way| {
            let is_it = |(_, procedure): &(usize, &ExactProcedure)| asked.is(&procedure.name, way);
            self.procedures.iter().enumerate().filter(is_it).map(|(at, _)| at).collect::<Vec<_>>()
        };
        Way::ALL.into_iter().map(by).find(|found| !found.is_empty()).unwrap_or_default()
    }
}
