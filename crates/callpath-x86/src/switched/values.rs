//! The values that a hand-written procedure computes, followed through its code: words of memory by the address that
//! they were read from, and differences of such words from the CFA.
//!
//! It follows what is stored relative to rsp. Stores elsewhere are taken to leave the procedure's own frames alone.

use callpath_format::address::LinkAddr;

use crate::instruction::{Control, Instruction, Listing, Memory, Operation, Register};
use crate::state::{CALL_CLOBBERED, RSP};

/// A term, plus a number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Value {
    pub(super) term: Term,
    /// Bytes.
    pub(super) plus: i64,
}

/// An index of [`Terms`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Term(usize);

/// What a term stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Meaning {
    /// The CFA.
    Cfa,
    /// Zero.
    Zero,
    /// What the thread's own word (of the one segment that the procedure uses) held at first, or behind the call here.
    ThreadWord(u64),
    /// The word at this address.
    Word(Value),
    /// This term minus the CFA.
    AboveCfa(Term),
    /// What rsp became here.
    Base(u64),
}

/// All terms of a procedure, without duplicates.
pub(super) struct Terms(Vec<Meaning>);

impl Terms {
    pub(super) fn new() -> Terms {
        Terms(vec![Meaning::Cfa])
    }

    pub(super) fn meaning(&self, term: Term) -> Meaning {
        self.0.get(term.0).copied().unwrap_or(Meaning::Zero)
    }

    fn term(&mut self, meaning: Meaning) -> Term {
        let known = self.0.iter().position(|other| *other == meaning);
        Term(known.unwrap_or_else(|| {
            self.0.push(meaning);
            self.0.len() - 1
        }))
    }

    pub(super) fn value(&mut self, meaning: Meaning) -> Value {
        Value { term: self.term(meaning), plus: 0 }
    }

    /// `a - b`, if it has a name.
    fn difference(&mut self, a: Value, b: Value) -> Option<Value> {
        let plus = a.plus.checked_sub(b.plus)?;
        let term = match (self.meaning(a.term), self.meaning(b.term)) {
            _ if a.term == b.term => self.term(Meaning::Zero),
            (_, Meaning::Zero) => a.term,
            (_, Meaning::AboveCfa(of)) if of == a.term => Cfa::TERM,
            (Meaning::Word(_), Meaning::Cfa) => self.term(Meaning::AboveCfa(a.term)),
            _ => return None,
        };
        Some(Value { term, plus })
    }

    fn sum(&mut self, a: Value, b: Value) -> Option<Value> {
        let plus = a.plus.checked_add(b.plus)?;
        match (self.meaning(a.term), self.meaning(b.term)) {
            (_, Meaning::Zero) => Some(Value { term: a.term, plus }),
            (Meaning::Zero, _) => Some(Value { term: b.term, plus }),
            _ => None,
        }
    }
}

/// The CFA as a value.
pub(super) struct Cfa;

impl Cfa {
    pub(super) const TERM: Term = Term(0);

    pub(super) fn plus(plus: i64) -> Value {
        Value { term: Cfa::TERM, plus }
    }
}

/// What is known between two instructions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct State {
    pub(super) registers: [Option<Value>; 16],
    /// Eight bytes at an address, and what they hold.
    pub(super) slots: Vec<(Value, Value)>,
    thread_word: Option<Value>,
    /// rsp may be on another stack than the one that the procedure was called on.
    pub(super) is_switched: bool,
}

/// More slots are not followed.
const MOST_SLOTS: usize = 32;
/// More instructions of a procedure that is called are not read.
const MOST_CALLED: usize = 32;
const WORD_BYTES: u16 = 8;

impl State {
    pub(super) fn at_entry(terms: &mut Terms) -> State {
        let mut registers = [None; 16];
        registers[RSP] = Some(Cfa::plus(-8));
        let thread_word = Some(terms.value(Meaning::ThreadWord(0)));
        State { registers, slots: Vec::new(), thread_word, is_switched: false }
    }

    pub(super) fn rsp(&self) -> Option<Value> {
        self.registers[RSP]
    }

