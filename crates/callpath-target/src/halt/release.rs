//! Letting threads run on, as if they had not been stopped.

use std::time::Duration;

use super::tracer::{Patience, REGISTER_SYNC_CORE, Thread, Tracer};
use crate::error::TargetError;
use crate::pid::Pid;
use crate::ptrace;
use crate::task_status::TaskStatus;

impl Tracer {
    /// As [`super::Halted::release`].
    pub(super) fn release(&mut self) -> Result<(), TargetError> {
        let given_back = self.give_back();
        let_go(&mut self.threads).and(given_back)
    }

    /// As [`super::Halted::release_for_changes`].
    pub(super) fn release_for_changes(&mut self) -> Result<Duration, TargetError> {
        self.give_back()?;
        let chosen = self.choose_caller(true)?;
        let borrowed = self.make_ready(chosen)?;
        self.borrowed = Some(borrowed);
        let (mut others, one) = std::mem::take(&mut self.threads).into_iter().partition(|thread| thread.tid != chosen);
        self.threads = one;
        let let_go = let_go(&mut others);
        let stood_still = self.since.elapsed();
        // Where it cannot be done, it is tried again when it is needed.
        drop(self.system_call_on_borrowed(libc::SYS_membarrier, [REGISTER_SYNC_CORE, 0, 0, 0, 0, 0]));
        self.release().and(let_go)?;
        Ok(stood_still)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // What cannot be let go here, the kernel lets go when this thread ends.
        drop(self.release());
    }
}

/// Lets all stopped threads run on; the first error, if any.
pub(super) fn let_go(threads: &mut Vec<Thread>) -> Result<(), TargetError> {
    // The kernel likes to give a process's signals to its first thread.
    threads.sort_by_key(|thread| (thread.tid != thread.process, thread.tid));
    let mut outcome = Ok(());
    threads.retain(|thread| thread.stopped);
    // All that takes time comes first: the threads that run already take processors from those that wait to be let go.
    let mut takes = Vec::new();
    for thread in &mut *threads {
        outcome = outcome.and(thread.prepare());
        takes.push(thread.signals_of_process() != 0);
    }
    for (thread, takes) in threads.drain(..).zip(takes) {
        outcome = outcome.and(thread.let_go(takes));
    }
    outcome
}

impl Thread {
    fn prepare(&mut self) -> Result<(), TargetError> {
        let gone = |error: &TargetError| matches!(error, TargetError::Trace { source, .. } if source.raw_os_error() == Some(libc::ESRCH));
        match self.decide_call() {
            Err(error) if !gone(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// `takes`: a signal of the process's is pending, and should wake this thread alone.
    fn let_go(self, takes: bool) -> Result<(), TargetError> {
        for info in &self.postponed {
            self.send(info);
        }
        match ptrace::detach(self.tid, self.signal.unwrap_or(0)) {
            Err(source) if source.raw_os_error() != Some(libc::ESRCH) => {
                return Err(TargetError::Trace { request: "PTRACE_DETACH", pid: self.tid, source });
            }
            _ => {}
        }
        if takes {
            self.wait_until_taken();
        }
        Ok(())
    }

    /// Other threads that wait in a call should not see it interrupted by a signal that this one takes.
    fn wait_until_taken(&self) {
        const LOOKS: u32 = 150;
        let mut patience = Patience::default();
        for _ in 0..LOOKS {
            if self.signals_of_process() == 0 {
                return;
            }
            patience.wait();
        }
    }

    /// Signals pending for the process that this thread would take.
    fn signals_of_process(&self) -> u64 {
        let status = TaskStatus::read(self.process, self.tid);
        status.map_or(0, |status| status.effective(status.shared_pending & !status.blocked))
    }

    /// Sends a signal anew: with what belonged to it where the kernel lets a process say that, else without.
    fn send(&self, info: &libc::siginfo_t) {
        let Pid(process) = self.process;
        // SAFETY: takes numbers, and a whole siginfo_t. That the thread may have ended does not matter.
        unsafe {
            let (tid, signal) = (self.tid.0, info.si_signo);
            if libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, tid, signal, std::ptr::from_ref(info)) != 0 {
                libc::syscall(libc::SYS_tgkill, process, tid, signal);
            }
        }
    }
}
