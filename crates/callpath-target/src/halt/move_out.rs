//! Taking threads out of bytes that are about to change.
//!
//! A thread that has to run for that runs as ever: no single steps, whose trap kills a program that nobody traces any more, no
//! signals held back. Should callpath be killed, nothing of the thread has been changed.

use std::ops::Range;
use std::time::{Duration, Instant};

use callpath_format::address::RunAddr;

use super::signal_frames::{Interrupted, SignalFrames};
use super::tracer::{RUN_AT_MOST, Tracer};
use crate::error::TargetError;
use crate::maps::Maps;
use crate::pid::Pid;
use crate::ptrace::{self, Stop};
use crate::remote_call::{SYSTEM_CALL, has_failed, is_restarted};
use crate::traced::Traced;

/// How long it may take that a thread gets out by itself.
const OUT_WITHIN: Duration = Duration::from_secs(1);

/// Where the same instruction stands elsewhere.
type Elsewhere<'t> = dyn Fn(RunAddr) -> Option<RunAddr> + Sync + 't;

/// How a thread got out.
enum Out {
    /// It was not inside.
    Before,
    /// It stands at the same instruction elsewhere.
    Moved,
    /// It has run, and may have started other threads.
    Ran,
}

impl Tracer {
    /// As [`super::Halted::move_out`].
    pub(super) fn move_out(&mut self, changing: &[Range<RunAddr>], to: &Elsewhere<'_>) -> Result<usize, TargetError> {
        let mut tids: Vec<Pid> = self.threads.iter().map(|thread| thread.tid).collect();
        let mut moved = 0;
        while !tids.is_empty() {
            let mut has_run = false;
            for (tid, inside) in self.interrupted(&tids, changing)? {
                moved += inside.len();
                let places: Option<Vec<_>> = inside.iter().map(|note| Some((note.note_at, to(note.pc)?))).collect();
                match places {
                    Some(places) => {
                        places.iter().try_for_each(|(at, to)| self.memory().write(*at, &to.0.to_le_bytes()))?;
                    }
                    None => {
                        self.run_out(tid, changing)?;
                        has_run = true;
                    }
                }
            }
            for tid in tids {
                match self.move_thread(tid, changing, to)? {
                    Out::Before => {}
                    Out::Moved => moved += 1,
                    Out::Ran => (moved, has_run) = (moved + 1, true),
                }
            }
            tids = if has_run { self.gather_new(RUN_AT_MOST)? } else { Vec::new() };
        }
        Ok(moved)
    }

    /// Threads with signal frames that note addresses inside of bytes that change, and these notes.
    fn interrupted(
        &self,
        tids: &[Pid],
        changing: &[Range<RunAddr>],
    ) -> Result<Vec<(Pid, Vec<Interrupted>)>, TargetError> {
        let maps = Maps::read(self.pid)?;
        let mut frames = SignalFrames::new(self.memory(), maps);
        let mut all = Vec::new();
        for tid in tids {
            let unreadable = |at| TargetError::Stack { pid: self.pid, thread: *tid, at };
            let mut inside = frames.of(&ptrace::registers(*tid)?).map_err(unreadable)?;
            inside.retain(|note| is_inside(changing, note.pc));
            if !inside.is_empty() {
                all.push((*tid, inside));
            }
        }
        Ok(all)
    }

    fn move_thread(&mut self, tid: Pid, changing: &[Range<RunAddr>], to: &Elsewhere<'_>) -> Result<Out, TargetError> {
        if self.thread(tid).is_err() {
            // It has run, and has ended.
            return Ok(Out::Before);
        }
        let registers = ptrace::registers(tid)?;
        let inside = |at| is_inside(changing, at);
        let at = RunAddr(registers.rip);
        let call = call_of(&registers);
        if !inside(at) && !call.is_some_and(inside) {
            return Ok(Out::Before);
        }
        let new = to(at);
        let fits = |new: &RunAddr| {
            call.is_none_or(|call| to(call) == Some(RunAddr(new.0.wrapping_sub(SYSTEM_CALL.len() as u64))))
        };
        if let Some(new) = new.filter(fits) {
            ptrace::set_registers(tid, &libc::user_regs_struct { rip: new.0, ..registers })?;
            return Ok(Out::Moved);
        }
        self.run_out(tid, changing)?;
        Ok(Out::Ran)
    }

