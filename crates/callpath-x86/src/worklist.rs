//! Worklists: pending entries, each once, and what is known of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::bitmap::Bitmap;
use crate::work;

/// A set of the numbers that a search has met.
pub(crate) trait Set {
    /// Adds a number. Returns whether it was new; false if the set has no room for it.
    fn add(&mut self, number: u32) -> bool;
}

impl Set for FxHashSet<u32> {
    fn add(&mut self, number: u32) -> bool {
        self.insert(number)
    }
}

impl Set for Vec<bool> {
    fn add(&mut self, number: u32) -> bool {
        self.get_mut(number as usize).is_some_and(|is_met| !std::mem::replace(is_met, true))
    }
}

impl Set for Bitmap {
    fn add(&mut self, number: u32) -> bool {
        self.insert(number)
    }
}

/// A search: the numbers met, and the pending ones, the last one first.
#[derive(Default)]
pub(crate) struct Search<S> {
    pub(crate) met: S,
    pending: Vec<u32>,
}

impl<S: Set> Search<S> {
    /// `met`: an empty set with room for the numbers.
    pub(crate) fn new(met: S) -> Search<S> {
        Search { met, pending: Vec::new() }
    }

    /// Makes a number pending, unless it was met before.
    #[inline]
    pub(crate) fn add(&mut self, number: u32) {
        if self.met.add(number) {
            self.pending.push(number);
        }
    }

    /// The next pending number.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<u32> {
        work::count();
        self.pending.pop()
    }
}

/// Pending blocks, each once, in an order known beforehand.
pub(crate) struct Ordered<'o> {
    /// The rank of each block.
    order: &'o [u32],
    heap: BinaryHeap<Reverse<(u32, u32)>>,
    is_in: Vec<bool>,
}

impl<'o> Ordered<'o> {
    pub(crate) fn new(order: &'o [u32]) -> Ordered<'o> {
        Ordered { order, heap: BinaryHeap::new(), is_in: vec![false; order.len()] }
    }

    /// Makes a block pending, also again after it was taken.
    pub(crate) fn add(&mut self, block: u32) {
        if let Some(&place) = self.order.get(block as usize)
            && self.is_in.add(block)
        {
            self.heap.push(Reverse((place, block)));
        }
    }

    pub(crate) fn next(&mut self) -> Option<u32> {
        work::count();
        let Reverse((_, block)) = self.heap.pop()?;
        self.is_in[block as usize] = false;
        Some(block)
    }
}

/// Blocks of a graph that is discovered while facts are carried along it: each has a number and a fact.
pub(crate) struct Discovered<F> {
    /// Indices in `facts`. Facts beyond the number of blocks are unused, and keep their memory.
    indices: FxHashMap<u32, u32>,
    facts: Vec<F>,
    pending: Vec<u32>,
}

impl<F> Default for Discovered<F> {
    fn default() -> Discovered<F> {
        Discovered { indices: FxHashMap::default(), facts: Vec::new(), pending: Vec::new() }
    }
}

impl<F> Discovered<F> {
    /// Forgets all blocks.
    pub(crate) fn clear(&mut self) {
        self.indices.clear();
        self.pending.clear();
    }

    /// Whether control has reached this block.
    pub(crate) fn contains(&self, block: u32) -> bool {
        self.indices.contains_key(&block)
    }

    /// The fact of a block.
    #[inline]
    pub(crate) fn get_mut(&mut self, block: u32) -> Option<&mut F> {
        self.indices.get(&block).and_then(|&index| self.facts.get_mut(index as usize))
    }

    /// Adds a new, pending block: `reuse` overwrites a fact that is no longer needed, `make` makes one.
    pub(crate) fn discover(&mut self, block: u32, reuse: impl FnOnce(&mut F), make: impl FnOnce() -> F) {
        let index = self.indices.len();
        self.indices.insert(block, index as u32);
        match self.facts.get_mut(index) {
            Some(fact) => reuse(fact),
            None => self.facts.push(make()),
        }
        self.pending.push(block);
    }

    /// The block's fact has changed: makes it pending again.
    pub(crate) fn wait_again(&mut self, block: u32) {
        self.pending.push(block);
    }

    /// The pending block to take next: the one added last.
    pub(crate) fn next(&mut self) -> Option<u32> {
        work::count();
        self.pending.pop()
    }

    /// Removes all pending entries.
    pub(crate) fn stop(&mut self) {
        self.pending.clear();
    }

    /// All blocks, in the order of discovery, with their facts.
    pub(crate) fn in_order(&self) -> Vec<(u32, &F)> {
        let mut blocks: Vec<(u32, u32)> = self.indices.iter().map(|(&block, &index)| (index, block)).collect();
        blocks.sort_unstable();
        blocks.into_iter().filter_map(|(index, block)| Some((block, self.facts.get(index as usize)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_waits_once() {
        let mut search = Search::new(vec![false; 3]);
        for number in [2, 0, 2, 7] {
            search.add(number);
        }
        assert_eq!([search.next(), search.next(), search.next()], [Some(0), Some(2), None]);
        search.add(0);
        assert_eq!(search.next(), None);
        assert_eq!(search.met, [true, false, true]);
    }

    #[test]
    fn blocks_come_in_order_and_may_come_again() {
        let mut pending = Ordered::new(&[2, 0, 1]);
        for block in [0, 1, 0, 2, 9] {
            pending.add(block);
        }
        assert_eq!([pending.next(), pending.next()], [Some(1), Some(2)]);
        pending.add(1);
        assert_eq!([pending.next(), pending.next(), pending.next()], [Some(1), Some(0), None]);
    }

    #[test]
    fn discovered_blocks_reuse_their_memory() {
        let mut blocks = Discovered::default();
        blocks.discover(40, |_: &mut String| unreachable!(), || "first".to_owned());
        blocks.discover(7, |_| unreachable!(), || "second".to_owned());
        assert!(blocks.contains(7) && !blocks.contains(8));
        let all = blocks.in_order().into_iter().map(|(block, fact)| (block, fact.as_str())).collect::<Vec<_>>();
        assert_eq!(all, [(40, "first"), (7, "second")]);
        assert_eq!([blocks.next(), blocks.next(), blocks.next()], [Some(7), Some(40), None]);
        blocks.wait_again(40);
        blocks.stop();
        assert_eq!(blocks.next(), None);
        blocks.clear();
        blocks.discover(3, |fact| fact.push('!'), || unreachable!());
        assert_eq!(blocks.get_mut(3).map(|fact| fact.clone()), Some("first!".to_owned()));
        assert_eq!(blocks.get_mut(40), None);
    }
}
