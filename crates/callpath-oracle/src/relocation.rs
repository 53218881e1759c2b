//! A program whose procedures, and those of its libraries, run as copies, while what the copies leave of the original
//! code traps: if it behaves as it does bare, what was copied was copied rightly.

mod clones;

use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use callpath_format::address::{LinkAddr, RunAddr};
use callpath_format::frame::CloneNumber;
use callpath_image::plt;
use callpath_tables::calls_in_copies::{CallsInCopies, unwinders_can_be_told};
use callpath_tables::copies::{Copies, OutwardLinks, WantedClone, copy_all_and_clone};
use callpath_tables::module::Module as Analysed;
use callpath_tables::recipes::Moved;
use callpath_tables::return_users::{Asking, ReturnUsers};
use callpath_tables::unwinders::asked;
use callpath_target::{
    Edits, LARGE_PAGE_BYTES, Maps, NewMemory, Pid, SharedMemory, StepOptions, Stepped, Stepper,
    WORTH_LARGE_PAGES_BYTES, Write,
};
use callpath_x86::rewrite::{Cell, KnownCode, Operation, Place, Plan, exits};

use crate::error::OracleError;
use crate::find_object::Teller;
use crate::modules::{Images, Module, VDSO};
use clones::clones_of_calls;

/// What is copied, and what is inserted.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only modules whose path contains this.
    pub module: Option<String>,
    /// Only these procedures, counted over all modules.
    pub procedures: Option<Range<usize>>,
    /// The original code stays as it is, but for the springboards.
    pub keep: bool,
    /// Before each block all registers and flags that are not live are overwritten.
    pub overwrite: bool,
    /// Each block counts how often it runs. What two threads count at the same time may be lost.
    pub count: bool,
    /// Each procedure counts how often it is entered, and how often it is left by each exit.
    pub passes: bool,
    /// Each procedure counts how often it is entered.
    pub entries: bool,
    /// Where calls are made.
    pub calls: Calls,
    /// Before each block, around calls, and at exits, a routine is called that overwrites flags and what is below rsp.
    pub routine: bool,
    /// Copies that can have one get a larger frame, and write into it in each block; the others are refused. Calls are to be
    /// made in copies.
    pub enlarge: bool,
    /// Calls that name what they call lead to clones, one for each caller, of whatever clone of it. Calls are to be made in copies.
    pub clones: bool,
}

/// Where a copy's calls are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Calls {
    /// At home: every return address is an original one.
    #[default]
    Home,
    /// In the copy, where the callee does not look and unwinders can be told; else at home.
    Copy,
}

/// A module with its copies.
pub struct Relocated {
    /// Where it is loaded.
    pub loaded: Module,
    /// The copies that were put in, and what was refused.
    pub copies: Copies,
    /// The clones that were wanted.
    pub clones: Vec<WantedClone>,
    /// Where what was put in belongs.
    pub moved: Moved,
    /// The memory that they lie in, with what tells unwinders of them.
    memory: Range<RunAddr>,
    /// Sorted.
    springboards: Vec<LinkAddr>,
    /// What its blocks count in.
    counters: Option<Counters>,
}

struct Counters {
    memory: SharedMemory,
    /// What each counts. The word before the first is where a register's value waits.
    counted: Vec<Counted>,
}

/// What a counter counts.
#[derive(Clone, Copy)]
struct Counted {
    procedure: LinkAddr,
    place: Place,
}

/// The length of a counter, bytes.
const COUNTER_BYTES: u64 = 8;

/// How often a block ran.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Count {
    /// Its module.
    pub module: PathBuf,
    /// Its first instruction.
    pub block: LinkAddr,
    /// Times.
    pub count: u64,
}

/// How often control passed an entry or an exit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Passes {
    /// Its module.
    pub module: PathBuf,
    /// The procedure's first instruction.
    pub procedure: LinkAddr,
    /// The entry, or the exit.
    pub place: Place,
    /// Times.
    pub count: u64,
}

/// What is at an address of a program that runs as copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stands {
    /// The copy of the instruction at this address.
    Copy(RunAddr),
    /// A jump that was written into the original code.
    Springboard,
    /// Original code.
    Home,
}

