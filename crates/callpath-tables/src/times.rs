//! Copies of a module's procedures that measure the times of their paths: what a module has of its own for that. What copies do is in
//! `callpath_x86::rewrite`, what is shared in `callpath_format::shared::times`.

use callpath_format::address::LinkAddr;
use callpath_x86::rewrite::{THUNK_LEN_BYTES, Times, thunk};

use crate::probes::Change;

/// What measures times in a process.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The routines that a path begins with, that come before and behind a call, and that it ends with
    /// ([`callpath_format::shared::probe::Routines::begin_path`] and what follows).
    pub routines: [u64; 4],
    /// They are the general ones ([`Times::is_general`]).
    pub is_general: bool,
    /// Where calls alone are counted: an activation is read at the back edges of its procedure, too.
    pub at_back_edges: bool,
    /// The first number that no procedure has yet.
    pub first_procedure: u32,
}

/// What all copies of a module use: the routines' addresses, then thunks that lead there.
pub(crate) struct TimesHead {
    at: LinkAddr,
}

impl TimesHead {
    const ROUTINES: usize = 4;
    const THUNKS_AT: u64 = (TimesHead::ROUTINES * size_of::<u64>()) as u64;
    /// Its length, bytes.
    const LEN_BYTES: u64 = TimesHead::THUNKS_AT + TimesHead::ROUTINES as u64 * THUNK_LEN_BYTES;

    /// To lie at `at`.
    pub(crate) fn new(at: LinkAddr) -> TimesHead {
        TimesHead { at }
    }

    fn behind(&self, bytes: u64) -> LinkAddr {
        LinkAddr(self.at.0.wrapping_add(bytes))
    }

    /// Where the thunks are.
    pub(crate) fn thunks(&self) -> [LinkAddr; TimesHead::ROUTINES] {
        [0, 1, 2, 3].map(|number| self.behind(TimesHead::THUNKS_AT + number * THUNK_LEN_BYTES))
    }

    /// One past its last byte.
    pub(crate) fn end(&self) -> LinkAddr {
        self.behind(TimesHead::LEN_BYTES)
    }

    /// What is written.
    pub(crate) fn change(&self, routines: [u64; TimesHead::ROUTINES]) -> Option<Change> {
        let mut bytes = routines.map(u64::to_le_bytes).concat();
        for (number, at) in (0..).zip(self.thunks()) {
            bytes.extend(thunk(at, None, self.behind(number * size_of::<u64>() as u64))?);
        }
        Some(Change { at: self.at, old: None, new: bytes })
    }

    /// How a procedure measures, by its number, the first of its words of a lane, and where the word is that holds the lane's address.
    pub(crate) fn times(&self, timing: Timing, (number, word): (u32, u32), lane_word: i32) -> Times {
        let [begin, leave, resume, end] = self.thunks();
        Times { begin, leave, resume, end, lane_word, word, number, is_general: timing.is_general }
    }
}
