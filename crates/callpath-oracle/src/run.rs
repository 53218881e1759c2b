//! The run itself: instruction by instruction to the end, with a snapshot of each new instruction.

mod breakpoints;
mod capture;
mod code;
mod emulate;
mod options;
mod ran;
mod thread;

use std::collections::HashMap;
use std::io::Write;
use std::process::Command;
use std::time::Instant;

use callpath_target::{Pid, StepOptions, Stepped, Stepper, TrapCause};

use crate::OracleError;
use crate::instruction::Effect;
use crate::modules::Images;
pub use capture::Recorder;
use code::{Arrival, Code};
use emulate::emulate;
pub use options::Options;
pub use ran::Ran;
use thread::{Decides, LetGo, Thread};

/// Runs a program; each snapshot and its truth go to `recorder`.
pub fn run<W: Write>(command: Command, options: &Options, recorder: &mut Recorder<W>) -> Result<Ran, OracleError> {
    let began = Instant::now();
    let vdso = callpath_target::own_vdso();
    let stepper = Stepper::start(command, StepOptions { threads: options.threads, ..StepOptions::default() })?;
    let first = stepper.pid();
    let code = Code::read(&stepper, Images::with_vdso(vdso), options.clone())?;
    let threads = HashMap::from([(first, Thread::new(stepper.registers(first)?))]);
    let ran = Ran { threads: 1, ..Ran::default() };
    let is_free = !options.every_step && !options.threads;
    let mut run = Run { stepper, code, threads, recorder, options, ran, is_free, shows_code: false };
    run.complete(first)?;
    let Run { mut ran, threads, code, recorder, .. } = run;
    ran.doubted = std::mem::take(&mut recorder.doubted);
    ran.outside = std::mem::take(&mut recorder.outside);
    ran.unexplained_returns += threads.values().map(Thread::unexplained_returns).sum::<u64>();
    ran.instructions = code.distinct();
    ran.elapsed = began.elapsed();
    Ok(ran)
}

/// A run, and all that it needs.
struct Run<'a, W> {
    stepper: Stepper,
    code: Code,
    threads: HashMap<Pid, Thread>,
    recorder: &'a mut Recorder<W>,
    options: &'a Options,
    ran: Ran,
    /// The program may run freely between breakpoints: no other process shares its memory.
    is_free: bool,
    /// The breakpoints are hidden, for a child that is being made.
    shows_code: bool,
}