/// A program that runs as copies.
pub struct Relocation {
    stepper: Stepper,
    /// Its modules, the loader and the vdso apart.
    pub modules: Vec<Relocated>,
    /// The time that planning took.
    pub planning: Duration,
    /// How many clones are called.
    pub clones: usize,
    /// The number of procedures that could be copied, of all modules so far.
    seen: usize,
    /// Procedures that look where they were called from, and may be called through pointers: as long as there is one, calls
    /// through pointers are made at home. Modules and first instructions.
    pub looking: Vec<(PathBuf, LinkAddr)>,
    /// Where the routine lies that unwinders ask.
    routine: Option<Range<RunAddr>>,
}

impl Relocation {
    /// Starts a program, and puts the copies in before its first instruction, when its libraries are initialised.
    ///
    /// # Errors
    /// If it cannot be traced, or there is no room for the copies.
    pub fn start(command: Command, options: &Options) -> Result<Relocation, OracleError> {
        Relocation::of(Stepper::start(command, StepOptions::default())?, options)
    }

    /// As [`Relocation::start`], of a program that stands before its loader's first instruction.
    ///
    /// # Errors
    /// As there.
    pub fn of(mut stepper: Stepper, options: &Options) -> Result<Relocation, OracleError> {
        stepper.run_to_entry()?;
        // They may stand anywhere in the code that is about to change.
        let threads = threads_of(stepper.pid());
        if threads > 1 {
            return Err(OracleError::Threads { threads });
        }
        let mut images = Images::default();
        let loaded = images.modules(&Maps::read(stepper.pid())?, Path::new(VDSO)).modules;
        let mut relocation = Relocation {
            stepper,
            modules: Vec::new(),
            planning: Duration::ZERO,
            clones: 0,
            seen: 0,
            looking: Vec::new(),
            routine: None,
        };
        let analysed: Vec<(Module, Analysed)> = loaded
            .into_iter()
            .filter_map(|module| images.get(&module.path).map(|image| (module, Analysed::new(image))))
            .collect();
        let all: Vec<&Analysed> = analysed.iter().map(|(_, module)| module).collect();
        let begun = Instant::now();
        // Some procedures may stay at home.
        let asking = if options.module.is_some() { Asking::AtHome } else { Asking::InCopies };
        let are_in_copies = options.calls == Calls::Copy && unwinders_can_be_told(&all);
        let users = are_in_copies.then(|| ReturnUsers::of(&all, asking));
        relocation.planning += begun.elapsed();
        let looking = users.iter().flat_map(|users| &users.reached_by_pointers);
        let with_path = |&(index, at): &(usize, LinkAddr)| Some((analysed.get(index)?.0.path.clone(), at));
        relocation.looking = looking.filter_map(with_path).collect();
        let teller = if are_in_copies { Teller::new(&mut relocation.stepper, &analysed)? } else { None };
        let mut known = Vec::new();
        for (index, of_module) in analysed.iter().enumerate() {
            if is_copied(&of_module.0.path, options) {
                let homes = teller.as_ref().map_or(RunAddr(0), |teller| teller.at).to_link(of_module.0.bias);
                let calls = users.as_ref().map(|users| CallsInCopies::of(&of_module.1, (users, index), homes));
                known.extend(relocation.put_in(of_module, options, calls.as_ref())?);
            }
        }
        if let Some(teller) = teller {
            relocation.routine = Some(teller.tell(&mut relocation.stepper, &known)?);
        }
        analysed.iter().try_for_each(|of_module| relocation.lead_stubs(of_module))?;
        Ok(relocation)
    }

    /// The process.
    pub fn pid(&self) -> Pid {
        self.stepper.pid()
    }

