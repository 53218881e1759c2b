//! What changes at home: bytes, and branches that can be led elsewhere.

use callpath_format::address::LinkAddr;

use crate::encoding;

/// A call of one address, or a jump there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectBranch {
    /// One past its last byte.
    pub end: LinkAddr,
    /// Where it leads.
    pub target: LinkAddr,
    /// It is a call; else a jump, which leaves no return address.
    pub is_call: bool,
    /// It is a call that hands the callee the node of its context ([`crate::rewrite::Rewritten::entered_with_node`]).
    pub hands_node: bool,
}

impl DirectBranch {
    /// What makes it lead to another address: none if that is too far.
    pub fn redirected(&self, to: LinkAddr) -> Option<Patch> {
        let new = encoding::distance(self.end.0, to.0)?.to_le_bytes().to_vec();
        let old = encoding::distance(self.end.0, self.target.0)?.to_le_bytes().to_vec();
        Some(Patch { at: LinkAddr(self.end.0.wrapping_sub(new.len() as u64)), old, new })
    }
}

/// Bytes at home that change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Patch {
    /// Where.
    pub at: LinkAddr,
    /// What stands there.
    pub old: Vec<u8>,
    /// What is to stand there: as many bytes.
    pub new: Vec<u8>,
}

impl Patch {
    /// Whether it is a jump to an address that any distance reaches.
    pub fn leads_to(&self, to: LinkAddr) -> bool {
        encoding::jump(self.at.0, to.0).is_some_and(|jump| jump[..] == self.new[..])
    }

    /// Whether a jump is written; else the distance of a call.
    pub fn is_springboard(&self) -> bool {
        encoding::is_jump(&self.new)
    }
}
