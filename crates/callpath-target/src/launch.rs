//! Running a program as it would have run without callpath, but for two variables of its environment.
//! No measuring here.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::TargetError;
use crate::pid::Pid;

/// Where a shell would find a program: as it stands if it holds a slash, else in PATH.
pub fn find_program(program: &OsStr) -> Result<PathBuf, TargetError> {
    let not_found = || TargetError::NotFound { program: program.to_string_lossy().into_owned() };
    if program.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/local/bin:/usr/bin:/bin"));
    std::env::split_paths(&path)
        .map(|directory| if directory.as_os_str().is_empty() { PathBuf::from(".") } else { directory }.join(program))
        .find(|candidate| candidate.is_file() && is_executable(candidate))
        .ok_or_else(not_found)
}

fn is_executable(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: a valid path.
    unsafe { libc::access(path.as_ptr(), libc::X_OK) == 0 }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The file.
    pub program: PathBuf,
    /// What the program sees as its own name.
    pub name: OsString,
    /// The arguments after the name.
    pub arguments: Vec<OsString>,
    /// Variables to add to the environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Address space that it is given above the limit that there is, if there is one, bytes.
    pub added_space: u64,
}

/// What is done to a process before it executes its program.
pub type Before<'b> = &'b mut dyn FnMut(Pid) -> Result<(), TargetError>;

/// A running program.
#[derive(Debug)]
pub struct Launched {
    pid: Pid,
}

/// What is known of a program's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Certainty {
    /// How it ended.
    #[default]
    Known,
    /// That it ended: only its parent is told how.
    Unknown,
    /// It goes on.
    GoesOn,
}

/// How a program ended, and what it and its children that it waited for had used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended {
    /// What is known of that.
    pub certainty: Certainty,
    /// As a shell says it: the exit status, or 128 + signal.
    pub status: i32,
    /// The signal that killed it, if one did.
    pub signal: Option<i32>,
    /// User time.
    pub user: Duration,
    /// Time in the kernel.
    pub kernel: Duration,
}

/// What callpath's own start (or rather its runtime's) changes and a program must inherit unchanged.
struct Inherited {
    sigpipe: libc::sigaction,
    mask: libc::sigset_t,
    /// Whether the two signals that the C library keeps for its threads were ignored: its `sigaction` does not
    /// tell, and its first thread takes them over.
    ignored: [bool; THREADS_SIGNALS.len()],
    /// Which of the standard descriptors were closed: our runtime opens them.
    closed: [bool; 3],
    /// The limits that callpath raises for itself.
    limits: [libc::rlimit; RAISED.len()],
}

const RAISED: [libc::__rlimit_resource_t; 3] = [libc::RLIMIT_NOFILE, libc::RLIMIT_FSIZE, libc::RLIMIT_AS];

/// The most descriptors that a process may have, by the kernel.
pub(crate) fn most_descriptors() -> Option<u64> {
    std::fs::read_to_string("/proc/sys/fs/nr_open").ok()?.trim().parse().ok()
}

/// Takes for callpath itself as many descriptors, as long files and as much address space as this user may have; a
/// program that is started gets the limits that there were. With CAP_SYS_RESOURCE, the descriptors are as many as the kernel
/// allows any process.
pub fn raise_own_limits() {
    for resource in RAISED {
        // SAFETY: valid places; only limits of this process are changed.
        unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            if libc::getrlimit(resource, &mut limit) != 0 {
                continue;
            }
            let most = match resource {
                libc::RLIMIT_NOFILE => most_descriptors().unwrap_or(0).max(limit.rlim_max),
                _ => libc::RLIM_INFINITY,
            };
            if libc::setrlimit(resource, &libc::rlimit { rlim_cur: most, rlim_max: most }) != 0 {
                limit.rlim_cur = limit.rlim_max;
                libc::setrlimit(resource, &limit);
            }
        }
    }
}

/// Lets writing too long a file fail rather than kill us. A handler, unlike an ignored signal, is not inherited.
pub fn survive_long_files() {
    extern "C" fn go_on(_signal: i32) {}
    // SAFETY: both actions are valid; the handler does nothing. One that is ignored already is left so: it is inherited.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGXFSZ, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_DFL {
            action.sa_sigaction = go_on as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGXFSZ, &action, std::ptr::null_mut());
        }
    }
}

const THREADS_SIGNALS: [i32; 2] = [32, 33];

