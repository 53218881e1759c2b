//! What the nodes of a preorder cost by one metric: a node with all below it is a range.

use callpath_schema::Rule;

use super::layout::{u32_at, u64_at};

/// The costs of one metric. Any bytes: what they say is a number, at worst a wrong one.
#[derive(Clone, Copy)]
pub(crate) struct Costs<'a> {
    pub(crate) rule: Rule,
    /// The nodes with a value of their own, in order.
    pub(crate) contexts: &'a [u8],
    /// Of integers that add up, before each of these, and behind the last, the sum of all values before it; else the values.
    pub(crate) values: &'a [u8],
    /// Where values are not integers that add up: nodes with a value of their own or below, and these.
    pub(crate) inclusive: (&'a [u8], &'a [u8]),
}

/// The first of numbers in order that is not less than this one.
pub(crate) fn place(numbers: &[u8], number: u32) -> usize {
    let (mut low, mut high) = (0, numbers.len() / 4);
    while low < high {
        let middle = low + (high - low) / 2;
        match u32_at(numbers, middle) < number {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

/// The same from a place on that is not behind it: steps that double, then halve.
fn place_from(numbers: &[u8], number: u32, from: usize) -> usize {
    let mut step = 1;
    while (from + step) * 4 <= numbers.len() && u32_at(numbers, from + step - 1) < number {
        step *= 2;
    }
    let (start, end) = (from + step / 2, (from + step).min(numbers.len() / 4));
    start + numbers.get(4 * start..4 * end).map_or(0, |between| place(between, number))
}

impl Costs<'_> {
    /// What a node costs itself.
    pub(crate) fn own(&self, node: u32) -> u64 {
        self.own_at(node, place(self.contexts, node))
    }

    /// The same of one node after the other; `from` is 0 before the first, and where one does not come after the one before it.
    pub(crate) fn next_own(&self, node: u32, from: &mut usize) -> u64 {
        *from = place_from(self.contexts, node, *from);
        self.own_at(node, *from)
    }

    fn own_at(&self, node: u32, place: usize) -> u64 {
        if place * 4 >= self.contexts.len() || u32_at(self.contexts, place) != node {
            return 0;
        }
        match self.rule.is_integer_sum() {
            true => u64_at(self.values, place + 1).wrapping_sub(u64_at(self.values, place)),
            false => u64_at(self.values, place),
        }
    }

    /// What a node costs with all below it, which `end` is behind.
    pub(crate) fn with_below(&self, node: u32, end: u32) -> u64 {
        if self.rule.is_integer_sum() {
            let sum = |context| u64_at(self.values, place(self.contexts, context));
            return sum(end).wrapping_sub(sum(node));
        }
        let (nodes, values) = self.inclusive;
        let place = place(nodes, node);
        if place * 4 < nodes.len() && u32_at(nodes, place) == node { u64_at(values, place) } else { 0 }
    }
}
