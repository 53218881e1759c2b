//! Where the address of a return address goes: whether a procedure that has it in a register reads what lies there, or
//! lets others read it.
//!
//! It is followed through registers, with constants added, and through words of the procedure's own frame. What is not
//! known to be harmless counts as a read: stored elsewhere, in other arithmetic, an argument of a call, taken out of the
//! code that is known. Jumps to other procedures are followed: parts of a procedure may lie elsewhere. What others do with
//! the frame's words by pointers of their own is not seen, nor what a callee does with registers that it preserves, nor
//! what a loop that moves rsp has from its [`MOST_ROUNDS`]th round on.

use callpath_format::address::LinkAddr;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Input;

use crate::instruction::{Access, Control, Instruction, Memory, Operation, Register};

/// States that are looked at before the answer is that it is read.
const MOST_STATES: usize = 1 << 16;

/// Displacements from one register by which a word is followed at one instruction: a loop may move rsp in each round.
const MOST_ROUNDS: usize = 32;

/// What lies so far below rsp, bytes, is gone.
const RED_ZONE_BYTES: i64 = 128;

/// The numbers of the registers of arguments (psABI; r10: a nested function's), and of those that procedures preserve.
const ARGUMENTS: [usize; 7] = [7, 6, 2, 1, 8, 9, 10];
const PRESERVED: [usize; 7] = [3, 4, 5, 12, 13, 14, 15];

/// Code in which addresses are followed.
pub(super) struct Followed<'i, 'a> {
    input: &'i Input<'a>,
    /// By procedure: its instructions, by ascending address.
    listings: FxHashMap<usize, Vec<(u64, Instruction)>>,
}

/// An instruction: the procedure's index, and its own there.
type Position = (usize, usize);

/// What holds the address, plus `offset` bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Holder {
    place: Place,
    offset: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Register(Register),
    /// The eight bytes at `base + displacement`: rsp, or rbp where it is the frame's.
    Word {
        base: Register,
        displacement: i64,
    },
}

/// What becomes of a holder by an instruction.
enum Step {
    /// What lies there is read, or may be.
    Read,
    /// Holders behind it.
    Held(Vec<Holder>),
}

impl<'i, 'a> Followed<'i, 'a> {
    pub(super) fn of(input: &'i Input<'a>) -> Followed<'i, 'a> {
        Followed { input, listings: FxHashMap::default() }
    }

    /// The instructions of a procedure, one behind the other; where there is none, from the next byte on.
    pub(super) fn instructions(&mut self, procedure: usize) -> &[(u64, Instruction)] {
        self.listings.entry(procedure).or_insert_with(|| {
            let code = self.input.procedures.get(procedure);
            let (bytes, start) =
                code.map_or((&[][..], 0), |code| (self.input.bytes(code).unwrap_or(&[]), code.start.0));
            let mut instructions = Vec::new();
            let mut offset = 0;
            while let Some(rest) = bytes.get(offset..).filter(|rest| !rest.is_empty()) {
                let instruction = Instruction::decode(rest);
                instructions.extend(instruction.map(|it| (start.wrapping_add(offset as u64), it)));
                offset += instruction.map_or(1, |it| it.len() as usize);
            }
            instructions
        })
    }

    /// The instruction at an address.
    fn position(&mut self, at: u64) -> Option<Position> {
        let procedure = self.input.procedure_of(LinkAddr(at))?;
        let index = self.instructions(procedure).binary_search_by_key(&at, |(at, _)| *at).ok()?;
        Some((procedure, index))
    }

    /// Whether control can come from an instruction, behind which `holder` holds the address, to one that reads what lies
    /// there or lets others do so.
    pub(super) fn is_read_through(&mut self, (procedure, index): Position, holder: Holder) -> bool {
        let mut met = Met::default();
        let mut open = vec![((procedure, index + 1), holder)];
        while let Some((position, holder)) = open.pop() {
            let (procedure, index) = position;
            let instruction = self.instructions(procedure).get(index).copied();
            let Some((at, it)) = instruction.filter(|_| met.is_new(position, holder)) else { continue };
            if met.states.len() > MOST_STATES {
                return true;
            }
            let Step::Held(held) = holder.after(&it, || self.input.is_framed(LinkAddr(at))) else { return true };
            match it.control() {
                Control::Return | Control::Stop => {}
                // Wherever that leads.
                Control::JumpIndirect if held.iter().any(|holder| holder.is_for_others()) => return true,
                Control::JumpIndirect => {
                    // With rsp as it was at the entry another procedure is jumped to.
                    let held = held.into_iter().filter(|held| !held.is_entry());
                    let held: Vec<Holder> = held.collect();
                    let all = 0..self.instructions(procedure).len();
                    open.extend(all.flat_map(|to| held.iter().map(move |held| ((procedure, to), *held))));
                }
                control => {
                    if matches!(control, Control::Jump | Control::Branch) {
                        match self.position(it.target(at.wrapping_add(it.len().into()))) {
                            // What another procedure does with its own is looked for there.
                            Some(to) => {
                                let held = held.iter().filter(|held| to.0 == procedure || !held.is_entry());
                                open.extend(held.map(|holder| (to, *holder)));
                            }
                            None if held.iter().any(|holder| holder.goes_along()) => return true,
                            None => {}
                        }
                    }
                    if control != Control::Jump {
                        open.extend(held.iter().map(|holder| ((procedure, index + 1), *holder)));
                    }
                }
            }
        }
        false
    }
}

