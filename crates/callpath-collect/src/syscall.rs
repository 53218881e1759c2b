//! The few system calls that a sample may make, made directly: libc's would set errno and may be replaced by others. A
//! call that a filter refuses is not made, and fails like one that the kernel does not know.

use core::arch::asm;

use callpath_format::shared::refused::Calls;

use crate::refused;

/// A system call's result: at least -4095 and below 0 is a negated error number.
pub type Return = isize;

#[allow(missing_docs)]
pub mod number {
    pub const CLOSE: usize = 3;
    pub const MMAP: usize = 9;
    pub const MUNMAP: usize = 11;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const GETPID: usize = 39;
    pub const GETRLIMIT: usize = 97;
    pub const GETRUSAGE: usize = 98;
    pub const GETTID: usize = 186;
    pub const FUTEX: usize = 202;
    pub const CLOCK_GETTIME: usize = 228;
    pub const PERF_EVENT_OPEN: usize = 298;
}

/// The result of a call that is not made.
const ENOSYS: Return = -38;
/// Errors of the calls themselves: an invalid argument, and memory that is not mapped.
const EINVAL: Return = -22;
const EFAULT: Return = -14;

/// Any other error of these calls comes from a filter whose installation callpath did not see.
const ALWAYS_SUCCEED: Calls =
    Calls(Calls::CLOCK_GETTIME.0 | Calls::GETRUSAGE.0 | Calls::RT_SIGPROCMASK.0 | Calls::GETTID.0 | Calls::GETPID.0);

#[inline(always)]
fn learn(number: usize, result: Return) {
    let call = Calls::of_number(number);
    if call.0 & ALWAYS_SUCCEED.0 != 0 && result < 0 && result != EINVAL && result != EFAULT {
        refused::learn(call);
    }
}

/// # Safety
/// The call must do nothing to the process that Rust relies on.
#[inline(always)]
pub unsafe fn call4(number: usize, args: [usize; 4]) -> Return {
    let [a, b, c, d] = args;
    if refused::has(Calls::of_number(number)) {
        return ENOSYS;
    }
    let result;
    // SAFETY: the kernel preserves all registers but rax, rcx and r11; the caller vouches for the call itself.
    unsafe {
        asm!("syscall", inlateout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    learn(number, result);
    result
}

/// # Safety
/// As for [`call4`].
#[inline(always)]
pub unsafe fn call6(number: usize, args: [usize; 6]) -> Return {
    if refused::has(Calls::of_number(number)) {
        return ENOSYS;
    }
    let result;
    // SAFETY: as in `call4`.
    unsafe {
        asm!("syscall", inlateout("rax") number => result, in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5], lateout("rcx") _, lateout("r11") _,
            options(nostack));
    }
    result
}

/// The calling thread's number in its PID name space; 0 where it cannot be asked for.
#[inline]
pub fn gettid() -> u32 {
    // SAFETY: reads a number.
    let tid = unsafe { call4(number::GETTID, [0, 0, 0, 0]) };
    if tid == 0 {
        refused::learn(Calls::GETTID);
    }
    tid.max(0) as u32
}

/// The calling process's number in its PID name space. Where it cannot be
/// asked for, that of the process that took part last.
#[inline]
pub fn getpid() -> u32 {
    // SAFETY: reads a number.
    match unsafe { call4(number::GETPID, [0, 0, 0, 0]) } {
        pid @ 1.. => pid as u32,
        _ => refused::pid(),
    }
}

/// Wakes all threads of all processes that wait on a futex word in shared memory.
#[inline]
pub(crate) fn futex_wake(word: &core::sync::atomic::AtomicU32) {
    const WAKE: usize = 1;
    // SAFETY: wakes; does not touch memory.
    unsafe { call4(number::FUTEX, [word.as_ptr() as usize, WAKE, i32::MAX as usize, 0]) };
}

/// Waits until a futex word in shared memory is no longer `value`, a wake-up or `timeout_ns`, whichever is first.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, value: u32, timeout_ns: u64) {
    const WAIT: usize = 0;
    let timeout = [timeout_ns / 1_000_000_000, timeout_ns % 1_000_000_000];
    // SAFETY: the kernel reads the word and the time, and writes nothing.
    unsafe { call4(number::FUTEX, [word.as_ptr() as usize, WAIT, value as usize, timeout.as_ptr() as usize]) };
}

/// Whether the eight bytes at `addr` could be read just now. If the call is refused, `false`.
///
/// `rt_sigprocmask` copies the set in before it looks at `how`; with an invalid `how` it changes
/// nothing, and fails with EINVAL if the set can be read.
#[inline]
pub fn is_readable(addr: u64) -> bool {
    const NO_SUCH_HOW: usize = 0x7fff_ffff;
    // SAFETY: changes nothing, whatever `addr` is.
    unsafe { call4(number::RT_SIGPROCMASK, [NO_SUCH_HOW, addr as usize, 0, 8]) == EINVAL }
}

/// Maps private memory, zeroed, and returns its address. `None`: the kernel gives none.
pub fn map_private(len_bytes: usize) -> Option<usize> {
    const READ_AND_WRITE: usize = 3;
    const PRIVATE_ANONYMOUS_NORESERVE: usize = 0x4022;
    // SAFETY: a new mapping at a place of the kernel's choice.
    let at = unsafe { call6(number::MMAP, [0, len_bytes, READ_AND_WRITE, PRIVATE_ANONYMOUS_NORESERVE, usize::MAX, 0]) };
    usize::try_from(at).ok()
}

/// Unmaps what [`map_private`] gave; nothing may use it any more.
pub fn unmap(at: usize, len_bytes: usize) {
    // SAFETY: the caller vouches that the memory is not used any more.
    unsafe { call4(number::MUNMAP, [at, len_bytes, 0, 0]) };
}

/// Whether the process has a limit of address space.
pub fn is_space_limited() -> bool {
    const RLIMIT_DATA: usize = 2;
    const RLIMIT_AS: usize = 9;
    [RLIMIT_DATA, RLIMIT_AS].into_iter().any(|resource| {
        let mut limit = [0u64; 2];
        // SAFETY: the kernel writes two numbers.
        let result = unsafe { call4(number::GETRLIMIT, [resource, limit.as_mut_ptr() as usize, 0, 0]) };
        result != 0 || limit[0] != u64::MAX
    })
}
