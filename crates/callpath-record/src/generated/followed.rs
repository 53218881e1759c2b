//! Where generated code continues in an interpreter's, as it was followed; remembered with the code that was read, for samples
//! meet the same instructions again and again.

use std::rc::Rc;

use callpath_format::address::RunAddr;
use callpath_tables::recipes::generated::{Continuation, continuations};
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
    found: Rc<[Continuation]>,
}

impl GeneratedCode {
    /// Where the code at `addr` continues in code of files, as it is now, or was at the process's end; `met`: as it was, where a
    /// sample met it.
    pub(crate) fn continuations(&mut self, addr: RunAddr, met: &Witness) -> Rc<[Continuation]> {
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
        let found = continuations(addr, |at| self.holds(at), |at, to| pages.read(at, to), pointer);
        let found: Rc<[Continuation]> = found.into();
        self.budget.charge(began);
        if self.followed.len() >= MOST_FOLLOWED {
            self.followed.clear();
        }
        self.followed.insert(addr, Followed { pages: pages.hashes(), found: Rc::clone(&found) });
        found
    }
}
