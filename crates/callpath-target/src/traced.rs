//! What can be done with any process whose threads stand still under ptrace, whoever started it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use callpath_format::address::RunAddr;

use crate::error::TargetError;
use crate::pid::Pid;
use crate::ptrace::{self, Stop};

/// A process's memory.
#[derive(Debug)]
pub(crate) struct TracedMemory {
    pid: Pid,
    /// By which it was opened.
    thread: Pid,
    file: File,
}

impl TracedMemory {
    /// By one of its threads that has not ended: of a first thread that has, the kernel shows no memory.
    pub(crate) fn open(pid: Pid, thread: Pid) -> Result<TracedMemory, TargetError> {
        let path = TracedMemory::path_of(pid, thread);
        let file = File::options().read(true).write(true).open(&path);
        Ok(TracedMemory { pid, thread, file: file.map_err(|source| TargetError::Read { path, source })? })
    }

    fn path_of(pid: Pid, thread: Pid) -> PathBuf {
        PathBuf::from(format!("/proc/{pid}/task/{thread}/mem"))
    }

    /// Its file.
    pub(crate) fn path(&self) -> PathBuf {
        TracedMemory::path_of(self.pid, self.thread)
    }

    /// Whose.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// The file that tells which of its pages are there.
    pub(crate) fn page_map(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/task/{}/pagemap", self.pid, self.thread))
    }

    /// Writes, also where the program itself may not.
    pub(crate) fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), TargetError> {
        let request = "a write to its memory";
        let failed = |source| TargetError::Trace { request, pid: self.pid, source };
        self.file.write_all_at(bytes, addr).map_err(failed)
    }

    /// Reads; fewer bytes than asked for where memory ends.
    pub(crate) fn read(&self, addr: u64, into: &mut [u8]) -> usize {
        let mut got = 0;
        while let Some(rest) = into.get_mut(got..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, addr.wrapping_add(got as u64)) {
                Ok(0) | Err(_) => break,
                Ok(more) => got += more,
            }
        }
        got
    }

    /// The eight bytes at `addr`.
    pub(crate) fn read_u64(&self, addr: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (self.read(addr, &mut bytes) == bytes.len()).then(|| u64::from_le_bytes(bytes))
    }

    /// Fails if other bytes stand there.
    pub(crate) fn expect(&self, at: RunAddr, bytes: &[u8]) -> Result<(), TargetError> {
        let mut there = vec![0; bytes.len()];
        if self.read(at.0, &mut there) == there.len() && there == bytes {
            return Ok(());
        }
        Err(TargetError::OtherBytes { at, pid: self.pid })
    }
}

/// A process whose threads stand still.
pub(crate) trait Traced {
    /// Its memory.
    fn memory(&self) -> &TracedMemory;

    /// Writes bytes that threads will execute.
    fn change(&mut self, at: RunAddr, bytes: &[u8]) -> Result<(), TargetError> {
        self.memory().write(at.0, bytes)
    }

    /// Waits until a thread that was resumed stands still again.
    fn next_stop(&mut self, thread: Pid) -> Result<Stop, TargetError>;

    /// A signal that nothing holds back is about to be delivered to a thread that runs for us. It is to reach the thread
    /// later.
    fn postpone(&mut self, thread: Pid, signal: i32) -> Result<(), TargetError>;

    /// Takes a thread from the end of a system call to where it can be given any registers, those of an interrupted call
    /// as well.
    fn settle(&mut self, thread: Pid) -> Result<(), TargetError>;

    /// Has a thread make a system call. Returns what the kernel does: a negative number is an error's.
    fn system_call(&mut self, thread: Pid, number: libc::c_long, arguments: [u64; 6]) -> Result<i64, TargetError>;

    /// Where a `syscall` instruction stands.
    fn system_call_instruction(&mut self) -> Result<RunAddr, TargetError>;

    /// Takes a thread to the next beginning or end of a system call.
    fn run_to_system_call(&mut self, thread: Pid) -> Result<(), TargetError> {
        loop {
            ptrace::to_system_call(thread)?;
            match self.next_stop(thread)? {
                Stop::SystemCall => return Ok(()),
                Stop::Interrupt | Stop::Event => {}
                Stop::Signal(signal) => self.postpone(thread, signal)?,
                Stop::Ended => return Err(self.failed("running it", "a thread has ended")),
            }
        }
    }

    /// An error of this process.
    fn failed(&self, request: &'static str, why: &str) -> TargetError {
        TargetError::Trace { request, pid: self.memory().pid(), source: std::io::Error::other(why.to_owned()) }
    }
}
