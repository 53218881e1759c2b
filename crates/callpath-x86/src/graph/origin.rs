//! Where the target of an indirect jump comes from: its formula, followed backwards along every way to the jump.
//! Knows nothing of what lies in tables.
//!
//! The target is `outer`, or `outer + load(address)`, both sums of registers and memory words with factors. An
//! instruction that defines one of them is put in its place, as Cifuentes and Van Emmerik 1999 do in a slice; here
//! several ways to the jump are kept apart, so that `base` and `table` of one way never meet those of another. A word
//! with a factor above one is the index: what compares it on the way bounds the table.

use iced_x86::{
    ConditionCode, Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess, OpKind, Register,
};
use rustc_hash::FxHashMap;

use crate::decode::number;

const RAX: u8 = 0;
const RDX: u8 = 2;
const RSP: u8 = 4;
const RBP: u8 = 5;
/// No register.
const NONE: u8 = 16;
/// An index is not shifted more often between its comparison and its use.
const MAX_SHIFTS: u8 = 3;
/// An index is not compared with more.
const MAX_BOUND: u64 = 1 << 16;

/// Something that holds a value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Place {
    Register(u8),
    /// A word at `base + scale * index + disp`.
    Memory {
        base: u8,
        index: u8,
        scale: u8,
        disp: i64,
    },
}

/// `constant + factor * place + ...`
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Sum {
    constant: u64,
    terms: [Option<(Place, i64)>; 3],
}

impl Sum {
    fn constant(constant: u64) -> Sum {
        Sum { constant, terms: [None; 3] }
    }

    fn of(place: Place) -> Sum {
        Sum { constant: 0, terms: [Some((place, 1)), None, None] }
    }

    /// Adds a term; false if there is no room.
    fn add(&mut self, place: Place, factor: i64) -> bool {
        if let Some(term) = self.terms.iter_mut().flatten().find(|term| term.0 == place) {
            term.1 = term.1.wrapping_add(factor);
            self.terms.iter_mut().filter(|term| term.is_some_and(|term| term.1 == 0)).for_each(|term| *term = None);
        } else if let Some(free) = self.terms.iter_mut().find(|term| term.is_none()) {
            *free = Some((place, factor));
        } else {
            return false;
        }
        self.terms.sort_unstable();
        true
    }

    fn is_constant(&self) -> bool {
        self.terms.iter().all(Option::is_none)
    }

    /// The one place that this is, plus a constant.
    fn single(&self) -> Option<(Place, u64)> {
        let mut terms = self.terms.iter().flatten();
        match (terms.next(), terms.next()) {
            (Some(&(place, 1)), None) => Some((place, self.constant)),
            _ => None,
        }
    }

    /// The address that an instruction's memory operand means.
    fn address(instruction: &Instruction) -> Option<Sum> {
        if matches!(instruction.memory_segment(), Register::FS | Register::GS) {
            return None;
        }
        if instruction.is_ip_rel_memory_operand() {
            return Some(Sum::constant(instruction.ip_rel_memory_address()));
        }
        let mut sum = Sum::constant(instruction.memory_displacement64());
        let registers =
            [(instruction.memory_base(), 1), (instruction.memory_index(), instruction.memory_index_scale().into())];
        for (register, factor) in registers {
            if register != Register::None && !sum.add(Place::Register(number(register)? as u8), factor) {
                return None;
            }
        }
        Some(sum)
    }
}

/// The word that the target, or the distance to it, is read from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Load {
    /// Bytes.
    width: u8,
    is_signed: bool,
    address: Sum,
}

/// What is known of the index when no more is to be learned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Closed {
    /// Bytes from one entry to the next.
    pub(super) stride: i64,
    /// The highest index.
    pub(super) highest: Option<u32>,
    /// The code compares or masks it.
    pub(super) is_checked: bool,
}

