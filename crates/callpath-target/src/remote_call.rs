//! System calls that a stopped thread of another process makes for us.

use crate::error::TargetError;
use crate::pid::Pid;
use crate::step::{Stepped, Stepper};

/// `syscall`
const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];

impl Stepper {
    /// Makes a system call on a thread that stands still between two instructions of its own, outside of the kernel. Its
    /// registers and its code are afterwards what they were. Returns what the kernel does: a negative number is an
    /// error's. Signals that arrive meanwhile stay pending.
    ///
    /// # Errors
    /// If the thread cannot be traced, or does not come back from the call.
    pub fn system_call(&mut self, thread: Pid, number: libc::c_long, arguments: [u64; 6]) -> Result<i64, TargetError> {
        let before = self.registers(thread)?;
        let mut code = [0; SYSTEM_CALL.len()];
        if self.read(before.rip, &mut code) != code.len() {
            return Err(self.stuck("its code cannot be read"));
        }
        self.write(before.rip, &SYSTEM_CALL)?;
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let call = libc::user_regs_struct {
            rax: number as u64,
            // Not in a system call that the kernel might restart.
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..before
        };
        self.set_registers(thread, &call)?;
        self.step(thread, 0)?;
        let stopped = self.wait(Some(thread))?.1;
        let result = self.registers(thread)?.rax as i64;
        self.write(before.rip, &code)?;
        self.set_registers(thread, &before)?;
        match stopped {
            Stepped::Trap => Ok(result),
            _ => Err(self.stuck("it did not come back from a system call")),
        }
    }

    fn stuck(&self, why: &str) -> TargetError {
        TargetError::Trace { request: "a system call", pid: self.pid(), source: std::io::Error::other(why.to_owned()) }
    }
}
