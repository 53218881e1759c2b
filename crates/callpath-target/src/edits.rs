//! Changes of a stopped program's memory, as data: what is mapped, what is written. Who plans them decides what they mean.

use std::os::fd::RawFd;

use callpath_format::address::RunAddr;

use crate::error::TargetError;
use crate::memory::SharedMemory;
use crate::pid::Pid;
use crate::step::Stepper;

/// Changes of a program's memory, in the order in which they are made.
#[derive(Debug, Default)]
pub struct Edits<'m> {
    /// New memory.
    pub memory: Vec<NewMemory<'m>>,
    /// What is written then: first where nothing stood before.
    pub writes: Vec<Write>,
}

/// Memory that the program gets.
#[derive(Debug)]
pub enum NewMemory<'m> {
    /// For code: the program can read and execute it, not write it.
    Code {
        /// Where. Nothing may be there.
        at: RunAddr,
        /// Its length.
        len_bytes: u64,
    },
    /// Memory of ours that the program writes, too.
    Shared {
        /// Where. Nothing may be there.
        at: RunAddr,
        /// The memory, mapped from beginning to end.
        memory: &'m SharedMemory,
    },
}

/// Bytes that are written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// Where.
    pub at: RunAddr,
    /// What must stand there before, as many bytes; none in new memory.
    pub old: Option<Vec<u8>>,
    /// What is to stand there.
    pub new: Vec<u8>,
}

impl Stepper {
    /// Makes the changes. All threads of the program must stand still, `thread` outside of the kernel, and none where
    /// bytes change. If any of the old bytes differ, nothing has been changed but that new memory is there.
    ///
    /// # Errors
    /// If memory cannot be mapped, or bytes are not what they should be.
    pub fn apply(&mut self, thread: Pid, edits: &Edits<'_>) -> Result<(), TargetError> {
        for memory in &edits.memory {
            self.map(thread, memory)?;
        }
        for write in &edits.writes {
            self.expect(write.at, write.old.as_deref())?;
        }
        let (new, changed): (Vec<&Write>, Vec<&Write>) = edits.writes.iter().partition(|write| write.old.is_none());
        for write in new.into_iter().chain(changed) {
            self.write(write.at.0, &write.new)?;
        }
        Ok(())
    }

    /// Puts back what stood where bytes were changed. New memory stays: a thread may come back to it. Under the same
    /// conditions as [`Stepper::apply`].
    ///
    /// # Errors
    /// If the bytes are no longer those that were written; then nothing has been changed.
    pub fn undo(&mut self, edits: &Edits<'_>) -> Result<(), TargetError> {
        let changed = || edits.writes.iter().filter_map(|write| Some((write, write.old.as_ref()?)));
        for (write, _) in changed() {
            self.expect(write.at, Some(&write.new))?;
        }
        for (write, old) in changed() {
            self.write(write.at.0, old)?;
        }
        Ok(())
    }

    /// Fails if other bytes stand there.
    fn expect(&self, at: RunAddr, bytes: Option<&[u8]>) -> Result<(), TargetError> {
        let Some(bytes) = bytes else { return Ok(()) };
        let mut there = vec![0; bytes.len()];
        if self.read(at.0, &mut there) == there.len() && there == bytes {
            return Ok(());
        }
        Err(TargetError::OtherBytes { at, pid: self.pid() })
    }

    fn map(&mut self, thread: Pid, memory: &NewMemory<'_>) -> Result<(), TargetError> {
        const PAGE: u64 = 4096;
        let (at, len, protection, flags, descriptor) = match memory {
            NewMemory::Code { at, len_bytes } => {
                (at, len_bytes.next_multiple_of(PAGE), libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE, None)
            }
            NewMemory::Shared { at, memory } => {
                let descriptor = self.open_there(thread, memory)?;
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                (at, memory.len_bytes() as u64, protection, libc::MAP_SHARED, Some(descriptor))
            }
        };
        let of_file = if descriptor.is_some() { 0 } else { libc::MAP_ANONYMOUS };
        let flags = flags | libc::MAP_FIXED_NOREPLACE | of_file;
        let file = descriptor.map_or(u64::MAX, |descriptor| descriptor as u64);
        let arguments = [at.0, len, protection as u64, flags as u64, file, 0];
        let mapped = self.system_call(thread, libc::SYS_mmap, arguments)?;
        if let Some(descriptor) = descriptor {
            self.system_call(thread, libc::SYS_close, [descriptor as u64, 0, 0, 0, 0, 0])?;
        }
        self.checked("mapping memory", if mapped as u64 == at.0 { 0 } else { mapped })?;
        Ok(())
    }

    /// Opens memory of ours in the program: a descriptor there.
    fn open_there(&mut self, thread: Pid, memory: &SharedMemory) -> Result<RawFd, TargetError> {
        /// The path is written below the red zone, and what was there put back.
        const BELOW_BYTES: u64 = 1024;
        let path = format!("/proc/{}/fd/{}\0", std::process::id(), memory.descriptor());
        let at = self.registers(thread)?.rsp.wrapping_sub(BELOW_BYTES);
        let mut old = vec![0; path.len()];
        let len = self.read(at, &mut old);
        self.write(at, path.as_bytes())?;
        let flags = libc::O_RDWR | libc::O_CLOEXEC;
        let arguments = [libc::AT_FDCWD as u64, at, flags as u64, 0, 0, 0];
        let opened = self.system_call(thread, libc::SYS_openat, arguments)?;
        self.write(at, old.get(..len).unwrap_or(&[]))?;
        self.checked("opening memory of ours", opened)?;
        Ok(opened as RawFd)
    }

    /// The error of a system call that the program made for us.
    fn checked(&self, request: &'static str, result: i64) -> Result<(), TargetError> {
        if result >= 0 {
            return Ok(());
        }
        let source = std::io::Error::from_raw_os_error(-result as i32);
        Err(TargetError::Trace { request, pid: self.pid(), source })
    }
}