    /// Puts in the copies of a module. `calls`: those that are made in copies; then unwinders have to be told what is
    /// returned.
    fn put_in(
        &mut self,
        (loaded, module): &(Module, Analysed),
        options: &Options,
        calls: Option<&CallsInCopies<'_>>,
    ) -> Result<Option<KnownCode>, OracleError> {
        let pid = self.stepper.pid();
        let code: u64 =
            loaded.mappings.iter().filter(|m| m.executable).map(|mapping| mapping.end - mapping.start).sum();
        // Short jumps grow, copies are aligned, and there is what is inserted. A block has a byte at least.
        let room = code
            * if options.overwrite || options.routine || options.enlarge || options.clones { 40 } else { 8 }
            + (1 << 20);
        // As in a recording: much code lies in large pages.
        let unit = if code >= WORTH_LARGE_PAGES_BYTES { LARGE_PAGE_BYTES } else { 1 };
        let room = room.next_multiple_of(unit);
        let is_counted = options.count || options.passes || options.entries || options.routine;
        let counters_len = if is_counted { (2 * code + 2) * COUNTER_BYTES } else { 0 };
        let no_room = || OracleError::NoRoom { path: loaded.path.clone() };
        let near = loaded.start()..loaded.end();
        let place = Maps::read(pid)?.free_near(near, unit - 1 + room + counters_len).ok_or_else(no_room)?;
        let place = place.next_multiple_of(unit);
        let link = |address: u64| RunAddr(address).to_link(loaded.bias);
        let run = |address: LinkAddr| RunAddr(address.0.wrapping_add(loaded.bias));
        let mut counted: Vec<Counted> = Vec::new();
        let begun = Instant::now();
        // The routine counts in the first of the counters.
        let routine = overwriting_routine(place, place + room + COUNTER_BYTES);
        let routine = if options.routine { &routine[..] } else { &[] };
        if options.routine {
            counted.push(Counted { procedure: link(place), place: Place::Before(link(place)) });
        }
        let clones = if options.clones { clones_of_calls(module) } else { Vec::new() };
        let at = link(place + routine.len() as u64);
        let mut copies = copy_all_and_clone(module, (at, &clones), |flow, graph, clone| {
            let mut plan = Plan::new(is_counted.then(|| Cell::Shared(link(place + room))));
            plan.let_copy_call(loaded.bias);
            if let Some(calls) = calls {
                calls.plan(flow, graph, &mut plan);
            }
            let can_enlarge = || calls.is_some_and(|calls| calls.can_enlarge(flow, graph));
            // Clones have frames of other sizes than the procedure's own copy, with nothing in them.
            let is_padded = clone.filter(|clone| options.enlarge && clone.bytes > 0 && can_enlarge());
            is_padded.into_iter().for_each(|clone| plan.pad(clone.bytes));
            let is_enlarged = options.enlarge && clone.is_none() && can_enlarge();
            if is_enlarged {
                plan.give_words(true);
                plan.insert(Place::Entry, Operation::Set(Cell::OfActivation(0), -1));
            }
            let mut count = |plan: &mut Plan, at: Place| {
                let cell = place + room + (counted.len() as u64 + 1) * COUNTER_BYTES;
                plan.insert(at, Operation::Add(Cell::Shared(link(cell)), 1));
                counted.push(Counted { procedure: graph.entry, place: at });
            };
            let exits = exits(flow, graph).found.into_iter().map(|exit| exit.place);
            let passed: Vec<Place> = std::iter::once(Place::Entry).chain(exits).collect();
            let starts = graph.blocks.iter().map(|block| Place::Before(block.code.start));
            for at in starts.clone() {
                if is_enlarged {
                    plan.insert(at, Operation::Set(Cell::OfActivation(0), -1));
                    plan.insert(at, Operation::Add(Cell::OfActivation(8), 1));
                }
                if options.overwrite {
                    plan.insert(at, Operation::OverwriteDead);
                }
                if options.count {
                    count(&mut plan, at);
                }
            }
            if options.entries {
                count(&mut plan, Place::Entry);
            }
            if options.passes {
                passed.iter().for_each(|&at| count(&mut plan, at));
            }
            if options.routine {
                let calls = graph.calls.iter().filter(|call| call.returns).map(|call| call.code.start);
                let around = calls.flat_map(|call| [Place::Before(call), Place::AfterCall(call)]);
                for at in around.chain(passed).chain(starts) {
                    plan.insert(at, Operation::Call(link(place)));
                }
            }
            plan
        });
        self.planning += begun.elapsed();
        // Something else takes the place of this one.
        let asked_by_unwinders = calls.and_then(|_| asked(module));
        let is_asked = |number: usize| options.procedures.as_ref().is_none_or(|range| range.contains(&number));
        copies.made.retain(|made| {
            self.seen += 1;
            let needs_copy = calls.is_some_and(|calls| calls.needs_copy(made.copy.entry));
            (is_asked(self.seen - 1) || needs_copy) && Some(made.copy.entry) != asked_by_unwinders
        });
        self.clones += copies.link(&clones, &OutwardLinks::default()).reached.len();
        let begun = Instant::now();
        let frames_at = LinkAddr(copies.end.0.next_multiple_of(size_of::<u64>() as u64));
        let frames = match calls {
            Some(calls) => Some(calls.frames(&copies, frames_at).ok_or_else(no_room)?),
            None => None,
        };
        self.planning += begun.elapsed();
        let frames_len = frames.as_ref().map_or(0, |frames| frames.bytes.len() as u64);
        let len = (run(frames_at).0 + frames_len - place).next_multiple_of(unit);
        if len > room {
            return Err(no_room());
        }
        let counters = match is_counted {
            true => Some(SharedMemory::create(c"callpath-counters", counters_len as usize)?),
            false => None,
        };
        let mut edits = Edits::default();
        edits.memory.push(NewMemory::Code { at: RunAddr(place), len_bytes: len });
        if let Some(memory) = &counters {
            edits.memory.push(NewMemory::Shared { at: RunAddr(place + room), memory });
        }
        if options.routine {
            edits.writes.push(Write { at: RunAddr(place), old: None, new: routine.to_vec() });
        }
        let known = frames.as_ref().map(|frames| KnownCode {
            start: run(copies.start),
            end: run(copies.end),
            header: RunAddr(run(frames_at).0 + frames.header),
            home: run(copies.made.first().map_or(LinkAddr(0), |made| made.copy.entry)),
        });
        edits.writes.extend(frames.map(|frames| Write { at: run(frames_at), old: None, new: frames.bytes }));
        for copy in copies.made.iter().map(|made| &made.copy) {
            edits.writes.push(Write { at: run(copy.at), old: None, new: copy.code.clone() });
            for patch in &copy.patches {
                edits.writes.push(Write { at: run(patch.at), old: Some(patch.old.clone()), new: patch.new.clone() });
            }
            for unused in copy.unused.iter().filter(|_| !options.keep) {
                edits.writes.push(self.trap(run(unused.start), (unused.end.0 - unused.start.0) as usize));
            }
        }
        self.stepper.apply(pid, &edits)?;
        let counters = counters.map(|memory| Counters { memory, counted });
        // The distances of calls are no places.
        let patches = copies.made.iter().flat_map(|made| &made.copy.patches).filter(|patch| patch.is_springboard());
        let mut springboards: Vec<LinkAddr> = patches.map(|patch| patch.at).collect();
        springboards.sort_unstable();
        let routine = if options.routine { overwriting_routine_parts(link(place)) } else { Vec::new() };
        let moved = Moved::of(&copies).with_routines(routine);
        let memory = RunAddr(place)..RunAddr(place + len);
        self.modules.push(Relocated { loaded: loaded.clone(), copies, clones, moved, memory, springboards, counters });
        Ok(known)
    }

