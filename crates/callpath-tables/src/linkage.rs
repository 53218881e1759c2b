//! Calls through the linkage table of a module whose words are bound for good: those of the module's own procedures are made directly,
//! and those of other modules' through words that lead to where their copies take nodes, or to their clones.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_format::frame::CloneNumber;
use rustc_hash::FxHashMap;

use crate::copies::{CloneCaller, OutwardLinks};

/// Where a module's calls lead that go through words of its linkage table.
#[derive(Clone, Copy, Debug)]
pub struct Bound<'b> {
    /// Words that hold run-time addresses for good, by their own addresses: among them those of the linkage table.
    pub words: &'b FxHashMap<LinkAddr, u64>,
    /// Where the module lies in the program.
    pub module: &'b Range<u64>,
}

/// A call of another module's clone, which a module's copies make through a word of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutwardCall {
    /// Whose call it is.
    pub caller: CloneCaller,
    /// The run-time address of the procedure that is cloned, and called as long as the clone is not there.
    pub callee: u64,
    /// The clone.
    pub clone: CloneNumber,
}

/// Words of ours that lead to clones of other modules' procedures, in the order of these calls.
pub(crate) struct OutwardWords<'o> {
    at: LinkAddr,
    calls: &'o [OutwardCall],
}

impl OutwardWords<'_> {
    /// To lie at an address, or behind it.
    pub(crate) fn new(calls: &[OutwardCall], at: LinkAddr) -> OutwardWords<'_> {
        OutwardWords { at: LinkAddr(at.0.next_multiple_of(size_of::<u64>() as u64)), calls }
    }

    /// One past the last.
    pub(crate) fn end(&self) -> LinkAddr {
        LinkAddr(self.at.0.saturating_add((self.calls.len() * size_of::<u64>()) as u64))
    }

    fn each(&self) -> impl Iterator<Item = (LinkAddr, &OutwardCall)> {
        let places = (self.at.0..).step_by(size_of::<u64>()).map(LinkAddr);
        places.zip(self.calls)
    }

    /// What they hold until the clones are there, if there are any.
    pub(crate) fn written(&self) -> Option<(LinkAddr, Vec<u8>)> {
        let bytes = self.calls.iter().flat_map(|call| call.callee.to_le_bytes()).collect();
        (!self.calls.is_empty()).then_some((self.at, bytes))
    }

    /// Which of these are to be called through.
    pub(crate) fn instead(&self, bound: Bound<'_>) -> OutwardLinks {
        let mut instead = FxHashMap::default();
        if self.calls.is_empty() {
            return instead;
        }
        let mut slots: FxHashMap<u64, Vec<LinkAddr>> = FxHashMap::default();
        for (slot, value) in bound.words {
            slots.entry(*value).or_default().push(*slot);
        }
        for (word, call) in self.each() {
            let slots = slots.get(&call.callee).into_iter().flatten();
            instead.extend(slots.map(|slot| ((call.caller, *slot), (word, call.clone))));
        }
        instead
    }

    /// Where each lies, what it holds until its clone is there, and that clone.
    pub(crate) fn to_clones(&self) -> Vec<(LinkAddr, u64, CloneNumber)> {
        self.each().map(|(word, call)| (word, call.callee, call.clone)).collect()
    }
}

/// The words of a module.
#[derive(Default)]
pub(crate) struct Linkage {
    /// Those that hold addresses of its own procedures.
    pub(crate) own: FxHashMap<LinkAddr, LinkAddr>,
    /// Others, with words of ours that hold the same.
    pub(crate) taking_nodes: FxHashMap<LinkAddr, LinkAddr>,
    at: LinkAddr,
    /// What ours hold.
    values: Vec<u64>,
}

impl Linkage {
    /// Words of ours are to lie at `at`. `bias`: run-time address minus link-time address of the module. `hands_nodes`: calls of other
    /// modules' procedures do.
    pub(crate) fn new(bound: Bound<'_>, at: LinkAddr, (bias, hands_nodes): (u64, bool)) -> Linkage {
        let Bound { words, module } = bound;
        let mut linkage =
            Linkage { at: LinkAddr(at.0.next_multiple_of(size_of::<u64>() as u64)), ..Linkage::default() };
        let mut sorted: Vec<(LinkAddr, u64)> = words.iter().map(|(at, value)| (*at, *value)).collect();
        sorted.sort_unstable();
        for (word, value) in sorted {
            if module.contains(&value) {
                linkage.own.insert(word, LinkAddr(value.wrapping_sub(bias)));
            } else if hands_nodes {
                linkage.taking_nodes.insert(word, linkage.end());
                linkage.values.push(value);
            }
        }
        linkage
    }

    /// One past the last of our words.
    pub(crate) fn end(&self) -> LinkAddr {
        LinkAddr(self.at.0.saturating_add((self.values.len() * size_of::<u64>()) as u64))
    }

    /// What is written, and where, if anything is.
    pub(crate) fn written(&self) -> Option<(LinkAddr, Vec<u8>)> {
        let bytes = self.values.iter().copied().flat_map(u64::to_le_bytes).collect();
        (!self.values.is_empty()).then_some((self.at, bytes))
    }

    /// Our words, which may lead to where copies of other modules take nodes: where they lie, and what they hold.
    pub(crate) fn taking_nodes(self) -> (LinkAddr, Vec<u64>) {
        (self.at, self.values)
    }
}
