//! Speculative inference: for code whose beginning has no known state, learns what must have held there from where it
//! leads.
//!
//! This is the return-state check and repair of Tallent et al. 2009, section 2.2, reversed: at a return the return
//! address is at rsp and the caller's registers are in place; where control reaches code whose frame is known, that
//! frame holds. Values are followed from the start by name (rsp at the start, the word at `[rsp+16]`), so each such
//! point is an equation for the values at the start.

use callpath_format::recipe::{Cfa, Recipe, Rule};
use callpath_format::register::Reg;

use super::constraint::Fact;
use crate::instruction::{Instruction, Operation, Register, RegisterSet};
use crate::recipe::dwarf;
use crate::state::{CALLEE_SAVED, RAX, RSP, State};
use crate::value::{Base, RETURN_ADDRESS, StackAddress, Value};

use super::knowledge::Knowledge;
use super::pool::UNKNOWN;
use super::purpose::{BehindCall, Edge, Purpose, Reached};

/// A speculation: control is followed, and what it reaches constrains the state at the start.
pub(crate) struct Inference {
    /// Code that is reachable only if a call returns is not followed.
    is_strict: bool,
    /// Nor is any code after a call.
    ends_at_calls: bool,
    /// Where control leaves to an unknown target with the stack as it was at the start, the procedure ends.
    ends_at_once: bool,
    limit: u32,
    spent: u32,
    /// How many more instructions are followed.
    left: u32,
    /// States may still lose information: nothing is learned yet.
    is_unsettled: bool,
    /// Values of bases: `(base, offset from the CFA)`, and whether a return is the evidence.
    bases: Vec<(Base, i32, bool)>,
    /// Contents of slots: `(base, offset, value)`, and whether a return is the evidence.
    slots: Vec<(Base, i32, Value, bool)>,
    /// Registers that held the caller's values.
    in_place: Vec<usize>,
    is_outermost: bool,
    learns_from_return: bool,
    /// Two equations contradict each other.
    is_contradictory: bool,
    /// At least one equation was found.
    pub(crate) has_learned: bool,
    /// Control reaches bytes that are not an instruction of a program.
    pub(crate) meets_garbage: bool,
    /// Control reaches code whose state is known only if a call returns.
    pub(crate) joins_likely_code: bool,
    /// A callee-saved register was used before it was saved: no procedure begins like this.
    pub(crate) uses_saved: bool,
    /// rsp at the first call, from its value at the start: bytes. Compilers make rsp a multiple of 16 there.
    call_offset: Option<i32>,
}

/// The registers with values that a procedure receives: the callee-saved ones, and rax.
const ASKED_FOR: RegisterSet = {
    let mut set = 1 << RAX;
    let mut index = 0;
    while index < CALLEE_SAVED.len() {
        set |= 1 << CALLEE_SAVED[index];
        index += 1;
    }
    RegisterSet(set)
};

/// Whether the instruction reads a callee-saved register, other than to save it.
fn uses_saved(state: &State, instruction: &Instruction) -> bool {
    let is_untouched = |register: usize| {
        ASKED_FOR.has_general(register)
            && state.get(register) == Value::Stack { base: Base::of_register(register), offset: 0 }
    };
    match instruction.operation() {
        Operation::Push | Operation::Pop | Operation::Leave | Operation::Enter | Operation::Call => return false,
        // A save.
        Operation::Move
            if instruction.writes_memory_operand()
                && instruction
                    .memory()
                    .and_then(|memory| memory.base.general())
                    .is_some_and(|base| state.get(base).base().is_some() && !is_untouched(base)) =>
        {
            return false;
        }
        _ => {}
    }
    // Variadic procedures read al; landing pads receive the exception in rax.
    if instruction.register(0) == Register::AL || instruction.register(1) == Register::AL {
        return false;
    }
    RegisterSet(instruction.reads().0 & ASKED_FOR.0).general().any(is_untouched)
}

impl Inference {
    /// Follows at most `limit` instructions; if `is_strict`, not those reachable only after a call.
    pub(super) fn new(limit: u32, is_strict: bool) -> Inference {
        Inference {
            is_strict,
            ends_at_calls: false,
            ends_at_once: false,
            limit,
            spent: 0,
            left: limit,
            is_unsettled: false,
            bases: Vec::new(),
            slots: Vec::new(),
            in_place: Vec::new(),
            is_outermost: false,
            learns_from_return: false,
            is_contradictory: false,
            has_learned: false,
            meets_garbage: false,
            joins_likely_code: false,
            uses_saved: false,
            call_offset: None,
        }
    }

