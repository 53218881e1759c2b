//! Abstract frames along control flow: from a procedure's start to every instruction that is reached from it.
//! Knows nothing of how starts are found.
//!
//! Tallent et al. 2009, section 2.2, scan a procedure's code in order and mend the state behind each return by the
//! canonical frame; here states travel along branches, jumps and jump tables, meet where flow meets, and the states of
//! cold fragments are those of the jumps into them. Control does not flow past a call that never returns, nor over the
//! start of another procedure.

use callpath_format::recipe::Recipe;

use crate::decode::{Flow, Instructions};
use crate::effect;
use crate::idioms;
use crate::instruction::{Condition, Operation};
use crate::module::{Arrival, INSIDE, Module};
use crate::places::NOWHERE;
use crate::pool::{UNKNOWN, UNSEEN};
use crate::recipe::{has_recipe, plain_recipe_of, recipe_of};
use crate::state::{RSP, State};
use crate::value::{Base, Value};

impl<'a> Module<'a> {
    fn arrival(&mut self, at: u32) -> Option<&mut Arrival> {
        self.states.get(&at).and_then(|&index| self.arrivals.get_mut(index as usize))
    }

    /// Control comes to `at` for the first time.
    fn come(&mut self, at: u32, state: &State, is_soft: bool, end: u32) {
        if self.trial.is_none() && is_soft {
            self.soft.insert(at);
        }
        let index = self.states.len();
        self.states.insert(at, index as u32);
        match self.arrivals.get_mut(index) {
            Some(arrival) => {
                arrival.state.clone_from(state);
                arrival.is_soft = is_soft;
                arrival.end = end;
            }
            None => self.arrivals.push(Arrival { state: state.clone(), is_soft, end }),
        }
        self.pending.push(at);
    }

    /// Follows control from `root`, where `state` holds.
    pub(crate) fn run(&mut self, root: u32, state: &State) {
        self.states.clear();
        self.pending.clear();
        self.come(root, state, self.is_guess && self.trial.is_none(), root);
        let Some(mut instructions) = Instructions::new(&self.places, root) else { return self.pending.clear() };
        let mut state = State::unknown();
        while let Some(block) = self.pending.pop() {
            if let Some(arrival) = self.arrival(block) {
                let known_end = arrival.end;
                state.clone_from(&arrival.state);
                self.in_soft_block = arrival.is_soft;
                let end = self.block(&mut instructions, root, block, known_end, &mut state);
                if let Some(arrival) = self.arrival(block) {
                    arrival.end = end.max(known_end);
                }
                if self.trial.is_none() && end > known_end {
                    self.owned.push((known_end, end, self.owner));
                }
            }
        }
    }

    /// Follows each block once more: states have settled in a trial.
    pub(crate) fn run_again(&mut self, root: u32) {
        let mut blocks: Vec<(u32, u32)> = self.states.iter().map(|(&block, &index)| (index, block)).collect();
        blocks.sort_unstable();
        let Some(mut instructions) = Instructions::new(&self.places, root) else { return };
        let mut state = State::unknown();
        for (_, block) in blocks {
            if let Some(arrival) = self.arrival(block) {
                let end = arrival.end;
                state.clone_from(&arrival.state);
                self.in_soft_block = arrival.is_soft;
                self.block(&mut instructions, root, block, end, &mut state);
            }
        }
        self.pending.clear();
    }

    /// Follows all starts that were found.
    pub(crate) fn follow_found(&mut self) {
        while let Some(start) = self.found.pop() {
            let state = idioms::linkage_stub(self.places.bytes(start)).unwrap_or_else(State::at_entry);
            self.follow(start, state);
        }
    }

    /// Makes `at` a start that is to be followed.
    pub(crate) fn find(&mut self, at: u32) {
        if self.trial.is_none() && at != NOWHERE && self.starts.insert(at) && !self.known.get(at) {
            self.block_ends.insert(at);
            self.found.push(at);
        }
    }

