//! System calls that the kernel does not restart by itself when a thread was stopped in them.

use super::tracer::Thread;
use crate::error::TargetError;
use crate::ptrace;
use crate::remote_call::{SYSTEM_CALL, has_failed};
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
const WITH_MASK: [libc::c_long; 4] =
    [libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2, SYS_IO_PGETEVENTS, libc::SYS_io_uring_enter];

impl Thread {
    /// Once it has stopped: notes whether it is in such a call, and has it made anew unless a signal is about to
    /// interrupt it anyway. Should callpath be killed, that holds.
    pub(super) fn note_call(&mut self) -> Result<(), TargetError> {
        let registers = ptrace::registers(self.tid)?;
        let call = registers.orig_rax as libc::c_long;
        let is_failed = has_failed(&registers);
        self.call = Some(call).filter(|call| is_failed && (MADE_ANEW.contains(call) || WITH_MASK.contains(call)));
        self.decide_call()
    }

    /// By the signals that are pending now: has the call fail, as a signal's handler wants it, or be made anew.
    pub(super) fn decide_call(&mut self) -> Result<(), TargetError> {
        let Some(call) = self.call else { return Ok(()) };
        let Some(status) = TaskStatus::read(self.process, self.tid) else { return Ok(()) };
        let with_mask = WITH_MASK.contains(&call);
        let arriving = status.effective(self.signal.map_or(0, bit));
        // With a mask of its own, it sees pending signals when it is made anew.
        let anew = arriving == 0 && (with_mask || status.imminent() == 0);
        if anew == self.is_anew {
            return Ok(());
        }
        let registers = ptrace::registers(self.tid)?;
        let len = SYSTEM_CALL.len() as u64;
        let (rip, rax, orig_rax) = match anew {
            true => (registers.rip.wrapping_sub(len), call as u64, u64::MAX),
            false => (registers.rip.wrapping_add(len), -i64::from(libc::EINTR) as u64, call as u64),
        };
        if anew && with_mask {
            // Signals that only the call lets through wait for it.
            ptrace::set_signal_mask(self.tid, ptrace::signal_mask(self.tid)?)?;
        }
        ptrace::set_registers(self.tid, &libc::user_regs_struct { rip, rax, orig_rax, ..registers })?;
        self.is_anew = anew;
        Ok(())
    }
}
