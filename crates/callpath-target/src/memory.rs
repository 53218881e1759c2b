//! Memory that callpath makes for others to map, and the kernel's own object in every process.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use callpath_format::address::RunAddr;

use crate::error::TargetError;
use crate::listed::living_thread;
use crate::maps::MapEntry;
use crate::pid::Pid;

/// A memory file, mapped here from beginning to end. Only what has been [backed](SharedMemory::back) may be touched.
#[derive(Debug)]
pub struct SharedMemory {
    descriptor: OwnedFd,
    base: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: owns its mapping; access goes through types that are made for sharing.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// A file of `len_bytes` bytes, none of them backed by memory yet.
    pub fn create(name: &std::ffi::CStr, len_bytes: usize) -> Result<SharedMemory, TargetError> {
        let error = || TargetError::SharedMemory { len_bytes, source: std::io::Error::last_os_error() };
        // SAFETY: a valid name.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if fd < 0 {
            return Err(error());
        }
        // SAFETY: a new descriptor that no other code owns.
        let descriptor = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: a plain call on our own descriptor.
        if unsafe { libc::ftruncate(fd, len_bytes as libc::off_t) } != 0 {
            return Err(error());
        }
        SharedMemory::mapped(descriptor, len_bytes)
    }

    /// Maps the file.
    fn mapped(descriptor: OwnedFd, len_bytes: usize) -> Result<SharedMemory, TargetError> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE);
        // SAFETY: a new mapping at a place of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len_bytes, protection, flags, descriptor.as_raw_fd(), 0) };
        match NonNull::new(base.cast::<u8>()) {
            Some(at) if base != libc::MAP_FAILED => Ok(SharedMemory { descriptor, base: at, len_bytes }),
            _ => Err(TargetError::SharedMemory { len_bytes, source: std::io::Error::last_os_error() }),
        }
    }

    /// Gives the memory up, unless a process can still write into it: then it is returned, mapped again.
    ///
    /// # Errors
    /// If it cannot be mapped again: what is in it is lost here.
    pub fn give_up(self) -> Result<Option<SharedMemory>, TargetError> {
        let len_bytes = self.len_bytes;
        let descriptor =
            self.descriptor.try_clone().map_err(|source| TargetError::SharedMemory { len_bytes, source })?;
        drop(self);
        // SAFETY: a plain call on our own descriptor. The kernel seals only what nobody can write into.
        let sealed = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_WRITE) };
        if sealed == 0 { Ok(None) } else { SharedMemory::mapped(descriptor, len_bytes).map(Some) }
    }

    /// Gives the memory behind a range back, in whole pages: it is zeroes again.
    pub fn discard(&self, offset: usize, len_bytes: usize) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a plain call on our own descriptor. Where it fails, the memory stays.
        unsafe { libc::fallocate(self.descriptor.as_raw_fd(), mode, offset as libc::off_t, len_bytes as libc::off_t) };
    }

    /// The descriptor's number, by which others can open it under /proc.
    pub fn descriptor(&self) -> i32 {
        self.descriptor.as_raw_fd()
    }

    /// It as a file, whose reads back no memory.
    pub fn file(&self) -> Result<std::fs::File, TargetError> {
        let error = |source| TargetError::SharedMemory { len_bytes: self.len_bytes, source };
        Ok(std::fs::File::from(self.descriptor.try_clone().map_err(error)?))
    }

    /// Whether a process has this memory mapped, by its map.
    pub fn is_mapped_in(&self, maps: &crate::maps::Maps) -> bool {
        self.mappings_in(maps).next().is_some()
    }

    /// Where a process has all of it mapped in one piece.
    pub fn whole_in(&self, maps: &crate::maps::Maps) -> Option<RunAddr> {
        let is_whole = |entry: &&MapEntry| {
            entry.file_offset == 0 && entry.end.0 - entry.start.0 >= self.len_bytes as u64 && entry.readable
        };
        self.mappings_in(maps).find(is_whole).map(|entry| entry.start)
    }

    fn mappings_in<'m>(&self, maps: &'m crate::maps::Maps) -> impl Iterator<Item = &'m MapEntry> + use<'m> {
        let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: our own descriptor and a valid place.
        let result = unsafe { libc::fstat(self.descriptor.as_raw_fd(), status.as_mut_ptr()) };
        // SAFETY: filled in, or zeroes.
        let inode = (result == 0).then(|| unsafe { status.assume_init() }.st_ino);
        let is_ours = |path: &std::path::Path| path.as_os_str().as_encoded_bytes().starts_with(b"/memfd:callpath-");
        maps.entries
            .iter()
            .filter(move |entry| inode.is_some() && entry.file.map(|file| file.inode) == inode && is_ours(&entry.path))
    }

    /// The first byte.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Length, bytes.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Backs a range with memory, so that no store to it can fail. What was there stays.
    pub fn back(&self, offset: usize, len_bytes: usize) -> Result<(), TargetError> {
        // SAFETY: a plain call on our own descriptor.
        let result =
            unsafe { libc::fallocate(self.descriptor.as_raw_fd(), 0, offset as libc::off_t, len_bytes as libc::off_t) };
        if result != 0 {
            return Err(TargetError::SharedMemory { len_bytes, source: std::io::Error::last_os_error() });
        }
        Ok(())
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: unmaps our own mapping; who holds references into it borrows from `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len_bytes) };
    }
}

/// Reads another process's memory into `into`; fewer bytes than asked for where it ends, none where this user may not
/// look.
pub fn read_memory(pid: Pid, addr: u64, into: &mut [u8]) -> usize {
    match read_memory_of(pid, addr, into) {
        0 if !into.is_empty() && has_failed_for_want_of_a_process() => {
            heir_of(pid).map_or(0, |heir| read_memory_of(heir, addr, into))
        }
        got => got,
    }
}

fn has_failed_for_want_of_a_process() -> bool {
    std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// The thread by which the memory of a process is reached whose first thread has ended before others.
fn heir_of(pid: Pid) -> Option<Pid> {
    // Of a process that has ended, much may be asked. Who takes its number later is not known here as having ended.
    static GONE: AtomicU32 = AtomicU32::new(0);
    if GONE.load(Relaxed) == pid.0 {
        return None;
    }
    // A first thread that is ending gives up its memory before it has ended.
    let living = living_thread(pid);
    if living.is_none() {
        GONE.store(pid.0, Relaxed);
    }
    living.filter(|heir| *heir != pid)
}

fn read_memory_of(pid: Pid, addr: u64, into: &mut [u8]) -> usize {
    let mut got = 0;
    while got < into.len() {
        let rest = &mut into[got..];
        let local = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
        let at = addr.wrapping_add(got as u64);
        let remote = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: rest.len() };
        // SAFETY: the local part is a valid slice; the other is looked at in the other process only.
        let more = unsafe { libc::process_vm_readv(pid.0 as i32, &local, 1, &remote, 1, 0) };
        match usize::try_from(more) {
            Ok(0) | Err(_) => break,
            Ok(more) => got += more,
        }
    }
    got
}

/// Whether a process has memory still. It loses it some time before it has ended: while its last pages are freed.
pub fn has_memory(pid: Pid) -> bool {
    let has_it = |thread: Pid| is_readable(thread) || !has_failed_for_want_of_a_process();
    has_it(pid) || heir_of(pid).is_some_and(has_it)
}

fn is_readable(pid: Pid) -> bool {
    let mut byte = 0_u8;
    let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // Nothing is ever mapped there: where there is memory, it is the address that is wrong.
    let remote = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 1 };
    // SAFETY: the local part is a valid byte; the other is looked at in the other process only.
    let read = unsafe { libc::process_vm_readv(pid.0 as i32, &local, 1, &remote, 1, 0) };
    read >= 0
}

/// A copy of the kernel's virtual shared object, which is the same in every 64-bit process.
pub fn own_vdso() -> Option<Vec<u8>> {
    let maps = crate::maps::Maps::read(Pid(std::process::id())).ok()?;
    let entry = maps.entries.iter().find(|e| e.path.as_os_str() == "[vdso]" && e.readable)?;
    let len = (entry.end.0 - entry.start.0) as usize;
    // SAFETY: the kernel keeps it mapped and unchanged as long as the process lives.
    Some(unsafe { std::slice::from_raw_parts(entry.start.0 as *const u8, len) }.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_up_when_nobody_else_writes_into_it() {
        let memory = SharedMemory::create(c"callpath-test", 1 << 20).expect("memory");
        // SAFETY: within the memory.
        unsafe { memory.base().write(7) };
        let file = memory.file().expect("a descriptor");
        let map = |len_bytes: usize| {
            let (protection, descriptor) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
            // SAFETY: a new mapping at a place of the kernel's choice.
            unsafe { libc::mmap(std::ptr::null_mut(), len_bytes, protection, libc::MAP_SHARED, descriptor, 0) }
        };
        let others = map(4096);
        assert_ne!(others, libc::MAP_FAILED);
        let memory = memory.give_up().expect("it can be mapped again").expect("it is used");
        // SAFETY: within the memory.
        assert_eq!(unsafe { memory.base().read() }, 7);
        memory.discard(0, 4096);
        // SAFETY: as above.
        assert_eq!(unsafe { memory.base().read() }, 0);
        // SAFETY: unmaps what was mapped above.
        unsafe { libc::munmap(others, 4096) };
        // A child that another test of this process has forked maps it, too, until that ends.
        let begun = std::time::Instant::now();
        let mut still_used = Some(memory);
        while let Some(memory) = still_used {
            assert!(begun.elapsed() < std::time::Duration::from_secs(30), "nothing is mapped, but it is used");
            std::thread::sleep(std::time::Duration::from_millis(1));
            still_used = memory.give_up().expect("it can be given up, or mapped again");
        }
        assert_eq!(map(4096), libc::MAP_FAILED, "nobody can write into it any more");
    }
}