    /// From `block` on, one instruction after the other, up to where other control flow may come in, or up to what was
    /// followed from elsewhere; `known_end` is how far it was followed from here before. Where it ended.
    fn block(
        &mut self,
        instructions: &mut Instructions<'a>,
        root: u32,
        block: u32,
        known_end: u32,
        state: &mut State,
    ) -> u32 {
        if !instructions.seek(block) {
            let Some(elsewhere) = Instructions::new(&self.places, block) else { return block };
            *instructions = elsewhere;
        }
        let mut number_here = UNKNOWN;
        // The last instruction was a call.
        let mut after_call = false;
        // The last instruction compared rsp with this register.
        let mut compared = None;
        state.is_changed = true;
        if self.trial.is_none() {
            for axiom in self.axioms.iter().filter(|axiom| axiom.block == block) {
                axiom.fact.assume(state, block);
            }
        }
        loop {
            let at = instructions.position();
            if at != block {
                if self.block_ends.get(at) {
                    if self.sweep.jump_targets.get(at) || self.starts.get(at) {
                        self.arrive(root, at, state, after_call);
                    }
                    return at;
                }
                if at >= known_end && self.is_followed(at) {
                    return at;
                }
            }
            let Some(instruction) = instructions.read() else {
                if let Some(trial) = &mut self.trial {
                    trial.meets_garbage = true;
                }
                return at;
            };
            let next = instructions.position();
            if after_call || at == block {
                let is_padding = instruction.is_padding();
                if after_call || is_padding {
                    let is_trap = instruction.operation() == Operation::Breakpoint;
                    if self.is_end_behind_call(at, is_trap, is_padding) {
                        return at;
                    }
                    after_call = is_padding;
                }
            }
            if state.is_changed {
                number_here = self.number_of(state);
            }
            if let Some(trial) = &mut self.trial {
                if !trial.allow(state, &instruction) {
                    return at;
                }
            } else {
                self.mark(at, next, number_here);
                self.unknown_instructions += u64::from(number_here == UNKNOWN);
            }
            if let Some(claims) = &mut self.claims
                && self.trial.is_none()
            {
                claims.judge(at, state);
            }
            let next_address = instructions.next_address();
            let flow = match instructions.flow_of(&instruction, &self.places) {
                Flow::CallIndirect => match self.data.slot_target(&instruction, next_address, &self.places) {
                    Some(target) => Flow::Call(target),
                    None => Flow::CallIndirect,
                },
                flow => flow,
            };
            match flow {
                Flow::Next => {
                    effect::apply(state, &instruction, at, next_address);
                    compared = instruction.compared_with_stack_pointer();
                    continue;
                }
                Flow::Branch(target) => {
                    let mut taken = None;
                    if let Some(register) = compared.take() {
                        let limit = state.get(register);
                        match instruction.condition() {
                            Some(Condition::NotEqual) => {
                                self.arrive(root, target, state, false);
                                state.set(RSP, limit, at);
                                continue;
                            }
                            Some(Condition::Equal) => {
                                let mut equal = state.clone();
                                equal.set(RSP, limit, at);
                                taken = Some(equal);
                            }
                            _ => {}
                        }
                    }
                    self.arrive(root, target, taken.as_ref().unwrap_or(state), false);
                    if number_here == UNKNOWN && target <= at && self.trial.is_none() {
                        // A loop in which the frame was lost: behind it, perhaps, it can be found again.
                        self.sweep.jump_targets.insert(next);
                        self.block_ends.insert(next);
                        if !self.states.contains_key(&next) && !self.starts.get(next) && !self.known.get(next) {
                            let end = known_end.max(next);
                            self.come(next, state, self.in_soft_block, end);
                            return next;
                        }
                    }
                }
                Flow::Jump(target) => {
                    self.jump(root, at, target, state);
                    return next;
                }
                Flow::JumpIndirect => {
                    self.jump_indirect(root, next, &instruction, state);
                    return next;
                }
                Flow::Call(target) => {
                    self.note_call(state, number_here);
                    if target != NOWHERE {
                        self.find(target);
                        if !self.known.get(target) && !self.returns.of(&self.sweep.events, target) {
                            return next;
                        }
                    }
                    let before = state.holds_frame_in_clobbered().then(|| state.clone());
                    state.call();
                    if let Some(before) = before {
                        self.keep_preserved(state, &before, target, next);
                    }
                    number_here = self.mark_return(state, next, number_here);
                    if self.sweep.has_popping_returns && target != NOWHERE {
                        let popped = self.clobbers.popped_by(&self.places, target);
                        let top = state.get(RSP).plus(popped.into());
                        state.set(RSP, top, at);
                    }
                    if self.lose_frame_behind_call(root, next, state, known_end) {
                        return next;
                    }
                    after_call = true;
                }
                Flow::CallIndirect => {
                    self.note_call(state, number_here);
                    let slot = instruction.beside_code(next_address);
                    if slot.is_some_and(|slot| self.no_return_slots.binary_search(&slot).is_ok()) {
                        return next;
                    }
                    state.call();
                    number_here = self.mark_return(state, next, number_here);
                    if self.lose_frame_behind_call(root, next, state, known_end) {
                        return next;
                    }
                    after_call = true;
                }
                Flow::Return => {
                    self.leave(state, false);
                    return next;
                }
                Flow::Stop => return next,
            }
        }
    }

    /// The number of the recipe that holds in `state`.
    fn number_of(&mut self, state: &mut State) -> u16 {
        state.is_changed = false;
        match plain_recipe_of(state) {
            Some(packed) => self.pool.intern_packed(&packed),
            None => {
                let recipe = recipe_of(state, &mut self.pool.expressions);
                self.pool.intern(&recipe)
            }
        }
    }

