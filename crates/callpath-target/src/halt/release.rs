//! Letting threads run on, as if they had not been stopped.

use super::tracer::{Patience, Thread, Tracer};
use crate::error::TargetError;
use crate::pid::Pid;
use crate::ptrace;
use crate::task_status::{TaskStatus, bit};

impl Tracer {
    /// As [`super::Halted::release`]. Most threads run on when the calling thread ends, which it must do at once: the kernel
    /// then lets all go in one step. If they were let go one by one, the first ones would take the processor from this
    /// thread, for 4 to 8 ms, while the others still stand.
    pub(super) fn release(&mut self) -> Result<(), TargetError> {
        let given_back = self.give_back();
        leave(&mut self.threads).and(given_back)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // What is not let go here, the kernel lets go when this thread ends.
        drop(self.release());
    }
}

/// Lets those threads run on that the kernel gives a signal with it; the others are left to the end of the calling thread. The
/// first error, if any.
fn leave(threads: &mut Vec<Thread>) -> Result<(), TargetError> {
    let (ready, mut outcome) = make_ready(threads);
    for (thread, takes) in ready {
        if takes || thread.signal.is_some() {
            outcome = outcome.and(thread.let_go(takes));
        } else {
            thread.send_postponed();
        }
    }
    outcome
}

/// Lets all stopped threads run on, one by one; the first error, if any.
pub(super) fn let_go(threads: &mut Vec<Thread>) -> Result<(), TargetError> {
    let (ready, mut outcome) = make_ready(threads);
    for (thread, takes) in ready {
        outcome = outcome.and(thread.let_go(takes));
    }
    outcome
}

/// All that takes time before threads run on, the first error, if any, and of each whether a signal of the process's is
/// pending that it would take.
fn make_ready(threads: &mut Vec<Thread>) -> (Vec<(Thread, bool)>, Result<(), TargetError>) {
    // The kernel likes to give a process's signals to its first thread.
    threads.sort_by_key(|thread| (thread.tid != thread.process, thread.tid));
    threads.retain(|thread| thread.stopped);
    let mut outcome = Ok(());
    let mut ready = Vec::new();
    for mut thread in threads.drain(..) {
        outcome = outcome.and(thread.prepare());
        let takes = thread.signals_of_process() != 0;
        ready.push((thread, takes));
    }
    (ready, outcome)
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
        self.send_postponed();
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

    fn send_postponed(&self) {
        let stops = |info: &&libc::siginfo_t| info.si_signo == libc::SIGSTOP;
        // What came behind a SIGSTOP has undone it, as it does in the kernel's own queue.
        let is_continued = self.postponed.iter().any(|info| stops(&info)) && self.is_continued();
        for info in self.postponed.iter().filter(|info| !(is_continued && stops(info))) {
            self.send(info);
        }
    }

    fn is_continued(&self) -> bool {
        let status = TaskStatus::read(self.process, self.tid);
        status.is_some_and(|status| (status.pending | status.shared_pending) & bit(libc::SIGCONT) != 0)
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
