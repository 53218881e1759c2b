//! How generated code without a frame of its own is left, as it was followed; remembered with the code that was read, for samples
//! meet the same instructions again and again.

use std::rc::Rc;

use callpath_format::address::RunAddr;
use callpath_tables::recipes::generated::{Continuation, Exits, JumpOperand, exits, jumped_to, uses_frame};
use callpath_target::has_memory;

use super::GeneratedCode;
use super::budget::Budget;
use super::memory::Pages;
use super::stretch::Witness;

/// So many instructions are remembered; then all are forgotten.
const MOST_FOLLOWED: usize = 1 << 12;

/// What following the code at an instruction has found.
pub(super) struct Followed {
    /// The pages that were read, by number, and a hash of each.
    pages: Box<[(u64, Option<u64>)]>,
    found: Rc<Exits>,
}

/// So many interpreters' jumps are remembered.
const MOST_DISPATCHERS: usize = 8;

impl GeneratedCode {
    /// How the code at `addr` is left, as it is now, or was at the process's end; `met`: as it was, where a sample met it.
    pub(crate) fn exits(&mut self, addr: RunAddr, met: &Witness) -> Rc<Exits> {
        let mut pages = Pages::as_met(&self.memory, met);
        if let Some(known) = self.followed.get(&addr)
            && (known.pages.iter().all(|(page, hash)| pages.hash(*page) == *hash) || !has_memory(self.pid))
        {
            return Rc::clone(&known.found);
        }
        if !self.budget.allows() {
            self.postponed = true;
            return Rc::default();
        }
        let began = Budget::now();
        let mut pages = Pages::as_met(&self.memory, met);
        let pointer = |at: RunAddr| {
            let mut bytes = [0; 8];
            let is_read = self.memory.read(at.0, &mut bytes) == bytes.len();
            is_read.then(|| RunAddr(u64::from_le_bytes(bytes)))
        };
        // What lies behind pointers may change, but has been where the code continues: it is not compared the next time.
        let found = Rc::new(exits(addr, |at| self.holds(at), |at, to| pages.read(at, to), pointer));
        self.budget.charge(began);
        if self.followed.len() >= MOST_FOLLOWED {
            self.followed.clear();
        }
        self.followed.insert(addr, Followed { pages: pages.hashes(), found: Rc::clone(&found) });
        found
    }

    /// Where the code at `addr` goes on that only jumps, if that is in generated code.
    pub(crate) fn jumped_to(&self, addr: RunAddr, met: &Witness) -> Option<RunAddr> {
        let mut pages = Pages::as_met(&self.memory, met);
        let read = |at, to: &mut [u8]| if self.holds(at) { pages.read(at, to) } else { 0 };
        jumped_to(addr, read).filter(|target| self.holds(*target))
    }

    /// Whether the code at `addr` uses what lies less than `size_bytes` below rbp.
    pub(crate) fn uses_frame(&self, addr: RunAddr, size_bytes: i64, met: &Witness) -> bool {
        let mut pages = Pages::as_met(&self.memory, met);
        uses_frame(addr, size_bytes, |at, to| if self.holds(at) { pages.read(at, to) } else { 0 })
    }

    /// An interpreter's jumps to which generated code has come back: other code that jumps to what it does not name may run in a
    /// frame of the same procedure.
    pub(crate) fn dispatchers(&self) -> &[(RunAddr, JumpOperand)] {
        &self.dispatchers
    }

    /// Remembers such a jump.
    pub(crate) fn note_dispatcher(&mut self, place: &Continuation) {
        let dispatcher = place.jump.map(|jump| (place.at, jump));
        let is_new = |it: &(RunAddr, JumpOperand)| !self.dispatchers.contains(it);
        if let Some(dispatcher) = dispatcher.filter(is_new)
            && self.dispatchers.len() < MOST_DISPATCHERS
        {
            self.dispatchers.push(dispatcher);
        }
    }
}
