//! Letting threads run on, as if they had not been stopped.

use super::tracer::{Patience, Thread, Tracer};
use crate::error::TargetError;
use crate::pid::Pid;
use crate::ptrace;
use crate::remote_call::SYSTEM_CALL;
use crate::task_status::{TaskStatus, bit};

/// Calls that fail with `EINTR` when a thread is stopped, though no handler ran, and may be made anew: nothing has
/// happened in them when they do. The kernel restarts all others itself (signal(7)).
const MADE_ANEW: [libc::c_long; 20] = [
    libc::SYS_epoll_wait,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_io_getevents,
    // Of sockets with a time-out, and of inotify.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
];

const SYS_IO_PGETEVENTS: libc::c_long = 333;

/// Of such calls, those with a signal mask of their own. Made anew, they see signals that they let through.
const WITH_MASK: [libc::c_long; 3] = [libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2, SYS_IO_PGETEVENTS];

impl Tracer {
    /// As [`super::Halted::release`].
    pub(super) fn release(&mut self) -> Result<(), TargetError> {
        let_go(&mut self.threads)
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
    for thread in threads.drain(..).filter(|thread| thread.stopped) {
        outcome = outcome.and(thread.let_go());
    }
    outcome
}

impl Thread {
    fn let_go(self) -> Result<(), TargetError> {
        let gone = |error: &TargetError| matches!(error, TargetError::Trace { source, .. } if source.raw_os_error() == Some(libc::ESRCH));
        let taken = match self.make_call_anew() {
            Ok(taken) => taken,
            Err(error) if gone(&error) => false,
            Err(error) => return Err(error),
        };
        for info in &self.postponed {
            self.send(info);
        }
        match ptrace::detach(self.tid, self.signal.unwrap_or(0)) {
            Err(source) if source.raw_os_error() != Some(libc::ESRCH) => {
                return Err(TargetError::Trace { request: "PTRACE_DETACH", pid: self.tid, source });
            }
            _ => {}
        }
        if taken {
            self.wait_until_taken();
        }
        Ok(())
    }

    /// Has the thread make its interrupted call anew, if the kernel does not. Returns whether it is to take a signal of
    /// the process's, which should wake it alone.
    fn make_call_anew(&self) -> Result<bool, TargetError> {
        let registers = ptrace::registers(self.tid)?;
        let Some(status) = TaskStatus::read(self.process, self.tid) else { return Ok(false) };
        let takes = status.effective(status.shared_pending & !status.blocked) != 0;
        let call = registers.orig_rax as libc::c_long;
        if call < 0 || registers.rax as i64 != -i64::from(libc::EINTR) {
            return Ok(takes);
        }
        let with_mask = WITH_MASK.contains(&call);
        let arriving = status.effective(self.signal.map_or(0, bit));
        if arriving != 0 || !(with_mask || MADE_ANEW.contains(&call)) || (!with_mask && status.imminent() != 0) {
            return Ok(takes);
        }
        if with_mask {
            // Signals that only the call lets through wait for it.
            ptrace::set_signal_mask(self.tid, ptrace::signal_mask(self.tid)?)?;
        }
        let anew = libc::user_regs_struct {
            rip: registers.rip.wrapping_sub(SYSTEM_CALL.len() as u64),
            rax: registers.orig_rax,
            orig_rax: u64::MAX,
            ..registers
        };
        ptrace::set_registers(self.tid, &anew)?;
        Ok(false)
    }

    /// Other threads that wait in a call should not see it interrupted by a signal that this one takes.
    fn wait_until_taken(&self) {
        const LOOKS: u32 = 150;
        let mut patience = Patience::default();
        for _ in 0..LOOKS {
            let status = TaskStatus::read(self.process, self.tid);
            if status.is_none_or(|status| status.effective(status.shared_pending & !status.blocked) == 0) {
                return;
            }
            patience.wait();
        }
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
