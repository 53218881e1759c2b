//! What samples say of paths. A sample lies at an address, so it is known which block it is in, and not on which path. What a block costs is
//! divided among the paths through it as often as each was executed.
//!
//! It is an estimate: it takes each execution of a block for equally dear, whichever path leads through it. Sums are exact.

use std::ops::Range;

use super::{ExactCost, ExactCounts, ExactProcedure};
use crate::Metric;

/// What samples were taken of beside exact counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExactSampling {
    /// What they measure.
    pub metric: Metric,
    /// All that was measured, of procedures that were counted and of others.
    pub total: u64,
    /// Samples in procedures that were counted.
    pub samples: u64,
}

/// The fewest paths of a procedure that cost most of what its paths cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FewPaths {
    /// How many.
    pub paths: u64,
    /// What samples say that they cost.
    pub sampled: u64,
}

impl ExactProcedure {
    /// Takes what samples say of its addresses, ascending, and divides it among its paths. `code`: all its blocks, by address, also those that were not
    /// executed. What is in no executed block is not divided.
    pub fn divide_samples(&mut self, addresses: &[(u64, u64)], code: &[Range<u64>]) {
        for &(address, sampled) in addresses {
            let of_block = self.block_at(address).map(|block| &mut self.blocks[block].sampled);
            let sum = match of_block {
                Some(sum) => sum,
                None if holding(code, address, |code| code).is_some() => &mut self.sampled_unexecuted,
                None => &mut self.sampled_outside,
            };
            *sum = sum.saturating_add(sampled);
        }
        // For each block, the paths through it: each once, since paths are without cycles.
        let mut through: Vec<Vec<usize>> = vec![Vec::new(); self.blocks.len()];
        for (number, path) in self.paths.iter_mut().enumerate() {
            path.sampled = 0;
            for block in &path.blocks {
                if let Some(through) = through.get_mut(*block as usize) {
                    through.push(number);
                }
            }
        }
        for (block, through) in self.blocks.iter().zip(through) {
            let executions: Vec<u64> = through.iter().map(|path| self.paths[*path].executions).collect();
            for (path, part) in through.into_iter().zip(divided(block.sampled, &executions)) {
                let sum = &mut self.paths[path].sampled;
                *sum = sum.saturating_add(part);
            }
        }
    }

    /// The executed block that holds an address.
    fn block_at(&self, address: u64) -> Option<usize> {
        holding(&self.blocks, address, |block| &block.code)
    }

    /// What samples say that it costs and that is on none of its paths.
    pub fn sampled_undivided(&self) -> u64 {
        self.sampled_unexecuted.saturating_add(self.sampled_outside)
    }

    /// What samples say that it costs itself: on its paths, and besides.
    pub fn sampled(&self) -> u64 {
        self.cost().sampled.saturating_add(self.sampled_undivided())
    }

    /// What it costs, with what samples say of code that is on none of its paths.
    pub fn whole_cost(&self) -> ExactCost {
        ExactCost { sampled: self.sampled(), ..self.cost() }
    }

    /// The fewest paths that cost at least this share, from 0 to 1, of what samples say that all its paths cost. `None`: they cost nothing.
    pub fn few_paths(&self, share: f64) -> Option<FewPaths> {
        let all = self.paths.iter().fold(0u64, |sum, path| sum.saturating_add(path.sampled));
        let mut each: Vec<u64> = self.paths.iter().map(|path| path.sampled).collect();
        each.sort_unstable_by_key(|sampled| std::cmp::Reverse(*sampled));
        let mut few = FewPaths { paths: 0, sampled: 0 };
        for sampled in each.into_iter().take_while(|sampled| *sampled > 0) {
            few = FewPaths { paths: few.paths + 1, sampled: few.sampled.saturating_add(sampled) };
            if few.sampled as f64 >= share * all as f64 {
                break;
            }
        }
        (few.paths > 0).then_some(few)
    }
}

impl ExactCounts {
    /// What samples say of code that is in no procedure whose paths were counted.
    pub fn sampled_elsewhere(&self) -> u64 {
        let total = self.sampling.as_ref().map_or(0, |sampling| sampling.total);
        self.procedures.iter().fold(total, |rest, procedure| rest.saturating_sub(procedure.sampled()))
    }
}

/// The index of the item whose code holds an address; of several the last one that begins there or before. Items are by address.
fn holding<T>(items: &[T], address: u64, code: impl Fn(&T) -> &Range<u64>) -> Option<usize> {
    let last = items.partition_point(|item| code(item).start <= address).checked_sub(1)?;
    code(&items[last]).contains(&address).then_some(last)
}

