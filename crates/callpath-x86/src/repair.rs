//! Mending what a first pass over a procedure could not tell, by what must hold where it ends.
//! Knows nothing of how control is followed.
//!
//! Tallent et al. 2009, section 2.2, check at each return that the return address is at rsp, and mend recipes backwards
//! where it is not. Here there are two such repairs: of a start that was entered with more on the stack, and of places in
//! the middle where the frame was lost (a loop that lowers rsp each time round), by a trial from there to a return.

use crate::module::Module;
use crate::pool::UNKNOWN;
use crate::recipe::has_recipe;
use crate::state::{RSP, State};
use crate::value::{Base, Value};

/// So often a procedure is followed anew.
const MAX_ROUNDS: u32 = 4;
/// So many places of one procedure are tried in a round.
const MAX_PLACES: usize = 16;
/// So many instructions are followed from each.
const MAX_INSTRUCTIONS: u32 = 4000;

/// Where rsp is when a procedure ends, from the CFA.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ends {
    offset: Option<i32>,
    differ: bool,
    /// One of them is a return, and to what is no return address.
    is_wrong: bool,
    /// Control went on behind a call.
    has_calls: bool,
}

impl Ends {
    pub(crate) fn note(&mut self, offset: i32) {
        self.differ |= self.offset.is_some_and(|known| known != offset);
        self.offset = Some(offset);
    }

    /// Control returns with rsp there.
    pub(crate) fn note_return(&mut self, offset: i32) {
        self.note(offset);
        self.is_wrong |= offset != -8;
    }

    /// Control goes on behind a call.
    pub(crate) fn note_call(&mut self) {
        self.has_calls = true;
    }

    /// Bytes that all ends leave on the stack beyond the return address.
    fn surplus(&self) -> Option<i32> {
        let surplus = self.offset?.checked_add(8)?;
        (!self.differ && surplus > 0 && surplus % 8 == 0).then_some(surplus)
    }
}

/// Holds whenever control comes to `block`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Axiom {
    pub(crate) block: u32,
    pub(crate) fact: Fact,
}

/// Where the CFA is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fact {
    /// `register = CFA + offset`
    Register { register: usize, offset: i32 },
    /// `*(register + at) = CFA + offset`
    Slot { register: usize, at: i32, offset: i32 },
}

impl Fact {
    /// Adds to `state` what is so at `block`.
    pub(crate) fn assume(self, state: &mut State, block: u32) {
        match self {
            Fact::Register { register, offset } => state.set(register, Value::cfa(offset), block),
            Fact::Slot { register, at, offset } => {
                if state.get(register).base().is_none() {
                    let base = state.fresh(block);
                    state.set(register, base, block);
                }
                if let Value::Stack { base, offset: from } = state.get(register).plus(at.into()) {
                    state.store(base, from, 8, Value::cfa(offset));
                }
            }
        }
    }
}

impl Module<'_> {
    /// Follows control from `root`, where `state` holds, unless it has come there before.
    pub(crate) fn follow(&mut self, root: u32, state: State) {
        self.follow_for(root, root, state);
    }

    /// The same where `state` is only likely: what is known better holds.
    pub(crate) fn follow_guess(&mut self, owner: u32, root: u32, state: State) {
        self.is_guess = true;
        self.follow_for(owner, root, state);
        self.is_guess = false;
    }

    /// The same for code that belongs to `owner`.
    pub(crate) fn follow_for(&mut self, owner: u32, root: u32, mut state: State) {
        if self.is_seen(root) || self.known.get(root) {
            return;
        }
        self.owner = owner;
        self.ends = Ends::default();
        self.axioms.clear();
        let begun = self.owned.len();
        let unknown = self.unknown_instructions;
        self.run(root, &state);
        if let Some(surplus) = self.ends.surplus()
            // Who is called has the return address at rsp.
            && !self.sweep.call_targets.get(root)
            && let Value::Stack { base: Base::CFA, offset } = state.get(RSP)
        {
            self.forget_stretches(root, begun);
            state.set(RSP, Value::cfa(offset - surplus), root);
            self.run(root, &state);
        }
        self.distrusts_calls = self.ends.is_wrong && self.ends.has_calls;
        if self.distrusts_calls {
            self.forget_stretches(root, begun);
            self.run(root, &state);
        }
        self.repair_places(root, &state, begun, unknown);
        self.distrusts_calls = false;
    }

    /// Learns what must hold where the frame is not known; it was lost so often before the start.
    fn repair_places(&mut self, root: u32, state: &State, begun: usize, unknown: u64) {
        for _ in 0..MAX_ROUNDS {
            if self.unknown_instructions == unknown || !self.learn_axioms() {
                return;
            }
            self.forget_stretches(root, begun);
            self.run(root, state);
        }
    }

    /// Looks for what must hold where control has come and the frame is not known. Whether there is something new.
    fn learn_axioms(&mut self) -> bool {
        let mut places: Vec<(u32, u32)> = self.states.iter().map(|(&block, &index)| (index, block)).collect();
        places.sort_unstable();
        let is_lost = |&(index, block): &(u32, u32)| {
            self.recipe_number(block) == Some(UNKNOWN)
                && self.arrivals.get(index as usize).is_some_and(|arrival| !has_recipe(&arrival.state))
        };
        places.retain(is_lost);
        places.truncate(MAX_PLACES);
        let known = self.axioms.len();
        for (_, block) in places {
            if self.axioms.iter().any(|axiom| axiom.block == block) {
                continue;
            }
            let Some(trial) = self.try_settled_from(block, MAX_INSTRUCTIONS) else { break };
            self.axioms.extend(trial.facts().into_iter().map(|fact| Axiom { block, fact }));
        }
        self.axioms.len() > known
    }
}
