//! Carries abstract frames along control flow, from a procedure's beginning to every instruction reachable from there.
//!
//! Tallent et al. 2009, section 2.2, scan a procedure's code in order and repair the state after each return by the
//! canonical frame. Here states travel along branches, jumps and jump tables, join where flow joins, and the states of
//! cold fragments are those of the jumps into them. Control does not flow past a call that never returns, nor over the
//! start of another procedure. The graph is found at the same time: known frames decide where jump tables are and what
//! is code.

use super::knowledge::Knowledge;
use super::purpose::{BehindCall, Edge, Purpose, Reached};
use crate::code_map::NOWHERE;
use crate::decode::{Flow, Instructions};
use crate::effect;
use crate::encoding::is_sure_prologue;
use crate::instruction::{Condition, Instruction, Operation};
use crate::recipe::has_recipe;
use crate::state::{CALL_CLOBBERED, RBP, RSP, State};
use crate::value::Base;
use crate::worklist::Discovered;

/// How control reached a block.
pub(crate) struct Arrival {
    pub(crate) state: State,
    /// Only a call that returns leads there.
    needs_return: bool,
    /// Control comes there by ways with different stacks, and one of them has that of the procedure's entry.
    pub(crate) meets_entry: bool,
    /// How far the block was followed already.
    end: u32,
}

/// The beginning of a block, or the point where following it resumes.
#[derive(Clone, Copy)]
struct Block {
    at: u32,
    /// Only a call that returns leads there.
    needs_return: bool,
    /// How far the block was followed already.
    end: u32,
}

/// A call of `target`, which ends at `next`.
#[derive(Clone, Copy)]
struct Call {
    target: u32,
    next: u32,
}

/// Follows control for a purpose.
pub(crate) struct Walk<'w, 'a, P> {
    pub(super) known: &'w mut Knowledge<'a>,
    pub(super) blocks: &'w mut Discovered<Arrival>,
    pub(super) purpose: &'w mut P,
    /// Where control began to be followed.
    pub(super) root: u32,
    /// The current block is reachable only if a call returns.
    needs_return: bool,
}

impl<'w, 'a, P: Purpose> Walk<'w, 'a, P> {
    pub(super) fn new(
        known: &'w mut Knowledge<'a>,
        blocks: &'w mut Discovered<Arrival>,
        purpose: &'w mut P,
        root: u32,
    ) -> Walk<'w, 'a, P> {
        Walk { known, blocks, purpose, root, needs_return: false }
    }

    /// Follows control from the root, in `state`.
    pub(super) fn run(&mut self, state: &State) {
        self.blocks.clear();
        self.enter(Block { at: self.root, needs_return: self.purpose.is_guess(), end: self.root }, state);
        let Some(mut instructions) = Instructions::new(&self.known.code.code_map, self.root) else {
            return self.blocks.stop();
        };
        let mut state = State::unknown();
        while let Some(block) = self.blocks.next() {
            let Some(block) = self.resume(block, &mut state) else { continue };
            let end = self.block(&mut instructions, block, &mut state);
            if let Some(arrival) = self.blocks.get_mut(block.at) {
                arrival.end = end.max(block.end);
            }
            if end > block.end {
                self.purpose.end_block(self.known, block.end, end);
            }
        }
    }

    /// Follows each block once more, after states have settled.
    pub(super) fn run_again(&mut self) {
        let blocks: Vec<u32> = self.blocks.in_order().into_iter().map(|(block, _)| block).collect();
        let Some(mut instructions) = Instructions::new(&self.known.code.code_map, self.root) else { return };
        let mut state = State::unknown();
        for block in blocks {
            if let Some(block) = self.resume(block, &mut state) {
                self.block(&mut instructions, block, &mut state);
            }
        }
        self.blocks.stop();
    }

    /// Takes the state at a block, to follow it.
    fn resume(&mut self, at: u32, state: &mut State) -> Option<Block> {
        let arrival = self.blocks.get_mut(at)?;
        state.clone_from(&arrival.state);
        let block = Block { at, needs_return: arrival.needs_return, end: arrival.end };
        self.needs_return = block.needs_return;
        Some(block)
    }

    /// Enters a block for the first time.
    fn enter(&mut self, block: Block, state: &State) {
        let Block { at, needs_return, end } = block;
        self.purpose.enter(self.known, at, needs_return);
        let reuse = |arrival: &mut Arrival| {
            arrival.state.clone_from(state);
            arrival.needs_return = needs_return;
            arrival.meets_entry = false;
            arrival.end = end;
        };
        let make = || Arrival { state: state.clone(), needs_return, meets_entry: false, end };
        self.blocks.discover(at, reuse, make);
    }