/// The kernel's `struct sigaction`: handler, flags, restorer, mask.
type KernelAction = [usize; 4];

static mut INHERITED: Option<Inherited> = None;

#[used]
#[unsafe(link_section = ".init_array")]
static REMEMBER: extern "C" fn() = {
    extern "C" fn remember() {
        // SAFETY: before main there is one thread; both structs are valid for any bytes and filled by the calls.
        unsafe {
            let mut inherited: Inherited = std::mem::zeroed();
            libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut inherited.sigpipe);
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut inherited.mask);
            for (signal, ignored) in THREADS_SIGNALS.into_iter().zip(&mut inherited.ignored) {
                let mut action: KernelAction = [0; 4];
                let none = std::ptr::null::<KernelAction>();
                libc::syscall(libc::SYS_rt_sigaction, signal, none, &mut action, 8usize);
                *ignored = action[0] == libc::SIG_IGN;
            }
            for (descriptor, closed) in (0..).zip(&mut inherited.closed) {
                *closed = libc::fcntl(descriptor, libc::F_GETFD) < 0;
            }
            for (resource, limit) in RAISED.into_iter().zip(&mut inherited.limits) {
                libc::getrlimit(resource, limit);
            }
            INHERITED = Some(inherited);
        }
    }
    remember
};

impl Launch {
    /// Starts the program. The thread that starts it must wait for it, too: a program that asks to
    /// be traced by its parent is traced by that thread. Its environment is ours in the same
    /// order, with the variables to add at the end.
    pub fn start(&self) -> Result<Launched, TargetError> {
        self.start_after(None)
    }

    /// The same; the process is there, and executes the program when `before` has returned. If that is an error, it never does.
    pub fn start_after(&self, before: Option<Before<'_>>) -> Result<Launched, TargetError> {
        let failed = |source| TargetError::Launch { program: self.program.clone(), source };
        let words = |list: Vec<OsString>| -> Result<Vec<CString>, TargetError> {
            list.into_iter().map(|w| CString::new(w.into_vec()).map_err(|e| failed(e.into()))).collect()
        };
        let path = words(vec![self.program.as_os_str().to_owned()])?;
        let arguments = words(std::iter::once(self.name.clone()).chain(self.arguments.iter().cloned()).collect())?;
        let environment = words(self.whole_environment())?;
        let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
            list.iter().map(|w| w.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let (argv, envp) = (pointers(&arguments), pointers(&environment));
        let (reading, writing) = pipe().map_err(failed)?;
        let gate = before.as_ref().map(|_| pipe()).transpose().map_err(failed)?;
        // SAFETY: the child makes async-signal-safe calls only, on memory that was made before the fork.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        if pid == 0 {
            // SAFETY: as above; the arrays end with null pointers.
            unsafe {
                if let Some((waits, opens)) = &gate {
                    libc::close(opens.as_raw_fd());
                    let mut byte = 0u8;
                    if libc::read(waits.as_raw_fd(), (&raw mut byte).cast(), 1) != 1 {
                        libc::_exit(127);
                    }
                }
                restore_inherited(self.added_space);
                libc::execve(path[0].as_ptr(), argv.as_ptr(), envp.as_ptr());
                let error = *libc::__errno_location();
                libc::write(writing.as_raw_fd(), (&raw const error).cast(), size_of::<i32>());
                libc::_exit(127);
            }
        }
        drop(writing);
        let launched = Launched { pid: Pid(pid as u32) };
        if let (Some(before), Some((_, opens))) = (before, gate) {
            if let Err(error) = before(launched.pid) {
                drop(opens);
                launched.wait()?;
                return Err(error);
            }
            let mut opens = File::from(opens);
            io::Write::write_all(&mut opens, &[1]).map_err(failed)?;
        }
        let mut error = [0; size_of::<i32>()];
        match File::from(reading).read_exact(&mut error) {
            // The pipe was closed by a successful execve.
            Err(_) => Ok(launched),
            Ok(()) => {
                launched.wait()?;
                Err(failed(io::Error::from_raw_os_error(i32::from_ne_bytes(error))))
            }
        }
    }

