//! A thread that works for callpath: it makes system calls and runs routines, one after the other, until it is given
//! back as it was. Should callpath be killed meanwhile, it goes on by itself ([`super::shelter`]), where there is a shelter.

use callpath_format::address::RunAddr;

use super::shelter::Shelter;
use super::tracer::Tracer;
use crate::error::TargetError;
use crate::pid::Pid;
use crate::ptrace;
use crate::remote_call::{Before, SYSTEM_CALL, call_at, with};
use crate::task_status::TaskStatus;
use crate::traced::Traced;

/// All signals that can be held back.
const ALL_SIGNALS: u64 = u64::MAX;

/// The thread.
#[derive(Debug)]
pub(super) struct Borrowed {
    pub(super) thread: Pid,
    pub(super) before: Before,
    /// Vector and floating-point registers.
    pub(super) vectors: Vec<u8>,
    /// As it stands between two calls: it would go on from its frame.
    pub(super) idle: libc::user_regs_struct,
    /// Where it makes system calls.
    pub(super) calls: RunAddr,
    /// A routine has changed its vector registers.
    pub(super) has_run_routine: bool,
}

impl Borrowed {
    /// The frame from which it would be restored, at another place.
    pub(super) fn frame_at(&self, at: u64, tracer: &Tracer) -> Option<(Vec<u8>, u64)> {
        let shelter = tracer.shelter.as_ref()?;
        Some(shelter.frame(at, (&self.before, &self.vectors), tracer.memory()))
    }
}

impl Tracer {
    /// Has a thread work for us, unless one does already.
    pub(super) fn borrow(&mut self) -> Result<&mut Borrowed, TargetError> {
        if self.borrowed.is_none() {
            let thread = self.choose_caller(false)?;
            let borrowed = self.make_ready(thread)?;
            self.borrowed = Some(borrowed);
        }
        let pid = self.pid;
        self.borrowed.as_mut().ok_or(TargetError::NoProcess { pid })
    }

    pub(super) fn make_ready(&mut self, thread: Pid) -> Result<Borrowed, TargetError> {
        let before = Before::note(self, thread)?;
        let vectors = ptrace::vector_state(thread)?;
        let frame = self.write_frame(&before, &vectors)?;
        let (calls, rip, rsp) = match (frame, &self.shelter) {
            (Some(frame), Some(shelter)) => {
                // Behind its calls it returns to where the frame is used.
                (shelter.calls, shelter.calls.0.wrapping_add(SYSTEM_CALL.len() as u64), frame)
            }
            _ => {
                let calls = self.system_call_instruction()?;
                (calls, calls.0, before.registers.rsp)
            }
        };
        let idle = libc::user_regs_struct { rip, rsp, orig_rax: u64::MAX, ..before.registers };
        // In this order: a thread with signals held back goes on from its frame, which lets them through again.
        ptrace::set_registers(thread, &idle)?;
        ptrace::set_signal_mask(thread, ALL_SIGNALS)?;
        Ok(Borrowed { thread, before, vectors, idle, calls, has_run_routine: false })
    }

    /// Lays out a frame on the first thread's stack. Returns where rsp points to it; `None`: there is no shelter.
    fn write_frame(&self, before: &Before, vectors: &[u8]) -> Result<Option<u64>, TargetError> {
        let Some(shelter) = self.shelter.as_ref().filter(|shelter| shelter.is_there(self.memory())) else {
            return Ok(None);
        };
        if let Some(frame) = shelter.own_frame(&before.registers) {
            let code = self.memory().read_u64(frame);
            return Ok(code.filter(|code| *code == shelter.returns.0).map(|_| frame));
        }
        let mut registers = Vec::new();
        for thread in &self.threads {
            registers.push(ptrace::registers(thread.tid)?);
        }
        let first = self.threads.iter().position(|thread| thread.tid == self.pid).and_then(|at| registers.get(at));
        let place = shelter.place(first, &registers, (self.memory(), Shelter::frame_len_bytes(vectors)));
        let Some(at) = place else { return Ok(None) };
        let (bytes, rsp) = shelter.frame(at, (before, vectors), self.memory());
        self.memory().write(at, &bytes)?;
        Ok(Some(rsp))
    }

    /// Has the thread that works for us make a system call.
    pub(super) fn system_call_on_borrowed(
        &mut self,
        number: libc::c_long,
        arguments: [u64; 6],
    ) -> Result<i64, TargetError> {
        let borrowed = self.borrow()?;
        let (thread, calls, idle) = (borrowed.thread, borrowed.calls, borrowed.idle);
        let result = call_at(self, thread, with(&idle, calls, (number, arguments)));
        if result.is_err() {
            // It may be anywhere, even running. The first error says more.
            if self.settle_anywhere(thread).is_ok() {
                ptrace::set_registers(thread, &idle)?;
            }
        }
        result
    }

    /// Gives the thread that works for us back, as it was.
    pub(super) fn give_back(&mut self) -> Result<(), TargetError> {
        let Some(Borrowed { thread, before, vectors, has_run_routine, .. }) = self.borrowed.take() else {
            return Ok(());
        };
        if TaskStatus::read(self.pid, thread).is_none_or(|status| status.has_ended()) {
            return Ok(());
        }
        self.settle(thread)?;
        if has_run_routine {
            ptrace::set_vector_state(thread, &vectors)?;
        }
        before.put_back(self, thread)
    }
}