    /// Follows a block, instruction by instruction, to where other control flow may arrive or to what was followed
    /// already. Returns where it ended.
    fn block(&mut self, instructions: &mut Instructions<'a>, block: Block, state: &mut State) -> u32 {
        let Block { at: block, end: known_end, .. } = block;
        if !instructions.seek(block) {
            let Some(elsewhere) = Instructions::new(&self.known.code.code_map, block) else { return block };
            *instructions = elsewhere;
        }
        // The last instruction was a call.
        let mut after_call = false;
        // The last instruction compared rsp with this register.
        let mut compared = None;
        self.purpose.begin_block(block, state);
        loop {
            let at = instructions.position();
            if at != block {
                if self.known.begins.block_ends.get(at) {
                    if self.known.begins.jump_targets.get(at) || self.known.begins.starts.get(at) {
                        self.arrive(at, state, after_call);
                    }
                    return at;
                }
                if at >= known_end && self.purpose.is_followed(self.known, at) {
                    return at;
                }
            }
            let Some(instruction) = instructions.read() else {
                self.purpose.meets_garbage();
                return at;
            };
            let next = instructions.position();
            if after_call || at == block {
                let is_padding = instruction.is_padding();
                if after_call || is_padding {
                    if self.is_end_behind_call(at, &instruction, is_padding) {
                        return at;
                    }
                    after_call = is_padding;
                }
            }
            if !self.purpose.instruction(self.known, Reached { instruction: &instruction, at, next }, state) {
                return at;
            }
            match self.known.code.flow_after(instructions, &instruction) {
                Flow::Next => {
                    effect::apply(state, &instruction, at, instructions.next_address());
                    compared = instruction.compared_with_stack_pointer();
                }
                Flow::Branch(target) => {
                    let compared = compared.take().map(|register: usize| state.get(register));
                    match (compared, instruction.condition()) {
                        // A loop that lowers rsp down to a limit.
                        (Some(limit), Some(Condition::NotEqual)) => {
                            self.arrive(target, state, false);
                            state.set(RSP, limit, at);
                            continue;
                        }
                        (Some(limit), Some(Condition::Equal)) => {
                            let mut equal = state.clone();
                            equal.set(RSP, limit, at);
                            self.arrive(target, &equal, false);
                        }
                        _ => self.arrive(target, state, false),
                    }
                    if target <= at && self.purpose.has_lost_frame() {
                        // A loop in which the frame was lost: after it the frame can perhaps be found again.
                        self.known.begins.add_target(next);
                        let is_other = self.known.begins.starts.get(next) || self.known.code.known.get(next);
                        if !self.blocks.contains(next) && !is_other {
                            self.enter(
                                Block { at: next, needs_return: self.needs_return, end: known_end.max(next) },
                                state,
                            );
                            return next;
                        }
                    }
                }
                Flow::Jump(target) => {
                    self.jump(at, target, state);
                    return next;
                }
                Flow::JumpIndirect => {
                    self.jump_indirect(next, &instruction, state);
                    return next;
                }
                Flow::Call(target) => {
                    if !self.call(Call { target, next }, state) {
                        return next;
                    }
                    if self.known.code.sweep.has_popping_returns && target != NOWHERE {
                        let popped = self.known.clobbers.popped_by(&self.known.code.code_map, target);
                        let top = state.get(RSP).plus(popped.into());
                        state.set(RSP, top, at);
                    }
                    if !self.continues_behind_call(next, known_end, state) {
                        return next;
                    }
                    after_call = true;
                }
                Flow::CallIndirect => {
                    self.purpose.call(self.known, state);
                    if self.known.code.is_through_no_return_slot(&instruction, instructions.next_address()) {
                        return next;
                    }
                    state.call();
                    self.purpose.called(self.known, next, state);
                    if !self.continues_behind_call(next, known_end, state) {
                        return next;
                    }
                    after_call = true;
                }
                Flow::Return => {
                    self.purpose.leave(state, self.needs_return);
                    return next;
                }
                Flow::Stop => return next,
            }
        }
    }