/// What was looked at.
#[derive(Default)]
struct Met {
    states: FxHashSet<(Position, Holder)>,
    /// By instruction and register: how many words were followed.
    rounds: FxHashMap<(Position, Register), usize>,
}

impl Met {
    /// Whether a state is to be looked at.
    fn is_new(&mut self, position: Position, holder: Holder) -> bool {
        if let Place::Word { base, .. } = holder.place
            && !self.states.contains(&(position, holder))
        {
            let rounds = self.rounds.entry((position, base)).or_default();
            *rounds += 1;
            if *rounds > MOST_ROUNDS {
                return false;
            }
        }
        self.states.insert((position, holder))
    }
}

impl Holder {
    pub(super) fn register(register: Register) -> Holder {
        Holder { place: Place::Register(register), offset: 0 }
    }

    /// The word that a push has just written.
    pub(super) fn pushed() -> Holder {
        Holder { place: Place::Word { base: Register::RSP, displacement: 0 }, offset: 0 }
    }

    /// The same elsewhere, with a constant added.
    fn plus(self, place: Place, constant: i64) -> Holder {
        Holder { place, offset: self.offset.saturating_add(constant) }
    }

    /// Whether others would find the return address by it: it leads into that word, or to its end.
    fn tells(self) -> bool {
        (0..=8).contains(&self.offset)
    }

    /// Whether what is jumped to by a pointer may have it for an argument.
    fn is_for_others(self) -> bool {
        let number = if let Place::Register(register) = self.place { register.general64() } else { None };
        self.tells() && number.is_some_and(|number| ARGUMENTS.contains(&number))
    }

    /// Whether it is rsp as it was at the entry.
    fn is_entry(self) -> bool {
        self.place == Place::Register(Register::RSP) && self.offset == 0
    }

    /// Whether code behind a jump out of the procedure has it: a part of the procedure that lies elsewhere, or another one.
    fn goes_along(self) -> bool {
        let is_there = match self.place {
            Place::Register(register) => register != Register::RSP,
            Place::Word { base, displacement } => base != Register::RSP || displacement >= 0,
        };
        self.tells() && is_there
    }

    fn after(self, it: &Instruction, is_framed: impl Fn() -> bool) -> Step {
        match self.place {
            Place::Register(register) => self.after_in_register(it, register, is_framed),
            Place::Word { base, displacement } => self.after_in_word(it, base, displacement),
        }
    }

    /// Whether an access of so many bytes, `from` bytes above what it holds, has any of the return address. An access of
    /// unknown length may.
    fn meets(self, from: i64, bytes: u16) -> bool {
        let from = self.offset.saturating_add(from);
        from < 8 && (bytes == 0 || from.saturating_add(bytes.into()) > 0)
    }

    /// The same holder if it tells others nothing: no more is looked for.
    fn unless_it_tells(self, held: Vec<Holder>) -> Step {
        if self.tells() { Step::Read } else { Step::Held(held) }
    }

