//! Found paths against true ones.
//! It must not know where either comes from.

use callpath_format::address::{LinkAddr, RunAddr};

use crate::modules::{Module, Modules};
use crate::stream::Event;
use crate::truth::Paths;

/// What a path that was found is worth.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Score {
    /// The true path.
    Exact,
    /// It holds an address that is not at its place in the true path, or continues where that ends.
    Wrong,
    /// The true path's inner part.
    Partial,
}

/// Compares a path with the true one.
pub fn score(found: &[u64], truth: &[u64]) -> Score {
    if found == truth {
        Score::Exact
    } else if truth.starts_with(found) {
        Score::Partial
    } else {
        Score::Wrong
    }
}

/// How many paths are worth what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// [`Score::Exact`].
    pub exact: u64,
    /// [`Score::Wrong`].
    pub wrong: u64,
    /// [`Score::Partial`].
    pub partial: u64,
}

impl Tally {
    /// Counts one.
    pub fn add(&mut self, score: Score) {
        match score {
            Score::Exact => self.exact += 1,
            Score::Wrong => self.wrong += 1,
            Score::Partial => self.partial += 1,
        }
    }

    /// All.
    pub fn snapshots(&self) -> u64 {
        self.exact + self.wrong + self.partial
    }
}

/// What a stream asked: of each snapshot its place in the code.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    lists: Vec<Modules>,
    snapshots: Vec<(u64, RunAddr, u32)>,
}

impl Asked {
    /// Takes a record of the stream, in the stream's order.
    pub fn event(&mut self, event: Event) {
        match event {
            Event::Modules(modules) => self.lists.push(modules),
            Event::Snapshot { id, pc } => self.snapshots.push((id, pc, self.lists.len() as u32)),
        }
    }

    /// Every snapshot with what was found and what is true. A missing answer is an empty one.
    pub fn scores<'a>(&'a self, found: &'a Paths, truths: &'a Paths) -> impl Iterator<Item = Scored<'a>> {
        self.snapshots.iter().filter_map(|&(id, pc, list)| {
            let truth = truths.get(id)?;
            let found = found.get(id).unwrap_or(&[]);
            let modules = (list as usize).checked_sub(1).and_then(|list| self.lists.get(list));
            Some(Scored { id, pc, modules, found, truth, score: score(found, truth) })
        })
    }
}

/// A snapshot, and what became of it.
#[derive(Clone, Copy, Debug)]
pub struct Scored<'a> {
    /// Its number.
    pub id: u64,
    /// The next instruction.
    pub pc: RunAddr,
    modules: Option<&'a Modules>,
    /// What the walk found.
    pub found: &'a [u64],
    /// What is true.
    pub truth: &'a [u64],
    /// What that makes.
    pub score: Score,
}

impl Scored<'_> {
    /// The module and the place in it of an address at the time.
    pub fn locate(&self, addr: RunAddr) -> Option<(&Module, LinkAddr)> {
        let (index, link) = self.modules?.code_at(addr)?;
        Some((self.modules?.modules.get(index)?, link))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores() {
        assert_eq!(score(&[], &[]), Score::Exact);
        assert_eq!(score(&[1, 2], &[1, 2]), Score::Exact);
        assert_eq!(score(&[1], &[1, 2]), Score::Partial);
        assert_eq!(score(&[], &[1, 2]), Score::Partial);
        assert_eq!(score(&[1, 2, 3], &[1, 2]), Score::Wrong);
        assert_eq!(score(&[1, 3], &[1, 2]), Score::Wrong);
        assert_eq!(score(&[2], &[]), Score::Wrong);
    }
}
