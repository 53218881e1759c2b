//! The recorder's own threads. Each can be refused (`ulimit -u`, a cgroup's `pids.max`): its work
//! is then done on the serving thread. If only a few more can be started, they are left to the
//! program. Threads of measured processes are in `thread`.

use std::sync::OnceLock;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// Starts a thread. `None`: the system refuses it.
pub(crate) fn start(work: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
    if are_scarce() { None } else { Builder::new().spawn(work).ok() }
}

/// Starts a thread that ends before the scope does.
pub(crate) fn start_in<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Option<ScopedJoinHandle<'scope, T>> {
    if are_scarce() { None } else { Builder::new().spawn_scoped(scope, work).ok() }
}

/// As it was when the recording began.
pub(crate) fn are_scarce() -> bool {
    static SCARCE: OnceLock<bool> = OnceLock::new();
    *SCARCE.get_or_init(callpath_target::tasks_are_scarce)
}
