//! Rebuilds the joined tree where procedures or contexts turn out to be the same: costs are added up, and nothing else changes.

use rustc_hash::FxHashMap;

use super::alike::{self, Defined};
use super::identity::Identity;
use super::matching::{Joining, Node, Side};
use super::skipped;

impl Joining<'_> {
    /// Makes one procedure of those that [`alike`] finds to be one.
    pub(super) fn join_procedures(&mut self) {
        let count = self.joined.procedures.len();
        let place = |number: usize, side: Side| match self.defined.get(&(number, side)).map(Vec::as_slice) {
            Some([place]) => Some(*place),
            _ => None,
        };
        let defined: Vec<Defined> =
            (0..count).map(|number| [Side::A, Side::B].map(|side| place(number, side))).collect();
        let classes = alike::classes(&self.joined.procedures, &defined, &self.joined.strings);
        if classes.iter().enumerate().all(|(number, class)| number == *class) {
            return;
        }
        let mut numbers = vec![0; count];
        let mut kept = Vec::new();
        for number in (0..count).filter(|&number| classes[number] == number) {
            numbers[number] = kept.len();
            kept.push(self.joined.procedures[number]);
        }
        let number_of = |old: usize| numbers[classes[old]];
        for returns in self.joined.returns.iter_mut().filter(|returns| !returns.is_empty()) {
            let mut sums = vec![0.0; kept.len()];
            returns.iter().enumerate().for_each(|(old, count)| sums[number_of(old)] += count);
            *returns = sums;
        }
        for ((old, side), places) in std::mem::take(&mut self.places) {
            self.places.entry((number_of(old), side)).or_default().extend(places);
        }
        for ((old, side), homes) in std::mem::take(&mut self.homes) {
            let sums = self.homes.entry((number_of(old), side)).or_default();
            homes.into_iter().for_each(|(home, cost)| *sums.entry(home).or_default() += cost);
        }
        self.joined.nodes.iter_mut().for_each(|node| node.procedure = node.procedure.map(number_of));
        self.numbers = kept.iter().enumerate().map(|(number, identity)| (*identity, number)).collect();
        self.joined.procedures = kept;
        self.rebuild(&FxHashMap::default());
    }

    /// Puts contexts in which one side lacks a frame below those in which the other side has it.
    pub(super) fn skip_frames(&mut self) {
        // Each round may bring contexts together whose callees differ.
        const ROUNDS: usize = 8;
        for frames in 1..=skipped::MOST_FRAMES {
            for _ in 0..ROUNDS {
                let moves = skipped::moves(&self.joined, frames);
                if moves.is_empty() {
                    break;
                }
                self.rebuild(&moves);
            }
        }
    }

    /// Builds the tree again. What `moves` has becomes one with the node that it leads to, which is not below another such
    /// node.
    fn rebuild(&mut self, moves: &FxHashMap<usize, usize>) {
        let root = self.joined.nodes[0].clone();
        let old = std::mem::replace(&mut self.joined.nodes, vec![root]);
        self.index.clear();
        let mut is_below = vec![false; old.len()];
        for (number, node) in old.iter().enumerate().skip(1) {
            is_below[number] = is_below[node.parent] || moves.contains_key(&number);
        }
        let mut places = vec![0; old.len()];
        for first in [false, true] {
            for (number, node) in old.iter().enumerate().skip(1).filter(|(number, _)| is_below[*number] == first) {
                places[number] = match moves.get(&number) {
                    Some(&target) => places[target],
                    None => self.again(places[node.parent], node),
                };
            }
        }
        for costs in &mut self.joined.own {
            let mut sums = vec![0.0; self.joined.nodes.len()];
            costs.iter().zip(&places).for_each(|(cost, place)| sums[*place] += cost);
            *costs = sums;
        }
        for (old, place) in old.iter().zip(&places) {
            let is_called = &mut self.joined.nodes[*place].is_called;
            is_called.iter_mut().zip(old.is_called).for_each(|(is_called, was)| *is_called |= was);
        }
        self.loops.iter_mut().for_each(|cost| cost.node = places[cost.node]);
    }

    fn again(&mut self, parent: usize, node: &Node) -> usize {
        let identity = match (node.procedure, node.other) {
            (Some(procedure), _) => self.joined.procedures[procedure],
            (None, Some((kind, name))) => Identity::Other { kind, name },
            (None, None) => return parent,
        };
        self.child(parent, identity)
    }
}
