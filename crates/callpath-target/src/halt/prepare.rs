//! What is done before all threads are stopped, while most of them run: above all, registering the process for changes
//! of its code (`membarrier`).

use super::release::let_go;
use super::tracer::{REGISTER_SYNC_CORE, Tracer};
use crate::error::TargetError;
use crate::listed::threads_of;
use crate::pid::Pid;
use crate::task_status::TaskStatus;

/// The threads that are stopped for it: the first, on whose stack the shelter is, for a moment; and one that waits, if there is
/// such a one, for as long as it takes. `None`: a single thread registers in no time.
pub(super) fn threads(pid: Pid) -> Option<Vec<Pid>> {
    let mut threads = threads_of(pid);
    let first_sleeps_deeply = || TaskStatus::read(pid, pid).is_some_and(|status| status.state == 'D');
    if threads.len() < 2 || first_sleeps_deeply() {
        return None;
    }
    threads.sort_by_key(|thread| (*thread != pid, *thread));
    let waits =
        |thread: &Pid| TaskStatus::read(pid, *thread).is_some_and(|status| status.state == 'S' && status.seccomp == 0);
    let second = threads.iter().copied().find(waits).filter(|second| *second != pid);
    Some([pid].into_iter().chain(second).collect())
}

/// Whether a process has a single thread.
///
/// # Errors
/// If its first thread cannot work for callpath, or runs while there are others: it would stand still for as long as it waits for a processor
/// each time, where stopping all of them takes less.
pub(super) fn first_is_alone(pid: Pid) -> Result<bool, TargetError> {
    let status = TaskStatus::read(pid, pid).ok_or(TargetError::NoProcess { pid })?;
    let is_alone = threads_of(pid).len() == 1;
    let why = match status.state {
        _ if status.has_ended() => "its first thread has ended",
        'D' => "its first thread is in uninterruptible sleep",
        'R' if !is_alone => "its first thread runs",
        _ if status.seccomp != 0 => return Err(TargetError::Seccomp { pid }),
        _ => return Ok(is_alone),
    };
    Err(TargetError::Refused { pid, why: why.to_owned() })
}

impl Tracer {
    /// As [`super::Halted::prepare`], with those threads stopped.
    pub(super) fn register_for_changes(&mut self) -> Result<(), TargetError> {
        let chosen = self.choose_caller(true)?;
        let borrowed = self.make_ready(chosen)?;
        self.borrowed = Some(borrowed);
        let (mut others, one) = std::mem::take(&mut self.threads).into_iter().partition(|thread| thread.tid != chosen);
        self.threads = one;
        let let_go = let_go(&mut others);
        let registered = self.system_call_on_borrowed(libc::SYS_membarrier, [REGISTER_SYNC_CORE, 0, 0, 0, 0, 0]);
        self.release().and(let_go).and(registered.map(drop))
    }
}
