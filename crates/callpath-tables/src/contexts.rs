//! Copies of a module's procedures that count their activations in calling contexts (Ammons, Ball and Larus 1997, section 4):
//! what a module has of its own for that. What copies do is in `callpath_format::shared::activation`.

use callpath_format::address::LinkAddr;
use callpath_format::shared::activation::CopiesWords;
use callpath_x86::rewrite::{Contexts, THUNK_LEN_BYTES, thunk};

use crate::probes::Change;

/// What finds contexts in a process.
#[derive(Clone, Copy, Debug)]
pub struct Descending {
    /// The routine ([`callpath_format::shared::probe::Routines::descend`]).
    pub routine: u64,
    /// The first number that no procedure has yet.
    pub first_procedure: u32,
    /// Whether recursion is a back edge of the calling context tree ([`callpath_format::shared::Settings::BACK_EDGES`]).
    pub has_back_edges: bool,
    /// Whether the module may go while the program runs ([`Contexts::may_go`]).
    pub may_go: bool,
}

/// What all copies of a module use.
///
/// ```text
/// at        CopiesWords, zeroes at first
/// + 40      the routine's address
/// + 48      the thunk that leads there
/// ```
pub(crate) struct ContextsHead {
    at: LinkAddr,
    descending: Descending,
}

impl ContextsHead {
    const ROUTINE_AT: u64 = (CopiesWords::COUNT * size_of::<u64>()) as u64;
    const THUNK_AT: u64 = ContextsHead::ROUTINE_AT + size_of::<u64>() as u64;
    /// Its length, bytes.
    const LEN_BYTES: u64 = ContextsHead::THUNK_AT + THUNK_LEN_BYTES;

    /// To lie at `at`.
    pub(crate) fn new(at: LinkAddr, descending: Descending) -> ContextsHead {
        ContextsHead { at, descending }
    }

    fn behind(&self, bytes: u64) -> LinkAddr {
        LinkAddr(self.at.0.wrapping_add(bytes))
    }

    /// Where the thunk is.
    pub(crate) fn thunk(&self) -> LinkAddr {
        self.behind(ContextsHead::THUNK_AT)
    }

    /// One past its last byte.
    pub(crate) fn end(&self) -> LinkAddr {
        self.behind(ContextsHead::LEN_BYTES)
    }

    /// What is written.
    pub(crate) fn change(&self, routine: u64) -> Option<Change> {
        let mut bytes = vec![0; ContextsHead::ROUTINE_AT as usize];
        bytes.extend(routine.to_le_bytes());
        bytes.extend(thunk(self.thunk(), None, self.behind(ContextsHead::ROUTINE_AT))?);
        Some(Change { at: self.at, old: None, new: bytes })
    }

    /// How a procedure counts, by its number and the run-time address of its first instruction.
    pub(crate) fn contexts(&self, number: u32, entry: u64) -> Contexts {
        let Descending { has_back_edges, may_go, .. } = self.descending;
        Contexts { number, entry, routine: self.thunk(), words: self.at, has_back_edges, may_go }
    }
}
