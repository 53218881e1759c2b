//! Declares what is used of the program's C library: functions by name, structures by layout.

use core::ffi::{c_char, c_int, c_ulong, c_void};

pub type StartRoutine = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

use crate::hook::real;
pub use crate::look_up::{first, has_thread_sanitizer, next};

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KernelSigaction {
    pub handler: usize,
    pub flags: c_ulong,
    pub restorer: usize,
    pub mask: u64,
}

/// The C library's `struct sigaction` (glibc and musl agree on x86-64).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Sigaction {
    pub handler: usize,
    pub mask: [u64; 16],
    pub flags: c_int,
    pub restorer: usize,
}

pub const ENOSYS: c_int = 38;

fn errno_address() -> Option<*mut c_int> {
    // SAFETY: it may be called at any time, and gives the address of the calling thread's errno.
    real!(fn __errno_location() -> *mut c_int).map(|location| unsafe { location() })
}

/// The calling thread's errno.
pub fn errno() -> c_int {
    // SAFETY: the address is the calling thread's as long as it runs.
    errno_address().map_or(0, |errno| unsafe { *errno })
}

/// Sets errno, and gives what a call that fails returns.
pub fn failed(error: c_int) -> c_int {
    if let Some(errno) = errno_address() {
        // SAFETY: as in `errno`.
        unsafe { *errno = error };
    }
    -1
}

pub const SIGTRAP: c_int = 5;
pub const SIGSTKFLT: c_int = 16;
pub const SIG_DFL: usize = 0;
pub const SIG_IGN: usize = 1;
pub const SA_SIGINFO: c_ulong = 4;
pub const SA_RESTORER: c_ulong = 0x0400_0000;
pub const SA_ONSTACK: c_ulong = 0x0800_0000;
pub const SA_RESTART: c_ulong = 0x1000_0000;

/// `struct dl_phdr_info`
#[repr(C)]
pub struct DlPhdrInfo {
    pub addr: usize,
    pub name: *const c_char,
    pub phdr: *const c_void,
    pub phnum: u16,
    pub adds: u64,
    pub subs: u64,
}

pub mod syscall_number {
    pub const CLOSE: usize = 3;
    pub const FSTAT: usize = 5;
    pub const PREAD64: usize = 17;
    pub const KILL: usize = 62;
    pub const GETUID: usize = 102;
    pub const GETEUID: usize = 107;
    pub const GETEGID: usize = 108;
    pub const PRCTL: usize = 157;
    pub const ARCH_PRCTL: usize = 158;
    pub const FGETXATTR: usize = 193;
    pub const OPENAT: usize = 257;
    pub const FACCESSAT: usize = 269;
    pub const MMAP: usize = 9;
    pub const MADVISE: usize = 28;
    pub const MUNMAP: usize = 11;
    pub const RT_SIGACTION: usize = 13;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const RT_SIGPENDING: usize = 127;
    pub const RT_SIGQUEUEINFO: usize = 129;
    pub const RT_TGSIGQUEUEINFO: usize = 297;
    pub const TGKILL: usize = 234;
    pub const TIMER_CREATE: usize = 222;
    pub const TIMER_SETTIME: usize = 223;
    pub const TIMER_DELETE: usize = 226;
}
