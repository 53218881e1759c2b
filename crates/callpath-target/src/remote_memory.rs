//! Memory that a stopped process gets by system calls of its own.

use std::os::fd::RawFd;

use callpath_format::address::RunAddr;

use crate::edits::NewMemory;
use crate::error::TargetError;
use crate::give::give;
use crate::memory::SharedMemory;
use crate::pid::Pid;
use crate::task_status::TaskStatus;
use crate::traced::Traced;

pub(crate) const PAGE_BYTES: u64 = 4096;
/// The size of a large page, bytes, and its alignment. Much code runs faster in large pages: the processor knows where few of the small ones lie.
pub const LARGE_PAGE_BYTES: u64 = 2 << 20;
/// So much code, bytes, is worth large pages.
pub const WORTH_LARGE_PAGES_BYTES: u64 = 256 << 10;
const MAPPING: &str = "mapping memory";
pub(crate) const PROTECTING: &str = "protecting memory";

/// What is mapped.
pub(crate) struct Mapping {
    /// Where; nothing may be there. `None`: where the kernel likes.
    pub(crate) at: Option<RunAddr>,
    pub(crate) len_bytes: u64,
    /// `PROT_*`
    pub(crate) protection: i32,
    /// A descriptor in the process, mapped shared from its beginning. `None`: private memory of zeros.
    pub(crate) descriptor: Option<i32>,
}

impl Mapping {
    pub(crate) fn map(&self, traced: &mut impl Traced, thread: Pid) -> Result<RunAddr, TargetError> {
        let of_file =
            if self.descriptor.is_some() { libc::MAP_SHARED } else { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS };
        let at_place = if self.at.is_some() { libc::MAP_FIXED_NOREPLACE } else { 0 };
        let file = self.descriptor.map_or(u64::MAX, |descriptor| descriptor as u64);
        let len = self.len_bytes.next_multiple_of(PAGE_BYTES);
        let at = self.at.map_or(0, |at| at.0);
        let arguments = [at, len, self.protection as u64, (of_file | at_place) as u64, file, 0];
        let mapped = traced.system_call(thread, libc::SYS_mmap, arguments)?;
        let mapped = RunAddr(checked(traced, MAPPING, mapped)? as u64);
        if self.at.is_some_and(|at| at != mapped) {
            // A kernel before 4.17 takes the address for a wish.
            unmap(traced, thread, (mapped, len))?;
            return Err(traced.failed(MAPPING, "there is other memory"));
        }
        Ok(mapped)
    }
}

/// Takes memory away.
pub(crate) fn unmap(traced: &mut impl Traced, thread: Pid, (at, len): (RunAddr, u64)) -> Result<(), TargetError> {
    let unmapped = traced.system_call(thread, libc::SYS_munmap, [at.0, len, 0, 0, 0, 0])?;
    checked(traced, "unmapping memory", unmapped).map(drop)
}

/// Maps what a plan of changes asks for.
pub(crate) fn map(traced: &mut impl Traced, thread: Pid, memory: &NewMemory<'_>) -> Result<(), TargetError> {
    match memory {
        NewMemory::Code { at, len_bytes } => {
            let protection = libc::PROT_READ | libc::PROT_EXEC;
            let mapping = Mapping { at: Some(*at), len_bytes: *len_bytes, protection, descriptor: None };
            mapping.map(traced, thread)?;
            if at.0.next_multiple_of(LARGE_PAGE_BYTES).saturating_add(LARGE_PAGE_BYTES)
                <= at.0.saturating_add(*len_bytes)
            {
                // Where the kernel has none, the pages are small ones, and nothing else changes.
                let advice = [at.0, *len_bytes, libc::MADV_HUGEPAGE as u64, 0, 0, 0];
                traced.system_call(thread, libc::SYS_madvise, advice)?;
            }
            Ok(())
        }
        NewMemory::Shared { at, memory } => {
            map_shared(traced, thread, [SharedMapping { memory, at: Some(*at), writable: true }]).map(drop)
        }
    }
}

/// Memory of callpath's in a process, from beginning to end.
#[derive(Clone, Copy, Debug)]
pub struct SharedMapping<'m> {
    /// The memory.
    pub memory: &'m SharedMemory,
    /// Where. `None`: where the kernel likes.
    pub at: Option<RunAddr>,
    /// The process writes it, too.
    pub writable: bool,
}