    /// The thread's own word, if it is known.
    pub(super) fn thread_word(&self) -> Option<Value> {
        self.thread_word
    }

    /// Keeps what both know.
    pub(super) fn merge(&mut self, other: &State) {
        for (mine, its) in self.registers.iter_mut().zip(&other.registers) {
            *mine = mine.filter(|mine| Some(*mine) == *its);
        }
        self.slots.retain(|slot| other.slots.contains(slot));
        self.thread_word = self.thread_word.filter(|mine| Some(*mine) == other.thread_word);
        self.is_switched |= other.is_switched;
    }

    fn read(&self, terms: &mut Terms, memory: &Memory) -> Option<Value> {
        if memory.bytes != WORD_BYTES {
            return None;
        }
        if memory.has_segment {
            return self.thread_word;
        }
        let at = self.address(memory)?;
        let kept = self.slots.iter().find(|(place, _)| *place == at).map(|(_, value)| *value);
        Some(kept.unwrap_or_else(|| terms.value(Meaning::Word(at))))
    }

    /// The address of a memory operand without an index.
    fn address(&self, memory: &Memory) -> Option<Value> {
        if memory.has_segment || memory.index != Register::NONE {
            return None;
        }
        let base = self.registers[memory.base.general64()?]?;
        Some(Value { plus: base.plus.checked_add(memory.displacement)?, ..base })
    }

    fn write(&mut self, memory: &Memory, value: Option<Value>) {
        if memory.has_segment {
            self.thread_word = value.filter(|_| memory.bytes == WORD_BYTES);
            return;
        }
        let Some(at) = self.address(memory) else { return };
        let (from, to) = (at.plus, at.plus.saturating_add(memory.bytes.max(1).into()));
        let is_apart =
            |place: &Value| place.term != at.term || place.plus.saturating_add(8) <= from || to <= place.plus;
        self.slots.retain(|(place, _)| is_apart(place));
        if let Some(value) = value.filter(|_| memory.bytes == WORD_BYTES && self.slots.len() < MOST_SLOTS) {
            self.slots.push((at, value));
        }
    }

    /// The operand that is no destination: a register, a constant, or memory.
    fn source(&self, terms: &mut Terms, instruction: &Instruction) -> Option<Value> {
        let is_to_memory = instruction.writes_memory_operand();
        let register = instruction.register(usize::from(!is_to_memory || instruction.register(0) == Register::NONE));
        if let Some(register) = register.general64() {
            return self.registers[register];
        }
        if let Some(number) = instruction.immediate() {
            let zero = terms.value(Meaning::Zero);
            return Some(Value { plus: number as i64, ..zero });
        }
        instruction.memory().filter(|_| !is_to_memory).and_then(|memory| self.read(terms, &memory))
    }
}

/// Where an instruction is.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) start: u64,
    pub(super) next: u64,
}

/// What an instruction does to a state. `bytes_from` gives the code from an address on.
pub(super) fn apply<'c>(
    state: &mut State,
    terms: &mut Terms,
    (at, instruction): (At, &Instruction),
    bytes_from: &dyn Fn(LinkAddr) -> Option<&'c [u8]>,
) {
    let memory = instruction.memory();
    let to = instruction.register(0).general64();
    let constant = |terms: &mut Terms, plus: i64| Value { plus, ..terms.value(Meaning::Zero) };
    // What a register becomes.
    let result = match instruction.operation() {
        Operation::Call => return call(state, terms, (at, instruction), bytes_from),
        Operation::Push | Operation::Pop => return push_or_pop(state, terms, instruction),
        Operation::Compare | Operation::Test | Operation::Nop | Operation::EndBranch => return,
        Operation::Move if memory.is_some() && instruction.writes_memory_operand() => {
            let value = state.source(terms, instruction);
            if let Some(memory) = &memory {
                state.write(memory, value);
            }
            return;
        }
        Operation::Move => state.source(terms, instruction),
        Operation::LoadAddress => match (&memory, instruction.beside_code(at.next)) {
            (_, Some(address)) => Some(constant(terms, address as i64)),
            (Some(memory), None) => state.address(memory),
            _ => None,
        },
        Operation::Add | Operation::Subtract if to.is_some() => {
            let (old, by) = (to.and_then(|to| state.registers[to]), state.source(terms, instruction));
            let is_sum = instruction.operation() == Operation::Add;
            old.zip(by).and_then(|(old, by)| if is_sum { terms.sum(old, by) } else { terms.difference(old, by) })
        }
        Operation::And if to == Some(RSP) => Some(terms.value(Meaning::Base(at.start))),
        Operation::Xor if instruction.is_clearing() => Some(constant(terms, 0)),
        _ => None,
    };
    if let Some(memory) = memory.filter(|_| instruction.writes_memory_operand()) {
        state.write(&memory, None);
    }
    for register in instruction.writes().general() {
        state.registers[register] = result.filter(|_| to == Some(register));
    }
    if let Some(rsp) = state.rsp().filter(|_| instruction.stack_change() != 0) {
        state.registers[RSP] = Some(Value { plus: rsp.plus.saturating_add(instruction.stack_change()), ..rsp });
    }
}

