//! The limits of address space and of data: the program sees its own, as if callpath mapped nothing.
//!
//! The kernel counts our windows in RLIMIT_AS, although little of them is ever memory. It counts what is mapped
//! ahead for the sentinel there and in RLIMIT_DATA. So the kernel gets a limit that is higher by their length,
//! and the program sees the limit that it set. The session's settings say whether the recorder has raised the
//! kernel's limit; if it may not, nothing is changed here.

use callpath_collect::syscall::getpid;
use core::ffi::c_int;

use crate::hook::{Next, hook};
use crate::part;

const RLIMIT_AS: c_int = 9;
const RLIMIT_DATA: c_int = 2;
const INFINITY: u64 = u64::MAX;

/// The C library's `struct rlimit`, soft and hard.
type Limit = [u64; 2];

type Get = unsafe extern "C" fn(c_int, *mut Limit) -> c_int;
type Set = unsafe extern "C" fn(c_int, *const Limit) -> c_int;
type Both = unsafe extern "C" fn(c_int, c_int, *const Limit, *mut Limit) -> c_int;

/// How much of the kernel's limit is ours, bytes.
fn ours(resource: c_int) -> u64 {
    let Some(process) = part::process() else { return 0 };
    match resource {
        RLIMIT_AS => process.session.added_space_bytes,
        RLIMIT_DATA => process.session.ahead_len_bytes,
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

fn get(next: &Next<Get>) -> c_int {
    let (resource, limit) = next.arguments();
    let result = next.original();
    // SAFETY: null, or a place for a limit to which the real one has
    // written if it succeeded: the program vouches for it.
    if let Some(limit) = unsafe { limit.as_mut() }
        && result == 0
    {
        programs(limit, ours(resource));
    }
    result
}

fn set(next: &Next<Set>) -> c_int {
    let (resource, limit) = next.arguments();
    let ours = ours(resource);
    // SAFETY: null, or a limit that the real one would read: the program vouches for it.
    match unsafe { limit.as_ref() }.filter(|_| ours != 0) {
        // SAFETY: the real one reads a limit of this frame's.
        Some(limit) => unsafe { (next.real)(resource, &kernels(*limit, ours)) },
        None => next.original(),
    }
}

fn both(next: &Next<Both>) -> c_int {
    let (pid, resource, new, old) = next.arguments();
    // The limits of another process are not known here.
    let ours = if pid == 0 || pid as u32 == getpid() { ours(resource) } else { 0 };
    if ours == 0 {
        return next.original();
    }
    // SAFETY: null, or a limit that the real one would read: the program vouches for it.
    let raised = unsafe { new.as_ref() }.map(|limit| kernels(*limit, ours));
    let passed = raised.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: `passed` is null or a limit of this frame's; the program vouches for `old`.
    let result = unsafe { (next.real)(pid, resource, passed, old) };
    // SAFETY: null, or a place for a limit to which the real one has
    // written if it succeeded: the program vouches for it.
    if let Some(old) = unsafe { old.as_mut() }
        && result == 0
    {
        programs(old, ours);
    }
    result
}

hook! {
    /// `getrlimit(2)` as the program would see it without callpath.
    fn getrlimit(resource: c_int, limit: *mut Limit) -> c_int, or -1;
    |next| get(&next)

    /// `getrlimit64(2)` as the program would see it without callpath.
    fn getrlimit64(resource: c_int, limit: *mut Limit) -> c_int, or -1;
    |next| get(&next)

    /// `setrlimit(2)`, which raises the kernel's limit by what is ours.
    fn setrlimit(resource: c_int, limit: *const Limit) -> c_int, or -1;
    |next| set(&next)

    /// `setrlimit64(2)`, which raises the kernel's limit by what is ours.
    fn setrlimit64(resource: c_int, limit: *const Limit) -> c_int, or -1;
    |next| set(&next)

    /// `prlimit(2)`, as both of them.
    fn prlimit(pid: c_int, resource: c_int, new: *const Limit, old: *mut Limit) -> c_int, or -1;
    |next| both(&next)

    /// `prlimit64(2)`, as both of them.
    fn prlimit64(pid: c_int, resource: c_int, new: *const Limit, old: *mut Limit) -> c_int, or -1;
    |next| both(&next)
}