    /// Lets the words that a module's stubs read lead to copies, where the loader has bound them for good.
    fn lead_stubs(&mut self, (loaded, module): &(Module, Analysed)) -> Result<(), OracleError> {
        let Some(closed) = module.image().relocated_range() else { return Ok(()) };
        let mut edits = Edits::default();
        for word in plt::words(module.image()).into_iter().filter(|word| closed.contains(word)) {
            let at = RunAddr(word.0.wrapping_add(loaded.bias));
            let mut bytes = [0; size_of::<u64>()];
            if self.stepper.read(at.0, &mut bytes) < bytes.len() {
                continue;
            }
            if let Some(copy) = self.copy_of(RunAddr(u64::from_le_bytes(bytes))) {
                let new = copy.0.to_le_bytes().to_vec();
                edits.writes.push(Write { at, old: Some(bytes.to_vec()), new });
            }
        }
        Ok(self.stepper.apply(self.stepper.pid(), &edits)?)
    }

    /// Where the copy of a procedure is entered, by the procedure's first instruction.
    fn copy_of(&self, entry: RunAddr) -> Option<RunAddr> {
        let contains = |module: &&Relocated| (module.loaded.start()..module.loaded.end()).contains(&entry.0);
        let module = self.modules.iter().find(contains)?;
        let made = &module.copies.made;
        let made = &made[..made.partition_point(|made| made.clone == CloneNumber::NONE)];
        let index = made.binary_search_by_key(&entry.to_link(module.loaded.bias), |made| made.copy.entry).ok()?;
        Some(RunAddr(made.get(index)?.copy.entered_at.0.wrapping_add(module.loaded.bias)))
    }