    /// For all code that control reaches, where states must settle before anything is learned. If `ends_at_calls`, code
    /// after a call is not followed.
    pub(super) fn unsettled(limit: u32, ends_at_calls: bool) -> Inference {
        Inference { ends_at_calls, is_unsettled: true, ..Inference::new(limit, false) }
    }

    /// If `ends_at_once`: control comes to the start with the stack of the procedure's entry, too. A jump from there to an unknown
    /// target is a tail call then, whatever the stack was by other ways.
    pub(super) fn may_end_at_once(self, ends_at_once: bool) -> Inference {
        Inference { ends_at_once, ..self }
    }

    /// Ends the settling of states: from here on equations are learned, in as many instructions again.
    pub(crate) fn settle(&mut self) {
        self.is_unsettled = false;
        self.spent += self.limit - self.left;
        self.left = self.limit;
    }

    /// How many instructions were followed.
    pub(crate) fn followed(&self) -> u32 {
        self.spent + self.limit - self.left
    }

    /// Takes an instruction into account. Returns whether to continue after it.
    #[inline]
    fn allow(&mut self, state: &State, instruction: &Instruction) -> bool {
        self.left = self.left.saturating_sub(1);
        self.meets_garbage |= instruction.is_privileged();
        self.uses_saved = self.uses_saved || uses_saved(state, instruction);
        self.left > 0 && !self.is_contradictory
    }

    /// Control leaves to an unknown target: if the stack and the callee-saved registers are restored, the procedure
    /// ends there.
    fn suspect_end(&mut self, state: &State) {
        let is_restored = |register: usize| match state.get(register) {
            Value::Stack { base, offset: 0 } => base == Base::of_register(register),
            Value::Content { plus: 0, .. } => true,
            _ => false,
        };
        let has_popped = match state.get(RSP) {
            Value::Stack { base, offset } => {
                base == Base::of_register(RSP) && (offset > 0 || self.ends_at_once && offset == 0)
            }
            _ => false,
        };
        if has_popped && CALLEE_SAVED.into_iter().all(is_restored) {
            self.learn(state, &Recipe::with_cfa(Cfa::Register { reg: Reg::RSP, disp: 8 }));
        }
    }

    /// Takes a call into account.
    fn note_call(&mut self, state: &State) {
        if let Value::Stack { base, offset } = state.get(RSP)
            && base == Base::of_register(RSP)
        {
            self.call_offset.get_or_insert(offset);
        }
    }

    /// rsp at the first call, from its value at the start: bytes.
    pub(crate) fn call_offset(&self) -> Option<i32> {
        self.call_offset
    }

    /// Whether the stack would be aligned at the first call if a procedure began here.
    pub(crate) fn is_aligned_as_entry(&self) -> bool {
        self.call_offset.is_some_and(|offset| offset.rem_euclid(16) == 8)
    }

    /// The procedure returns, or hands over to another one, with rsp `below` bytes below the CFA.
    fn learn_end(&mut self, state: &State, below: i32) {
        self.learns_from_return = true;
        self.learn(state, &Recipe::with_cfa(Cfa::Register { reg: Reg::RSP, disp: below }));
        self.learns_from_return = false;
    }

