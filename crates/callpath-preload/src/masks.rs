//! The program's signal masks: SIGTRAP stays unblocked, and the program sees the mask that it set.
//! Knows nothing of samples.

use callpath_collect::syscall::call4;
use core::ffi::c_int;

use crate::attach;
use crate::libc::{SIGTRAP, syscall_number};
use crate::loader::real;
use crate::tls::{self, Word};

pub const TRAP_BIT: u64 = 1 << (SIGTRAP - 1);
const SIG_BLOCK: c_int = 0;
const SIG_UNBLOCK: c_int = 1;
const SIG_SETMASK: c_int = 2;

type Change = unsafe extern "C" fn(c_int, *const u64, *mut u64) -> c_int;

/// Takes SIGTRAP out of the calling thread's mask and remembers whether it was in.
pub fn adopt() {
    let (unblock, mut before) = (TRAP_BIT, 0u64);
    // SAFETY: changes the thread's signal mask; both sets have the size given.
    unsafe {
        call4(
            syscall_number::RT_SIGPROCMASK,
            SIG_UNBLOCK as usize,
            core::ptr::from_ref(&unblock) as usize,
            core::ptr::from_mut(&mut before) as usize,
            8,
        )
    };
    tls::set(Word::Mask, u64::from(before & TRAP_BIT != 0));
}

/// # Safety
/// As for `sigprocmask(3)`; `set` and `old` point to a `sigset_t`, of which the kernel uses 64 bits.
unsafe fn change(real: Option<usize>, how: c_int, set: *const u64, old: *mut u64) -> c_int {
    const EINVAL: c_int = 22;
    let Some(real) = real else { return EINVAL };
    // SAFETY: `sigprocmask` or `pthread_sigmask` of the C library.
    let real: Change = unsafe { core::mem::transmute(real) };
    if attach::process().is_none() {
        // SAFETY: the caller's own arguments.
        return unsafe { real(how, set, old) };
    }
    // The C library reads a whole `sigset_t`.
    let mut filtered = [0u64; 16];
    let mut wanted = None;
    let mut passed = set;
    // SAFETY: null or valid, as for the real one.
    if let Some(set) = unsafe { set.as_ref() } {
        // One that was sent while it was blocked is blocked in truth: unblocking it reaches the kernel.
        filtered[0] = if how == SIG_UNBLOCK { *set } else { *set & !TRAP_BIT };
        wanted = Some(set & TRAP_BIT != 0);
        passed = filtered.as_ptr();
    }
    let before = tls::get(Word::Mask) != 0;
    let after = match (how, wanted) {
        (SIG_BLOCK, Some(trap)) => before | trap,
        (SIG_UNBLOCK, Some(trap)) => before & !trap,
        (SIG_SETMASK, Some(trap)) => trap,
        _ => before,
    };
    // Such a signal comes inside the call, and looks whether it is blocked still.
    if !after {
        tls::set(Word::Mask, 0);
    }
    // SAFETY: the caller's own arguments but for one bit.
    let result = unsafe { real(how, passed, old) };
    tls::set(Word::Mask, u64::from(if result == 0 { after } else { before }));
    if result != 0 {
        return result;
    }
    // SAFETY: null or valid, as for the real one.
    if let Some(old) = unsafe { old.as_mut() }
        && before
    {
        *old |= TRAP_BIT;
    }
    result
}

/// `sigprocmask` as the program sees it.
///
/// # Safety
/// As for `sigprocmask(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigprocmask(how: c_int, set: *const u64, old: *mut u64) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { change(real!(c"sigprocmask"), how, set, old) }
}

/// `pthread_sigmask` as the program sees it.
///
/// # Safety
/// As for `pthread_sigmask(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_sigmask(how: c_int, set: *const u64, old: *mut u64) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { change(real!(c"pthread_sigmask"), how, set, old) }
}