    /// Instructions that trap, instead of what stands there.
    fn trap(&self, at: RunAddr, len: usize) -> Write {
        /// `int3`
        const TRAP: u8 = 0xcc;
        let mut old = vec![0; len];
        self.stepper.read(at.0, &mut old);
        Write { at, old: Some(old), new: vec![TRAP; len] }
    }

    /// Lets the program run to its end; signals reach it. `trouble` hears of each that says something is wrong, with
    /// the place at home.
    ///
    /// # Errors
    /// If it cannot be traced. Returns its exit status, or 128 + signal.
    pub fn run_to_end(&mut self, mut trouble: impl FnMut(String)) -> Result<i32, OracleError> {
        const FATAL: [i32; 5] = [libc::SIGTRAP, libc::SIGSEGV, libc::SIGILL, libc::SIGBUS, libc::SIGABRT];
        let pid = self.stepper.pid();
        let mut signal = 0;
        loop {
            self.stepper.go_on(pid, signal)?;
            signal = match self.stepper.wait(Some(pid))?.1 {
                Stepped::Ended(status) => return Ok(status),
                Stepped::Exec => {
                    self.stepper.reopen_memory()?;
                    0
                }
                Stepped::Trap => libc::SIGTRAP,
                Stepped::Signal(signal) => signal,
                _ => 0,
            };
            if FATAL.contains(&signal) {
                let at = RunAddr(self.stepper.registers(pid)?.rip);
                trouble(format!("signal {signal} at {}", self.place(at)));
            }
        }
    }

    /// Lets the program run one instruction; `None` at its end.
    ///
    /// # Errors
    /// If it cannot be traced.
    pub fn step(&mut self) -> Result<Option<RunAddr>, OracleError> {
        let pid = self.stepper.pid();
        self.stepper.step(pid, 0)?;
        match self.stepper.wait(Some(pid))?.1 {
            Stepped::Ended(_) => Ok(None),
            _ => Ok(Some(RunAddr(self.stepper.registers(pid)?.rip))),
        }
    }

    /// The registers of the program, which stands still.
    ///
    /// # Errors
    /// If it cannot be traced.
    pub fn registers(&self) -> Result<libc::user_regs_struct, OracleError> {
        Ok(self.stepper.registers(self.stepper.pid())?)
    }

    /// Gives the program, which stands still, other registers.
    ///
    /// # Errors
    /// If it cannot be traced.
    pub fn set_registers(&self, registers: &libc::user_regs_struct) -> Result<(), OracleError> {
        Ok(self.stepper.set_registers(self.stepper.pid(), registers)?)
    }

    /// Reads memory of the program; how many bytes could be read.
    pub fn read(&self, at: u64, to: &mut [u8]) -> usize {
        self.stepper.read(at, to)
    }

    /// What an address is.
    pub fn stands(&self, at: RunAddr) -> Stands {
        if let Some((module, origin)) = self.copy_at(at) {
            return Stands::Copy(RunAddr(origin.0.wrapping_add(module.loaded.bias)));
        }
        let is_springboard = |module: &Relocated| {
            let link = at.to_link(module.loaded.bias);
            module.springboards.binary_search(&link).is_ok()
        };
        if self.modules.iter().any(is_springboard) { Stands::Springboard } else { Stands::Home }
    }

    /// The memory that the copies lie in, and what belongs to them.
    pub fn memory(&self) -> impl Iterator<Item = NewMemory<'static>> + '_ {
        let all = self.modules.iter().map(|module| &module.memory).chain(&self.routine);
        all.map(|memory| NewMemory::Code { at: memory.start, len_bytes: memory.end.0 - memory.start.0 })
    }

    /// The copy that contains an address, with its module and the instruction at home that stands there.
    fn copy_at(&self, at: RunAddr) -> Option<(&Relocated, LinkAddr)> {
        self.modules.iter().find_map(|module| {
            let link = at.to_link(module.loaded.bias);
            Some((module, module.copies.origin_of(link)?))
        })
    }