    /// Learns that `recipe` holds in `state`. Evidence of returns overrides that of jumps into known code: compilers
    /// let an impossible case lead anywhere.
    fn learn(&mut self, state: &State, recipe: &Recipe) {
        if self.is_unsettled {
            return;
        }
        let value_of = |reg: Reg| state.get((0..16).find(|&register| dwarf(register) == reg).unwrap_or(RSP));
        match recipe.cfa {
            Cfa::Outermost => {
                self.is_outermost = true;
                self.has_learned = true;
                return;
            }
            Cfa::Register { reg, disp } => match value_of(reg) {
                Value::Stack { base, offset } => {
                    let from = -i64::from(disp) - i64::from(offset);
                    match state.pivot {
                        Some((made, held)) if made == base => self.content_is(held, from),
                        _ => self.base_is(base, from),
                    }
                }
                held @ Value::Content { .. } => self.content_is(held, -i64::from(disp)),
                _ => return,
            },
            Cfa::Deref { reg, disp, add } => match value_of(reg).plus(disp.into()) {
                Value::Stack { base, offset } => self.slot_held(base, offset, Value::cfa(add.wrapping_neg())),
                _ => return,
            },
            Cfa::Unknown | Cfa::Expression(_) => return,
        }
        self.has_learned = true;
        for register in CALLEE_SAVED {
            match recipe.registers[dwarf(register).index()] {
                Rule::Same => self.held(state.get(register), register),
                Rule::AtCfa(offset) => {
                    for (base, from, _) in self.bases.clone() {
                        if let Some(offset) = offset.checked_sub(from) {
                            self.held(state.load(StackAddress::new(base, offset)), register);
                        }
                    }
                }
                Rule::AtRegister(reg, disp) => {
                    if let Value::Stack { base, offset } = value_of(reg).plus(disp.into()) {
                        self.held(state.load(StackAddress::new(base, offset)), register);
                    }
                }
                _ => {}
            }
        }
    }

    /// Learns that `value` is the caller's value of a register.
    fn held(&mut self, value: Value, register: usize) {
        match value {
            Value::Stack { base, offset: 0 }
                if base == Base::of_register(register) && !self.in_place.contains(&register) =>
            {
                self.in_place.push(register);
            }
            Value::Content { base, offset, plus: 0 } => self.slot_held(base, offset, Value::Caller(register as u8)),
            _ => {}
        }
    }

    /// Learns that the content of a slot, plus something, is `CFA + from`.
    fn content_is(&mut self, held: Value, from: i64) {
        if let Value::Content { base, offset, plus } = held
            && let Ok(from) = i32::try_from(from - i64::from(plus))
        {
            self.slot_held(base, offset, Value::cfa(from));
        }
    }

    fn base_is(&mut self, base: Base, offset: i64) {
        let Ok(offset) = i32::try_from(offset) else { return };
        let is_sure = self.learns_from_return;
        match self.bases.iter_mut().find(|known| known.0 == base) {
            Some(known) if known.1 == offset => known.2 |= is_sure,
            Some(known) if is_sure && !known.2 => *known = (base, offset, true),
            Some(known) if known.2 && !is_sure => {}
            Some(_) => self.is_contradictory = true,
            None => self.bases.push((base, offset, is_sure)),
        }
    }

    fn slot_held(&mut self, base: Base, offset: i32, value: Value) {
        let is_sure = self.learns_from_return;
        match self.slots.iter_mut().find(|slot| slot.0 == base && slot.1 == offset) {
            Some(slot) if slot.2 == value => slot.3 |= is_sure,
            Some(slot) if is_sure && !slot.3 => *slot = (base, offset, value, true),
            Some(slot) if slot.3 && !is_sure => {}
            Some(_) => self.is_contradictory = true,
            None => self.slots.push((base, offset, value, is_sure)),
        }
    }

    /// The location of the CFA at the start, if it was learned.
    pub(crate) fn facts(&self) -> Vec<Fact> {
        if self.is_contradictory {
            return Vec::new();
        }
        let bases = self.bases.iter().filter_map(|&(base, offset, _)| {
            let register = base.register()?;
            (register != RSP || offset <= -8).then_some(Fact::Register { register, offset })
        });
        let slots = self.slots.iter().filter_map(|&(base, at, value, _)| match value {
            Value::Stack { base: Base::CFA, offset } => Some(Fact::Slot { register: base.register()?, at, offset }),
            _ => None,
        });
        bases.chain(slots).collect()
    }

