//! Follows control to record the recipes of reached code.

use callpath_format::recipe::Recipe;

use super::constraint::Constraint;
use super::knowledge::Knowledge;
use super::pool::UNKNOWN;
use super::purpose::{BehindCall, Edge, Purpose, Reached};
use super::recipe_map::INSIDE;
use crate::instruction::{Instruction, Operation, Register};
use crate::recipe::{has_recipe, recipe_of};
use crate::state::{RBP, RSP, State};
use crate::value::{Base, RETURN_ADDRESS, Value};

/// The recording of one procedure, or of a part of one.
pub(crate) struct Recording {
    /// The procedure that the code belongs to.
    pub(super) owner: u32,
    /// Where following begins.
    pub(super) root: u32,
    /// How many stretches were followed before.
    pub(super) begun: usize,
    /// It began with a guess: better knowledge overrides it.
    pub(super) is_guess: bool,
    /// What was inferred.
    pub(super) constraints: Vec<Constraint>,
    /// How the procedure ends.
    pub(super) ends: Ends,
    /// It does not end as it should: rsp after a call is treated as unknown.
    pub(super) distrusts_calls: bool,
    /// An instruction whose frame is not known was reached.
    pub(super) has_unknown: bool,
    /// The recipe's number where control is.
    number: u16,
}

impl Recording {
    /// Of the code at `root`, which belongs to `owner`.
    pub(super) fn new(owner: u32, root: u32) -> Recording {
        Recording {
            owner,
            root,
            begun: 0,
            is_guess: false,
            constraints: Vec::new(),
            ends: Ends::default(),
            distrusts_calls: false,
            has_unknown: false,
            number: UNKNOWN,
        }
    }
}

impl Purpose for Recording {
    fn is_guess(&self) -> bool {
        self.is_guess
    }

    #[inline]
    fn is_followed(&self, known: &Knowledge<'_>, at: u32) -> bool {
        known.recipes.number_at(at).is_some()
    }

    #[inline]
    fn may_arrive(&mut self, _: &mut Knowledge<'_>, _: Edge, _: &State) -> bool {
        true
    }

    fn meets_root(&mut self, _: Value, _: Value) {}

    fn enter(&mut self, known: &mut Knowledge<'_>, block: u32, needs_return: bool) {
        if needs_return {
            known.recipes.need_return.insert(block);
        }
    }

    /// The block seemed to be reachable only after a call. The frame of a jump to it overrides that.
    fn is_to_follow_again(&mut self, known: &mut Knowledge<'_>, edge: Edge, state: &State) -> bool {
        if edge.needs_return || !known.recipes.need_return.get(edge.to) {
            return false;
        }
        let recipe = recipe_of(state, &mut known.recipes.pool.expressions);
        let here = known.recipes.number_at(edge.to);
        let is_other = recipe != Recipe::UNKNOWN && here.is_some_and(|here| here != known.recipes.pool.intern(&recipe));
        if is_other {
            known.forget_block(edge.to);
        }
        is_other
    }

    fn begin_block(&mut self, block: u32, state: &mut State) {
        state.is_changed = true;
        self.number = UNKNOWN;
        for constraint in self.constraints.iter().filter(|constraint| constraint.block == block) {
            constraint.fact.assume(state, block);
        }
    }

    fn end_block(&mut self, known: &mut Knowledge<'_>, from: u32, to: u32) {
        known.procedures.stretches.push((from, to, self.owner));
    }

    #[inline]
    fn instruction(&mut self, known: &mut Knowledge<'_>, code: Reached<'_>, state: &mut State) -> bool {
        if state.is_changed {
            state.is_changed = false;
            self.number = known.recipes.number_of(state);
        }
        known.recipes.mark(code.at, code.next, self.number);
        self.has_unknown |= self.number == UNKNOWN;
        if known.code.sweep.takes_arguments_off {
            self.ends.note_instruction(code.instruction, state);
        }
        if let Some(cross_validation) = &mut known.cross_validation {
            cross_validation.cross_validate(code.at, state);
        }
        true
    }

