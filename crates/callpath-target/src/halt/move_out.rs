//! Taking threads out of bytes that are about to change.

use std::ops::Range;

use callpath_format::address::RunAddr;

use super::signal_frames::{Interrupted, SignalFrames};
use super::tracer::Tracer;
use crate::error::TargetError;
use crate::maps::Maps;
use crate::pid::Pid;
use crate::ptrace::{self, Stop};
use crate::remote_call::{Before, SYSTEM_CALL, has_failed, is_restarted};
use crate::task_status::{TaskStatus, bit};
use crate::traced::Traced;

/// Instructions that a thread may take to get out by itself.
const STEPS_AT_MOST: u32 = 10_000;

/// Where the same instruction stands elsewhere.
type Elsewhere<'t> = dyn Fn(RunAddr) -> Option<RunAddr> + Sync + 't;

impl Tracer {
    /// As [`super::Halted::move_out`].
    pub(super) fn move_out(&mut self, changing: &[Range<RunAddr>], to: &Elsewhere<'_>) -> Result<usize, TargetError> {
        let tids: Vec<Pid> = self.threads.iter().map(|thread| thread.tid).collect();
        let mut moved = 0;
        // First those that nothing but `to` can move: if it cannot, no thread has been.
        for (note_at, to) in self.interrupted(&tids, changing, to)? {
            self.memory().write(note_at, &to.0.to_le_bytes())?;
            moved += 1;
        }
        for tid in tids {
            moved += usize::from(self.move_thread(tid, changing, to)?);
        }
        Ok(moved)
    }

    /// Where signal frames note addresses inside of bytes that change, and what is to stand there.
    fn interrupted(
        &mut self,
        tids: &[Pid],
        changing: &[Range<RunAddr>],
        to: &Elsewhere<'_>,
    ) -> Result<Vec<(u64, RunAddr)>, TargetError> {
        let Some(maps) = tids.iter().find_map(|tid| Maps::read(*tid).ok()) else { return Ok(Vec::new()) };
        let mut frames = SignalFrames::new(self.memory(), maps);
        let mut moves = Vec::new();
        for tid in tids {
            for Interrupted { note_at, pc } in frames.above(ptrace::registers(*tid)?.rsp) {
                if is_inside(changing, pc) {
                    let why = "will go on there when a signal's handler returns";
                    moves.push((note_at, to(pc).ok_or_else(|| self.in_the_way(*tid, pc, why))?));
                }
            }
        }
        Ok(moves)
    }

    fn move_thread(&mut self, tid: Pid, changing: &[Range<RunAddr>], to: &Elsewhere<'_>) -> Result<bool, TargetError> {
        let registers = ptrace::registers(tid)?;
        let inside = |at| is_inside(changing, at);
        let at = RunAddr(registers.rip);
        // It may go on behind the call, or make it anew.
        let call = (is_restarted(&registers) || has_failed(&registers))
            .then(|| RunAddr(at.0.wrapping_sub(SYSTEM_CALL.len() as u64)));
        if !inside(at) && !call.is_some_and(inside) {
            return Ok(false);
        }
        let new = to(at);
        let fits = |new: &RunAddr| {
            call.is_none_or(|call| to(call) == Some(RunAddr(new.0.wrapping_sub(SYSTEM_CALL.len() as u64))))
        };
        if let Some(new) = new.filter(fits) {
            ptrace::set_registers(tid, &libc::user_regs_struct { rip: new.0, ..registers })?;
            return Ok(true);
        }
        if call.is_some() {
            return Err(self.in_the_way(tid, at, "is in a system call there"));
        }
        self.step_out(tid, inside)?;
        Ok(true)
    }

    /// Runs a thread on, instruction by instruction, until it is outside.
    fn step_out(&mut self, tid: Pid, inside: impl Fn(RunAddr) -> bool) -> Result<(), TargetError> {
        let thread = self.thread(tid)?;
        let (process, at) = (thread.process, RunAddr(ptrace::registers(tid)?.rip));
        let trap = bit(libc::SIGTRAP);
        let status = TaskStatus::read(process, tid).unwrap_or_default();
        if status.ignored & trap != 0 {
            // The kernel would change that.
            return Err(self.in_the_way(tid, at, "ignores SIGTRAP: it cannot be run on step by step"));
        }
        self.requeue(tid)?;
        let before = Before::note(self, tid)?;
        ptrace::set_signal_mask(tid, !trap)?;
        let outcome = self.steps(tid, inside);
        let now = ptrace::registers(tid)?;
        self.settle(tid)?;
        // The state of now, with the signals of before.
        Before { registers: now, ..before }.put_back(self, tid)?;
        outcome
    }

    fn steps(&mut self, tid: Pid, inside: impl Fn(RunAddr) -> bool) -> Result<(), TargetError> {
        for _ in 0..STEPS_AT_MOST {
            let at = RunAddr(ptrace::registers(tid)?.rip);
            if !inside(at) {
                return Ok(());
            }
            let mut code = [0; SYSTEM_CALL.len()];
            if self.memory().read(at.0, &mut code) == code.len() && code == SYSTEM_CALL {
                return Err(self.in_the_way(tid, at, "is about to make a system call there"));
            }
            ptrace::step(tid, 0)?;
            match self.next_stop(tid)? {
                Stop::Signal(libc::SIGTRAP) if ptrace::signal_info(tid)?.si_code > 0 => {}
                Stop::Signal(signal) if ptrace::signal_info(tid)?.si_code > 0 => {
                    return Err(self.in_the_way(tid, at, &format!("gets signal {signal} there")));
                }
                Stop::Signal(signal) => self.postpone(tid, signal)?,
                Stop::Ended => return Err(self.in_the_way(tid, at, "ends")),
                Stop::Interrupt | Stop::Event | Stop::SystemCall => {}
            }
        }
        let at = RunAddr(ptrace::registers(tid)?.rip);
        Err(self.in_the_way(tid, at, &format!("does not leave them in {STEPS_AT_MOST} instructions")))
    }

    fn in_the_way(&self, thread: Pid, at: RunAddr, why: &str) -> TargetError {
        TargetError::InTheWay { pid: self.pid, thread, at, why: why.to_owned() }
    }
}

/// Whether an address is behind the first byte of bytes that change, and before their end.
fn is_inside(changing: &[Range<RunAddr>], at: RunAddr) -> bool {
    changing.iter().any(|range| range.start < at && at < range.end)
}