    /// Our own, entry by entry, whatever stands in it: entries without a name, and the same name twice.
    fn whole_environment(&self) -> Vec<OsString> {
        let added = |entry: &[u8]| {
            let mut names = self.environment.iter().map(|(name, _)| name.as_bytes());
            names.any(|name| entry.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&b'=')))
        };
        let kept = own_environment().into_iter().filter(|entry| !added(entry.as_bytes()));
        let ours = self.environment.iter().map(|(name, value)| {
            let mut entry = name.clone();
            entry.push("=");
            entry.push(value);
            entry
        });
        kept.chain(ours).collect()
    }
}

/// The entries of our environment. The standard library leaves out what it cannot tell a name of.
fn own_environment() -> Vec<OsString> {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    let mut entries = Vec::new();
    // SAFETY: the C library's list, ended by a null pointer; no thread changes our environment.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            entries.push(OsStr::from_bytes(CStr::from_ptr(*at).to_bytes()).to_owned());
            at = at.add(1);
        }
    }
    entries
}

/// Two ends of a pipe that no program inherits.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: a valid place for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: new descriptors that no other code owns.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Undoes what our runtime has changed at its start.
///
/// # Safety
/// For a process with one thread, after main began.
unsafe fn restore_inherited(added_space: u64) {
    let inherited = &raw const INHERITED;
    // SAFETY: written before main, not since; the calls are async-signal-safe.
    unsafe {
        if let Some(inherited) = &*inherited {
            libc::sigaction(libc::SIGPIPE, &inherited.sigpipe, std::ptr::null_mut());
            for (resource, mut limit) in RAISED.into_iter().zip(inherited.limits) {
                if resource == libc::RLIMIT_AS {
                    // Infinity stays infinity.
                    limit.rlim_cur = limit.rlim_cur.saturating_add(added_space);
                    limit.rlim_max = limit.rlim_max.saturating_add(added_space);
                }
                libc::setrlimit(resource, &limit);
            }
            libc::sigprocmask(libc::SIG_SETMASK, &inherited.mask, std::ptr::null_mut());
            for (descriptor, _) in (0..).zip(inherited.closed).filter(|(_, closed)| *closed) {
                libc::close(descriptor);
            }
            for (signal, _) in THREADS_SIGNALS.into_iter().zip(inherited.ignored).filter(|(_, ignored)| *ignored) {
                let action: KernelAction = [libc::SIG_IGN, 0, 0, 0];
                let none = std::ptr::null::<KernelAction>();
                libc::syscall(libc::SYS_rt_sigaction, signal, &action, none, 8usize);
            }
        }
    }
}

impl Launched {
    /// Its number.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits until it has ended.
    pub fn wait(&self) -> Result<Ended, TargetError> {
        loop {
            if let Some(ended) = self.wait_with(0)? {
                return Ok(ended);
            }
        }
    }

    /// Whether it has ended, and how. Only the first answer after the end has it.
    pub fn has_ended(&self) -> Result<Option<Ended>, TargetError> {
        self.wait_with(libc::WNOHANG)
    }

    /// `None`: it has not ended.
    fn wait_with(&self, options: libc::c_int) -> Result<Option<Ended>, TargetError> {
        let pid = self.pid();
        let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
        loop {
            // Another thread of ours may trace the child: its stops are for that one.
            let options = options | libc::__WNOTHREAD;
            // SAFETY: our own child, for which no other code waits; both places are valid.
            let result = unsafe { libc::wait4(pid.0 as i32, &mut status, options, usage.as_mut_ptr()) };
            if result == pid.0 as i32 && libc::WIFSTOPPED(status) {
                // It has asked to be traced by its parent (PTRACE_TRACEME), which is us: it must not stop.
                // SAFETY: lets our own child continue with the signal that it was to get.
                unsafe { libc::ptrace(libc::PTRACE_CONT, pid.0, 0, libc::WSTOPSIG(status)) };
                continue;
            }
            if result == pid.0 as i32 {
                break;
            }
            if result == 0 {
                return Ok(None);
            }
            let source = std::io::Error::last_os_error();
            if source.kind() != std::io::ErrorKind::Interrupted {
                return Err(TargetError::Wait { pid, source });
            }
        }
        // SAFETY: zeroed, then filled by the kernel.
        let usage = unsafe { usage.assume_init() };
        let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
        let exit = std::process::ExitStatus::from_raw(status);
        let signal = exit.signal();
        Ok(Some(Ended {
            certainty: Certainty::Known,
            status: exit.code().unwrap_or_else(|| 128 + signal.unwrap_or(0)),
            signal,
            user: time(usage.ru_utime),
            kernel: time(usage.ru_stime),
        }))
    }
}
