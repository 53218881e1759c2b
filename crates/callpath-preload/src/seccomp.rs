//! A program that is about to forbid itself system calls: from then on we make none.
//! Knows nothing of filters, which allow what they like; only of the strict mode, which allows four calls.

use core::ffi::{c_int, c_ulong};

use crate::attach;
use crate::loader::real;

const PR_SET_SECCOMP: c_int = 22;
const SECCOMP_MODE_STRICT: c_ulong = 1;

/// `prctl(2)`: measuring ends where strict seccomp begins, since each sample reads a clock by a system call.
///
/// # Safety
/// As for `prctl(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
    let Some(address) = real!(c"prctl") else { return -1 };
    // SAFETY: `prctl` of the C library; it takes its arguments as a function with these parameters does.
    let prctl: unsafe extern "C" fn(c_int, c_ulong, c_ulong, c_ulong, c_ulong) -> c_int =
        unsafe { core::mem::transmute(address) };
    if option == PR_SET_SECCOMP && a == SECCOMP_MODE_STRICT {
        attach::leave();
    }
    // SAFETY: the caller's own arguments.
    unsafe { prctl(option, a, b, c, d) }
}