/// Maps memories of ours; all or none.
pub(crate) fn map_shared<const N: usize>(
    traced: &mut impl Traced,
    thread: Pid,
    memories: [SharedMapping<'_>; N],
) -> Result<[RunAddr; N], TargetError> {
    let descriptors = give(traced, thread, memories.map(|mapping| mapping.memory.descriptor()))?;
    let locks = TaskStatus::read(traced.memory().pid(), thread).is_some_and(|status| status.locked_kb > 0);
    let mut mapped = [RunAddr(0); N];
    let mut outcome = Ok(());
    for ((mapping, descriptor), place) in memories.iter().zip(descriptors).zip(&mut mapped) {
        match map_descriptor(traced, thread, (mapping, descriptor, locks)) {
            Ok(at) => *place = at,
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
    }
    close(traced, thread, &descriptors)?;
    if outcome.is_err() {
        for (mapping, at) in memories.iter().zip(mapped).filter(|(_, at)| at.0 != 0) {
            unmap(traced, thread, (at, mapping.memory.len_bytes() as u64))?;
        }
    }
    outcome.map(|()| mapped)
}

/// Closes descriptors that were opened for callpath: all at once where there are no others between.
pub(crate) fn close(traced: &mut impl Traced, thread: Pid, descriptors: &[RawFd]) -> Result<(), TargetError> {
    let mut sorted = descriptors.to_vec();
    sorted.sort_unstable();
    if let (Some(first), Some(last)) = (sorted.first(), sorted.last())
        && sorted.windows(2).all(|pair| matches!(pair, [one, other] if one.checked_add(1) == Some(*other)))
        && traced.system_call(thread, libc::SYS_close_range, [*first as u64, *last as u64, 0, 0, 0, 0])? == 0
    {
        return Ok(());
    }
    // A kernel before 5.9, or a filter.
    for descriptor in sorted {
        traced.system_call(thread, libc::SYS_close, [descriptor as u64, 0, 0, 0, 0, 0])?;
    }
    Ok(())
}

/// Maps one memory, of which the process has a descriptor. A process that `locks` keeps all of its memory in RAM.
fn map_descriptor(
    traced: &mut impl Traced,
    thread: Pid,
    (mapping, descriptor, locks): (&SharedMapping<'_>, RawFd, bool),
) -> Result<RunAddr, TargetError> {
    let len_bytes = mapping.memory.len_bytes() as u64;
    let protection = if mapping.writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
    let first = if locks { libc::PROT_NONE } else { protection };
    let mapping = Mapping { at: mapping.at, len_bytes, protection: first, descriptor: Some(descriptor) };
    let mapped = mapping.map(traced, thread)?;
    if locks {
        // Most of it is never used: it must not take RAM, as all new memory of such a process does (`mlockall`).
        let at = mapped.0;
        let unlocked = traced.system_call(thread, libc::SYS_munlock, [at, len_bytes, 0, 0, 0, 0])?;
        let protect = [at, len_bytes, protection as u64, 0, 0, 0];
        let protected = traced.system_call(thread, libc::SYS_mprotect, protect)?;
        let outcome =
            checked(traced, "unlocking memory", unlocked).and_then(|_| checked(traced, PROTECTING, protected));
        if let Err(error) = outcome {
            unmap(traced, thread, (mapped, len_bytes))?;
            return Err(error);
        }
    }
    Ok(mapped)
}

/// The result of a system call that the program made for us, or its error.
pub(crate) fn checked(traced: &impl Traced, request: &'static str, result: i64) -> Result<i64, TargetError> {
    if result >= 0 {
        return Ok(result);
    }
    let error = -result as i32;
    // What a process may have forbidden itself, or been forbidden.
    let why = match (request, error) {
        (MAPPING | PROTECTING, libc::ENOMEM) => Some("its memory is limited (ulimit -v, ulimit -d), or there is none"),
        (MAPPING, libc::EAGAIN) => {
            Some("it keeps all of its memory in RAM (mlockall), and that is limited (ulimit -l)")
        }
        (_, libc::EMFILE) => Some("it may have no more of them (ulimit -n)"),
        _ => None,
    };
    let source = std::io::Error::from_raw_os_error(error);
    let source = why.map(|why| std::io::Error::other(format!("{source}: {why}"))).unwrap_or(source);
    Err(TargetError::Trace { request, pid: traced.memory().pid(), source })
}
