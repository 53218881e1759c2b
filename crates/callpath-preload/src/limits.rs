//! The limits of address space and of data: the program's own are what they would be without what is ours.
//! Knows nothing of other limits.
//!
//! Our windows count in what the kernel limits (RLIMIT_AS), and little of them is ever memory; so does what is mapped ahead for
//! the sentinel, and in RLIMIT_DATA. So the kernel is told a limit higher by their length, and the program sees the one that it set. The recorder says whether the kernel's limit holds
//! our windows already; where it may not raise it, nothing is changed here.

use callpath_collect::syscall::getpid;
use core::ffi::c_int;

use crate::attach;
use crate::loader::real;

const RLIMIT_AS: c_int = 9;
const RLIMIT_DATA: c_int = 2;
const INFINITY: u64 = u64::MAX;

/// The C library's `struct rlimit`, soft and hard.
type Limit = [u64; 2];

type Get = unsafe extern "C" fn(c_int, *mut Limit) -> c_int;
type Set = unsafe extern "C" fn(c_int, *const Limit) -> c_int;
type Both = unsafe extern "C" fn(c_int, c_int, *const Limit, *mut Limit) -> c_int;

/// What the kernel's limit holds for us, bytes.
fn ours(resource: c_int) -> u64 {
    let Some(process) = attach::process() else { return 0 };
    match resource {
        RLIMIT_AS => process.session.added_space_bytes(),
        RLIMIT_DATA => process.session.ahead_len_bytes(),
        _ => 0,
    }
}

fn kernels(limit: Limit, ours: u64) -> Limit {
    limit.map(|bytes| bytes.saturating_add(ours))
}

fn programs(limit: &mut Limit, ours: u64) {
    for bytes in limit.iter_mut().filter(|bytes| **bytes != INFINITY) {
        *bytes = bytes.saturating_sub(ours);
    }
}

unsafe fn get(real: Option<usize>, resource: c_int, limit: *mut Limit) -> c_int {
    let Some(real) = real else { return -1 };
    // SAFETY: `getrlimit` of the C library.
    let real: Get = unsafe { core::mem::transmute(real) };
    // SAFETY: the caller's own arguments.
    let result = unsafe { real(resource, limit) };
    // SAFETY: null or valid, as for the real one.
    if let Some(limit) = unsafe { limit.as_mut() }
        && result == 0
    {
        programs(limit, ours(resource));
    }
    result
}

unsafe fn set(real: Option<usize>, resource: c_int, limit: *const Limit) -> c_int {
    let Some(real) = real else { return -1 };
    // SAFETY: `setrlimit` of the C library.
    let real: Set = unsafe { core::mem::transmute(real) };
    let ours = ours(resource);
    // SAFETY: null or valid, as for the real one.
    match unsafe { limit.as_ref() }.filter(|_| ours != 0) {
        // SAFETY: the caller's own arguments but for the limit.
        Some(limit) => unsafe { real(resource, &kernels(*limit, ours)) },
        // SAFETY: the caller's own arguments.
        None => unsafe { real(resource, limit) },
    }
}

unsafe fn both(real: Option<usize>, pid: c_int, resource: c_int, new: *const Limit, old: *mut Limit) -> c_int {
    let Some(real) = real else { return -1 };
    // SAFETY: `prlimit` of the C library.
    let real: Both = unsafe { core::mem::transmute(real) };
    // Nothing is known here of another process.
    let ours = if pid == 0 || pid as u32 == getpid() { ours(resource) } else { 0 };
    if ours == 0 {
        // SAFETY: the caller's own arguments.
        return unsafe { real(pid, resource, new, old) };
    }
    // SAFETY: null or valid, as for the real one.
    let raised = unsafe { new.as_ref() }.map(|limit| kernels(*limit, ours));
    let passed = raised.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: the caller's own arguments but for the limit.
    let result = unsafe { real(pid, resource, passed, old) };
    // SAFETY: null or valid, as for the real one.
    if let Some(old) = unsafe { old.as_mut() }
        && result == 0
    {
        programs(old, ours);
    }
    result
}

macro_rules! wrap {
    ($($name:ident = $with:ident($($arg:ident: $ty:ty),*), $symbol:literal;)*) => {$(
        /// The function of this name, as the program would see it without callpath.
        ///
        /// # Safety
        /// As for the function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            // SAFETY: the caller's own arguments.
            unsafe { $with(real!($symbol), $($arg),*) }
        }
    )*};
}

wrap! {
    getrlimit = get(resource: c_int, limit: *mut Limit), c"getrlimit";
    getrlimit64 = get(resource: c_int, limit: *mut Limit), c"getrlimit64";
    setrlimit = set(resource: c_int, limit: *const Limit), c"setrlimit";
    setrlimit64 = set(resource: c_int, limit: *const Limit), c"setrlimit64";
    prlimit = both(pid: c_int, resource: c_int, new: *const Limit, old: *mut Limit), c"prlimit";
    prlimit64 = both(pid: c_int, resource: c_int, new: *const Limit, old: *mut Limit), c"prlimit64";
}