/// What is wanted at some point of the code.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Query {
    outer: Sum,
    load: Option<Load>,
    closed: Option<Closed>,
    /// The index is not higher, because it was made from a narrow value.
    cap: Option<u32>,
    /// So many bytes of the address came with the index: it was lower or higher by a constant before. The second number
    /// says how often.
    shift: (i64, u8),
    /// The word that will be found is extended by its sign.
    is_extended: bool,
    /// Control came along the branch under this condition.
    pending: Option<(ConditionCode, bool)>,
    /// This place was compared, and is not higher.
    compared: Option<(Place, u32)>,
}

/// What a way to the jump ends in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Source {
    /// A table's entry.
    Table {
        outer: u64,
        /// Where the entry for index 0 is, or would be.
        address: u64,
        /// The first entry.
        begin: u64,
        width: u8,
        is_signed: bool,
        index: Closed,
    },
    /// One address.
    Fixed(u64),
    /// The word at one address.
    Slot(u64),
    Unknown,
}

impl Query {
    /// The target of a jump.
    pub(super) fn of_jump(jump: &Instruction) -> Option<Query> {
        let mut query = Query {
            outer: Sum::default(),
            load: None,
            closed: None,
            cap: None,
            shift: (0, 0),
            is_extended: false,
            pending: None,
            compared: None,
        };
        match jump.op0_kind() {
            OpKind::Register => query.outer = Sum::of(Place::Register(number(jump.op0_register())? as u8)),
            OpKind::Memory => {
                let width = jump.memory_size().size() as u8;
                query.load = Some(Load { width, is_signed: false, address: Sum::address(jump)? });
            }
            _ => return None,
        }
        Some(query)
    }

    /// Control came here along a branch under `condition`, or against it.
    pub(super) fn through(mut self, branch: Option<(ConditionCode, bool)>) -> Query {
        self.pending = branch;
        self
    }

    /// The index that is not bounded yet, with its factor.
    fn index(&self) -> Option<(Place, i64)> {
        let load = self.load.as_ref()?;
        load.address.terms.iter().flatten().copied().find(|term| term.1 > 1)
    }

    /// What the target is, if there is no more to be found.
    fn answer(&self) -> Option<Source> {
        if !self.outer.is_constant() {
            return None;
        }
        let Some(load) = &self.load else { return Some(Source::Fixed(self.outer.constant)) };
        if !load.address.is_constant() {
            return None;
        }
        let address = load.address.constant;
        Some(match self.closed {
            Some(index) => Source::Table {
                outer: self.outer.constant,
                address,
                begin: address.wrapping_sub(self.shift.0 as u64),
                width: load.width,
                is_signed: load.is_signed,
                index,
            },
            None if self.outer.constant == 0 && load.width == 8 => Source::Slot(address),
            None => Source::Table {
                outer: self.outer.constant,
                address,
                begin: address.wrapping_sub(self.shift.0 as u64),
                width: load.width,
                is_signed: load.is_signed,
                index: Closed { stride: load.width.into(), highest: Some(0), is_checked: true },
            },
        })
    }

    /// Where control cannot be followed further back: nothing more is learned.
    pub(super) fn give_up(mut self) -> Source {
        if self.index().is_some() && !self.close(None, false) {
            return Source::Unknown;
        }
        self.answer().unwrap_or(Source::Unknown)
    }

    /// No more is to be learned of the index.
    fn close(&mut self, highest: Option<u32>, is_checked: bool) -> bool {
        let Some((place, stride)) = self.index() else { return false };
        let Some(load) = self.load.as_mut().filter(|_| self.closed.is_none()) else { return false };
        load.address.terms.iter_mut().filter(|term| term.is_some_and(|term| term.0 == place)).for_each(|t| *t = None);
        load.address.terms.sort_unstable();
        let highest = match (highest, self.cap) {
            (Some(highest), Some(cap)) => Some(highest.min(cap)),
            (highest, cap) => highest.or(cap),
        };
        self.closed = Some(Closed { stride, highest, is_checked });
        self.compared = None;
        true
    }

