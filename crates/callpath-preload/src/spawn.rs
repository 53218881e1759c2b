//! Children that the C library starts by itself: `posix_spawn`, `system`, `popen`.

use core::ffi::{c_char, c_int, c_void};

use crate::environment::{self, Words};
use crate::exec::Obstacle;
use crate::file::File;
use crate::hook::hook;
use crate::libc::{ENOSYS, failed};
use crate::successor::{self, Named};
use crate::{masks, part, signal};

/// Calls `spawn`, which returns 0 or an error, with the environment for the child. The child
/// inherits what the program wants done with SIGTRAP.
fn around(named: Named, environment: Words, child: *mut c_int, spawn: impl FnOnce(Words) -> c_int) -> c_int {
    let Some(process) = part::process() else { return spawn(environment) };
    let obstacle = Obstacle::of(process, named, environment);
    let ignored = signal::is_ignored_by_program();
    if ignored {
        signal::ignore();
    }
    let result = masks::shown(|| match &obstacle {
        Some(obstacle) if obstacle.is_disturbed_by_us() => environment::without_ours(environment, spawn),
        _ => spawn(environment),
    });
    if ignored {
        signal::take_back();
    }
    match obstacle {
        Some(obstacle) if result != 0 => obstacle.withdraw(),
        Some(obstacle) if obstacle.can_be_sampled() && !child.is_null() => {
            // SAFETY: a place of the caller's, where the call has put the child's number.
            obstacle.sample_now(unsafe { child.read() } as u32);
        }
        _ => {}
    }
    result
}

hook! {
    /// `posix_spawn(3)`
    fn posix_spawn(
        pid: *mut c_int, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Words,
        environment: Words
    ) -> c_int, or ENOSYS;
    |next| around(Named::Path(File::HERE, path), environment, pid, |environment| {
        // SAFETY: the program's own arguments; `around` passes its environment or one that lives as long as the call.
        unsafe { (next.real)(pid, path, actions, attributes, arguments, environment) }
    })

    /// `posix_spawnp(3)`
    fn posix_spawnp(
        pid: *mut c_int, file: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Words,
        environment: Words
    ) -> c_int, or ENOSYS;
    |next| around(Named::InPath(file), environment, pid, |environment| {
        // SAFETY: as for `posix_spawn`.
        unsafe { (next.real)(pid, file, actions, attributes, arguments, environment) }
    })
}

/// The shell that `system` and `popen` start gets the program's own environment. If it
/// cannot open our object, its loader would complain.
fn shell_is_about_to_start() {
    if part::process().is_none() {
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

hook! {
    /// `system(3)`
    fn system(command: *const c_char) -> c_int, or failed(ENOSYS);
    |next| {
        shell_is_about_to_start();
        masks::shown(|| next.original())
    }

    /// `popen(3)`
    fn popen(command: *const c_char, kind: *const c_char) -> *mut c_void, or no_stream();
    |next| {
        shell_is_about_to_start();
        masks::shown(|| next.original())
    }
}

fn no_stream() -> *mut c_void {
    failed(ENOSYS);
    core::ptr::null_mut()
}
