//! How much of each side's cost is compared with the same context of the other side, and how much could be.

use super::answer::Matched;
use super::comparison::Comparison;

impl Comparison<'_> {
    /// `inclusive`: by run, by node.
    pub(super) fn matched(&self, inclusive: &[Vec<f64>]) -> Matched {
        let joined = &self.joined;
        let nodes = &joined.nodes;
        let sums = |costs: &[Vec<f64>]| -> Vec<[Sum; 2]> {
            let mut sums = vec![[Sum::default(); 2]; nodes.len()];
            for (run, costs) in costs.iter().enumerate() {
                let (side, of_one) = (usize::from(run >= joined.runs_of_a), joined.sample_costs[run]);
                for (sum, cost) in sums.iter_mut().zip(costs) {
                    sum[side].cost += cost;
                    sum[side].samples += if of_one > 0.0 { cost / of_one } else { 0.0 };
                }
            }
            sums
        };
        let (own, whole) = (sums(&joined.own), sums(inclusive));
        let total = whole[0];
        let samples = total[0].samples + total[1].samples;
        let mut matched = Matched { both: [1.0; 2], at_caller: [0.0; 2], by_chance: [0.0; 2] };
        for side in [0, 1].into_iter().filter(|&side| total[side].cost > 0.0) {
            let share = if samples > 0.0 { total[side].samples / samples } else { 0.0 };
            let (mut both, mut at_caller, mut by_chance) = (0.0, 0.0, 0.0);
            // Whether what a node costs on this side is compared, there or further out.
            let mut is_compared = vec![true; nodes.len()];
            for (number, node) in nodes.iter().enumerate().filter(|(_, node)| node.loop_number.is_none()) {
                let is_there = [0, 1].map(|side: usize| whole[number][side].cost > 0.0);
                let is_inlined = node.procedure.is_some() && node.is_called == [false; 2];
                is_compared[number] = is_there == [true; 2] || is_inlined && is_compared[node.parent];
                match is_there[1 - side] {
                    true => both += own[number][side].cost,
                    false if is_compared[number] => at_caller += own[number][side].cost,
                    false => {}
                }
                // Of n samples all are on this side with the probability share^n, whichever they are.
                if total[side].samples > 0.0 && !is_inlined {
                    let [own, whole] = [&own, &whole].map(|sums| sums[number][0].samples + sums[number][1].samples);
                    by_chance += own * share.powf(whole.max(1.0)) / total[side].samples;
                }
            }
            matched.both[side] = both / total[side].cost;
            matched.at_caller[side] = at_caller / total[side].cost;
            matched.by_chance[side] = by_chance;
        }
        matched
    }
}

#[derive(Clone, Copy, Default)]
struct Sum {
    cost: f64,
    samples: f64,
}
