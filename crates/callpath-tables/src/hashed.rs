//! Copies of a module's procedures that count paths in a hash table: what a module has of its own for that. What is shared is in
//! `callpath_format::shared::hashed`.

use callpath_format::address::LinkAddr;
use callpath_x86::rewrite::{THUNK_LEN_BYTES, thunk};

use crate::probes::Change;

/// What all copies of a module use: the routine's address, then the thunk that leads there.
pub(crate) struct HashedHead {
    at: LinkAddr,
}

impl HashedHead {
    const THUNK_AT: u64 = size_of::<u64>() as u64;

    /// To lie at `at`.
    pub(crate) fn new(at: LinkAddr) -> HashedHead {
        HashedHead { at }
    }

    /// Where the thunk is.
    pub(crate) fn thunk(&self) -> LinkAddr {
        LinkAddr(self.at.0.wrapping_add(HashedHead::THUNK_AT))
    }

    /// One past its last byte.
    pub(crate) fn end(&self) -> LinkAddr {
        LinkAddr(self.thunk().0.wrapping_add(THUNK_LEN_BYTES))
    }

    /// What is written.
    pub(crate) fn change(&self, routine: u64) -> Option<Change> {
        let thunk = thunk(self.thunk(), None, self.at)?;
        Some(Change { at: self.at, old: None, new: [&routine.to_le_bytes()[..], &thunk].concat() })
    }
}