    /// Puts `by` in the place of `place`, everywhere. False if that cannot be written down.
    fn replace(&mut self, place: Place, by: &Sum) -> bool {
        let sums = [Some(&mut self.outer), self.load.as_mut().map(|load| &mut load.address)];
        let mut fits = true;
        let mut is_index_lost = false;
        for (is_address, sum) in [false, true].into_iter().zip(sums) {
            let Some(sum) = sum else { continue };
            let before = *sum;
            if before.terms.iter().flatten().all(|term| !touches(term.0, place)) {
                continue;
            }
            *sum = Sum::constant(before.constant);
            for &(old, factor) in before.terms.iter().flatten() {
                if old == place {
                    if is_address && factor > 1 && by.constant != 0 && !by.is_constant() {
                        let by = (by.constant as i64).wrapping_mul(factor);
                        self.shift = (self.shift.0.wrapping_add(by), self.shift.1.saturating_add(1));
                    }
                    sum.constant = sum.constant.wrapping_add(by.constant.wrapping_mul(factor as u64));
                    for &(new, by_factor) in by.terms.iter().flatten() {
                        fits &= sum.add(new, factor.wrapping_mul(by_factor));
                    }
                    continue;
                }
                match moved(old, place, by) {
                    Some(new) => fits &= sum.add(new, factor),
                    None if is_address && factor > 1 => {
                        is_index_lost = true;
                        fits &= sum.add(old, factor);
                    }
                    None => fits = false,
                }
            }
        }
        // A loop counts it.
        if is_index_lost || (self.shift.1 > MAX_SHIFTS && self.index().is_some()) {
            fits &= self.close(None, false);
        }
        self.compared = self.compared.and_then(|(old, highest)| {
            let new = if old == place {
                by.single().filter(|single| single.1 == 0).map(|single| single.0)
            } else {
                moved(old, place, by)
            };
            new.map(|new| (new, highest))
        });
        fits
    }

    /// Nobody knows what is in `place` before: false if the target depends on it.
    fn kill(&mut self, place: Place) -> bool {
        let index = self.index();
        if index.is_some_and(|(index, _)| touches(index, place)) && !self.close(None, false) {
            return false;
        }
        self.compared = self.compared.filter(|compared| !touches(compared.0, place));
        !self.mentions(place)
    }

    fn mentions(&self, place: Place) -> bool {
        let sums = [Some(&self.outer), self.load.as_ref().map(|load| &load.address)];
        sums.into_iter().flatten().flat_map(|sum| sum.terms.iter().flatten()).any(|term| touches(term.0, place))
    }

    /// `register` is read from memory.
    fn load(&mut self, register: u8, instruction: &Instruction, width: u8, is_signed: bool) -> bool {
        let place = Place::Register(register);
        if !self.mentions(place) && self.compared.is_none_or(|compared| !touches(compared.0, place)) {
            return true;
        }
        let Some(address) = Sum::address(instruction) else { return self.kill(place) };
        let is_slot = matches!(instruction.memory_base(), Register::RSP | Register::RBP)
            && instruction.memory_index() == Register::None;
        let in_outer = self.outer.terms.iter().flatten().find(|term| term.0 == place).copied();
        if let Some((_, factor)) = in_outer
            && self.load.is_none()
            && !(is_slot && width == 8)
        {
            if factor != 1 || self.outer.terms.iter().flatten().any(|term| term.0 != place && touches(term.0, place)) {
                return false;
            }
            self.outer.terms.iter_mut().filter(|t| t.is_some_and(|t| t.0 == place)).for_each(|t| *t = None);
            self.outer.terms.sort_unstable();
            self.load = Some(Load { width, is_signed: is_signed || self.is_extended, address });
            self.compared = None;
            return true;
        }
        let Some(memory) = memory_place(instruction) else { return self.kill(place) };
        if width < 4 && !is_signed {
            self.narrow(place, width);
        }
        self.replace(place, &Sum::of(memory))
    }

