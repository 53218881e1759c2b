//! Calling a routine of ours on a stopped thread.

use std::time::Instant;

use callpath_format::address::RunAddr;

use super::tracer::{RUN_AT_MOST, Tracer};
use crate::error::TargetError;
use crate::pid::Pid;
use crate::ptrace::{self, Stop};
use crate::remote_call::{Before, SYSTEM_CALL};
use crate::task_status::{TaskStatus, bit};
use crate::traced::Traced;

/// Signals by which a fault is told. The kernel would take their handlers from a program that holds them back.
const FAULTS: [i32; 6] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

impl Tracer {
    /// As [`super::Halted::call`].
    pub(super) fn call(&mut self, routine: RunAddr, arguments: [u64; 6], stack: RunAddr) -> Result<u64, TargetError> {
        let thread = self.caller()?;
        if TaskStatus::read(self.pid, thread).is_some_and(|status| status.shadow_stack) {
            return Err(self.routine_failed("its threads have shadow stacks"));
        }
        // The routine returns to a system call, at whose beginning the thread stops: no signal is needed.
        let trap = self.system_call_instruction()?;
        let vectors = ptrace::vector_state(thread)?;
        let held = FAULTS.iter().fold(u64::MAX, |set, signal| set & !bit(*signal));
        let before = Before::note(self, thread, held)?;
        let [rdi, rsi, rdx, rcx, r8, r9] = arguments;
        let rsp = (stack.0 & !15).wrapping_sub(size_of::<u64>() as u64);
        let registers = libc::user_regs_struct {
            rip: routine.0,
            rsp,
            rbp: 0,
            rax: 0,
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            rcx,
            r8,
            r9,
            eflags: before.registers.eflags & !(DIRECTION_FLAG | TRAP_FLAG),
            ..before.registers
        };
        let returned = self
            .memory()
            .write(rsp, &trap.0.to_le_bytes())
            .and_then(|()| ptrace::set_registers(thread, &registers))
            .and_then(|()| {
                self.run_until = Some(Instant::now() + RUN_AT_MOST);
                self.run_to_return(thread, trap, rsp)
            });
        self.run_until = None;
        let settled = match &returned {
            // Still running: it must be stopped wherever it is.
            Err(_) => self.settle_anywhere(thread),
            Ok(_) => self.settle(thread),
        };
        settled?;
        before.put_back(self, thread)?;
        ptrace::set_vector_state(thread, &vectors)?;
        returned
    }

    /// Returns the routine's value.
    fn run_to_return(&mut self, thread: Pid, trap: RunAddr, rsp: u64) -> Result<u64, TargetError> {
        let (behind, above) =
            (trap.0.wrapping_add(SYSTEM_CALL.len() as u64), rsp.wrapping_add(size_of::<u64>() as u64));
        loop {
            ptrace::to_system_call(thread)?;
            match self.next_stop(thread)? {
                Stop::Signal(signal) if FAULTS.contains(&signal) && ptrace::signal_info(thread)?.si_code > 0 => {
                    let at = ptrace::registers(thread)?.rip;
                    return Err(self.routine_failed(&format!("it faults at {at:#x} (signal {signal})")));
                }
                Stop::Signal(signal) => self.postpone(thread, signal)?,
                Stop::Ended => return Err(self.routine_failed("the thread has ended")),
                Stop::Interrupt | Stop::Event => {}
                Stop::SystemCall => {
                    let registers = ptrace::registers(thread)?;
                    if registers.rip == behind && registers.rsp == above {
                        // Not to be made. Its number is the routine's value.
                        let skipped = libc::user_regs_struct { orig_rax: u64::MAX, ..registers };
                        ptrace::set_registers(thread, &skipped)?;
                        return Ok(registers.orig_rax);
                    }
                }
            }
        }
    }

    /// Stops a thread that may be running, or stands still anywhere.
    fn settle_anywhere(&mut self, thread: Pid) -> Result<(), TargetError> {
        ptrace::interrupt(thread)?;
        // Fails if it runs.
        drop(ptrace::go_on(thread, 0));
        self.await_interrupt(thread)
    }

    fn routine_failed(&self, why: &str) -> TargetError {
        TargetError::Routine { pid: self.pid, why: why.to_owned() }
    }
}

const DIRECTION_FLAG: u64 = 1 << 10;
const TRAP_FLAG: u64 = 1 << 8;
