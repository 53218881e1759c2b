//! Where jumps lead, and what that says of the places.
//! Knows nothing of what else instructions do.

use crate::decode::is_sure_prologue;
use crate::effect::load;
use crate::idioms;
use crate::instruction::Instruction;
use crate::module::Module;
use crate::places::NOWHERE;
use crate::recipe::recipe_of;
use crate::state::{RSP, State};
use crate::tables::{Entry, targets};
use crate::value::{Base, RETURN_ADDRESS, Value};

impl Module<'_> {
    /// A jump at `at` leads to `target`: into the same procedure, or a call of another one that hands over the frame.
    pub(crate) fn jump(&mut self, root: u32, at: u32, target: u32, state: &State) {
        if target == NOWHERE {
            return;
        }
        let looks_like_start = self.places.is_aligned(target) && !(root..at).contains(&target) && !self.is_seen(target);
        if looks_like_start && state.is_like_entry() && !self.states.contains_key(&target) {
            return self.find(target);
        }
        self.arrive(root, target, state, false);
    }

    /// A jump to where a register or memory says, which ends at position `next`.
    pub(crate) fn jump_indirect(&mut self, root: u32, next: u32, instruction: &Instruction, state: &State) {
        let memory = instruction.memory();
        if memory.is_some_and(|memory| memory.is_beside_code())
            && idioms::linkage_stub(self.places.bytes(next)).is_some()
        {
            // The lazy half of a stub: the jump leads there until the symbol is bound.
            return self.find(next);
        }
        if let Some(target) = self.data.slot_target(instruction, self.places.address(next).0, &self.places) {
            self.find(target);
        }
        let value = match memory {
            Some(memory) => load(state, &memory),
            None => instruction.register(0).general().map_or(Value::Unknown, |register| state.get(register)),
        };
        let (table, entry) = match value {
            Value::TableTarget { table, base } => (table, Entry::Distance(base)),
            Value::TablePointer(table) => (table, Entry::Pointer),
            _ if self.is_return(value, state) => return,
            _ => {
                self.note_lost_jump(state);
                return self.leave(state, true);
            }
        };
        let references = &self.sweep.data_references;
        let next_reference = references.get(references.partition_point(|&address| address <= table)).copied();
        let is_credible = |target: u32| {
            // Where no case is possible, compilers let the table lead behind the procedure.
            let is_next = self.places.is_aligned(target)
                && (is_sure_prologue(self.places.bytes(target))
                    || (self.pointed.get(target) && matches!(entry, Entry::Distance(_))));
            !is_next
                && self.sweep.boundaries.get(target)
                && !self.known.get(target)
                && (!self.starts.get(target) || target == root)
        };
        let list = targets(&self.data, &self.places, table, entry, state.bound, next_reference, is_credible);
        for target in list {
            self.sweep.jump_targets.insert(target);
            self.block_ends.insert(target);
            self.arrive(root, target, state, false);
        }
    }

    /// A jump to `value` is a return: it was popped from where the return address lies.
    fn is_return(&mut self, value: Value, state: &State) -> bool {
        match (value, state.get(RSP), &mut self.trial) {
            (Value::Caller(RETURN_ADDRESS), Value::Stack { base: Base::CFA, offset: 0 }, _) => true,
            (Value::Content { base, offset, plus: 0 }, Value::Stack { base: of, offset: top }, Some(trial))
                if base == of && base == Base::of_register(RSP) && top == offset.wrapping_add(8) =>
            {
                trial.learn_end(state, 0);
                true
            }
            _ => false,
        }
    }

    /// Nobody knows where this jump leads: perhaps to labels of the same procedure.
    fn note_lost_jump(&mut self, state: &State) {
        if self.trial.is_some() || state.is_like_entry() {
            return;
        }
        let at = self.owner;
        match self.lost_jumps.get_mut(&at) {
            Some(known) => {
                let expressions = &mut self.pool.expressions;
                if recipe_of(known, expressions) != recipe_of(state, expressions) {
                    known.merge(state, at);
                }
            }
            None => {
                self.lost_jumps.insert(at, Box::new(state.clone()));
            }
        }
    }
}
