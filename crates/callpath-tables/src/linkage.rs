//! Calls through the linkage table of a module whose words are bound for good: those of the module's own procedures are made directly,
//! and those of other modules' through words that lead to where their copies take nodes.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use rustc_hash::FxHashMap;

/// Where a module's calls lead that go through words of its linkage table.
#[derive(Clone, Copy, Debug)]
pub struct Bound<'b> {
    /// Words that hold run-time addresses for good, by their own addresses: among them those of the linkage table.
    pub words: &'b FxHashMap<LinkAddr, u64>,
    /// Where the module lies in the program.
    pub module: &'b Range<u64>,
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