    /// The recipe that holds when a call has come back to `next`, in `state`, where `before` held until then. While the call
    /// lasts it is looked up by the call's last byte.
    fn mark_return(&mut self, state: &mut State, next: u32, before: u16) -> u16 {
        if !state.is_changed {
            return before;
        }
        let after = self.number_of(state);
        if self.trial.is_none()
            && let Some(last) = next.checked_sub(1).and_then(|last| self.recipes.get_mut(last as usize))
        {
            *last = if after == before { INSIDE } else { after };
        }
        after
    }

    /// Behind a call that may have changed the caller's stack nothing is known of rsp; a block begins there. Whether that is
    /// so here, and control is not to be followed further in this block.
    fn lose_frame_behind_call(&mut self, root: u32, next: u32, state: &mut State, known_end: u32) -> bool {
        if self.trial.is_some() {
            return self.distrusts_calls;
        }
        self.ends.note_call();
        let is_lost = |state: &State| state.get(RSP).base() == Some(Base::CFA) || !has_recipe(state);
        if !self.distrusts_calls || self.known.get(next) || !is_lost(state) {
            return false;
        }
        let lost = state.fresh(next);
        state.set(RSP, lost, next);
        self.block_ends.insert(next);
        if self.states.contains_key(&next) || self.starts.get(next) {
            self.arrive(root, next, state, true);
        } else {
            self.come(next, state, true, known_end.max(next));
        }
        true
    }

    /// The procedure ends here: its caller's registers are in place. Where it jumps to an address that nobody knows,
    /// perhaps: that may be a table that was not recognised.
    pub(crate) fn leave(&mut self, state: &State, by_jump: bool) {
        match &mut self.trial {
            Some(trial) if by_jump => trial.suspect_end(state),
            Some(trial) => trial.learn_end(state, 8),
            None => {
                if let Value::Stack { base: Base::CFA, offset } = state.get(RSP) {
                    // Behind a call that may not come back another procedure's code may lie.
                    if by_jump || self.in_soft_block {
                        self.ends.note(offset);
                    } else {
                        self.ends.note_return(offset);
                    }
                }
            }
        }
    }

    /// Control comes to `at`, which begins a block.
    pub(crate) fn arrive(&mut self, root: u32, at: u32, state: &State, is_soft: bool) {
        let is_soft = is_soft || self.in_soft_block;
        if let Some(trial) = &mut self.trial
            && let Some(&number) = self.recipes.get(at as usize)
            && !matches!(number, UNSEEN | UNKNOWN | INSIDE)
            && !is_soft
        {
            // What holds where control comes only behind a call that may not come back is not known well enough.
            if self.soft.get(at) {
                trial.joins_likely_code = true;
            } else if let Some(recipe) = self.pool.recipes.get(usize::from(number)) {
                trial.learn(state, recipe);
            }
            return;
        }
        if let Some(trial) = &mut self.trial
            && self.starts.get(at)
            && at != root
        {
            if !is_soft {
                trial.learn_end(state, 8);
            }
            return;
        }
        if is_soft && self.trial.as_ref().is_some_and(|trial| trial.is_strict) {
            return;
        }
        if at == NOWHERE || self.known.get(at) || (self.starts.get(at) && at != root) {
            return;
        }
        if at == root {
            let first = self.arrival(at).map_or(Value::Unknown, |first| first.state.get(RSP));
            let again = state.get(RSP);
            if first != again {
                if let Some(trial) = &mut self.trial
                    && first.base() == again.base()
                    && !trial.is_unsettled
                {
                    // What holds each time that control comes here does not hold relative to where it came first.
                    trial.give_up();
                }
                return;
            }
        }
        if let Some(arrival) = self.arrival(at) {
            let (here, there) = (arrival.state.get(RSP), state.get(RSP));
            let differs = here != there && here.base() == there.base();
            if differs && is_soft && !arrival.is_soft {
                return;
            }
            if differs && arrival.is_soft && !is_soft {
                arrival.state.clone_from(state);
                arrival.is_soft = false;
                self.pending.push(at);
                self.soft.remove(at);
                return;
            }
            arrival.is_soft &= is_soft;
            if arrival.state.merge(state, at) {
                self.pending.push(at);
            }
            if !is_soft {
                self.soft.remove(at);
            }
        } else if !self.is_seen(at) || (self.trial.is_some() && self.recipe_number(at) == Some(UNKNOWN)) {
            self.come(at, state, is_soft, at);
        } else if !is_soft && self.soft.get(at) && self.trial.is_none() {
            // Control seemed to come here behind a call only. Where a jump comes with another frame, it holds.
            let recipe = recipe_of(state, &mut self.pool.expressions);
            if recipe != Recipe::UNKNOWN && self.recipe_number(at).is_some_and(|here| here != self.pool.intern(&recipe))
            {
                self.forget_block(at);
                self.come(at, state, is_soft, at);
            }
        }
    }
}