    /// What is in `place` was extended from `width` bytes.
    fn narrow(&mut self, place: Place, width: u8) {
        if self.index().is_some_and(|index| index.0 == place) {
            let cap = (1u32 << (8 * u32::from(width))) - 1;
            self.cap = Some(self.cap.map_or(cap, |old| old.min(cap)));
        }
    }

    /// Goes back over an instruction. The answer, if it is found or can no longer be.
    pub(super) fn step_back(
        &mut self,
        instruction: &Instruction,
        infos: &mut InstructionInfoFactory,
    ) -> Option<Source> {
        let compared = self.bound_by(instruction);
        if !self.undo(instruction, infos) {
            return Some(Source::Unknown);
        }
        if let Some((place, highest)) = compared
            && self.index().is_some()
        {
            self.compared = Some((place, highest));
        }
        if let (Some((place, highest)), Some(index)) = (self.compared, self.index())
            && place == index.0
            && !self.close(Some(highest), true)
        {
            return Some(Source::Unknown);
        }
        self.answer()
    }

    /// The instruction sets the flags that the branch behind it asked for: what that says.
    fn bound_by(&mut self, instruction: &Instruction) -> Option<(Place, u32)> {
        let (condition, is_taken) = self.pending?;
        if instruction.rflags_modified() == 0 {
            return None;
        }
        self.pending = None;
        if !matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Sub) {
            return None;
        }
        let (place, width) = match instruction.op0_kind() {
            OpKind::Register => {
                let register = instruction.op0_register();
                (Place::Register(number(register)? as u8), register.size())
            }
            OpKind::Memory => (memory_place(instruction)?, instruction.memory_size().size()),
            _ => return None,
        };
        let mask = if width >= 8 { u64::MAX } else { (1u64 << (8 * width)) - 1 };
        let limit = instruction.try_immediate(1).ok()? & mask;
        use ConditionCode::{a, ae, b, be, e, g, ge, l, le, ne};
        let highest = match (condition, is_taken) {
            (be | le | e, true) | (a | g | ne, false) => limit,
            (b | l, true) | (ae | ge, false) => limit.checked_sub(1)?,
            _ => return None,
        };
        (highest < MAX_BOUND).then_some((place, highest as u32))
    }

    /// Puts in what an instruction defines. False if the target can no longer be told.
    fn undo(&mut self, instruction: &Instruction, infos: &mut InstructionInfoFactory) -> bool {
        let kinds = (instruction.op0_kind(), instruction.op1_kind());
        let register = |register: Register| number(register).map(|number| number as u8);
        let (to, width) = match kinds.0 {
            OpKind::Register => (register(instruction.op0_register()), instruction.op0_register().size()),
            _ => (None, 0),
        };
        let from = if kinds.1 == OpKind::Register { register(instruction.op1_register()) } else { None };
        let immediate = instruction.try_immediate(1).ok();
        let is_immediate = immediate.is_some();
        let immediate = immediate.unwrap_or(0);
        let is_wide = width >= 4;
        if let Some(to) = to {
            let place = Place::Register(to);
            let itself = Sum::of(place);
            let mnemonic = instruction.mnemonic();
            match (mnemonic, from) {
                (Mnemonic::Mov, Some(from)) if is_wide => return self.replace(place, &Sum::of(Place::Register(from))),
                (Mnemonic::Mov, None) if is_wide && is_immediate && instruction.op_count() == 2 => {
                    return self.replace(place, &Sum::constant(immediate));
                }
                (Mnemonic::Mov, None) if is_wide && kinds.1 == OpKind::Memory => {
                    return self.load(to, instruction, width as u8, false);
                }
                (Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd, Some(from)) if is_wide => {
                    if mnemonic == Mnemonic::Movzx {
                        self.narrow(place, instruction.op1_register().size() as u8);
                    } else if self.load.is_none() {
                        self.is_extended = true;
                    }
                    return self.replace(place, &Sum::of(Place::Register(from)));
                }
                (Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd, None) if is_wide => {
                    let width = instruction.memory_size().size() as u8;
                    return self.load(to, instruction, width, mnemonic != Mnemonic::Movzx);
                }
                (Mnemonic::Lea, _) if is_wide => {
                    return match Sum::address(instruction) {
                        Some(address) => self.replace(place, &address),
                        None => self.kill(place),
                    };
                }
                (Mnemonic::Add | Mnemonic::Sub, Some(from)) if is_wide && from != to => {
                    let mut sum = itself;
                    let factor = if mnemonic == Mnemonic::Add { 1 } else { -1 };
                    return sum.add(Place::Register(from), factor) && self.replace(place, &sum);
                }
                (Mnemonic::Add | Mnemonic::Sub, None) if is_wide && is_immediate => {
                    let by = immediate;
                    let by = if mnemonic == Mnemonic::Add { by } else { by.wrapping_neg() };
                    return self.replace(place, &Sum { constant: by, ..itself });
                }
                (Mnemonic::Inc, _) if is_wide => return self.replace(place, &Sum { constant: 1, ..itself }),
                (Mnemonic::Dec, _) if is_wide => return self.replace(place, &Sum { constant: u64::MAX, ..itself }),
                (Mnemonic::Shl, None) if is_wide && is_immediate && immediate < 8 => {
                    let sum = Sum { constant: 0, terms: [Some((place, 1 << immediate)), None, None] };
                    return self.replace(place, &sum);
                }
                (Mnemonic::And, None) if is_immediate && self.index().is_some_and(|index| index.0 == place) => {
                    let mask = immediate;
                    let highest = (mask < MAX_BOUND).then_some(mask as u32);
                    return self.close(highest, highest.is_some()) && !self.mentions(place);
                }
                (Mnemonic::Shr, None) if is_immediate && self.index().is_some_and(|index| index.0 == place) => {
                    let bits = (8 * width as u64).saturating_sub(immediate).min(63);
                    let highest = (1u64 << bits) - 1;
                    return self.close((highest < MAX_BOUND).then_some(highest as u32), false) && !self.mentions(place);
                }
                (Mnemonic::Xor, Some(from)) if is_wide && from == to => {
                    return self.replace(place, &Sum::constant(0));
                }
                (Mnemonic::Pop, _) => {
                    let top = Place::Memory { base: RSP, index: NONE, scale: 1, disp: 0 };
                    return self.move_stack(8) && self.replace(place, &Sum::of(top));
                }
                (Mnemonic::Push, _) => return self.push(Some(Sum::of(place))),
                _ => {}
            }
        }
        match instruction.mnemonic() {
            Mnemonic::Nop | Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Endbr64 => true,
            Mnemonic::Mov if kinds.0 == OpKind::Memory => match (memory_place(instruction), from) {
                (Some(memory), Some(from)) => self.replace(memory, &Sum::of(Place::Register(from))),
                (Some(memory), None) if is_immediate => self.replace(memory, &Sum::constant(immediate)),
                (Some(memory), None) => self.kill_exactly(memory),
                (None, _) => true,
            },
            Mnemonic::Cdqe => {
                self.is_extended |= self.load.is_none() && self.mentions(Place::Register(RAX));
                true
            }
            // What is used behind a call and not made there has survived it: but for what the call gives.
            Mnemonic::Call => self.kill(Place::Register(RAX)) && self.kill(Place::Register(RDX)),
            Mnemonic::Push => self.push(None),
            Mnemonic::Syscall => self.kill(Place::Register(RAX)),
            _ => {
                let info = infos.info_options(instruction, InstructionInfoOptions::NO_MEMORY_USAGE);
                let mut lives = true;
                for used in info.used_registers() {
                    let writes = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None);
                    if writes && let Some(number) = register(used.register()) {
                        lives &= self.kill(Place::Register(number));
                    }
                }
                if kinds.0 == OpKind::Memory
                    && info.op0_access() != OpAccess::Read
                    && let Some(memory) = memory_place(instruction)
                {
                    lives &= self.kill(memory);
                }
                lives
            }
        }
    }

    /// rsp was so many bytes lower before.
    fn move_stack(&mut self, by: i64) -> bool {
        self.replace(Place::Register(RSP), &Sum { constant: by as u64, ..Sum::of(Place::Register(RSP)) })
    }

    fn push(&mut self, what: Option<Sum>) -> bool {
        let top = Place::Memory { base: RSP, index: NONE, scale: 1, disp: 0 };
        let pushed = match what {
            Some(what) => self.replace(top, &what),
            None => self.kill_exactly(top),
        };
        pushed && self.move_stack(-8)
    }

    fn kill_exactly(&mut self, place: Place) -> bool {
        !self.mentions(place) || self.kill(place)
    }
}

