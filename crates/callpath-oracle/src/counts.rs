//! What a program truly executes, path by path and activation by activation, run one instruction at a time: what exact
//! counts are compared with. It must not know how paths are numbered or counted: it is given the blocks of procedures,
//! and which block follows which within a path.
//!
//! Followed is the first thread of a program. A procedure's activation begins where control comes to its first
//! instruction by a call (directly or by a stub of the linkage table), by a jump at the height of the caller's return address (a tail call), or from code that is
//! not followed, and ends where the stack pointer passes its return address.

use std::collections::HashMap;
use std::process::Command;

use callpath_format::address::RunAddr;
use callpath_target::{Maps, Pid, StepOptions, Stepped, Stepper, TrapCause};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::OracleError;
use crate::instruction::{Effect, Instruction, MAX_LEN_BYTES, decode};
use crate::modules::{Images, Modules};

/// A procedure whose paths are counted.
#[derive(Clone, Debug, Default)]
pub struct Procedure {
    /// The file name of its module.
    pub module: String,
    /// Its first instruction, a link-time address, as all of these.
    pub entry: u64,
    /// Where its blocks begin that are executed.
    pub blocks: FxHashSet<u64>,
    /// Which block follows which within a path. Where another one follows, a path ends and the next one begins.
    pub within: FxHashSet<(u64, u64)>,
}

impl Procedure {
    /// Adds a path: its blocks, in order.
    pub fn add(&mut self, blocks: &[u64]) {
        self.blocks.extend(blocks);
        self.within.extend(blocks.windows(2).filter_map(|pair| Some((*pair.first()?, *pair.last()?))));
    }

    /// Whether another block follows this one within a path.
    fn goes_on(&self, block: u64) -> bool {
        self.within.iter().any(|(from, _)| *from == block)
    }
}

/// A path that was executed.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Executed {
    /// Its blocks, in order.
    pub blocks: Vec<u64>,
    /// It begins where the procedure does, not behind a back edge.
    pub from_entry: bool,
    /// It ends by leaving the procedure, not by a back edge.
    pub to_exit: bool,
}

/// What a procedure did.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    /// Its activations.
    pub activations: u64,
    /// Those that ended in the middle of a path: by longjmp, an exception, or the program's end.
    pub cut_short: u64,
    /// How often a path ended where a call did not return, and a handler of the procedure went on.
    pub caught: u64,
    /// How often each path was executed.
    pub paths: FxHashMap<Executed, u64>,
}

/// What a run did.
#[derive(Debug)]
pub struct Run {
    /// By the order of the procedures.
    pub procedures: Vec<Activity>,
    /// For each chain of active procedures, the outermost first, how often its last one was activated.
    pub chains: FxHashMap<Vec<u32>, u64>,
    /// Instructions that were executed.
    pub instructions: u64,
    /// The exit status, or 128 and the signal's number.
    pub status: i32,
}

/// Runs a program, and follows `procedures` in it. `None` if it has executed `most` instructions and goes on.
///
/// # Errors
/// If it cannot be run or looked at.
pub fn run(command: Command, procedures: &[Procedure], most: u64) -> Result<Option<Run>, OracleError> {
    let mut stepper = Stepper::start(command, StepOptions::default())?;
    let pid = stepper.pid();
    let mut code = Code::new(procedures);
    let mut followed = Followed::new(procedures);
    let mut before = At { registers: stepper.registers(pid)?, instruction: Instruction::NONE };
    let (mut instructions, mut signal) = (0, 0);
    loop {
        stepper.step(pid, signal)?;
        let (_, stepped) = stepper.wait(Some(pid))?;
        signal = 0;
        match stepped {
            Stepped::Ended(status) => {
                followed.end();
                let Followed { activities: procedures, chains, .. } = followed;
                return Ok(Some(Run { procedures, chains, instructions, status }));
            }
            // The kernel stops before it delivers a signal.
            Stepped::Signal(number) => {
                signal = number;
                continue;
            }
            Stepped::Clone | Stepped::GroupStop => continue,
            Stepped::Exec => {
                followed.end();
                stepper.reopen_memory()?;
                code.forget();
            }
            Stepped::Trap => {}
        }
        instructions += 1;
        if instructions > most {
            return Ok(None);
        }
        if before.instruction.effect == Effect::SystemCall {
            code.forget();
        }
        let is_handler = match (stepped, stepper.trap_cause(pid)) {
            (Stepped::Trap, Ok(TrapCause::Own)) => {
                signal = libc::SIGTRAP;
                continue;
            }
            (Stepped::Trap, Ok(cause)) => cause == TrapCause::Handler,
            _ => false,
        };
        let registers = stepper.registers(pid)?;
        let (place, instruction) = code.at(&stepper, pid, registers.rip)?;
        let now = At { registers, instruction };
        // What the kernel lays for a new program, in place of a return address, is the number of arguments.
        let has_no_caller = place.entry.is_some() && stepper.read_u64(registers.rsp).is_none_or(|word| word < PAGE);
        followed.step(&before, &now, &Arrival { place, is_handler, has_no_caller });
        before = now;
    }
}

