//! Taking snapshots: registers, a copy of the stack, and the true path, as far as the copy shows it.

use std::collections::HashMap;
use std::io::Write;

use callpath_format::address::RunAddr;
use callpath_target::{Maps, Stepper};

use super::code::Code;
use super::thread::{Decides, Thread, dwarf_order};
use crate::OracleError;
use crate::score::Asked;
use crate::shadow::{Doubt, Frame};
use crate::stream::{Event, MAX_STACK_LEN_BYTES, RED_ZONE_BYTES, Snapshot, Writer};
use crate::truth::{self, Paths};

/// A snapshot whose truth could turn out to be doubtful.
#[derive(Debug)]
pub(super) struct Pending {
    registers: [u64; 17],
    stack_start: u64,
    stack: Vec<u8>,
    reaches_end: bool,
    truth: Vec<u64>,
    /// Calls that the thread had made.
    calls: u64,
}

/// Where snapshots and truths go.
pub struct Recorder<W> {
    writer: Writer<W>,
    truth: Option<Box<dyn Write>>,
    /// What was asked.
    pub asked: Asked,
    /// What is true.
    pub truths: Paths,
    stack: Vec<u8>,
    next_id: u64,
    /// Snapshots of which the truth is not known for certain.
    pub(super) doubted: HashMap<&'static str, u64>,
    /// Instructions that were met outside of every module.
    pub(super) outside: u64,
}

impl<W: Write> Recorder<W> {
    /// A stream to `output`, and the truths as text to `truth`, if they are wanted there.
    pub fn new(output: W, truth: Option<Box<dyn Write>>) -> Result<Recorder<W>, OracleError> {
        let writer = Writer::new(output).map_err(stream_error)?;
        let stack = vec![0; MAX_STACK_LEN_BYTES];
        Ok(Recorder {
            writer,
            truth,
            asked: Asked::default(),
            truths: Paths::default(),
            stack,
            next_id: 0,
            doubted: HashMap::new(),
            outside: 0,
        })
    }

    /// Snapshots that were kept.
    pub(super) fn taken(&self) -> u64 {
        self.next_id
    }

    fn doubt(&mut self, doubt: Doubt) {
        *self.doubted.entry(doubt.name()).or_default() += 1;
    }

    /// Takes a snapshot of a thread, if its path is certain.
    pub(super) fn take(&mut self, thread: &mut Thread, stepper: &Stepper, code: &Code) -> Result<(), OracleError> {
        let registers = thread.registers;
        let path = match thread.shadow.path(registers.rsp, |value| thread.holds(value)) {
            Ok(path) => path,
            Err(doubt) => {
                self.doubt(doubt);
                return Ok(());
            }
        };
        if code.modules.code_at(thread.pc()).is_none() {
            self.outside += 1;
        }
        let Some((bottom, top)) = stack_around(registers.rsp, stepper, code)? else {
            self.doubt(Doubt::UnknownStack);
            return Ok(());
        };
        let start = registers.rsp.saturating_sub(RED_ZONE_BYTES).max(bottom);
        let len = usize::try_from(top - start).unwrap_or(usize::MAX).min(MAX_STACK_LEN_BYTES);
        let len = stepper.read(start, &mut self.stack[..len]);
        let stack = &self.stack[..len];
        let shown = |frame: &Frame| {
            let at = usize::try_from(frame.slot.checked_sub(start)?).ok()?;
            stack.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
        };
        let mut addresses = Vec::new();
        for frame in path {
            match shown(&frame) {
                // A popped return address may be overwritten: it is in a register.
                Some(word) if word == frame.address || frame.slot < registers.rsp => addresses.push(frame.address),
                Some(_) => {
                    self.doubt(Doubt::Overwritten);
                    return Ok(());
                }
                None => break,
            }
        }
        let mut all = [0; 17];
        all[..16].copy_from_slice(&dwarf_order(&registers));
        all[16] = registers.rip;
        let reaches_end = start + len as u64 == top;
        let stack = stack.to_vec();
        let (truth, calls) = (addresses, thread.calls());
        thread.pending.push(Pending { registers: all, stack_start: start, stack, reaches_end, truth, calls });
        Ok(())
    }

    /// Keeps a thread's pending snapshots, unless it has left their path by other means than a return.
    pub(super) fn decide(&mut self, thread: &mut Thread, decides: Decides, code: &mut Code) -> Result<(), OracleError> {
        let certain = match decides {
            Decides::Nothing => return Ok(()),
            Decides::Before(calls) => thread.pending.partition_point(|pending| pending.calls < calls),
            Decides::All => thread.pending.len(),
        };
        let abandoned = thread.shadow.abandoned();
        if std::mem::replace(&mut thread.abandoned, abandoned) != abandoned {
            thread.pending.drain(..).for_each(|_| self.doubt(Doubt::Leaving));
        }
        let certain = certain.min(thread.pending.len());
        for Pending { registers, stack_start, stack, reaches_end, truth, .. } in thread.pending.drain(..certain) {
            if std::mem::take(&mut code.modules_are_new) {
                self.writer.modules(&code.modules).map_err(stream_error)?;
                self.asked.event(Event::Modules(code.modules.clone()));
            }
            let id = self.next_id;
            let snapshot = Snapshot { id, registers, stack_start, stack: &stack, reaches_end };
            self.writer.snapshot(&snapshot).map_err(stream_error)?;
            self.asked.event(Event::Snapshot { id, pc: RunAddr(registers[16]) });
            if let Some(output) = &mut self.truth {
                truth::write_line(output, id, &truth).map_err(truth_error)?;
            }
            self.truths.insert(id, truth);
            self.next_id += 1;
        }
        Ok(())
    }

    /// Ends the stream, and gives what was asked and what is true.
    pub fn finish(mut self) -> Result<(Asked, Paths), OracleError> {
        self.writer.finish().map_err(stream_error)?;
        if let Some(truth) = &mut self.truth {
            truth.flush().map_err(truth_error)?;
        }
        Ok((self.asked, self.truths))
    }
}

/// The stack's mapping, bottom and top. The kernel lets the first thread's grow.
fn stack_around(rsp: u64, stepper: &Stepper, code: &Code) -> Result<Option<(u64, u64)>, OracleError> {
    if let Some((bottom, top)) = code.mapping(rsp)
        && bottom <= rsp.saturating_sub(RED_ZONE_BYTES)
    {
        return Ok(Some((bottom, top)));
    }
    let maps = Maps::read(stepper.pid())?;
    let around = maps.entries.iter().find(|entry| (entry.start.0..entry.end.0).contains(&rsp));
    Ok(around.map(|entry| (entry.start.0, entry.end.0)))
}

fn stream_error(source: std::io::Error) -> OracleError {
    OracleError::Write { what: "the stream of snapshots".into(), source }
}

fn truth_error(source: std::io::Error) -> OracleError {
    OracleError::Write { what: "the true paths".into(), source }
}
