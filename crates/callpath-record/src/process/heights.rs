//! From where heights count on the stacks of a process that is sampled from outside: looked up in its memory, once for each thread.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use callpath_format::address::RunAddr;
use callpath_format::register::Reg;
use callpath_format::shared::load_map::Published;
use callpath_tables::recipes::generated::{LONGEST_CALL_BYTES, called_field};
use callpath_target::{MapEntry, Maps, ProcessHandle, read_memory};
use rustc_hash::FxHashMap;

use crate::code::ProcessCode;

/// After so many samples whose stacks did not tell it, a thread's base stays unknown. Of them, the first is tried, the second, the fourth,
/// and so on.
const ATTEMPTS: u32 = 1 << 16;

/// How much of a thread's stack is read at most, bytes.
const MOST_BYTES: u64 = 8 << 20;

/// Where a stack lies whose base is known.
#[derive(Clone, Copy, Debug)]
struct OwnStack {
    /// The lowest address that it may reach.
    lowest: u64,
    base: u64,
    /// The procedure that the thread began in; `None`: it is the process's first one.
    start: Option<RunAddr>,
}

#[derive(Clone, Copy, Debug)]
enum Known {
    /// The thread's own stack.
    Stack(OwnStack),
    /// It could not be told of so many samples.
    Not(u32),
}

/// The bases of a process's threads.
#[derive(Default, Debug)]
pub(crate) struct Bases {
    /// By number.
    threads: FxHashMap<u32, Known>,
    /// What was read of the first thread when the process was there.
    first: Option<FirstStack>,
}

/// The stack of a process's first thread.
#[derive(Clone, Debug)]
pub(crate) struct FirstStack {
    stack: OwnStack,
    /// What the process had mapped when this was read. It may have been another program already.
    maps: Arc<Maps>,
}

impl FirstStack {
    /// Of a process as it is now.
    pub(crate) fn read(handle: &ProcessHandle) -> Option<FirstStack> {
        let maps = Maps::read(handle.pid()).ok()?;
        // Where the kernel has put the number of arguments.
        let base = handle.waiting(handle.pid().0)?.image[2];
        let at = maps.entries.iter().position(|entry| (entry.start.0..entry.end.0).contains(&base))?;
        // It grows downwards.
        let below = at.checked_sub(1).and_then(|below| maps.entries.get(below));
        let stack = OwnStack { lowest: below.map_or(0, |below| below.end.0), base, start: None };
        Some(FirstStack { stack, maps: Arc::new(maps) })
    }

    /// Whether it is of the program that this mapping was read or recorded of.
    fn is_of(&self, first: &MapEntry) -> bool {
        self.maps.entries.iter().any(|entry| (entry.start, entry.file) == (first.start, first.file))
    }
}

/// A process whose threads are looked at.
pub(crate) struct Looked<'p> {
    pub(crate) handle: &'p ProcessHandle,
    pub(crate) code: &'p mut ProcessCode,
    /// The mapping that it has its program from: if it is not there any more, it runs another one.
    pub(crate) first: Option<&'p MapEntry>,
}

impl Bases {
    pub(crate) fn with_first(first: Option<FirstStack>) -> Bases {
        Bases { first, ..Bases::default() }
    }

    /// The stack of the first thread, if it is known.
    pub(crate) fn first(&self) -> Option<&FirstStack> {
        self.first.as_ref()
    }

    /// From where heights of a sample with these registers count; 0 if that is not known, or it is on another stack than the thread's own.
    pub(crate) fn of_sample(
        &mut self,
        looked: Looked<'_>,
        published: Published<'_>,
        (tid, registers): (u32, [u64; 17]),
    ) -> u64 {
        let known = self.threads.entry(tid).or_insert(Known::Not(0));
        if let Known::Not(attempts) = known {
            let is_first = looked.handle.pid().0 == tid;
            let samples = (*attempts + 1).min(ATTEMPTS);
            if samples == ATTEMPTS || !samples.is_power_of_two() {
                *attempts = samples;
                return 0;
            }
            let found = match looked.first {
                None => None,
                Some(program) if is_first => {
                    if !self.first.as_ref().is_some_and(|first| first.is_of(program)) {
                        self.first = FirstStack::read(looked.handle).filter(|first| first.is_of(program));
                    }
                    self.first.as_ref().map(|first| first.stack)
                }
                Some(program) => looked.find(published, program, registers),
            };
            *known = found.map_or(Known::Not(samples), Known::Stack);
        }
        let Known::Stack(OwnStack { lowest, base, .. }) = *known else { return 0 };
        if (lowest..base).contains(&registers[Reg::RSP.index()]) { base } else { 0 }
    }

    /// The procedure that a thread began in, if it is known, and not the process's first thread.
    pub(crate) fn start_of(&self, tid: u32) -> Option<RunAddr> {
        match self.threads.get(&tid)? {
            Known::Stack(stack) => stack.start,
            Known::Not(_) => None,
        }
    }

    /// A thread has ended: another one may have its number.
    pub(crate) fn forget(&mut self, tid: u32) {
        self.threads.remove(&tid);
    }
}

impl Looked<'_> {
    /// Of a thread that is not the first.
    fn find(self, published: Published<'_>, program: &MapEntry, registers: [u64; 17]) -> Option<OwnStack> {
        let pid = self.handle.pid();
        let maps = Maps::read(pid).ok()?;
        let is_there = |entry: &MapEntry| (entry.start, entry.file) == (program.start, program.file);
        maps.entries.iter().find(|entry| is_there(entry))?;
        let start = registers[Reg::RSP.index()];
        let within = maps.entries.iter().find(|entry| (entry.start.0..entry.end.0).contains(&start))?;
        if !start.is_multiple_of(8) || !within.readable {
            return None;
        }
        let mut bytes = vec![0; (within.end.0 - start).min(MOST_BYTES) as usize / 8 * 8];
        let read = read_memory(pid, start, &mut bytes);
        let words =
            bytes[..read].chunks_exact(8).map(|word| word.iter().rev().fold(0, |all, b| all << 8 | u64::from(*b)));
        let words: Vec<AtomicU64> = words.map(AtomicU64::new).collect();
        let begun = self.code.start_of_thread(published, registers, (start, &words))?;
        // The C library calls what it keeps beside the control block.
        let mut before = [0; LONGEST_CALL_BYTES];
        let from = begun.return_address.0.wrapping_sub(before.len() as u64);
        let field = Some(()).filter(|()| read_memory(pid, from, &mut before) == before.len());
        let field = field.and_then(|()| called_field(&before))?;
        let at = begun.control_block.checked_add_signed(field)?.checked_sub(start)? / 8;
        let routine = words.get(usize::try_from(at).ok()?)?.load(Relaxed);
        let is_code = |entry: &MapEntry| entry.executable && (entry.start.0..entry.end.0).contains(&routine);
        maps.entries.iter().find(|entry| is_code(entry))?;
        Some(OwnStack { lowest: within.start.0, base: begun.cfa, start: Some(RunAddr(routine)) })
    }
}
