//! Calling a routine of ours on a stopped thread.

use std::time::Instant;

use callpath_format::address::RunAddr;

use super::borrowed::Borrowed;
use super::tracer::{RUN_AT_MOST, Tracer};
use crate::error::TargetError;
use crate::pid::Pid;
use crate::ptrace::{self, Stop};
use crate::remote_call::SYSTEM_CALL;
use crate::task_status::{TaskStatus, bit};
use crate::traced::Traced;

/// Signals by which a fault is told. The kernel would take their handlers from a program that holds them back.
const FAULTS: [i32; 6] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];
const ALL_SIGNALS: u64 = u64::MAX;

/// Where a routine returns to.
struct Return {
    /// The code's address lies there: rsp when the routine begins.
    rsp: u64,
    /// That code is a system call, and ends there: the thread stops as it begins, so no signal is needed.
    behind: RunAddr,
}

impl Tracer {
    /// As [`super::Halted::call`].
    pub(super) fn call(&mut self, routine: RunAddr, arguments: [u64; 6], stack: RunAddr) -> Result<(), TargetError> {
        self.borrow()?;
        let Some(borrowed) = self.borrowed.take() else { return Ok(()) };
        let called = self.call_on(&borrowed, (routine, arguments), stack);
        self.borrowed = Some(Borrowed { has_run_routine: true, ..borrowed });
        called
    }

    fn call_on(
        &mut self,
        borrowed: &Borrowed,
        (routine, arguments): (RunAddr, [u64; 6]),
        stack: RunAddr,
    ) -> Result<(), TargetError> {
        let Borrowed { thread, idle, .. } = *borrowed;
        if TaskStatus::read(self.pid, thread).is_some_and(|status| status.shadow_stack) {
            return Err(self.routine_failed("its threads have shadow stacks"));
        }
        let back = self.lay_out_return(borrowed, stack)?;
        let [rdi, rsi, rdx, rcx, r8, r9] = arguments;
        let registers = libc::user_regs_struct {
            rip: routine.0,
            rsp: back.rsp,
            rbp: 0,
            rax: 0,
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            rcx,
            r8,
            r9,
            eflags: idle.eflags & !(DIRECTION_FLAG | TRAP_FLAG),
            ..idle
        };
        let held = FAULTS.iter().fold(ALL_SIGNALS, |set, signal| set & !bit(*signal));
        ptrace::set_signal_mask(thread, held)?;
        self.run_until = Some(Instant::now() + RUN_AT_MOST);
        let returned = ptrace::set_registers(thread, &registers).and_then(|()| self.run_to_return(borrowed, &back));
        self.run_until = None;
        match &returned {
            // Still running: it must be stopped wherever it is.
            Err(_) => self.settle_anywhere(thread)?,
            Ok(()) => self.settle(thread)?,
        }
        ptrace::set_registers(thread, &idle)?;
        ptrace::set_signal_mask(thread, ALL_SIGNALS)?;
        returned
    }

    /// Lays out what the routine returns to, at the end of its stack: a frame, where there is a shelter.
    fn lay_out_return(&mut self, borrowed: &Borrowed, stack: RunAddr) -> Result<Return, TargetError> {
        let is_sheltered = borrowed.idle.rip != borrowed.calls.0;
        if let Some((bytes, _)) = borrowed.frame_at(0, self).filter(|_| is_sheltered) {
            let at = stack.0.wrapping_sub(bytes.len() as u64) & !63;
            if let (Some((bytes, rsp)), Some(shelter)) = (borrowed.frame_at(at, self), &self.shelter) {
                self.memory().write(at, &bytes)?;
                return Ok(Return { rsp, behind: shelter.behind });
            }
        }
        let rsp = (stack.0 & !15).wrapping_sub(size_of::<u64>() as u64);
        self.memory().write(rsp, &borrowed.calls.0.to_le_bytes())?;
        Ok(Return { rsp, behind: RunAddr(borrowed.calls.0.wrapping_add(SYSTEM_CALL.len() as u64)) })
    }

    fn run_to_return(&mut self, borrowed: &Borrowed, back: &Return) -> Result<(), TargetError> {
        let Borrowed { thread, idle, .. } = *borrowed;
        let above = back.rsp.wrapping_add(size_of::<u64>() as u64);
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
                    if registers.rip == back.behind.0 && registers.rsp == above {
                        // Not to be made: behind it is no code to go on with, should callpath be killed.
                        return ptrace::set_registers(thread, &idle);
                    }
                }
            }
        }
    }

    /// Stops a thread that may be running, or stands still anywhere.
    pub(super) fn settle_anywhere(&mut self, thread: Pid) -> Result<(), TargetError> {
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
