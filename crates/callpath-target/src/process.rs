//! Processes and threads by number: whether they live, what they run.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::maps::without_deletion;
use crate::memory::read_memory;
use crate::pid::Pid;
use crate::proc_file::read_whole;

/// A process, distinguished from a later one with the same number.
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
        // SAFETY: a new descriptor that no other code owns.
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
                // SAFETY: one valid record. A signal that comes meanwhile makes it fail, at once or not: that says nothing.
                unsafe { libc::poll(&mut poll, 1, 0) <= 0 }
            }
            // SAFETY: signal 0 is never sent.
            None => unsafe { libc::kill(self.pid.0 as i32, 0) == 0 },
        }
    }

    /// The command line, its words as the program got them.
    pub fn command_line(&self) -> Vec<String> {
        let Ok(bytes) = read_whole(format!("/proc/{}/cmdline", self.pid)) else { return Vec::new() };
        if bytes.is_empty() {
            // It has ended, or is the kernel's.
            return Vec::new();
        }
        let words = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
        words.split(|b| *b == 0).map(|w| String::from_utf8_lossy(w).into_owned()).collect()
    }

    /// The file that it runs; of one that is deleted, where it was.
    pub fn executable(&self) -> Option<PathBuf> {
        let link = PathBuf::from(format!("/proc/{}/exe", self.pid));
        let said = std::fs::read_link(&link).ok()?;
        let identity = |path: &Path| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        // A file may have such a name.
        let is_there = || identity(&said).is_some_and(|there| identity(&link) == Some(there));
        Some(match without_deletion(said.as_os_str().as_bytes()) {
            Some(before) if !is_there() => PathBuf::from(std::ffi::OsString::from_vec(before.to_vec())),
            _ => said,
        })
    }

    /// The inode of that file.
    pub fn runs_file(&self) -> Option<u64> {
        Some(std::fs::metadata(format!("/proc/{}/exe", self.pid)).ok()?.ino())
    }

    /// The same by the name under which it was executed, which may be a link's.
    pub fn program(&self) -> Option<PathBuf> {
        let executable = self.executable()?;
        let named =
            self.executed_name().filter(|named| std::fs::canonicalize(named).is_ok_and(|file| file == executable));
        Some(named.unwrap_or(executable))
    }

    /// What was given to `execve`, as the kernel has noted it at the top of the process's stack.
    fn executed_name(&self) -> Option<PathBuf> {
        const AT_EXECFN: u64 = 31;
        const PAGE: u64 = 4096;
        let auxiliary = read_whole(format!("/proc/{}/auxv", self.pid)).ok()?;
        let word = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).ok();
        let at = auxiliary
            .chunks_exact(16)
            .find(|pair| word(&pair[..8]) == Some(AT_EXECFN))
            .and_then(|pair| word(&pair[8..]))?;
        let mut name = vec![0; PAGE as usize];
        // What can be read ends at a page's end, perhaps.
        let to_page = (PAGE - at % PAGE) as usize;
        let mut read = read_memory(self.pid, at, &mut name[..to_page]);
        if read == to_page && !name[..read].contains(&0) {
            read += read_memory(self.pid, at + to_page as u64, &mut name[to_page..]);
        }
        let end = name[..read].iter().position(|byte| *byte == 0)?;
        name.truncate(end);
        // A relative name is one of where the process began, and mostly still is.
        let directory = std::fs::read_link(format!("/proc/{}/cwd", self.pid)).ok()?;
        Some(directory.join(std::ffi::OsString::from_vec(name)))
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

    /// The process that a thread with this number is of, if it is a thread.
    pub fn thread_group(&self) -> Option<Pid> {
        let status = self.status()?;
        status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok().map(Pid))
    }

    /// Whether it is in another PID name space than ours: it has other numbers there, and so have its threads.
    pub fn is_in_other_name_space(&self) -> bool {
        let status = self.status().unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        numbers.is_some_and(|numbers| numbers.split_whitespace().count() > 1)
    }

    /// A thread's name as it has set it.
    pub fn thread_name(&self, tid: u32) -> Option<String> {
        let name = std::fs::read_to_string(format!("/proc/{}/task/{tid}/comm", self.pid)).ok()?;
        Some(name.trim_end().to_owned())
    }
}

/// What the kernel says of a thread that may be waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// It sleeps, and a signal would find it.
    pub is_asleep: bool,
    /// Signals that it has blocked, and those that its process has a handler for: bit n - 1 is signal n.
    pub blocked: u64,
    /// See `blocked`.
    pub caught: u64,
    /// Of the program that its process runs: where its code begins and ends, and its stack begins.
    pub image: [u64; 3],
}

impl Waiting {
    fn parse(stat: &str) -> Option<Waiting> {
        // The name may hold anything.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let is_asleep = fields.next()? == "S";
        let numbers: Vec<u64> = fields.map(|field| field.parse().unwrap_or(0)).collect();
        let field = |number: usize| numbers.get(number - 4).copied();
        Some(Waiting {
            is_asleep,
            blocked: field(32)?,
            caught: field(34)?,
            image: [field(26)?, field(27)?, field(28)?],
        })
    }
}

impl ProcessHandle {
    /// What a thread is doing.
    pub fn waiting(&self, tid: u32) -> Option<Waiting> {
        let stat = read_whole(format!("/proc/{}/task/{tid}/stat", self.pid)).ok()?;
        Waiting::parse(&String::from_utf8_lossy(&stat))
    }