    fn after_in_register(self, it: &Instruction, register: Register, is_framed: impl Fn() -> bool) -> Step {
        let Some(number) = register.general64() else { return Step::Read };
        let is_call = matches!(it.control(), Control::Call | Control::CallIndirect);
        if it.operation() == Operation::Pop && register == Register::RSP && self.meets(0, 8) {
            return Step::Read;
        }
        let mut held = Vec::new();
        // As it is behind the instruction.
        let stays = match it.sum(register) {
            // What a call pushes is gone when it comes back.
            _ if is_call && register == Register::RSP => Some(0),
            Some((from, constant)) if from == register => Some(constant),
            _ => None,
        };
        let stays = stays.filter(|_| !is_call || PRESERVED.contains(&number));
        if let Some(constant) = stays {
            held.push(self.plus(self.place, constant));
        }
        if (is_call || it.operation() == Operation::SystemCall) && ARGUMENTS.contains(&number) && self.tells() {
            return Step::Read;
        }
        if !it.reads().has_general(number) {
            return Step::Held(held);
        }
        let memory = it.memory();
        if let Some(memory) = memory.filter(|memory| memory.base == register || memory.index == register) {
            let is_read = matches!(it.memory_access(), Access::Read | Access::ReadWrite);
            let is_plain = memory.is_only(register);
            // An index to the frame's words by rsp itself is no way to the return address that compilers take.
            let is_indexed = !is_plain && register != Register::RSP && self.tells();
            let is_address = it.operation() == Operation::LoadAddress;
            if is_read && is_plain && self.meets(memory.displacement, memory.bytes)
                || (is_read || is_address) && is_indexed
            {
                return Step::Read;
            }
        }
        let to = it.register(0);
        if to != register && it.sum(to).is_some_and(|(from, _)| from == register) {
            let constant = it.sum(to).map_or(0, |(_, constant)| constant);
            held.push(self.plus(Place::Register(to), constant));
            return Step::Held(held);
        }
        let is_second = it.register(1).general() == Some(number);
        let is_first = to.general() == Some(number);
        match it.operation() {
            _ if register == Register::RSP => Step::Held(held),
            Operation::Push if is_first => {
                held.push(Holder { place: Place::Word { base: Register::RSP, displacement: 0 }, ..self });
                Step::Held(held)
            }
            Operation::Compare | Operation::Test | Operation::Nop => Step::Held(held),
            // What is loaded lies elsewhere.
            Operation::Move if it.memory_access() == Access::Read => Step::Held(held),
            Operation::Move if is_second => match memory.filter(|_| it.register(1) == register) {
                Some(memory) if memory.is_only(Register::RSP) || memory.is_only(Register::RBP) && is_framed() => {
                    let Memory { base, displacement, .. } = memory;
                    held.push(Holder { place: Place::Word { base, displacement }, ..self });
                    Step::Held(held)
                }
                _ => self.unless_it_tells(held),
            },
            _ if !is_first && !is_second && memory.is_some() => Step::Held(held),
            _ if stays.is_some_and(|constant| constant != 0) => Step::Held(held),
            _ => self.unless_it_tells(held),
        }
    }

    fn after_in_word(self, it: &Instruction, base: Register, displacement: i64) -> Step {
        let mut held = Vec::new();
        let is_call = matches!(it.control(), Control::Call | Control::CallIndirect);
        let is_replaced = |memory: Memory| it.memory_access() == Access::Write && memory.bytes >= 8;
        let memory = it.memory().filter(|memory| memory.base == base);
        let touches = |memory: &Memory| {
            let bytes = i64::from(if memory.bytes == 0 { 8 } else { memory.bytes });
            memory.displacement < displacement + 8 && memory.displacement + bytes > displacement
        };
        let is_here = memory.is_some_and(|memory| memory.is_only(base) && memory.displacement == displacement);
        let is_overwritten = is_here && memory.is_some_and(is_replaced);
        // As it is behind the instruction.
        let moved = match it.sum(base) {
            _ if is_call => Some(displacement),
            Some((from, constant)) if from == base => Some(displacement.saturating_sub(constant)),
            // The frame is left, or the stack.
            Some(_) => None,
            None if matches!(it.operation(), Operation::Leave | Operation::Pop) => None,
            None => return self.unless_it_tells(held),
        };
        let is_left = |displacement: i64| base == Register::RSP && displacement < -RED_ZONE_BYTES;
        // A push writes where it was.
        let is_pushed_over = base == Register::RSP && it.operation() == Operation::Push && displacement == -8;
        if let Some(displacement) = moved.filter(|at| !is_overwritten && !is_pushed_over && !is_left(*at)) {
            held.push(Holder { place: Place::Word { base, displacement }, ..self });
        }
        let to = it.register(0);
        if it.operation() == Operation::Pop && base == Register::RSP && displacement == 0 && !it.has_memory() {
            held.push(Holder { place: Place::Register(to), ..self });
            return Step::Held(held);
        }
        let Some(memory) = memory.filter(|memory| memory.is_only(base) && touches(memory)) else {
            return Step::Held(held);
        };
        match (it.operation(), it.memory_access()) {
            (Operation::LoadAddress, _) => self.unless_it_tells(held),
            (_, Access::None | Access::Write) | (Operation::Compare | Operation::Test, _) => Step::Held(held),
            (Operation::Move, _) if is_here && memory.bytes == 8 && to.general64().is_some() => {
                held.push(Holder { place: Place::Register(to), ..self });
                Step::Held(held)
            }
            (Operation::Push, _) if is_here => {
                held.push(Holder { place: Place::Word { base: Register::RSP, displacement: 0 }, ..self });
                Step::Held(held)
            }
            _ => self.unless_it_tells(held),
        }
    }
}
