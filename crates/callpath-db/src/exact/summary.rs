//! Which paths and procedures are hot: Ammons, Ball and Larus 1997, tables 4 and 5 and section 6.4.3.
//!
//! There, what is hot has a share of the cache misses, and is dense if it misses more often for each instruction than the program does. So it is
//! here with what samples say. Without samples the cost is instructions, and what is dense executes more of them each time than the program's
//! average path does.

use std::collections::BTreeSet;

use super::{ExactCost, ExactCounts, ExactPath, ExactProcedure};

/// By which of their costs paths are hot, and in order.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ExactRanking {
    /// By the instructions that they executed.
    #[default]
    Instructions,
    /// By what samples say.
    Sampled,
    /// By what they take, as far as that was measured: by that one of [`ExactCounts::timings`].
    Timed(usize),
}

fn timed(cost: ExactCost, number: usize) -> u64 {
    cost.timed.get(number).copied().unwrap_or(0)
}

impl ExactRanking {
    /// Of a cost, that which counts.
    pub fn of(self, cost: ExactCost) -> u64 {
        match self {
            ExactRanking::Instructions => cost.instructions,
            ExactRanking::Sampled => cost.sampled,
            ExactRanking::Timed(number) => timed(cost, number),
        }
    }

    /// What shares are of: all instructions that were counted; all that was sampled, in other code, too.
    pub fn whole(self, counts: &ExactCounts) -> u64 {
        match self {
            ExactRanking::Instructions => counts.cost().instructions,
            ExactRanking::Sampled => counts.sampling.as_ref().map_or(0, |sampling| sampling.total),
            ExactRanking::Timed(number) => timed(counts.cost(), number),
        }
    }
}

/// A class of paths or procedures.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ExactClass {
    /// It is hot, and executes at least as many instructions each time as the average path; by samples or time, costs at least as much for each
    /// instruction as all paths do together.
    Dense,
    /// It is hot because it is executed often; by samples or time, because it executes many instructions.
    Sparse,
    /// It is not hot.
    Cold,
}

impl ExactClass {
    /// The name that reports use.
    pub fn word(self) -> &'static str {
        match self {
            ExactClass::Dense => "dense",
            ExactClass::Sparse => "sparse",
            ExactClass::Cold => "cold",
        }
    }
}

/// How many are of a class, and what they cost together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ExactGroup {
    /// How many there are.
    pub members: u64,
    /// Paths that these executed; of paths as many as there are.
    pub paths: u64,
    /// What they cost.
    pub cost: ExactCost,
}

impl ExactGroup {
    fn add(&mut self, paths: u64, cost: ExactCost) {
        self.members += 1;
        self.paths += paths;
        self.cost = self.cost + cost;
    }
}

/// What is hot in all that was counted.
#[derive(Clone, PartialEq, Debug)]
pub struct ExactSummary {
    /// What is hot by.
    pub ranking: ExactRanking,
    /// The share of the whole, from 0 to 1, that makes a path or procedure hot.
    pub hot_share: f64,
    /// What hot ones have a share of: [`ExactRanking::whole`].
    pub whole: u64,
    /// What all paths cost.
    pub total: ExactCost,
    /// Paths that were executed: dense, sparse and cold ones.
    pub paths: [ExactGroup; 3],
    /// Procedures with such paths.
    pub procedures: [ExactGroup; 3],
    /// Of the blocks on hot paths: on how many executed paths each is, on average. `None`: there are none.
    pub paths_through_hot_block: Option<f64>,
}

impl ExactSummary {
    /// What is hot if it has `hot_share` of the whole or more.
    pub fn new(counts: &ExactCounts, ranking: ExactRanking, hot_share: f64) -> ExactSummary {
        let mut summary = ExactSummary {
            ranking,
            hot_share,
            whole: ranking.whole(counts),
            total: counts.cost(),
            paths: Default::default(),
            procedures: Default::default(),
            paths_through_hot_block: None,
        };
        let (mut hot_blocks, mut paths_through) = (0u64, 0u64);
        for procedure in &counts.procedures {
            let cost = procedure.whole_cost();
            summary.procedures[summary.class(cost) as usize].add(procedure.paths.len() as u64, cost);
            let mut hot: BTreeSet<u32> = BTreeSet::new();
            for path in &procedure.paths {
                let class = summary.class_of(procedure, path);
                summary.paths[class as usize].add(1, procedure.cost_of(path));
                if class != ExactClass::Cold {
                    hot.extend(&path.blocks);
                }
            }
            let mut paths = vec![0u64; procedure.blocks.len()];
            for path in &procedure.paths {
                // Its blocks differ from each other: paths are without cycles.
                for block in &path.blocks {
                    if let Some(paths) = paths.get_mut(*block as usize) {
                        *paths += 1;
                    }
                }
            }
            hot_blocks += hot.len() as u64;
            paths_through += hot.iter().filter_map(|block| paths.get(*block as usize)).sum::<u64>();
        }
        summary.paths_through_hot_block = (hot_blocks > 0).then(|| paths_through as f64 / hot_blocks as f64);
        summary
    }