    /// Where a thread is blocked in a system call: its stack pointer, and where it goes on. `None`: it is not, it is one of the kernel's, or this user
    /// may not know.
    pub fn blocked_at(&self, tid: u32) -> Option<[u64; 2]> {
        let text = std::fs::read_to_string(format!("/proc/{}/task/{tid}/syscall", self.pid)).ok()?;
        let hex = |field: &str| u64::from_str_radix(field.strip_prefix("0x")?, 16).ok();
        let mut fields = text.split_ascii_whitespace().rev();
        let (rip, rsp) = (hex(fields.next()?)?, hex(fields.next()?)?);
        Some([rsp, rip]).filter(|[rsp, _]| *rsp != 0)
    }

    /// Sends a thread a SIGTRAP with a code of our own and a value. The process must be known to have a handler for it.
    pub fn send_trap(&self, tid: u32, code: i32, value: u64) -> io::Result<()> {
        let mut info = [0u64; 16];
        info[0] = libc::SIGTRAP as u64;
        info[1] = u64::from(code as u32);
        info[2] = u64::from(std::process::id());
        info[3] = value;
        // SAFETY: the kernel reads a whole `siginfo_t`, 128 bytes.
        let sent = unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, self.pid.0, tid, libc::SIGTRAP, info.as_ptr()) };
        if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The CPU time of the process since it began, other programs before this one included, nanoseconds. What a thread
    /// has run since the kernel's last tick may be missing.
    pub fn cpu_ns(&self) -> Option<u64> {
        /// The kernel's number for a process's scheduler clock.
        const SCHEDULER: i32 = 2;
        let clock = (!(self.pid.0 as i32) << 3) | SCHEDULER;
        // SAFETY: a valid place.
        unsafe {
            let mut time: libc::timespec = std::mem::zeroed();
            let is_known = libc::clock_gettime(clock, &mut time) == 0;
            is_known.then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
        }
    }

    /// The CPU time of a thread that waits, nanoseconds.
    pub fn thread_cpu_ns(&self, tid: u32) -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/task/{tid}/schedstat", self.pid)).ok()?;
        text.split_ascii_whitespace().next()?.parse().ok()
    }
}

/// Descriptors that are left for files which are read and written in passing.
const SPARE_DESCRIPTORS: u64 = 6;

/// Whether so few descriptors are left that none may be kept for long: a process that cannot be looked at, or whose
/// file cannot be written, is a greater loss than its clock.
pub fn descriptors_are_scarce() -> bool {
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

/// How many descriptors this process may have.
pub(crate) fn descriptor_limit() -> usize {
    // SAFETY: a valid place.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        match libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) {
            0 => usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX),
            _ => 0,
        }
    }
}

/// The processes that there are.
pub fn processes() -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid)).collect()
}

/// Whether a process has a thread of this number.
pub fn thread_lives(pid: Pid, tid: u32) -> bool {
    // SAFETY: signal 0 is never sent.
    unsafe { libc::syscall(libc::SYS_tgkill, pid.0, tid, 0) == 0 || *libc::__errno_location() != libc::ESRCH }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_waits_with() {
        let own = ProcessHandle::open(Pid(std::process::id()));
        let (ours, theirs) = std::sync::mpsc::channel::<()>();
        let (tell, heard) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            // SAFETY: returns a number.
            tell.send(unsafe { libc::gettid() } as u32).unwrap();
            theirs.recv().unwrap_err();
        });
        let tid = heard.recv().unwrap();
        while !own.waiting(tid).unwrap().is_asleep {
            std::thread::yield_now();
        }
        let waiting = own.waiting(tid).unwrap();
        assert_eq!(waiting.image, own.waiting(std::process::id()).unwrap().image);
        assert!(waiting.image[0] < waiting.image[1] && waiting.image[2] != 0, "{waiting:?}");
        assert_eq!(waiting.caught >> (libc::SIGTRAP - 1) & 1, 0);
        assert!(own.thread_cpu_ns(tid).unwrap() > 0 && own.cpu_ns().unwrap() >= own.thread_cpu_ns(tid).unwrap());
        drop(ours);
        thread.join().unwrap();
        assert_eq!(own.waiting(tid), None);
    }

    /// The kernel says that the file is gone, and its name is what it was; a file that is called so is there.
    #[test]
    fn a_deleted_program_has_the_name_that_it_had() {
        let directory = tempfile::tempdir().unwrap();
        for (name, is_deleted) in [("sleeper", true), ("sleeper (deleted)", false)] {
            let program = directory.path().canonicalize().unwrap().join(name);
            // By another process: what other tests start meanwhile would inherit our descriptor, and a file that is open for writing is not executed.
            let copied = std::process::Command::new("cp").arg("/bin/sleep").arg(&program).status().unwrap();
            assert!(copied.success());
            let mut child = std::process::Command::new(&program).arg("60").spawn().unwrap();
            if is_deleted {
                std::fs::remove_file(&program).unwrap();
            }
            let handle = ProcessHandle::open(Pid(child.id()));
            let (file, by_name) = (handle.executable(), handle.program());
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!((file, by_name), (Some(program.clone()), Some(program)));
        }
    }

    #[test]
    fn names_with_anything_in_them() {
        let rest = (4..=52).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        let waiting = Waiting::parse(&format!("1 (a) S (b) R {rest}\n")).unwrap();
        assert_eq!(waiting, Waiting { is_asleep: false, blocked: 32, caught: 34, image: [26, 27, 28] });
        assert!(Waiting::parse(&format!("1 (a) S {rest}\n")).unwrap().is_asleep);
        assert_eq!(Waiting::parse("1 (a) S 4 5"), None);
    }
}