    /// Lets a thread run for moments, until it stands outside when it is stopped, and no handler of its returns there.
    fn run_out(&mut self, tid: Pid, changing: &[Range<RunAddr>]) -> Result<(), TargetError> {
        const FIRST_MOMENT: Duration = Duration::from_micros(20);
        /// On a busy machine it waits for a processor longer than it runs.
        const LONGEST_MOMENT: Duration = Duration::from_millis(50);
        let until = Instant::now() + OUT_WITHIN;
        let mut moment = FIRST_MOMENT;
        while self.run_for(tid, moment)? {
            let Some((at, why)) = self.what_is_inside(tid, changing)? else { return Ok(()) };
            if Instant::now() > until {
                let why = format!("{why}, still so after {} ms", OUT_WITHIN.as_millis());
                return Err(TargetError::InTheWay { pid: self.pid, thread: tid, at, why });
            }
            moment = (moment * 2).min(LONGEST_MOMENT);
        }
        Ok(())
    }

    /// An address inside at which a thread will go on, and why.
    fn what_is_inside(
        &self,
        tid: Pid,
        changing: &[Range<RunAddr>],
    ) -> Result<Option<(RunAddr, &'static str)>, TargetError> {
        let registers = ptrace::registers(tid)?;
        let at = RunAddr(registers.rip);
        let call = call_of(&registers);
        if is_inside(changing, at) || call.is_some_and(|call| is_inside(changing, call)) {
            let why = if call.is_some() { "is in a system call there" } else { "goes on there" };
            return Ok(Some((at, why)));
        }
        let notes = self.interrupted(&[tid], changing)?;
        let note = notes.iter().flat_map(|(_, notes)| notes).next();
        Ok(note.map(|note| (note.pc, "will go on there when a signal's handler returns")))
    }

    /// Lets a thread run for a moment, its signals delivered. Returns whether there still is one.
    fn run_for(&mut self, tid: Pid, moment: Duration) -> Result<bool, TargetError> {
        let thread = self.thread(tid)?;
        (thread.call, thread.is_anew) = (None, false);
        let signal = thread.signal.take().unwrap_or(0);
        ptrace::go_on(tid, signal)?;
        std::thread::sleep(moment);
        match ptrace::interrupt(tid) {
            // Waiting for it says that it has ended.
            Err(TargetError::Trace { source, .. }) if source.raw_os_error() == Some(libc::ESRCH) => {}
            interrupted => interrupted?,
        }
        loop {
            let signal = match self.next_stop(tid)? {
                Stop::Interrupt => break,
                Stop::Ended => {
                    self.threads.retain(|thread| thread.tid != tid);
                    return Ok(false);
                }
                // Its handler begins, or the signal does what it does; and then the thread stops.
                Stop::Signal(signal) => signal,
                Stop::SystemCall | Stop::Event => 0,
            };
            // Any stop has taken the interrupt's place.
            ptrace::interrupt(tid)?;
            ptrace::go_on(tid, signal)?;
        }
        self.thread(tid)?.note_call()?;
        Ok(true)
    }
}

/// Of a thread in a system call that it may make anew instead of going on behind it: where it does that.
fn call_of(registers: &libc::user_regs_struct) -> Option<RunAddr> {
    let is_in_call = is_restarted(registers) || has_failed(registers);
    is_in_call.then(|| RunAddr(registers.rip.wrapping_sub(SYSTEM_CALL.len() as u64)))
}

/// Whether an address is behind the first byte of bytes that change, and before their end.
fn is_inside(changing: &[Range<RunAddr>], at: RunAddr) -> bool {
    changing.iter().any(|range| range.start < at && at < range.end)
}