/// Where the thread stands.
struct At {
    registers: libc::user_regs_struct,
    /// The one that it executes next; of code that is not followed, [`Instruction::NONE`].
    instruction: Instruction,
}

/// A place in a procedure that matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Place {
    /// The code is of a module that has procedures which are followed.
    is_followed: bool,
    /// The procedure that begins here.
    entry: Option<u32>,
    /// The procedure that has a block here, and the block.
    block: Option<(u32, u64)>,
}

/// What is at each address.
struct Code<'p> {
    procedures: &'p [Procedure],
    /// By module, link-time address.
    entries: HashMap<(&'p str, u64), u32>,
    blocks: HashMap<(&'p str, u64), u32>,
    images: Images,
    modules: Option<Modules>,
    /// Pages of code that is of no module.
    elsewhere: FxHashSet<u64>,
    /// As of the modules now.
    known: FxHashMap<u64, (Place, Instruction)>,
}

const PAGE: u64 = 4096;

impl<'p> Code<'p> {
    fn new(procedures: &'p [Procedure]) -> Code<'p> {
        let numbered = || procedures.iter().zip(0..);
        let blocks_of = |(of, number): (&'p Procedure, u32)| {
            of.blocks.iter().map(move |block| ((of.module.as_str(), *block), number))
        };
        Code {
            procedures,
            entries: numbered().map(|(of, number)| ((of.module.as_str(), of.entry), number)).collect(),
            blocks: numbered().flat_map(blocks_of).collect(),
            images: Images::default(),
            modules: None,
            elsewhere: FxHashSet::default(),
            known: FxHashMap::default(),
        }
    }

    /// The memory map may be another one from now on.
    fn forget(&mut self) {
        self.modules = None;
        self.elsewhere.clear();
    }

    fn at(&mut self, stepper: &Stepper, pid: Pid, pc: u64) -> Result<(Place, Instruction), OracleError> {
        if let (Some(_), Some(known)) = (&self.modules, self.known.get(&pc)) {
            return Ok(*known);
        }
        // A module may have come: the system calls of code that is not followed are not seen.
        let is_known =
            |modules: &Modules| modules.code_at(RunAddr(pc)).is_some() || self.elsewhere.contains(&(pc / PAGE));
        if !self.modules.as_ref().is_some_and(is_known) {
            self.elsewhere.insert(pc / PAGE);
            let modules = self.images.modules(&Maps::read(pid)?, std::path::Path::new(crate::modules::VDSO));
            if self.modules.as_ref() != Some(&modules) {
                self.known.clear();
            }
            self.modules = Some(modules);
        }
        let place = self.place(RunAddr(pc));
        let mut instruction = Instruction::NONE;
        if place.is_followed {
            let mut bytes = [0; MAX_LEN_BYTES];
            let len = stepper.read(pc, &mut bytes);
            (instruction, _) = decode(pc, bytes.get(..len).unwrap_or_default());
        }
        self.known.insert(pc, (place, instruction));
        Ok((place, instruction))
    }

    fn place(&self, pc: RunAddr) -> Place {
        let of_module = self.modules.as_ref().and_then(|modules| {
            let (index, address) = modules.code_at(pc)?;
            let name = modules.modules.get(index)?.path.file_name()?.to_str()?.to_owned();
            Some((name, address.0))
        });
        let Some((module, address)) = of_module else { return Place::default() };
        let block = self.blocks.get(&(module.as_str(), address)).map(|number| (*number, address));
        Place {
            is_followed: self.procedures.iter().any(|procedure| procedure.module == module),
            entry: self.entries.get(&(module.as_str(), address)).copied(),
            block,
        }
    }
}

/// An activation of a procedure.
struct Activation {
    procedure: u32,
    /// Where its return address is.
    slot: u64,
    /// The path so far.
    path: Executed,
    /// A call that it has made and that has not returned: the stack pointer before it, and where it returns to.
    call: Option<(u64, u64)>,
    /// Where a signal interrupted it, before the instruction there.
    interrupted_at: Option<u64>,
}

/// How control has come to a place.
struct Arrival {
    place: Place,
    /// The kernel calls a handler.
    is_handler: bool,
    /// A procedure that begins here has nowhere to return.
    has_no_caller: bool,
}

struct Followed<'p> {
    procedures: &'p [Procedure],
    activities: Vec<Activity>,
    chains: FxHashMap<Vec<u32>, u64>,
    /// The innermost one last.
    active: Vec<Activation>,
}

impl<'p> Followed<'p> {
    fn new(procedures: &'p [Procedure]) -> Followed<'p> {
        Followed {
            procedures,
            activities: vec![Activity::default(); procedures.len()],
            chains: FxHashMap::default(),
            active: Vec::new(),
        }
    }

    fn step(&mut self, before: &At, now: &At, arrival: &Arrival) {
        let Arrival { place, is_handler, has_no_caller } = *arrival;
        let (from, to) = (before.registers.rsp, now.registers.rsp);
        let (was_at, is_at) = (before.registers.rip, now.registers.rip);
        if is_handler {
            if let Some(active) = self.active.last_mut() {
                active.interrupted_at = Some(was_at);
            }
            if let Some(entry) = place.entry {
                self.begin(entry, to);
            }
            self.arrive(place, is_at);
            return;
        }
        // An instruction that repeats itself.
        if was_at == is_at && before.instruction.effect == Effect::None {
            return;
        }
        let effect = before.instruction.effect;
        let is_call = matches!(effect, Effect::Call(_));
        if let (Some(active), Effect::Call(next)) = (self.active.last_mut(), effect)
            && active.call.is_none()
        {
            active.call = Some((from, next));
        }
        // A return, or a jump out of the procedure where its frame is gone: it is done.
        let mut is_tail_call = false;
        if let Some(active) = self.active.last().filter(|active| active.slot == from) {
            let stays = || place.block.is_some_and(|(number, _)| number == active.procedure);
            is_tail_call = effect == Effect::Jump && before.instruction.len_bytes > 0 && !stays();
            is_tail_call &= is_at != was_at.wrapping_add(before.instruction.len_bytes.into());
            if effect == Effect::Return || is_tail_call {
                self.exit();
            }
        }
        // By other means: longjmp, an exception, a return by code that is not followed.
        while self.active.last().is_some_and(|active| active.slot < to) {
            self.cut_short();
        }
        if let Some(entry) = place.entry {
            let is_inner = self.active.last().is_none_or(|active| active.slot > to);
            let from_elsewhere = before.instruction == Instruction::NONE;
            // By a stub of the linkage table, or a procedure of the module that is not followed.
            let is_away = effect != Effect::Return && self.active.last().is_some_and(|active| active.call.is_some());
            if is_inner && (is_call || is_tail_call || from_elsewhere || is_away) {
                self.begin(entry, if has_no_caller { u64::MAX } else { to });
            }
        }
        let is_at_return = |active: &Activation| active.call.is_some_and(|(_, next)| next == is_at);
        if let Some(active) = self.active.last_mut()
            && (is_at_return(active) || place.block.is_some_and(|(number, _)| number == active.procedure))
            && let Some((_, next)) = active.call.take_if(|(called_at, _)| *called_at <= to)
            && next != is_at
        {
            // Not by returning: a handler of an exception goes on.
            active.path = Executed { blocks: Vec::new(), from_entry: false, to_exit: false };
            let number = active.procedure;
            if let Some(activity) = self.activities.get_mut(number as usize) {
                activity.caught += 1;
            }
        }
        self.arrive(place, is_at);
    }

    fn begin(&mut self, procedure: u32, slot: u64) {
        let path = Executed { blocks: Vec::new(), from_entry: true, to_exit: false };
        self.active.push(Activation { procedure, slot, path, call: None, interrupted_at: None });
        let chain = self.active.iter().map(|active| active.procedure).collect();
        *self.chains.entry(chain).or_default() += 1;
        if let Some(activity) = self.activities.get_mut(procedure as usize) {
            activity.activations += 1;
        }
    }

    /// Control has come to a place.
    fn arrive(&mut self, place: Place, at: u64) {
        let Some(active) = self.active.last_mut() else { return };
        // It goes on where a signal interrupted it: it was here before.
        if active.interrupted_at == Some(at) {
            active.interrupted_at = None;
            return;
        }
        let Some((_, block)) = place.block.filter(|(number, _)| *number == active.procedure) else { return };
        let follows = active.path.blocks.last().map(|last| (*last, block));
        let of = self.procedures.get(active.procedure as usize);
        let is_back = follows.is_some_and(|edge| of.is_some_and(|of| !of.within.contains(&edge)));
        if is_back {
            let next = Executed { blocks: vec![block], from_entry: false, to_exit: false };
            let done = std::mem::replace(&mut active.path, next);
            let number = active.procedure;
            self.count(number, done);
        } else {
            active.path.blocks.push(block);
        }
    }

    fn count(&mut self, procedure: u32, path: Executed) {
        if let Some(activity) = self.activities.get_mut(procedure as usize) {
            *activity.paths.entry(path).or_default() += 1;
        }
    }

    /// The innermost activation has left by the end of a path.
    fn exit(&mut self) {
        if let Some(done) = self.active.pop() {
            self.count(done.procedure, Executed { to_exit: true, ..done.path });
        }
    }

    /// The innermost activation is gone, without leaving. Where a call is the last of its procedure, since the callee does
    /// not return, the path ends with the call.
    fn cut_short(&mut self) {
        let ends = |active: &Activation| {
            let of = self.procedures.get(active.procedure as usize)?;
            Some(active.call.is_some() && !of.goes_on(*active.path.blocks.last()?))
        };
        if self.active.last().and_then(ends) == Some(true) {
            self.exit();
        } else if let Some(gone) = self.active.pop()
            && let Some(activity) = self.activities.get_mut(gone.procedure as usize)
        {
            activity.cut_short += 1;
        }
    }

    /// The program has ended.
    fn end(&mut self) {
        while !self.active.is_empty() {
            self.cut_short();
        }
    }
}
