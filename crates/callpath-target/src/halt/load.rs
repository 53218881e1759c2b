//! Mapping a freestanding object into a stopped process.

use callpath_format::address::RunAddr;

use super::tracer::Tracer;
use crate::error::TargetError;
use crate::object::FreestandingObject;
use crate::pid::Pid;
use crate::remote_memory::{self, Mapping, PAGE_BYTES};
use crate::traced::Traced;

/// How an object is mapped at first.
const AS_MAPPED: i32 = libc::PROT_READ | libc::PROT_EXEC;

/// An object in a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadedObject {
    base: RunAddr,
    len_bytes: u64,
    symbols: Vec<(String, RunAddr)>,
}

impl LoadedObject {
    /// Where it begins.
    pub fn base(&self) -> RunAddr {
        self.base
    }

    /// How long it is, from its first page to its last.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Where a symbol of its dynamic symbol table is.
    pub fn symbol(&self, name: &str) -> Option<RunAddr> {
        self.symbols.iter().find(|(symbol, _)| symbol == name).map(|(_, at)| *at)
    }
}

impl Tracer {
    /// As [`super::Halted::load`].
    pub(super) fn load(&mut self, object: &[u8], at: Option<RunAddr>) -> Result<LoadedObject, TargetError> {
        let pid = self.pid;
        let object = FreestandingObject::parse(object).map_err(|why| TargetError::Object { pid, why })?;
        let thread = self.caller()?;
        // Executable from the beginning, and written from outside: a process may have forbidden that memory becomes
        // executable later (PR_SET_MDWE).
        let mapping = Mapping { at, len_bytes: object.len_bytes(), protection: AS_MAPPED, descriptor: None };
        let base = mapping.map(self, thread)?;
        let filled = self.fill(thread, &object, base);
        if let Err(error) = filled {
            remote_memory::unmap(self, thread, (base, object.len_bytes()))?;
            return Err(error);
        }
        let symbols = object.symbols.iter().map(|(name, at)| (name.clone(), RunAddr(base.0.wrapping_add(*at))));
        Ok(LoadedObject { base, len_bytes: object.len_bytes(), symbols: symbols.collect() })
    }

    fn fill(&mut self, thread: Pid, object: &FreestandingObject, base: RunAddr) -> Result<(), TargetError> {
        self.memory().write(base.0, &object.image_at(base.0))?;
        // Gaps between segments are not for anything.
        let mut free = 0;
        for segment in &object.segments {
            let pages = segment.pages(PAGE_BYTES);
            self.protect(thread, (base, free..pages.start), libc::PROT_NONE)?;
            free = pages.end;
            if segment.protection != AS_MAPPED {
                self.protect(thread, (base, pages), segment.protection)?;
            }
        }
        Ok(())
    }

    fn protect(
        &mut self,
        thread: Pid,
        (base, range): (RunAddr, std::ops::Range<u64>),
        protection: i32,
    ) -> Result<(), TargetError> {
        if range.is_empty() {
            return Ok(());
        }
        let arguments = [base.0.wrapping_add(range.start), range.end - range.start, protection as u64, 0, 0, 0];
        let protected = Traced::system_call(self, thread, libc::SYS_mprotect, arguments)?;
        remote_memory::checked(self, remote_memory::PROTECTING, protected).map(drop)
    }
}
