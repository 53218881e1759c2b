//! Writing code across the border of two pages, whole or not at all, also if callpath is killed.
//!
//! The kernel writes another process's memory page by page, and ends in between if the writer is killed. So a thread of the
//! process itself writes it: that one is not killed with callpath, and goes on from its shelter.

use std::fs::File;
use std::os::fd::AsRawFd;

use callpath_format::address::RunAddr;

use super::tracer::Tracer;
use crate::error::TargetError;
use crate::give::give;
use crate::remote_memory::{Mapping, PAGE_BYTES, checked, close, unmap};
use crate::traced::Traced;

impl Tracer {
    /// Writes bytes, of which some are in one page and some in the next.
    ///
    /// Where no thread can do it (a seccomp filter; a kernel that leaves a process's read-only memory to its tracer), callpath
    /// does, in two steps.
    pub(super) fn write_across(&mut self, at: RunAddr, bytes: &[u8]) -> Result<(), TargetError> {
        match self.write_by_itself(at, bytes) {
            Ok(()) => Ok(()),
            Err(_) => self.memory().write(at.0, bytes),
        }
    }

    fn write_by_itself(&mut self, at: RunAddr, bytes: &[u8]) -> Result<(), TargetError> {
        let thread = self.caller()?;
        let path = self.memory().path();
        let memory = File::options().write(true).open(&path).map_err(|source| TargetError::Read { path, source })?;
        let [descriptor] = give(self, thread, [memory.as_raw_fd()])?;
        let written = self.write_from_page(descriptor, (at, bytes));
        close(self, thread, &[descriptor])?;
        written
    }

    fn write_from_page(&mut self, descriptor: i32, (at, bytes): (RunAddr, &[u8])) -> Result<(), TargetError> {
        const REQUEST: &str = "a write to its own memory";
        let thread = self.caller()?;
        let len_bytes = bytes.len() as u64;
        let page = Mapping { at: None, len_bytes, protection: libc::PROT_READ, descriptor: None }.map(self, thread)?;
        let written = self.memory().write(page.0, bytes).and_then(|()| {
            let arguments = [descriptor as u64, page.0, len_bytes, at.0, 0, 0];
            Traced::system_call(self, thread, libc::SYS_pwrite64, arguments)
        });
        unmap(self, thread, (page, len_bytes.next_multiple_of(PAGE_BYTES)))?;
        match checked(self, REQUEST, written?)? as u64 {
            all if all == len_bytes => Ok(()),
            _ => Err(self.failed(REQUEST, "it wrote a part only")),
        }
    }
}

/// Whether bytes are in more than one page.
pub(super) fn is_across(at: RunAddr, len_bytes: usize) -> bool {
    at.0 % PAGE_BYTES + len_bytes as u64 > PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_at_the_end_of_a_page() {
        assert!(!is_across(RunAddr(0x1ffb), 5));
        assert!(is_across(RunAddr(0x1ffc), 5));
        assert!(is_across(RunAddr(0x1fff), 2));
        assert!(!is_across(RunAddr(0x2000), 5));
    }
}