impl<W: Write> Run<'_, W> {
    fn complete(&mut self, first: Pid) -> Result<(), OracleError> {
        let (mut pid, mut signal) = (first, 0);
        loop {
            if !self.go_on(pid, signal)? {
                return Ok(());
            }
            signal = loop {
                let (stopped, why) = self.stepper.wait((!self.options.threads).then_some(first))?;
                pid = stopped;
                match self.stopped(pid, why)? {
                    Next::Continue(signal) => break signal,
                    Next::Wait => {}
                    Next::End => return Ok(()),
                }
            };
        }
    }

    /// Follows what has happened to a thread.
    fn stopped(&mut self, pid: Pid, why: Stepped) -> Result<Next, OracleError> {
        match why {
            Stepped::Ended(status) => {
                if let Some(mut thread) = self.threads.remove(&pid) {
                    self.recorder.decide(&mut thread, Decides::All, &mut self.code)?;
                    self.ran.unexplained_returns += thread.unexplained_returns();
                }
                if pid == self.stepper.pid() {
                    self.ran.status = Some(status);
                    return Ok(Next::End);
                }
                Ok(Next::Wait)
            }
            Stepped::Exec => {
                for thread in self.threads.values_mut() {
                    self.recorder.decide(thread, Decides::All, &mut self.code)?;
                }
                // Other threads are gone, and this one has the first one's number now.
                self.threads.clear();
                self.stepper.reopen_memory()?;
                self.code.replaced(&self.stepper)?;
                self.shows_code = false;
                self.is_free = !self.options.every_step && !self.options.threads;
                self.threads.insert(pid, Thread::new(self.stepper.registers(pid)?));
                Ok(Next::Continue(0))
            }
            Stepped::Clone | Stepped::GroupStop => {
                self.stepper.step(pid, 0)?;
                Ok(Next::Wait)
            }
            Stepped::Signal(number) => {
                let registers = self.stepper.registers(pid)?;
                match self.threads.get_mut(&pid) {
                    // A new thread's own first stop.
                    None => {
                        self.ran.threads += 1;
                        self.threads.insert(pid, Thread::new(registers));
                        Ok(Next::Continue(0))
                    }
                    Some(thread) => {
                        if thread.let_go == LetGo::Free {
                            thread.moved_on(registers);
                        }
                        self.again(pid)?;
                        Ok(Next::Continue(number))
                    }
                }
            }
            Stepped::Trap => self.trapped(pid).map(Next::Continue),
        }
    }

    /// Follows a trap. Gives the signal that is to be delivered.
    fn trapped(&mut self, pid: Pid) -> Result<i32, OracleError> {
        let mut registers = self.stepper.registers(pid)?;
        let Some(thread) = self.threads.get_mut(&pid) else { return Ok(0) };
        let at_breakpoint = self.code.breakpoints.contains(registers.rip.wrapping_sub(1));
        let signalled = matches!(thread.let_go, LetGo::Step { signal: true, .. });
        if at_breakpoint
            && (thread.let_go == LetGo::Free || signalled && thread.registers.rip == registers.rip.wrapping_sub(1))
        {
            registers.rip -= 1;
            thread.is_changed = true;
            thread.moved_on(registers);
            return Ok(0);
        }
        let mut signal = 0;
        let is_special = matches!(thread.instruction.effect, Effect::Breakpoint | Effect::SystemCall);
        let cause = if signalled || is_special || thread.let_go == LetGo::Free {
            self.stepper.trap_cause(pid)?
        } else {
            TrapCause::Step
        };
        match cause {
            TrapCause::Step => {
                thread.executed(registers, &self.stepper, &self.code)?;
                let decides = thread.decides();
                self.recorder.decide(thread, decides, &mut self.code)?;
            }
            TrapCause::Handler => {
                self.ran.signals += 1;
                self.recorder.decide(thread, Decides::All, &mut self.code)?;
                thread.handler(registers, &self.stepper);
            }
            TrapCause::Own => {
                thread.registers = registers;
                signal = libc::SIGTRAP;
            }
        }
        let changed_maps = cause == TrapCause::Step && thread.changed_maps();
        self.again(pid)?;
        if changed_maps {
            self.code.changed(&self.stepper)?;
        }
        Ok(signal)
    }

    /// Lays again the breakpoints that were taken away for a step.
    fn again(&mut self, pid: Pid) -> Result<(), OracleError> {
        let Some(thread) = self.threads.get_mut(&pid) else { return Ok(()) };
        if let LetGo::Step { relay: true, signal } = thread.let_go {
            thread.let_go = LetGo::Step { relay: false, signal };
            self.code.breakpoints.lay(thread.stepped_pc, &self.stepper)?;
        }
        if std::mem::take(&mut self.shows_code) {
            if self.is_free {
                self.code.breakpoints.show_code(false, &self.stepper)?;
            } else {
                self.code.breakpoints = Default::default();
            }
        }
        Ok(())
    }

    /// Looks at the instruction that comes next, and lets the thread go. `false`: enough is seen.
    fn go_on(&mut self, pid: Pid, signal: i32) -> Result<bool, OracleError> {
        loop {
            self.ran.steps += 1;
            if self.ran.steps > self.options.max_steps || self.recorder.taken() >= self.options.max_snapshots {
                for thread in self.threads.values_mut() {
                    self.recorder.decide(thread, Decides::All, &mut self.code)?;
                }
                return Ok(false);
            }
            let Some(thread) = self.threads.get_mut(&pid) else { return Ok(false) };
            let (pc, depth) = (thread.pc(), thread.depth());
            let is_skipped = self.ran.steps - 1 < self.options.skip;
            let visit = self.code.visit(Arrival { pc, depth, is_skipped }, &self.stepper);
            thread.instruction = visit.instruction;
            if visit.is_wanted {
                self.recorder.take(thread, &self.stepper, &self.code)?;
            }
            if self.is_free && signal == 0 {
                if visit.may_be_free {
                    self.code.free(pc, &self.stepper)?;
                    self.flush(pid)?;
                    self.let_go(pid, LetGo::Free);
                    self.stepper.go_on(pid, 0)?;
                    return Ok(true);
                }
                if let Some(decoded) = self.code.decoded(pc) {
                    let mut now = thread.registers;
                    if emulate(decoded, &mut now, &self.stepper)? {
                        thread.executed(now, &self.stepper, &self.code)?;
                        thread.is_changed = true;
                        let decides = thread.decides();
                        self.recorder.decide(thread, decides, &mut self.code)?;
                        continue;
                    }
                }
            }
            let will_clone = thread.will_clone(&self.stepper);
            thread.stepped_pc = pc.0;
            let relay = self.is_free && signal == 0 && self.code.breakpoints.contains(pc.0);
            if relay {
                self.code.breakpoints.take(pc.0, &self.stepper)?;
            }
            if let Some(is_thread) = will_clone.filter(|_| self.is_free && signal == 0) {
                self.code.breakpoints.show_code(true, &self.stepper)?;
                self.shows_code = true;
                self.is_free = !is_thread;
            }
            self.flush(pid)?;
            self.let_go(pid, LetGo::Step { signal: signal != 0, relay: relay && self.is_free });
            self.stepper.step(pid, signal)?;
            return Ok(true);
        }
    }

    fn flush(&mut self, pid: Pid) -> Result<(), OracleError> {
        let Some(thread) = self.threads.get_mut(&pid) else { return Ok(()) };
        if std::mem::take(&mut thread.is_changed) {
            self.stepper.set_registers(pid, &thread.registers)?;
        }
        Ok(())
    }

    fn let_go(&mut self, pid: Pid, how: LetGo) {
        if let Some(thread) = self.threads.get_mut(&pid) {
            thread.let_go = how;
        }
    }
}

/// What is to be done after a stop.
enum Next {
    /// Let the thread continue, with a signal (0: none).
    Continue(i32),
    /// Wait for the next stop.
    Wait,
    /// The program has ended.
    End,
}