    /// The state at the start, if it was learned.
    pub(crate) fn state(&self) -> Option<State> {
        if self.is_contradictory || !self.has_learned {
            return None;
        }
        let mut state = State::unknown();
        state.is_outermost = self.is_outermost;
        state.store(StackAddress::cfa(-8), 8, Value::Caller(RETURN_ADDRESS));
        let solved = |base: Base| self.bases.iter().find(|known| known.0 == base).map(|known| known.1);
        for register in CALLEE_SAVED.into_iter().chain([RSP]) {
            let base = Base::of_register(register);
            let value = match solved(base) {
                Some(offset) => Value::cfa(offset),
                None if self.in_place.contains(&register) => Value::Caller(register as u8),
                None if register == RSP || self.slots.iter().any(|slot| slot.0 == base) => {
                    Value::Stack { base, offset: 0 }
                }
                None => Value::Unknown,
            };
            state.set(register, value, 0);
        }
        for &(base, offset, value, _) in &self.slots {
            match solved(base) {
                _ if base == Base::CFA => state.store(StackAddress::new(base, offset), 8, value),
                Some(from) => state.store(StackAddress::cfa(from.checked_add(offset)?), 8, value),
                None => state.store(StackAddress::new(base, offset), 8, value),
            }
        }
        // rsp is never above the return address, and differs from it by a multiple of 8.
        match state.get(RSP) {
            Value::Stack { base: Base::CFA, offset } if offset > -8 || offset % 8 != 0 => None,
            _ => Some(state),
        }
    }
}

impl Purpose for Inference {
    fn is_guess(&self) -> bool {
        false
    }

    /// Code with an unknown recipe may be followed again.
    #[inline]
    fn is_followed(&self, known: &Knowledge<'_>, at: u32) -> bool {
        known.recipes.number_at(at).is_some_and(|number| number != UNKNOWN)
    }

    fn may_arrive(&mut self, known: &mut Knowledge<'_>, edge: Edge, state: &State) -> bool {
        if !edge.needs_return
            && let Some(recipe) = known.recipes.known_at(edge.to)
        {
            // A state that is known only behind a call that may not return is not good enough.
            if known.recipes.need_return.get(edge.to) {
                self.joins_likely_code = true;
            } else {
                self.learn(state, recipe);
            }
            return false;
        }
        if known.begins.starts.get(edge.to) && edge.to != edge.root {
            if !edge.needs_return {
                self.learn_end(state, 8);
            }
            return false;
        }
        !(edge.needs_return && self.is_strict)
    }

    fn meets_root(&mut self, first: Value, again: Value) {
        if first.base() == again.base() && !self.is_unsettled {
            // What holds each time that control comes here does not hold relative to its first arrival.
            self.is_contradictory = true;
        }
    }

    fn enter(&mut self, _: &mut Knowledge<'_>, _: u32, _: bool) {}

    fn is_to_follow_again(&mut self, known: &mut Knowledge<'_>, edge: Edge, _: &State) -> bool {
        known.recipes.number_at(edge.to) == Some(UNKNOWN)
    }

    fn begin_block(&mut self, _: u32, _: &mut State) {}

    fn end_block(&mut self, _: &mut Knowledge<'_>, _: u32, _: u32) {}

    #[inline]
    fn instruction(&mut self, _: &mut Knowledge<'_>, code: Reached<'_>, state: &mut State) -> bool {
        self.allow(state, code.instruction)
    }

    fn meets_garbage(&mut self) {
        self.meets_garbage = true;
    }

    fn has_lost_frame(&self) -> bool {
        false
    }

    fn call(&mut self, _: &mut Knowledge<'_>, state: &State) {
        self.note_call(state);
    }

    fn called(&mut self, _: &mut Knowledge<'_>, _: u32, _: &mut State) {}

    fn behind_call(&mut self, _: &Knowledge<'_>, _: u32, _: &mut State) -> BehindCall {
        if self.ends_at_calls { BehindCall::Ends } else { BehindCall::Continues }
    }

    fn find(&mut self, _: &mut Knowledge<'_>, _: u32) {}

    fn is_return(&mut self, value: Value, state: &State) -> bool {
        match (value, state.get(RSP)) {
            (Value::Caller(RETURN_ADDRESS), Value::Stack { base: Base::CFA, offset: 0 }) => true,
            (Value::Content { base, offset, plus: 0 }, Value::Stack { base: of, offset: top })
                if base == of && base == Base::of_register(RSP) && top == offset.wrapping_add(8) =>
            {
                self.learn_end(state, 0);
                true
            }
            _ => false,
        }
    }

    fn leave(&mut self, state: &State, _: bool) {
        self.learn_end(state, 8);
    }

    fn leave_by_jump(&mut self, _: &mut Knowledge<'_>, state: &State) {
        self.suspect_end(state);
    }
}
