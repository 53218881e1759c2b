//! Whether a word on the stack is a return address of generated code: by
//! the call before it and where that call continues.

use callpath_format::address::RunAddr;
use callpath_tables::recipes::generated::{
    LONGEST_CALL_BYTES, called_before, goes_on_by_pointer, goes_on_elsewhere, may_return_to,
};

use super::GeneratedCode;
use super::memory::Pages;

impl GeneratedCode {
    /// Retains the bytes before a return address, and the facts about the procedure that is called there.
    pub(crate) fn retain_call(&mut self, return_address: u64) {
        let call = RunAddr(return_address.saturating_sub(LONGEST_CALL_BYTES as u64))..RunAddr(return_address);
        if self.memory.retain(call) {
            self.may_be_called_from(RunAddr(return_address));
        }
    }

    /// Forgets facts about the code of files, which has changed.
    pub(crate) fn forget_calls(&mut self) {
        self.go_on.clear();
        self.dispatchers.clear();
    }

    /// Whether a call may have left this return address, which must lie in executable memory: one ends just before it,
    /// or it is a point in generated code from which the frame pointer leads on.
    pub(crate) fn is_behind_call(&self, return_address: RunAddr) -> bool {
        self.is_behind_some_call(return_address) || self.goes_on_by_pointer(return_address)
    }

    fn goes_on_by_pointer(&self, return_address: RunAddr) -> bool {
        let mut code = [0; 9];
        self.holds(return_address)
            && self.memory.read(return_address.0, &mut code) == code.len()
            && goes_on_by_pointer(&code)
    }

    /// Whether the call before `return_address` may be one of generated code: its target, if it names one, is such
    /// code, or continues in code that it does not name.
    pub(crate) fn may_be_called_from(&mut self, return_address: RunAddr) -> bool {
        let mut before = [0; LONGEST_CALL_BYTES];
        let start = return_address.0.wrapping_sub(before.len() as u64);
        if self.memory.read(start, &mut before) != before.len() {
            return true;
        }
        let Some(target) = called_before(&before, return_address) else { return true };
        if self.holds(target) {
            return true;
        }
        if let Some(known) = self.go_on.get(&target) {
            return *known;
        }
        let mut pages = Pages::new(&self.memory);
        let mut is_generated = false;
        let mut is_read = false;
        let goes_on = goes_on_elsewhere(target, |at, to| {
            is_generated |= self.holds(at);
            let got = if is_generated { 0 } else { pages.read(at, to) };
            is_read |= got > 0;
            got
        });
        // Nothing is learned from a process that has ended.
        if is_read || is_generated {
            self.go_on.insert(target, goes_on || is_generated);
        }
        goes_on || is_generated
    }

    /// The target of the call before `return_address`, if the code there names one.
    pub(crate) fn called_at(&self, return_address: RunAddr) -> Option<RunAddr> {
        let mut before = [0; LONGEST_CALL_BYTES];
        let start = return_address.0.wrapping_sub(before.len() as u64);
        let is_read = self.memory.read(start, &mut before) == before.len();
        called_before(&before, return_address).filter(|_| is_read)
    }

    fn is_behind_some_call(&self, return_address: RunAddr) -> bool {
        let mut before = [0; LONGEST_CALL_BYTES];
        let start = return_address.0.wrapping_sub(before.len() as u64);
        if self.memory.read(start, &mut before) == before.len() {
            return may_return_to(&before, return_address);
        }
        // The mapping may begin in between; two bytes are the shortest call.
        (2..before.len()).rev().any(|len| {
            let rest = &mut before[..len];
            self.memory.read(return_address.0.wrapping_sub(len as u64), rest) == len
                && may_return_to(rest, return_address)
        })
    }
}
