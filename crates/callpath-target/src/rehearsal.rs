//! Trying out, on a child that does nothing, what a recording does: events, memory, timers, looking at a process.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use crate::error::TargetError;
use crate::maps::Maps;
use crate::memory::{SharedMemory, read_memory};
use crate::pid::Pid;

/// What came of it. An error is the kernel's own.
#[derive(Debug)]
pub struct Rehearsal {
    /// Memory without a file, made here and backed.
    pub memory: io::Result<()>,
    /// The child opening that memory under `/proc`, and mapping it.
    pub opened_by_child: io::Result<()>,
    /// A timer on the child's CPU clock, which signals it: signals in [`TIMER_CPU_MS`] of CPU time, one asked for each
    /// millisecond.
    pub timer: io::Result<u32>,
    /// Reading the child's memory map.
    pub maps: io::Result<()>,
    /// Reading the child's memory.
    pub foreign_memory: bool,
    /// The kernel's clock on the child, in user mode and in the kernel.
    pub clock: io::Result<()>,
    /// The same in user mode only.
    pub user_clock: io::Result<()>,
    /// The child's context switches.
    pub context_switches: io::Result<()>,
}

/// The CPU time that the child uses up while its timer runs, milliseconds.
pub const TIMER_CPU_MS: u32 = 40;

const MEMORY_BYTES: usize = 4096;

/// What the child says: two error numbers, and how many signals came.
type Word = [i32; 3];

/// Tries everything.
pub fn rehearse() -> io::Result<Rehearsal> {
    let memory = SharedMemory::create(c"callpath-rehearsal", MEMORY_BYTES)
        .and_then(|memory| memory.back(0, MEMORY_BYTES).map(|()| memory));
    let descriptor = memory.as_ref().map_or(-1, SharedMemory::descriptor);
    let path = CString::new(format!("/proc/{}/fd/{descriptor}", std::process::id()))?;
    let mut ends = [0; 2];
    // SAFETY: a valid place for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: new descriptors that no other code owns.
    let (reading, writing) = unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
    // SAFETY: the child makes async-signal-safe calls only, on memory that was made before the fork.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if pid == 0 {
        // SAFETY: as above.
        unsafe { as_child(&path, writing.as_raw_fd()) }
    }
    drop(writing);
    let child = Child(pid);
    let mut said = [0; size_of::<Word>()];
    File::from(reading).read_exact(&mut said)?;
    let number = |index: usize| i32::from_ne_bytes([0, 1, 2, 3].map(|byte| said[4 * index + byte]));
    let result = |error: i32| if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) };
    let here = Pid(child.0 as u32);
    let mut byte = [0];
    let constant = (&raw const MARK) as u64;
    Ok(Rehearsal {
        memory: memory.map(drop).map_err(reason),
        opened_by_child: result(number(0)),
        timer: result(number(1)).map(|()| number(2).unsigned_abs()),
        maps: Maps::read(here).map(drop).map_err(reason),
        foreign_memory: read_memory(here, constant, &mut byte) == 1 && byte == [MARK],
        clock: open_event(here, CPU_CLOCK, 1_000_000, 0),
        user_clock: open_event(here, CPU_CLOCK, 1_000_000, USER_MODE_ONLY),
        context_switches: open_event(here, CONTEXT_SWITCHES, 1, 0),
    })
}

static MARK: u8 = 0xa5;

/// Software events and flags of `struct perf_event_attr`: the kernel's include/uapi/linux/perf_event.h.
const CPU_CLOCK: u64 = 0;
const CONTEXT_SWITCHES: u64 = 3;
const USER_MODE_ONLY: u64 = 1 << 5 | 1 << 6;

/// Opens an event that sends samples to the child itself as SIGTRAP, and closes it.
fn open_event(pid: Pid, event: u64, period: u64, flags: u64) -> io::Result<()> {
    const TYPE_SOFTWARE: u64 = 1;
    const LEN_BYTES: u64 = 128;
    const INHERITED_TRAP_REMOVED_ON_EXEC: u64 = 1 << 1 | 1 << 35 | 1 << 36 | 1 << 37;
    const PERF_FLAG_FD_CLOEXEC: u64 = 8;
    let mut attributes = [0u64; (LEN_BYTES / 8) as usize];
    attributes[0] = TYPE_SOFTWARE | LEN_BYTES << 32;
    attributes[1] = event;
    attributes[2] = period;
    attributes[5] = INHERITED_TRAP_REMOVED_ON_EXEC | flags;
    // SAFETY: the kernel reads as many bytes of the attributes as they say.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &attributes, pid.0, -1, -1, PERF_FLAG_FD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that no other code owns.
    drop(unsafe { OwnedFd::from_raw_fd(fd as i32) });
    Ok(())
}

fn reason(error: TargetError) -> io::Error {
    match error {
        TargetError::SharedMemory { source, .. } | TargetError::Read { source, .. } => source,
        other => io::Error::other(other.to_string()),
    }
}

/// A child that waits to be killed.
struct Child(i32);

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: our own child, for which no other code waits.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_signal: i32) {
    SIGNALS.fetch_add(1, Relaxed);
}

/// # Safety
/// For a child that was just forked.
unsafe fn as_child(path: &CString, writing: i32) -> ! {
    // SAFETY: async-signal-safe calls on valid places.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let (timer_error, signals) = match time_itself() {
            Ok(signals) => (0, signals as i32),
            Err(error) => (error, 0),
        };
        let word: Word = [open_memory(path), timer_error, signals];
        libc::write(writing, word.as_ptr().cast(), size_of::<Word>());
        loop {
            libc::pause();
        }
    }
}

/// # Safety
/// None; plain calls.
unsafe fn open_memory(path: &CString) -> i32 {
    // SAFETY: a valid path; a new mapping, unmapped with the child.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if fd < 0 {
            return *libc::__errno_location();
        }
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let at = libc::mmap(std::ptr::null_mut(), MEMORY_BYTES, protection, flags, fd, 0);
        if at == libc::MAP_FAILED { *libc::__errno_location() } else { 0 }
    }
}

/// How many signals a timer on this thread's CPU clock sends while it works.
///
/// # Safety
/// For a process that has no other use for SIGTRAP.
unsafe fn time_itself() -> Result<u32, i32> {
    const SIGEV_THREAD_ID: i32 = 4;
    // SAFETY: valid places; the handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGTRAP, &action, std::ptr::null_mut());
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_signo = libc::SIGTRAP;
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_notify_thread_id = libc::syscall(libc::SYS_gettid) as i32;
        let mut timer = 0i32;
        if libc::syscall(libc::SYS_timer_create, libc::CLOCK_THREAD_CPUTIME_ID, &mut event, &mut timer) != 0 {
            return Err(*libc::__errno_location());
        }
        let each = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let setting = libc::itimerspec { it_interval: each, it_value: each };
        if libc::syscall(libc::SYS_timer_settime, timer, 0, &setting, 0usize) != 0 {
            return Err(*libc::__errno_location());
        }
        loop {
            let mut used: libc::timespec = std::mem::zeroed();
            if libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut used) != 0 {
                return Err(*libc::__errno_location());
            }
            if used.tv_sec > 0 || used.tv_nsec > i64::from(TIMER_CPU_MS) * 1_000_000 {
                break;
            }
        }
        libc::syscall(libc::SYS_timer_delete, timer);
    }
    Ok(SIGNALS.load(Relaxed))
}