/// Divides a total in proportion to weights, into whole numbers whose sum is the total: those with the largest remainders have 1 more, of equal
/// ones the first. Where all weights are 0, so are the parts.
fn divided(total: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    if sum == 0 {
        return vec![0; weights.len()];
    }
    // Products of two 64-bit numbers.
    let product = |weight: &u64| u128::from(total) * u128::from(*weight);
    // No part is greater than the total.
    let mut parts: Vec<u64> = weights.iter().map(|weight| (product(weight) / sum) as u64).collect();
    let left = total - parts.iter().sum::<u64>();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(product(&weights[*at]) % sum));
    order.into_iter().take(left as usize).for_each(|at| parts[at] += 1);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::ExactBlock;
    use crate::exact::testing::numbered;

    #[test]
    fn parts_are_in_proportion_and_add_up() {
        assert_eq!(divided(10, &[1, 1, 1]), [4, 3, 3]);
        assert_eq!(divided(100, &[1, 0, 3]), [25, 0, 75]);
        // 7 x 2/6, 3/6, 1/6 are 2.33, 3.5, 1.17.
        assert_eq!(divided(7, &[2, 3, 1]), [2, 4, 1]);
        assert_eq!(divided(2, &[1, 1, 1, 1]), [1, 1, 0, 0]);
        assert_eq!(divided(u64::MAX, &[u64::MAX, u64::MAX]), [u64::MAX / 2 + 1, u64::MAX / 2]);
        assert_eq!(divided(5, &[0, 0]), [0, 0]);
        assert_eq!(divided(5, &[]), [0; 0]);
        let mut random = fastrand::Rng::with_seed(1997);
        for _ in 0..1000 {
            let mut number = || random.u64(..) >> random.u8(1..64);
            let weights: Vec<u64> = (0..1 + number() % 20).map(|_| number()).collect();
            let total = number();
            let parts = divided(total, &weights);
            let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
            if sum == 0 {
                continue;
            }
            assert_eq!(parts.iter().sum::<u64>(), total, "{weights:?}");
            for (part, weight) in parts.iter().zip(&weights) {
                let exact = u128::from(total) * u128::from(*weight);
                assert!((u128::from(*part) * sum).abs_diff(exact) < sum, "{total} {weights:?} {parts:?}");
            }
        }
    }

    /// Blocks at 0, 10, 20, 40, of ten bytes each; that at 30 was not executed.
    fn procedure(paths: &[(&[u32], u64)]) -> ExactProcedure {
        let block = |start: u64| ExactBlock { code: start..start + 10, ..ExactBlock::default() };
        ExactProcedure {
            blocks: [0, 10, 20, 40].map(block).to_vec(),
            paths: numbered(paths),
            ..ExactProcedure::default()
        }
    }

    const CODE: [Range<u64>; 5] = [0..10, 10..20, 20..30, 30..40, 40..50];

    #[test]
    fn a_blocks_samples_are_divided_by_executions() {
        let mut work = procedure(&[(&[0, 1, 3], 30), (&[0, 2, 3], 10), (&[3], 60)]);
        work.divide_samples(
            &[(0, 3), (9, 5), (10, 1000), (19, 1), (25, 77), (33, 4), (40, 101), (50, 2), (99, 1)],
            &CODE,
        );
        let blocks: Vec<u64> = work.blocks.iter().map(|block| block.sampled).collect();
        assert_eq!(blocks, [8, 1001, 77, 101]);
        // 8 by 3 to 1; 101 by 30, 10 and 60, which are 30.3, 10.1 and 60.6.
        let paths: Vec<u64> = work.paths.iter().map(|path| path.sampled).collect();
        assert_eq!(paths, [6 + 1001 + 30, 2 + 77 + 10, 61]);
        assert_eq!((work.sampled_unexecuted, work.sampled_outside), (4, 3));
        assert_eq!(work.sampled(), 3 + 5 + 1000 + 1 + 77 + 4 + 101 + 2 + 1);
        assert_eq!(work.whole_cost().sampled, work.cost().sampled + 7);
        // What is not divided is in no share.
        assert_eq!(work.few_paths(0.8), Some(FewPaths { paths: 1, sampled: 1037 }));
        assert_eq!(work.few_paths(0.9), Some(FewPaths { paths: 2, sampled: 1126 }));
        assert_eq!(work.few_paths(1.0), Some(FewPaths { paths: 3, sampled: 1187 }));
        assert_eq!(procedure(&[(&[0], 1)]).few_paths(0.8), None);
    }

    #[test]
    fn what_is_in_no_counted_procedure_is_elsewhere() {
        let mut work = procedure(&[(&[0, 1], 1)]);
        work.divide_samples(&[(5, 70), (30, 10)], &CODE);
        let sampling = ExactSampling { metric: Metric::sum("cpu-time", "ns"), total: 100, samples: 3 };
        let mut counts = ExactCounts { procedures: vec![work], sampling: Some(sampling), ..ExactCounts::default() };
        assert_eq!((counts.cost().sampled, counts.sampled_elsewhere()), (70, 20));
        counts.sampling = None;
        assert_eq!(counts.sampled_elsewhere(), 0);
    }
}
