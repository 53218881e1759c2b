//! Processes and threads by number: whether they live, what they run.
//! Knows nothing of their memory.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A process's number in callpath's own PID name space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pid(pub u32);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A file under /proc, whole: it says no length, and each small piece would be a system call.
pub(crate) fn read_whole(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    // The kernel gives a page at a time.
    const PIECE: usize = 4096;
    let mut file = File::open(path)?;
    let (mut bytes, mut len) = (vec![0; PIECE], 0);
    loop {
        match file.read(&mut bytes[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if bytes.len() - len < PIECE {
            bytes.resize(len.next_multiple_of(PIECE) + 2 * PIECE, 0);
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// A process that is told from a later one with the same number.
#[derive(Debug)]
pub struct ProcessHandle {
    pid: Pid,
    descriptor: Option<OwnedFd>,
}

impl ProcessHandle {
    /// A handle on the process that has the number now. Where the kernel gives no descriptor (it has ended, or PID
    /// descriptors are forbidden), the handle looks for the number.
    pub fn open(pid: Pid) -> ProcessHandle {
        if descriptors_are_scarce() {
            return ProcessHandle { pid, descriptor: None };
        }
        // SAFETY: takes two numbers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.0, 0) };
        // SAFETY: a new descriptor that nobody else owns.
        let descriptor = (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) });
        ProcessHandle { pid, descriptor }
    }

    /// The process's number.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether it has not ended yet (a zombie has).
    pub fn lives(&self) -> bool {
        match &self.descriptor {
            Some(fd) => {
                let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                // SAFETY: one valid record.
                unsafe { libc::poll(&mut poll, 1, 0) == 0 }
            }
            // SAFETY: signal 0 is never sent.
            None => unsafe { libc::kill(self.pid.0 as i32, 0) == 0 },
        }
    }

    /// The command line, its words as the program got them.
    pub fn command_line(&self) -> Vec<String> {
        let Ok(bytes) = read_whole(format!("/proc/{}/cmdline", self.pid)) else { return Vec::new() };
        let words = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
        words.split(|b| *b == 0).map(|w| String::from_utf8_lossy(w).into_owned()).collect()
    }

    /// The file that it runs.
    pub fn executable(&self) -> Option<PathBuf> {
        std::fs::read_link(format!("/proc/{}/exe", self.pid)).ok()
    }

    /// Its parent's number.
    pub fn parent(&self) -> Option<Pid> {
        let status = self.status()?;
        status.lines().find_map(|l| l.strip_prefix("PPid:")?.trim().parse().ok().map(Pid))
    }

    fn status(&self) -> Option<String> {
        String::from_utf8(read_whole(format!("/proc/{}/status", self.pid)).ok()?).ok()
    }

    /// The name of the process that traces it, unless that is callpath: a program may ask its parent to trace it.
    pub fn tracer(&self) -> Option<String> {
        let status = self.status()?;
        let field =
            |text: &str, name: &str| text.lines().find_map(|l| l.strip_prefix(name)?.trim().parse::<u32>().ok());
        let tracer = field(&status, "TracerPid:").filter(|tracer| *tracer != 0)?;
        // It is named by the thread that traces.
        let of_tracer = std::fs::read_to_string(format!("/proc/{tracer}/status")).ok()?;
        let process = field(&of_tracer, "Tgid:").filter(|process| *process != std::process::id())?;
        Some(std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?.trim_end().to_owned())
    }

    /// A thread's name as it has set it.
    pub fn thread_name(&self, tid: u32) -> Option<String> {
        let name = std::fs::read_to_string(format!("/proc/{}/task/{tid}/comm", self.pid)).ok()?;
        Some(name.trim_end().to_owned())
    }
}

/// Descriptors that are left for files which are read and written in passing.
const SPARE_DESCRIPTORS: u64 = 6;

/// Whether so few descriptors are left that none may be kept for long: a process that cannot be looked at, or whose file
/// cannot be written, is a greater loss than its clock.
pub(crate) fn descriptors_are_scarce() -> bool {
    // SAFETY: valid places; the descriptor, the lowest that is free, is closed at once.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        let fd = libc::eventfd(0, libc::EFD_CLOEXEC);
        if fd < 0 {
            return true;
        }
        libc::close(fd);
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && fd as u64 + SPARE_DESCRIPTORS > limit.rlim_cur
    }
}

/// Whether a process has a thread of this number.
pub fn thread_lives(pid: Pid, tid: u32) -> bool {
    // SAFETY: signal 0 is never sent.
    unsafe { libc::syscall(libc::SYS_tgkill, pid.0, tid, 0) == 0 || *libc::__errno_location() != libc::ESRCH }
}
