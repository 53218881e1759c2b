//! Recipes for hand-written procedures that switch to another stack before they call others, and back: their callers are
//! found on the stack that they were called on. What a procedure keeps, and where, is read from its code.
//!
//! ```text
//! Go's runtime.asmcgocall        mov rdx, rsp                   rdx = CFA - 8
//!                                mov rsp, [rsi+0x38]            CFA = rdx + 8
//!                                sub rsp, 0x40
//!                                mov [rsp+0x30], rdi            the goroutine
//!                                mov rdi, [rdi+8]               the end of its stack
//!                                sub rdi, rdx
//!                                mov [rsp+0x28], rdi
//!                                call rax                       CFA = *(*(rsp+0x30)+8) - *(rsp+0x28) + 8
//! ```
//!
//! A procedure that does otherwise gets no recipes.

mod expressions;
mod values;

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::{Cfa as CfaRule, Recipe};

use crate::instruction::{Control, Instruction, Listing, Operation};
use crate::recipe::{Expressions, dwarf};
use crate::state::{CALLEE_SAVED, RSP};
use expressions::{Arguments, Chain, Depth, Place};
use values::{At, Cfa, Meaning, State, Term, Terms, Value, apply};

/// How the procedure's caller is found while the procedure runs on another stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// It calls code that preserves the registers of C's ABI, and keeps its stack pointer in a register or on the new stack: as it is, or as the distance to the end of its
    /// stack, where a record has that (what is called may move the stack).
    Kept,
    /// The thread's own word points to a record, and others from there lead to the stack pointer. In code that the
    /// procedure calls, this register, in the processor's order, holds the thread's own word.
    ByThread(usize),
    /// By copies of the procedure's three arguments on the new stack: the second one points to a little above them
    /// on the stack that the procedure was called on. It is called once, and returns here.
    ByArguments(LinkAddr),
}

/// A procedure's code.
pub struct Switching<'c> {
    /// Its bytes.
    pub code: &'c [u8],
    /// Its first address.
    pub start: LinkAddr,
    /// How its caller is found.
    pub finding: Finding,
    /// Where it is not found, the path begins here.
    pub begins_stack: bool,
}

/// Recipes of instructions, ascending.
#[derive(Default)]
pub struct SwitchedRows {
    /// The code of each, and its recipe.
    pub rows: Vec<(Range<LinkAddr>, Recipe)>,
    /// The bytes of their expressions.
    pub expressions: Vec<u8>,
}

/// Longer procedures are not followed.
const MOST_INSTRUCTIONS: usize = 512;
/// Nor are those in which more is learned each time.
const MOST_PASSES: usize = 8;

struct Procedure<'c> {
    instructions: Vec<(At, Instruction)>,
    finding: Finding,
    begins_stack: bool,
    /// By instruction, what is known in front of it.
    states: Vec<Option<State>>,
    terms: Terms,
    /// What was loaded into rsp to switch back, and the CFA minus that.
    back: Option<(Value, i64)>,
    bytes_from: &'c dyn Fn(LinkAddr) -> Option<&'c [u8]>,
}

/// The recipes for `of`. `bytes_from` gives the code from an address on.
pub fn switched_rows<'c>(of: &Switching<'c>, bytes_from: &'c dyn Fn(LinkAddr) -> Option<&'c [u8]>) -> SwitchedRows {
    let listing = Listing::new(of.code, of.start.0).take(MOST_INSTRUCTIONS);
    let with_next = |(start, it): (u64, Instruction)| (At { start, next: start.wrapping_add(it.len().into()) }, it);
    let instructions: Vec<_> = listing.map(with_next).collect();
    let states = vec![None; instructions.len()];
    let (terms, finding, begins_stack) = (Terms::new(), of.finding, of.begins_stack);
    let mut procedure = Procedure { instructions, finding, begins_stack, states, terms, back: None, bytes_from };
    procedure.follow();
    procedure.rows()
}