    /// Follows a call. Returns whether it may return.
    fn call(&mut self, call: Call, state: &mut State) -> bool {
        let Call { target, next } = call;
        self.purpose.call(self.known, state);
        if target != NOWHERE {
            self.purpose.find(self.known, target);
            if !self.known.code.known.get(target) && !self.known.code.returns(target) {
                return false;
            }
        }
        let before = state.holds_frame_in_clobbered().then(|| state.clone());
        state.call();
        if let Some(before) = before {
            self.keep_preserved(call, state, &before);
        }
        self.purpose.called(self.known, next, state);
        true
    }

    /// After a call, registers that hold the frame and that the callee preserves are as they were `before`. Code that
    /// relies on this does so immediately, or has no other way to the frame.
    fn keep_preserved(&mut self, call: Call, state: &mut State, before: &State) {
        let Call { target, next } = call;
        if target == NOWHERE {
            return;
        }
        let has_frame = |register: usize| state.get(register).base() == Some(Base::CFA);
        let is_lost = !has_frame(RSP) && !has_frame(RBP) && !has_recipe(state);
        let code_map = &self.known.code.code_map;
        let first = || self.known.code.instruction_at(next);
        if !is_lost && !first().is_some_and(|first| first.copies_to_stack_pointer()) {
            return;
        }
        for register in CALL_CLOBBERED {
            if before.get(register).base().is_some() && self.known.clobbers.preserves(code_map, target, register) {
                state.set(register, before.get(register), next);
            }
        }
    }

    /// Whether to follow this block after a call, at `next`.
    fn continues_behind_call(&mut self, next: u32, known_end: u32, state: &mut State) -> bool {
        match self.purpose.behind_call(self.known, next, state) {
            BehindCall::Continues => true,
            BehindCall::Ends => false,
            BehindCall::LosesFrame => {
                self.known.begins.block_ends.insert(next);
                if self.blocks.contains(next) || self.known.begins.starts.get(next) {
                    self.arrive(next, state, true);
                } else {
                    self.enter(Block { at: next, needs_return: true, end: known_end.max(next) }, state);
                }
                false
            }
        }
    }

    /// Whether other code begins at `at`, after a call, because the call does not return: an `int3` or other padding
    /// follows it.
    fn is_end_behind_call(&mut self, at: u32, instruction: &Instruction, is_padding: bool) -> bool {
        if instruction.operation() == Operation::Breakpoint {
            return true;
        }
        let code = &self.known.code;
        if !is_padding {
            let begins = code.code_map.is_aligned(at) && is_sure_prologue(code.code_map.bytes(at));
            if begins {
                self.purpose.find(self.known, at);
            }
            return begins;
        }
        let end = code.padding_end(at, NOWHERE);
        if self.known.begins.starts.get(end) {
            return true;
        }
        let begins = code.sweep.begins_behind_padding(&code.code_map, &self.known.begins.jump_targets, at..end);
        if begins {
            self.purpose.find(self.known, end);
        }
        begins
    }

    /// Control reaches `at`, which begins a block.
    pub(super) fn arrive(&mut self, at: u32, state: &State, needs_return: bool) {
        let needs_return = needs_return || self.needs_return;
        let edge = Edge { to: at, root: self.root, needs_return };
        if !self.purpose.may_arrive(self.known, edge, state) {
            return;
        }
        let is_root = at == self.root;
        if at == NOWHERE || self.known.code.known.get(at) || (self.known.begins.starts.get(at) && !is_root) {
            return;
        }
        let again = state.get(RSP);
        let Some(arrival) = self.blocks.get_mut(at) else {
            if !self.known.recipes.is_seen(at) || self.purpose.is_to_follow_again(self.known, edge, state) {
                self.enter(Block { at, needs_return, end: at }, state);
            }
            return;
        };
        let first = arrival.state.get(RSP);
        if is_root && first != again {
            return self.purpose.meets_root(first, again);
        }
        arrival.meets_entry |= first != again && (state.has_stack_of_entry() || arrival.state.has_stack_of_entry());
        let differs = first != again && first.base() == again.base();
        if differs && needs_return && !arrival.needs_return {
            return;
        }
        if differs && arrival.needs_return && !needs_return {
            arrival.state.clone_from(state);
            arrival.needs_return = false;
            self.blocks.wait_again(at);
            return self.known.recipes.need_return.remove(at);
        }
        arrival.needs_return &= needs_return;
        if arrival.state.merge(state, at) {
            self.blocks.wait_again(at);
        }
        if !needs_return {
            self.known.recipes.need_return.remove(at);
        }
    }
}
