//! Children that the C library starts by itself: `posix_spawn`, `system`, `popen`.
//! Knows nothing of what is in the child's file.

use callpath_collect::syscall::getpid;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;

use crate::environment::{self, Words};
use crate::exec::{Obstacle, failed};
use crate::file::File;
use crate::loader::real;
use crate::successor::{self, Named};
use crate::{attach, masks, signal};

const ENOSYS: c_int = 38;

type Spawn = unsafe extern "C" fn(*mut c_int, *const c_char, *const c_void, *const c_void, Words, Words) -> c_int;

/// Calls `spawn`, which returns 0 or an error, with the environment that the child shall have. The child inherits what the
/// program wants of SIGTRAP.
fn around(named: Named, environment: Words, spawn: impl FnOnce(Words) -> c_int) -> c_int {
    let Some(process) = attach::process() else { return spawn(environment) };
    let obstacle = Obstacle::of(process, named, environment);
    let is_own = process.slot.pid.load(Relaxed) == getpid();
    let (ignored, blocked) = (signal::is_ignored_by_program(), masks::is_blocked_for_successor(is_own));
    if ignored {
        signal::ignore();
    }
    if blocked {
        masks::block();
    }
    let result = match &obstacle {
        Some(obstacle) if obstacle.is_disturbed_by_us() => environment::without_ours(environment, spawn),
        _ => spawn(environment),
    };
    if blocked {
        masks::unblock();
    }
    if ignored {
        signal::take_back();
    }
    if let Some(obstacle) = obstacle
        && result != 0
    {
        obstacle.withdraw();
    }
    result
}

/// `posix_spawn(3)`
///
/// # Safety
/// As for `posix_spawn(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn(
    pid: *mut c_int,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Words,
    environment: Words,
) -> c_int {
    let Some(address) = real!(c"posix_spawn") else { return ENOSYS };
    // SAFETY: `posix_spawn` of the C library.
    let real: Spawn = unsafe { core::mem::transmute(address) };
    around(Named::Path(File::HERE, path), environment, |environment| {
        // SAFETY: the caller's own arguments.
        unsafe { real(pid, path, actions, attributes, arguments, environment) }
    })
}

/// `posix_spawnp(3)`
///
/// # Safety
/// As for `posix_spawnp(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawnp(
    pid: *mut c_int,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Words,
    environment: Words,
) -> c_int {
    let Some(address) = real!(c"posix_spawnp") else { return ENOSYS };
    // SAFETY: `posix_spawnp` of the C library.
    let real: Spawn = unsafe { core::mem::transmute(address) };
    around(Named::InPath(file), environment, |environment| {
        // SAFETY: the caller's own arguments.
        unsafe { real(pid, file, actions, attributes, arguments, environment) }
    })
}

/// The shell that `system` and `popen` start gets the program's own environment. Where our object is out of its reach, its
/// loader would complain.
fn shell_is_about_to_start() {
    if attach::process().is_none() {
        return;
    }
    let environment = environment::own();
    if let (Some(object), Some(session)) =
        (environment::object(environment), environment::variable(environment, environment::SESSION))
        && successor::is_out_of_reach(object, session)
    {
        environment::forget();
    }
}

/// `system(3)`
///
/// # Safety
/// As for `system(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn system(command: *const c_char) -> c_int {
    let Some(address) = real!(c"system") else { return failed(ENOSYS) };
    // SAFETY: `system` of the C library.
    let real: unsafe extern "C" fn(*const c_char) -> c_int = unsafe { core::mem::transmute(address) };
    shell_is_about_to_start();
    // SAFETY: the caller's own argument.
    unsafe { real(command) }
}

/// `popen(3)`
///
/// # Safety
/// As for `popen(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn popen(command: *const c_char, kind: *const c_char) -> *mut c_void {
    let Some(address) = real!(c"popen") else {
        failed(ENOSYS);
        return core::ptr::null_mut();
    };
    // SAFETY: `popen` of the C library.
    let real: unsafe extern "C" fn(*const c_char, *const c_char) -> *mut c_void =
        unsafe { core::mem::transmute(address) };
    shell_is_about_to_start();
    // SAFETY: the caller's own arguments.
    unsafe { real(command, kind) }
}