    /// The class of a path.
    pub fn class_of(&self, procedure: &ExactProcedure, path: &ExactPath) -> ExactClass {
        self.class(procedure.cost_of(path))
    }

    /// The class of what costs so much.
    fn class(&self, cost: ExactCost) -> ExactClass {
        let (its, least) = (self.ranking.of(cost), self.hot_share * self.whole as f64);
        let [its_each, total_each] = [self.each(cost), self.each(self.total)];
        // Whole numbers are compared: products of two 64-bit numbers.
        let wide = |a: u64, b: u64| u128::from(a) * u128::from(b);
        let is_dense = wide(its_each.0, total_each.1) >= wide(total_each.0, its_each.1);
        match (its > 0 && its as f64 >= least, is_dense) {
            (false, _) => ExactClass::Cold,
            (true, true) => ExactClass::Dense,
            (true, false) => ExactClass::Sparse,
        }
    }

    /// What dense ones have more of, and for each of what: instructions for each execution; what was sampled for each instruction.
    fn each(&self, cost: ExactCost) -> (u64, u64) {
        match self.ranking {
            ExactRanking::Instructions => (cost.instructions, cost.executions),
            ExactRanking::Sampled => (cost.sampled, cost.instructions),
            ExactRanking::Timed(number) => (timed(cost, number), cost.instructions),
        }
    }