/// A change of `changed` changes what `place` is.
fn touches(place: Place, changed: Place) -> bool {
    match (place, changed) {
        (Place::Memory { base, index, .. }, Place::Register(register)) => base == register || index == register,
        _ => place == changed,
    }
}

/// What `place` was before `changed` became `by`.
fn moved(place: Place, changed: Place, by: &Sum) -> Option<Place> {
    if !touches(place, changed) {
        return Some(place);
    }
    let (Place::Memory { base, index, scale, disp }, Place::Register(register)) = (place, changed) else { return None };
    if index == register {
        return match by.single() {
            Some((Place::Register(from), 0)) if base != register => {
                Some(Place::Memory { base, index: from, scale, disp })
            }
            _ => None,
        };
    }
    match by.single() {
        // Where a pointer goes on, it leads to something else each time.
        Some((Place::Register(from), constant)) if constant == 0 || matches!(from, RSP | RBP) => {
            Some(Place::Memory { base: from, index, scale, disp: disp.wrapping_add(constant as i64) })
        }
        None if by.is_constant() => {
            Some(Place::Memory { base: NONE, index, scale, disp: disp.wrapping_add(by.constant as i64) })
        }
        _ => None,
    }
}

fn memory_place(instruction: &Instruction) -> Option<Place> {
    if matches!(instruction.memory_segment(), Register::FS | Register::GS) {
        return None;
    }
    if instruction.is_ip_rel_memory_operand() {
        let disp = instruction.ip_rel_memory_address() as i64;
        return Some(Place::Memory { base: NONE, index: NONE, scale: 1, disp });
    }
    let of = |register: Register| match register {
        Register::None => Some(NONE),
        register => number(register).map(|number| number as u8),
    };
    let index = of(instruction.memory_index())?;
    Some(Place::Memory {
        base: of(instruction.memory_base())?,
        index,
        scale: if index == NONE { 1 } else { instruction.memory_index_scale() as u8 },
        disp: instruction.memory_displacement64() as i64,
    })
}