fn push_or_pop(state: &mut State, terms: &mut Terms, instruction: &Instruction) {
    let rsp = state.rsp();
    let moved = rsp.map(|rsp| Value { plus: rsp.plus.saturating_add(instruction.stack_change()), ..rsp });
    let register = instruction.register(0).general64();
    if instruction.operation() == Operation::Pop {
        let at = rsp.and_then(|at| state.slots.iter().find(|(place, _)| *place == at).map(|(_, value)| *value));
        let value = at.or_else(|| rsp.map(|rsp| terms.value(Meaning::Word(rsp))));
        if let Some(register) = register {
            state.registers[register] = value;
        }
    } else if let Some(to) = moved {
        let value = register.and_then(|register| state.registers[register]);
        state.slots.retain(|(place, _)| *place != to);
        state.slots.extend(value.filter(|_| state.slots.len() < MOST_SLOTS).map(|value| (to, value)));
    }
    if register != Some(RSP) || instruction.operation() == Operation::Push {
        state.registers[RSP] = moved;
    }
}

/// A call keeps the words above rsp. A short procedure that is called directly keeps the registers that it does not write.
fn call<'c>(
    state: &mut State,
    terms: &mut Terms,
    (at, instruction): (At, &Instruction),
    bytes_from: &dyn Fn(LinkAddr) -> Option<&'c [u8]>,
) {
    let target = Some(instruction).filter(|it| it.control() == Control::Call).map(|it| it.target(at.next));
    let written = target.and_then(|target| written_by(bytes_from(LinkAddr(target))?, target));
    for register in CALL_CLOBBERED.into_iter().chain([3, 5, 12, 13, 14, 15]) {
        let is_kept = match written {
            Some(written) => written >> register & 1 == 0,
            None => !CALL_CLOBBERED.contains(&register),
        };
        if !is_kept {
            state.registers[register] = None;
        }
    }
    state.thread_word =
        if written.is_some() { state.thread_word } else { Some(terms.value(Meaning::ThreadWord(at.start))) };
    if let Some(rsp) = state.rsp() {
        state.slots.retain(|(place, _)| place.term != rsp.term || place.plus >= rsp.plus);
    }
}

/// The general-purpose registers that the code up to the first return writes, a bit each, if it is short and leaves rsp and
/// the thread's own word alone. A call in it is one that does not return, and is jumped over.
fn written_by(code: &[u8], start: u64) -> Option<u16> {
    let mut written = 0;
    let mut jumped_to = None;
    for (at, instruction) in Listing::new(code, start).take(MOST_CALLED) {
        let next = at.wrapping_add(instruction.len().into());
        match instruction.control() {
            Control::Return => return Some(written),
            Control::Branch => jumped_to = Some(instruction.target(next)),
            Control::Call if jumped_to == Some(next) => continue,
            Control::Next => {}
            _ => return None,
        }
        let is_thread_word = instruction.memory().is_some_and(|memory| memory.has_segment);
        let writes = instruction.writes().general_bits();
        if writes >> RSP & 1 != 0 || is_thread_word && instruction.writes_memory_operand() {
            return None;
        }
        written |= writes;
    }
    None
}