    /// What dense ones have at least: instructions for each execution, or what was sampled for each instruction.
    pub fn average(&self) -> f64 {
        let (much, many) = self.each(self.total);
        much as f64 / (many as f64).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::testing::numbered;
    use crate::exact::{ExactBlock, ExactPath, ExactSampling, Unmeasured};
    use crate::{MeasuredTime, Metric, PathCategory};

    fn procedure(instructions: &[u64], paths: &[(&[u32], u64)]) -> ExactProcedure {
        let block = |instructions: &u64| ExactBlock { instructions: *instructions, ..ExactBlock::default() };
        ExactProcedure {
            blocks: instructions.iter().map(block).collect(),
            paths: numbered(paths),
            ..ExactProcedure::default()
        }
    }

    #[test]
    fn hot_ones_are_dense_or_sparse() {
        // 10,000 instructions on 2,810 paths: 3.6 each.
        let procedures = vec![
            procedure(&[10, 40, 5], &[(&[0, 1], 100), (&[0, 2], 1), (&[0], 4)]),
            procedure(&[1, 1], &[(&[0, 1], 2200), (&[0], 505)]),
        ];
        let counts = ExactCounts { procedures, ..ExactCounts::default() };
        let total = counts.cost();
        assert_eq!((total.executions, total.instructions), (2810, 5000 + 15 + 40 + 4400 + 505));
        let summary = ExactSummary::new(&counts, ExactRanking::Instructions, 0.01);
        let numbers =
            |groups: &[ExactGroup; 3]| groups.map(|group| (group.members, group.paths, group.cost.instructions));
        // 1% of 9,960 is 99.6: the 55 instructions of two paths are cold.
        assert_eq!(numbers(&summary.paths), [(1, 1, 5000), (2, 2, 4905), (2, 2, 55)]);
        assert_eq!(numbers(&summary.procedures), [(1, 3, 5055), (1, 2, 4905), (0, 0, 0)]);
        // Blocks 0 and 1 of the first, on 3 and 1 paths; both of the second, on 2 and 1.
        assert_eq!(summary.paths_through_hot_block, Some(7.0 / 4.0));
        let all = ExactSummary::new(&counts, ExactRanking::Instructions, 0.0);
        assert_eq!(all.paths[ExactClass::Cold as usize].members, 0);
        assert_eq!(
            ExactSummary::new(&ExactCounts::default(), ExactRanking::Instructions, 0.01).paths_through_hot_block,
            None
        );
    }

    /// In the paper, what is dense misses more often for each instruction than the program does.
    #[test]
    fn by_samples_what_costs_more_for_each_instruction_is_dense() {
        let mut work = procedure(&[10, 40, 5], &[(&[0, 1], 100), (&[0, 2], 1), (&[0], 4)]);
        // 5,000, 15 and 40 instructions.
        for (path, sampled) in work.paths.iter_mut().zip([4000, 900, 5]) {
            path.sampled = sampled;
        }
        work.sampled_outside = 95;
        let sampling = ExactSampling { metric: Metric::sum("cpu-time", "ns"), total: 10_000, samples: 50 };
        let counts = ExactCounts { procedures: vec![work], sampling: Some(sampling), ..ExactCounts::default() };
        let of = |hot_share| ExactSummary::new(&counts, ExactRanking::Sampled, hot_share);
        let summary = of(0.01);
        assert!((summary.average() - 4905.0 / 5055.0).abs() < 1e-12);
        let numbers = |groups: &[ExactGroup; 3]| groups.map(|group| (group.members, group.cost.sampled));
        assert_eq!(numbers(&summary.paths), [(1, 900), (1, 4000), (1, 5)]);
        assert_eq!(numbers(&summary.procedures), [(1, 5000), (0, 0), (0, 0)]);
        // Of all that was sampled, not of what is on paths.
        assert_eq!(numbers(&of(0.45).paths), [(0, 0), (0, 0), (3, 4905)]);
    }

    /// What was measured is a share of what was measured of all paths. What was not is cold.
    #[test]
    fn by_time_what_takes_more_for_each_instruction_is_dense() {
        let mut work = procedure(&[10, 40, 5], &[(&[0, 1], 100), (&[0, 2], 1), (&[0], 4), (&[1], 1)]);
        // 5,000, 15, 40 and 40 instructions. Of the first path one execution in ten was measured.
        for (path, (measured, weight, time_ns)) in work.paths.iter_mut().zip([(10, 50, 2_000), (1, 1, 900), (4, 4, 5)])
        {
            path.times[1] = MeasuredTime { measured, weight, time_ns, spread: [0; 3] };
        }
        let counts = ExactCounts { procedures: vec![work], ..ExactCounts::default() };
        assert_eq!(counts.cost().timed, [0, 4_905]);
        let summary = ExactSummary::new(&counts, ExactRanking::Timed(1), 0.01);
        assert!((summary.average() - 4905.0 / 5095.0).abs() < 1e-12);
        let numbers = summary.paths.map(|group| (group.members, group.cost.timed[1]));
        assert_eq!(numbers, [(1, 900), (1, 4000), (2, 5)]);
        assert_eq!(counts.unmeasured(1), Unmeasured { paths: 1, executions: 1 });
    }

    #[test]
    fn edges_follow_from_paths() {
        // 0 -> 1 -> {2, 3}, 2 -> 1 (back), 3 -> out; 1 -> 1 is the edge to itself.
        let block = |start: u64, successors: &[u64]| ExactBlock {
            code: start..start + 10,
            instructions: 1,
            successors: successors.to_vec(),
            ..ExactBlock::default()
        };
        let path = |category, blocks: &[u32], executions| ExactPath {
            number: 0,
            category,
            blocks: blocks.to_vec(),
            executions,
            contexts: Vec::new(),
            sampled: 0,
            times: Default::default(),
            interruptions: [0; 2],
        };
        let procedure = ExactProcedure {
            blocks: vec![block(0, &[10]), block(10, &[20, 30, 10]), block(20, &[10]), block(30, &[])],
            paths: vec![
                path(PathCategory::EntryBack, &[0, 1, 2], 5),
                path(PathCategory::HeadBack, &[1, 2], 70),
                path(PathCategory::HeadBack, &[1], 11),
                path(PathCategory::HeadExit, &[1, 3], 5),
                path(PathCategory::EntryExit, &[0, 1, 3], 2),
            ],
            ..ExactProcedure::default()
        };
        let executions: Vec<u64> = procedure.block_costs().into_iter().map(|cost| cost.executions).collect();
        assert_eq!(executions, [7, 93, 75, 7]);
        let edges: Vec<(u32, Vec<u32>, bool, u64)> = procedure
            .edges()
            .into_iter()
            .map(|edge| (edge.from, edge.to, edge.is_back, edge.executions.least))
            .collect();
        let expected = [
            (0, vec![1], false, 7),
            (1, vec![1], true, 11),
            (1, vec![2], false, 75),
            (1, vec![3], false, 7),
            (2, vec![1], true, 75),
            (3, vec![], false, 7),
        ];
        assert_eq!(edges, expected);
        assert_eq!(procedure.entries(), 7);
    }
}
