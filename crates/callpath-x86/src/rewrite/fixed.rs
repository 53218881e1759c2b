//! What is known about a module's code from elsewhere (the ELF file, names).

use std::ops::Range;

use callpath_format::address::LinkAddr;
use rustc_hash::FxHashMap;

use super::refusal::{Reason, Refusal};
use crate::graph::ProcedureGraph;

/// Code that cannot be copied, by what others know of it, and code without copies. Lists are sorted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fixed {
    /// What a procedure must not contain, and why.
    pub ranges: Vec<(Range<LinkAddr>, Reason)>,
    /// `vfork`, stubs for it, and words that hold its address.
    pub vforks: Vec<LinkAddr>,
    /// Sections of stubs of the procedure linkage table, which have no copies.
    pub stubs: Vec<Range<LinkAddr>>,
    /// Words that such stubs jump through and that hold the address of a procedure of the module for good, with that address: it is called
    /// directly.
    pub bound: FxHashMap<LinkAddr, LinkAddr>,
    /// Words that such stubs jump through, with words of ours: a call that hands over a node ([`crate::rewrite::DirectBranch::hands_node`])
    /// goes through these, which hold where nodes are taken.
    pub taking_nodes: FxHashMap<LinkAddr, LinkAddr>,
}

impl Fixed {
    /// Whether an address is among the stubs of the linkage table.
    pub(super) fn is_stub(&self, at: LinkAddr) -> bool {
        let after = self.stubs.partition_point(|stubs| stubs.start <= at);
        after.checked_sub(1).and_then(|index| self.stubs.get(index)).is_some_and(|stubs| at < stubs.end)
    }

    /// What of a procedure is refused.
    pub(super) fn within(&self, graph: &ProcedureGraph) -> Option<Refusal> {
        let blocks = || graph.blocks.iter().map(|block| &block.code);
        let meets = |code: &Range<LinkAddr>| blocks().any(|block| block.start < code.end && code.start < block.end);
        let found = self.ranges.iter().find(|(code, _)| meets(code));
        found.map(|&(Range { start, .. }, reason)| Refusal { at: start, reason })
    }
}