impl Procedure<'_> {
    fn index_of(&self, address: u64) -> Option<usize> {
        self.instructions.binary_search_by_key(&address, |(at, _)| at.start).ok()
    }

    /// Follows control from the entry, in the code's order, until nothing changes: in front of an instruction, what is known
    /// on all ways to it.
    fn follow(&mut self) {
        let entry = State::at_entry(&mut self.terms);
        // By instruction, the states that control has brought there, each with where it came from.
        let mut arriving: Vec<Vec<(usize, State)>> = vec![Vec::new(); self.instructions.len()];
        for _ in 0..MOST_PASSES {
            let before = self.states.clone();
            self.back = None;
            for index in 0..self.instructions.len() {
                let ways = arriving.get(index).into_iter().flatten().map(|(_, state)| state);
                let ways = ways.chain((index == 0).then_some(&entry));
                let known = ways.cloned().reduce(|mut all, way| {
                    all.merge(&way);
                    all
                });
                if let Some(state) = known {
                    self.go_on(index, state, &mut arriving);
                }
            }
            if self.states == before {
                return;
            }
        }
        self.states.iter_mut().for_each(|state| *state = None);
    }

    /// Takes a state through an instruction, to where control goes from there.
    fn go_on(&mut self, index: usize, mut state: State, arriving: &mut [Vec<(usize, State)>]) {
        let (Some(known), Some(&(at, instruction))) = (self.states.get_mut(index), self.instructions.get(index)) else {
            return;
        };
        *known = Some(state.clone());
        self.apply(&mut state, index);
        let target = || self.index_of(instruction.target(at.next));
        let (next, target) = match instruction.control() {
            Control::Return | Control::JumpIndirect | Control::Stop => (None, None),
            Control::Jump => (None, target()),
            Control::Branch => (Some(index + 1), target()),
            _ => (Some(index + 1), None),
        };
        for to in next.into_iter().chain(target) {
            let Some(ways) = arriving.get_mut(to) else { continue };
            match ways.iter_mut().find(|(from, _)| *from == index) {
                Some((_, way)) => way.clone_from(&state),
                None => ways.push((index, state.clone())),
            }
        }
    }

    fn apply(&mut self, state: &mut State, index: usize) {
        let Some((at, instruction)) = self.instructions.get(index) else { return };
        apply(state, &mut self.terms, (*at, instruction), self.bytes_from);
        if !instruction.loads_stack_pointer() {
            return;
        }
        let loaded = state.rsp();
        let is_own = loaded.is_some_and(|loaded| loaded.term == Cfa::TERM);
        match (is_own, state.is_switched) {
            (true, _) => state.is_switched = false,
            (false, false) => state.is_switched = true,
            // Not where it was: back, if it returns from there.
            (false, true) => {
                let left = self.left_until_return(index + 1);
                state.registers[RSP] = left.map(|left: i64| Cfa::plus(left.wrapping_neg()));
                state.is_switched = left.is_none();
                self.back = loaded.zip(left);
            }
        }
        if loaded.is_none() && state.is_switched {
            state.registers[RSP] = Some(self.terms.value(Meaning::Base(at.start)));
        }
    }

    /// How many bytes are popped from an instruction on by the time that the procedure has returned.
    fn left_until_return(&self, from: usize) -> Option<i64> {
        let mut left = 0i64;
        let mut jumped: Option<(u64, i64)> = None;
        for (at, instruction) in self.instructions.get(from..)? {
            if jumped.is_some_and(|(to, then)| to < at.start || to == at.start && then != left) {
                return None;
            }
            jumped = jumped.filter(|(to, _)| *to != at.start);
            match instruction.control() {
                Control::Return => return (jumped.is_none()).then_some(left + instruction.stack_change()),
                Control::Branch if jumped.is_none() => jumped = Some((instruction.target(at.next), left)),
                Control::Next | Control::Call | Control::CallIndirect => {}
                _ => return None,
            }
            let is_rsp = instruction.register(0).general64() == Some(RSP);
            left += match instruction.operation() {
                Operation::Call => 0,
                Operation::Add if is_rsp => instruction.immediate()? as i64,
                Operation::Subtract if is_rsp => (instruction.immediate()? as i64).wrapping_neg(),
                _ if is_rsp && instruction.writes().has_general(RSP) => return None,
                _ => instruction.stack_change(),
            };
        }
        None
    }

    fn rows(&self) -> SwitchedRows {
        let mut expressions = Expressions::default();
        let mut rows: Vec<(Range<LinkAddr>, Recipe)> = Vec::new();
        for (index, (at, _)) in self.instructions.iter().enumerate() {
            let Some(state) = self.states.get(index).and_then(Option::as_ref) else { continue };
            let is_own = state.rsp().is_some_and(|rsp| rsp.term == Cfa::TERM);
            // Up to the switch, the frame is as the program describes it.
            if is_own && !state.is_switched && rows.is_empty() {
                continue;
            }
            let Some(recipe) = self.recipe(index, state, &mut expressions) else { continue };
            rows.push((LinkAddr(at.start)..LinkAddr(at.next), recipe));
        }
        SwitchedRows { rows, expressions: expressions.bytes }
    }

    fn recipe(&self, index: usize, state: &State, expressions: &mut Expressions) -> Option<Recipe> {
        let cfa = self.kept(index, state).or_else(|| {
            let code = match self.finding {
                _ if !state.is_switched => None,
                Finding::Kept => self.distant(index, state),
                Finding::ByThread(register) => self.by_thread(index, register),
                Finding::ByArguments(returned) => self.by_arguments(index, returned),
            };
            code.and_then(|code| expressions.intern(code)).map(CfaRule::Expression)
        })?;
        let is_switched = state.is_switched;
        let begins_stack = is_switched && self.begins_stack;
        Some(Recipe { switches_stack: is_switched, begins_stack, ..Recipe::with_cfa(cfa) })
    }

    fn is_call(&self, index: usize) -> bool {
        self.instructions.get(index).is_some_and(|(_, it)| it.operation() == Operation::Call)
    }

    /// The registers that have their values as long as the frame stands in front of an instruction, or behind the call that
    /// it is. What Go's procedures do with rbp is not described: behind a call of one, no register is believed.
    fn registers(&self, index: usize) -> impl Iterator<Item = usize> {
        let survives: &[usize] = if self.finding == Finding::Kept { &CALLEE_SAVED } else { &[] };
        let is_call = self.is_call(index);
        (0..16).filter(move |register| *register != RSP && (!is_call || survives.contains(register)))
    }

    /// Where a value is.
    fn places<'s>(&'s self, index: usize, state: &'s State) -> impl Iterator<Item = (Place, Value)> + 's {
        let registers = self.registers(index);
        let registers = registers.filter_map(|it| Some((Place::Register(it), state.registers[it]?)));
        let rsp = state.rsp();
        let above = move |(place, value): &(Value, Value)| {
            let above = rsp.filter(|rsp| rsp.term == place.term)?;
            Some((Place::AboveRsp(place.plus.checked_sub(above.plus).filter(|above| *above >= 0)?), *value))
        };
        registers.chain(state.slots.iter().filter_map(above))
    }

    /// `CFA = reg + disp` or `CFA = *(rsp + disp) + add`
    fn kept(&self, index: usize, state: &State) -> Option<CfaRule> {
        let displacement = |value: i64| i32::try_from(value).ok();
        if let Some(rsp) = state.rsp().filter(|rsp| rsp.term == Cfa::TERM) {
            return Some(CfaRule::Register { reg: dwarf(RSP), disp: displacement(rsp.plus.checked_neg()?)? });
        }
        let (place, value) = self.places(index, state).find(|(_, value)| value.term == Cfa::TERM)?;
        let add = displacement(value.plus.checked_neg()?)?;
        Some(match place {
            Place::Register(register) => CfaRule::Register { reg: dwarf(register), disp: add },
            Place::AboveRsp(above) => CfaRule::Deref { reg: dwarf(RSP), disp: displacement(above)?, add },
        })
    }

    /// By the distance to the end of its stack.
    fn distant(&self, index: usize, state: &State) -> Option<Vec<u8>> {
        let end_of = |value: Value| match self.terms.meaning(value.term) {
            Meaning::AboveCfa(end) => Some(end),
            _ => None,
        };
        self.places(index, state).find_map(|(distance, value)| {
            let Meaning::Word(end_at) = self.terms.meaning(end_of(value)?) else { return None };
            let (record, of) = self.places(index, state).find(|(_, of)| of.term == end_at.term)?;
            let end_at = end_at.plus.checked_sub(of.plus)?;
            Depth { record, end_at, distance, plus: value.plus }.expression()
        })
    }

    /// The offsets of the words that lead from the thread's own word to a value.
    fn words_to(&self, value: Value) -> Option<Vec<i64>> {
        const MOST: usize = 4;
        let (mut words, mut at) = (Vec::new(), value);
        while let Meaning::Word(from) = self.terms.meaning(at.term) {
            if at.plus != 0 || words.len() == MOST {
                return None;
            }
            words.insert(0, from.plus);
            at = Value { plus: 0, ..from };
        }
        matches!(self.terms.meaning(at.term), Meaning::ThreadWord(_)).then_some(words)
    }

    /// By the records of the thread, if the register holds the thread's own word where the procedure calls others.
    fn by_thread(&self, index: usize, register: usize) -> Option<Vec<u8>> {
        let (to, plus) = self.back?;
        let words = self.words_to(to)?;
        let calls = (0..self.instructions.len()).filter(|call| self.is_call(*call));
        let mut states = calls.filter_map(|call| self.states.get(call)?.as_ref()).filter(|state| state.is_switched);
        let (state, is_only) = (states.next()?, states.next().is_none());
        let own = state.registers.get(register).copied().flatten()?;
        // It holds that from the switch on, and what is called leaves it so.
        let here = self.states.get(index)?.as_ref()?.registers.get(register).copied().flatten();
        if !is_only || Some(own) != state.thread_word() || here != Some(own) {
            return None;
        }
        Chain { register, words: &words, back: &self.words_to(own)?, plus }.expression()
    }

    /// By its arguments.
    fn by_arguments(&self, index: usize, returned: LinkAddr) -> Option<Vec<u8>> {
        const ARGUMENTS: [i64; 3] = [0, 8, 16];
        let state = self.states.get(index)?.as_ref()?;
        let is_argument = |term: Term, plus: i64| self.terms.meaning(term) == Meaning::Word(Cfa::plus(plus));
        let copy = |argument: i64| {
            let mut places = self.places(index, state);
            places.find(|(_, value)| value.plus == 0 && is_argument(value.term, argument)).map(|(place, _)| place)
        };
        let [first, second, third] = ARGUMENTS.map(copy);
        let (at, _) = self.instructions.get(index)?;
        let from = |pc: u64| returned.0.wrapping_sub(pc) as i64;
        let return_address = [from(at.start), from(if self.is_call(index) { at.next } else { at.start })];
        Arguments { copies: [first?, second?, third?], return_address }.expression()
    }
}