    /// A place in words.
    fn place(&self, at: RunAddr) -> String {
        if let Some((module, origin)) = self.copy_at(at) {
            return format!("the copy of {}+{:#x}", module.loaded.path.display(), origin.0);
        }
        let contains = |module: &&Relocated| (module.loaded.start()..module.loaded.end()).contains(&at.0);
        match self.modules.iter().find(contains) {
            Some(module) => format!("{}+{:#x}", module.loaded.path.display(), at.to_link(module.loaded.bias).0),
            None => format!("{:#x}", at.0),
        }
    }

    /// How often each block ran that ran at all, if that was counted.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn counts(&self) -> Result<Vec<Count>, OracleError> {
        let block = |passes: Passes| match passes.place {
            Place::Before(block) => Some(Count { module: passes.module, block, count: passes.count }),
            _ => None,
        };
        Ok(self.passes()?.into_iter().filter_map(block).collect())
    }

    /// How often control passed each place that it passed at all, of those that were counted.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn passes(&self) -> Result<Vec<Passes>, OracleError> {
        let mut found = Vec::new();
        for module in &self.modules {
            let Some(Counters { memory, counted }) = &module.counters else { continue };
            let path = PathBuf::from(format!("/proc/self/fd/{}", memory.descriptor()));
            let mut bytes = vec![0; (counted.len() + 1) * COUNTER_BYTES as usize];
            let read = std::fs::File::open(&path).and_then(|mut file| file.read_exact(&mut bytes));
            read.map_err(|source| OracleError::Read { path, source })?;
            let (words, _) = bytes.as_chunks::<{ COUNTER_BYTES as usize }>();
            let words = words.iter().skip(1).map(|word| u64::from_le_bytes(*word));
            let passed = counted.iter().zip(words).filter(|(_, count)| *count > 0);
            let path = &module.loaded.path;
            found.extend(passed.map(|(counted, count)| Passes {
                module: path.clone(),
                procedure: counted.procedure,
                place: counted.place,
                count,
            }));
        }
        Ok(found)
    }
}

/// A routine at `at` that preserves all registers, overwrites the flags and more than the red zone, and counts its
/// calls in the word at `cell`.
fn overwriting_routine(at: u64, cell: u64) -> Vec<u8> {
    /// `push rax`
    const PUSH: u8 = 0x50;
    /// `lea rsp, [rsp + 0x90]; inc qword [rip + distance]; cmp rsp, 0x7fffffff; ret`
    const BEGIN: [u8; 11] = [0x48, 0x8d, 0xa4, 0x24, 0x90, 0, 0, 0, 0x48, 0xff, 0x05];
    const END: [u8; 8] = [0x48, 0x81, 0xfc, 0xff, 0xff, 0xff, 0x7f, 0xc3];
    let mut code = vec![PUSH; 0x90 / 8];
    code.extend(BEGIN);
    let next = at + code.len() as u64 + 4;
    code.extend((cell.wrapping_sub(next) as u32).to_le_bytes());
    code.extend(END);
    code.resize(code.len().next_multiple_of(16), 0xcc);
    code
}

/// The parts of that routine, by how many bytes each has pushed.
fn overwriting_routine_parts(at: LinkAddr) -> Vec<(Range<LinkAddr>, u32)> {
    const PUSHES: u32 = 0x90 / 8;
    const LEA_BYTES: u64 = 8;
    const REST_BYTES: u64 = 3 + 4 + 8;
    let part = |from: u64, len: u64| LinkAddr(at.0 + from)..LinkAddr(at.0 + from + len);
    let mut parts: Vec<(Range<LinkAddr>, u32)> = (0..PUSHES).map(|n| (part(n.into(), 1), n * 8)).collect();
    parts.push((part(PUSHES.into(), LEA_BYTES), PUSHES * 8));
    parts.push((part(u64::from(PUSHES) + LEA_BYTES, REST_BYTES), 0));
    parts
}

/// How many threads a process has.
fn threads_of(pid: Pid) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// Whether a module's procedures are copied. The loader's are not: it is active when they are put in.
fn is_copied(path: &Path, options: &Options) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_asked = options.module.as_ref().is_none_or(|text| path.to_string_lossy().contains(text));
    is_asked && path != Path::new(VDSO) && !name.starts_with("ld-linux")
}