    fn meets_garbage(&mut self) {}

    fn has_lost_frame(&self) -> bool {
        self.number == UNKNOWN
    }

    fn call(&mut self, known: &mut Knowledge<'_>, state: &State) {
        known.procedures.calls.entry(self.owner).or_default().note(state, self.number);
    }

    fn called(&mut self, known: &mut Knowledge<'_>, next: u32, state: &mut State) {
        if !state.is_changed {
            return;
        }
        state.is_changed = false;
        let after = known.recipes.number_of(state);
        known.recipes.mark_call(next, if after == self.number { INSIDE } else { after });
        self.number = after;
    }

    /// After a call that may have changed the caller's stack, rsp is unknown.
    fn behind_call(&mut self, known: &Knowledge<'_>, next: u32, state: &mut State) -> BehindCall {
        self.ends.note_call();
        let is_lost = |state: &State| state.get(RSP).base() == Some(Base::CFA) || !has_recipe(state);
        if !self.distrusts_calls || known.code.known.get(next) || !is_lost(state) {
            return BehindCall::Continues;
        }
        let lost = state.fresh(next);
        state.set(RSP, lost, next);
        BehindCall::LosesFrame
    }

    fn find(&mut self, known: &mut Knowledge<'_>, at: u32) {
        known.find(at);
    }

    fn is_return(&mut self, value: Value, state: &State) -> bool {
        value == Value::Caller(RETURN_ADDRESS) && state.get(RSP) == Value::cfa(0)
    }

    fn leave(&mut self, state: &State, needs_return: bool) {
        if let Value::Stack { base: Base::CFA, offset } = state.get(RSP) {
            // After a call that may not return, another procedure's code may follow.
            if needs_return {
                self.ends.note(offset);
            } else {
                self.ends.note_return(offset);
            }
        }
    }

    fn leave_by_jump(&mut self, known: &mut Knowledge<'_>, state: &State) {
        if !state.is_like_entry() {
            known.note_lost_jump(self.owner, state);
        }
        if let Value::Stack { base: Base::CFA, offset } = state.get(RSP) {
            self.ends.note(offset);
        }
    }
}

/// rsp at a procedure's ends, from the CFA.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ends {
    offset: Option<i32>,
    differ: bool,
    /// One end is a return to something else than the return address.
    is_wrong: bool,
    /// Control continued after a call.
    has_calls: bool,
    /// The frame is given up by its pointer.
    are_by_pointer: bool,
}

impl Ends {
    fn note(&mut self, offset: i32) {
        self.differ |= self.offset.is_some_and(|known| known != offset);
        self.offset = Some(offset);
    }

    /// Adds a return with rsp at `offset`.
    fn note_return(&mut self, offset: i32) {
        self.note(offset);
        self.is_wrong |= offset != -8;
    }

    /// Notes that control continues after a call.
    fn note_call(&mut self) {
        self.has_calls = true;
    }

    /// Notes whether the instruction gives up the frame by its pointer.
    #[cold]
    fn note_instruction(&mut self, instruction: &Instruction, state: &State) {
        let is_one = match instruction.operation() {
            Operation::Leave => true,
            _ => instruction.copies_to_stack_pointer() && instruction.register(1) == Register::RBP,
        };
        self.are_by_pointer |= is_one && state.get(RBP) == Value::cfa(-16);
    }

    /// Whether something is wrong that a call may have caused.
    pub(super) fn are_wrong_behind_calls(&self) -> bool {
        self.is_wrong && self.has_calls
    }

    /// Whether it does not matter to the procedure where rsp is after a call: the callee may have taken its arguments off, and the
    /// frame's pointer tells the frame in any case.
    pub(super) fn may_lose_arguments(&self) -> bool {
        self.are_by_pointer && self.has_calls
    }

    /// How many bytes all ends leave on the stack beyond the return address.
    pub(super) fn surplus(&self) -> Option<i32> {
        let surplus = self.offset?.checked_add(8)?;
        (!self.differ && surplus > 0 && surplus % 8 == 0).then_some(surplus)
    }
}
