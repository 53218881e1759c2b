//! Where threads go on when a signal handler returns: the kernel has laid that on their stacks.

use std::collections::HashMap;
use std::ops::Range;

use callpath_format::address::RunAddr;

use super::shelter::{RETURNS_FROM_SIGNAL, RIP, RSP};
use crate::maps::{MapEntry, Maps};
use crate::remote_call::SYSTEM_CALL;
use crate::traced::TracedMemory;

/// Signal frames: `struct rt_sigframe` is the address of code that returns to the kernel, then a `ucontext_t`.
pub(super) struct SignalFrames<'m> {
    memory: &'m TracedMemory,
    maps: Maps,
    /// Whether that code is at an address.
    returns: HashMap<u64, bool>,
}

/// A place where an interrupted address is noted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Interrupted {
    /// Where the note is.
    pub(super) note_at: u64,
    pub(super) pc: RunAddr,
}

const WORD: u64 = 8;

impl<'m> SignalFrames<'m> {
    pub(super) fn new(memory: &'m TracedMemory, maps: Maps) -> SignalFrames<'m> {
        SignalFrames { memory, maps, returns: HashMap::new() }
    }

    /// All of a thread with these registers: above its stack pointer on the stack it is in and, where a handler has a stack
    /// of its own, on those below it. Fails at the first address of a stack that cannot be read.
    pub(super) fn of(&mut self, registers: &libc::user_regs_struct) -> Result<Vec<Interrupted>, RunAddr> {
        /// Handlers inside of handlers.
        const STACKS_AT_MOST: usize = 16;
        let mut found: Vec<Interrupted> = Vec::new();
        let mut from = self.top(registers.rsp, registers.rip);
        for _ in 0..STACKS_AT_MOST {
            let Some((last, end)) = self.scan(from, &mut found)? else { break };
            // Of the outermost handler on this stack: the interrupted code may have been on another one.
            if (from..end).contains(&last) {
                break;
            }
            from = last;
        }
        Ok(found)
    }

    /// Where the stack begins of code with that stack pointer that stands there, as far as signal frames are concerned.
    fn top(&mut self, sp: u64, pc: u64) -> u64 {
        sp.saturating_sub(if self.is_returning(pc) { WORD } else { 0 })
    }

    /// Scans one stack from `from` on. Returns where that of the last interrupted code begins, if any, and the stack's end.
    fn scan(&mut self, from: u64, found: &mut Vec<Interrupted>) -> Result<Option<(u64, u64)>, RunAddr> {
        /// Deeper ones are not looked for.
        const BYTES_AT_MOST: u64 = 8 << 20;
        let Some(stack) = self.stack(from) else { return Ok(None) };
        // Frames are at multiples of 8.
        let from = stack.start & !(WORD - 1);
        let end = stack.end.min(from.saturating_add(BYTES_AT_MOST));
        let mut stack = vec![0; (end - from) as usize];
        let got = self.memory.read(from, &mut stack);
        if got != stack.len() {
            return Err(RunAddr(from + got as u64));
        }
        let (words, _) = stack.as_chunks();
        let mut last = None;
        for (index, word) in words.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            if !self.is_return(word) {
                continue;
            }
            let frame = from + index as u64 * WORD;
            let (sp, pc) = (self.memory.read_u64(frame + RSP), self.memory.read_u64(frame + RIP));
            let (Some(sp), Some(pc)) = (sp, pc) else { continue };
            // A word left over from an earlier handler looks the same: one that leads nowhere is none.
            if self.entry(pc).is_some_and(|entry| entry.executable) && self.stack(sp).is_some() {
                found.push(Interrupted { note_at: frame + RIP, pc: RunAddr(pc) });
                last = Some((sp, pc));
            }
        }
        Ok(last.map(|(sp, pc)| (self.top(sp, pc), end)))
    }

    /// What is used of the stack with that pointer. The kernel lets the first thread's grow only when it is written to: its
    /// pointer may be below it.
    fn stack(&self, sp: u64) -> Option<Range<u64>> {
        let entry = self.maps.entries.get(self.maps.entries.partition_point(|entry| entry.end.0 <= sp))?;
        (entry.start.0 <= sp || entry.path.as_os_str() == "[stack]").then(|| sp.max(entry.start.0)..entry.end.0)
    }

    /// Whether a thread that stands there has left its handler, whose `ret` has popped the first word of the frame, and has
    /// not yet made the system call that returns to what was interrupted.
    fn is_returning(&mut self, pc: u64) -> bool {
        let before_call = RETURNS_FROM_SIGNAL.map(|form| (form.len() - SYSTEM_CALL.len()) as u64);
        self.is_return(pc) || before_call.iter().any(|len| self.is_return(pc.wrapping_sub(*len)))
    }

    /// Whether the code there is `mov $15, %eax` (or `%rax`) and `syscall`.
    fn is_return(&mut self, at: u64) -> bool {
        if let Some(known) = self.returns.get(&at) {
            return *known;
        }
        if self.entry(at).is_none_or(|entry| !entry.executable) {
            return false;
        }
        let mut code = [0; 9];
        let got = self.memory.read(at, &mut code);
        let is = RETURNS_FROM_SIGNAL.iter().any(|form| code.get(..got).is_some_and(|code| code.starts_with(form)));
        self.returns.insert(at, is);
        is
    }

    fn entry(&self, at: u64) -> Option<&MapEntry> {
        let index = self.maps.entries.partition_point(|entry| entry.end.0 <= at);
        self.maps.entries.get(index).filter(|entry| entry.start.0 <= at)
    }
}