/// One block on the way, with its predecessors and how control comes from them.
pub(super) trait Ways {
    /// The instructions of a block, in order.
    fn instructions(&self, block: u32) -> Vec<Instruction>;
    /// The blocks that lead to a block; where a branch does, whether it is taken.
    fn predecessors(&self, block: u32) -> &[(u32, Option<bool>)];
    /// Control comes here from nowhere that is known.
    fn is_root(&self, block: u32) -> bool;
}

/// All queries of one procedure. What was found for one jump holds for the others.
pub(super) struct Origins<'w, W: Ways> {
    ways: &'w W,
    infos: InstructionInfoFactory,
    instructions: FxHashMap<u32, Vec<Instruction>>,
    numbers: FxHashMap<(u32, Query), u32>,
    nodes: Vec<Node>,
    /// So many instructions may still be gone back over.
    budget: usize,
}

/// A query at the end of a block: what it came to, and what it turned into at the ends of the blocks before.
#[derive(Default)]
struct Node {
    sources: Vec<Source>,
    before: Vec<u32>,
}

impl<'w, W: Ways> Origins<'w, W> {
    pub(super) fn new(ways: &'w W, budget: usize) -> Origins<'w, W> {
        Origins {
            ways,
            infos: InstructionInfoFactory::new(),
            instructions: FxHashMap::default(),
            numbers: FxHashMap::default(),
            nodes: Vec::new(),
            budget,
        }
    }

    /// What the budget has left.
    pub(super) fn left(&self) -> usize {
        self.budget
    }

    /// The instruction at the end of a block.
    pub(super) fn last(&mut self, block: u32) -> Option<Instruction> {
        let ways = self.ways;
        self.instructions.entry(block).or_insert_with(|| ways.instructions(block)).last().copied()
    }

    /// Where the target of the jump at the end of `block` comes from: distinct sources.
    pub(super) fn of_jump(&mut self, block: u32) -> Vec<Source> {
        let Some(query) = self.last(block).and_then(|jump| Query::of_jump(&jump)) else { return Vec::new() };
        if let Some(source) = query.answer() {
            return vec![source];
        }
        let mut pending = Vec::new();
        let first = self.node(block, query, &mut pending);
        while let Some((node, block, query)) = pending.pop() {
            self.follow(node, block, query, &mut pending);
        }
        let mut sources = Vec::new();
        let mut seen = vec![first];
        let mut is_seen = rustc_hash::FxHashSet::from_iter([first]);
        while let Some(node) = seen.pop() {
            self.budget = self.budget.saturating_sub(1);
            let Some(node) = self.nodes.get(node as usize) else { continue };
            sources.extend(&node.sources);
            seen.extend(node.before.iter().filter(|&&before| is_seen.insert(before)));
        }
        let mut distinct = Vec::new();
        for source in sources {
            if !distinct.contains(&source) {
                distinct.push(source);
            }
        }
        distinct
    }

    /// The number of a query at the end of a block; it is to be followed if it is new.
    fn node(&mut self, block: u32, query: Query, pending: &mut Vec<(u32, u32, Query)>) -> u32 {
        let new = self.nodes.len() as u32;
        let number = *self.numbers.entry((block, query.clone())).or_insert(new);
        if number == new {
            self.nodes.push(Node::default());
            pending.push((new, block, query));
        }
        number
    }

    fn follow(&mut self, node: u32, block: u32, mut query: Query, pending: &mut Vec<(u32, u32, Query)>) {
        let ways = self.ways;
        let instructions = self.instructions.entry(block).or_insert_with(|| ways.instructions(block));
        let mut source = None;
        // The last is the jump, or the branch that was come along.
        let skipped = usize::from(instructions.last().is_some_and(|last| last.op0_kind() == OpKind::NearBranch64))
            .max(usize::from(instructions.last().is_some_and(|last| last.mnemonic() == Mnemonic::Jmp)));
        for instruction in instructions.iter().rev().skip(skipped) {
            if self.budget == 0 {
                source = Some(query.clone().give_up());
                break;
            }
            self.budget -= 1;
            source = query.step_back(instruction, &mut self.infos);
            if source.is_some() {
                break;
            }
        }
        let mut found = Node::default();
        match source {
            Some(source) => found.sources.push(source),
            None => {
                let before = ways.predecessors(block);
                if ways.is_root(block) || before.is_empty() {
                    found.sources.push(query.clone().give_up());
                }
                let has_index = query.index().is_some();
                for &(block, is_taken) in before {
                    let condition = |is_taken| Some((self.last(block)?.condition_code(), is_taken));
                    let query = query.clone().through(is_taken.filter(|_| has_index).and_then(condition));
                    found.before.push(self.node(block, query, pending));
                }
            }
        }
        if let Some(node) = self.nodes.get_mut(node as usize) {
            *node = found;
        }
    }
}
