//! Follows jumps, and records what they show about their targets.

use super::purpose::Purpose;
use super::walk::Walk;
use crate::code_map::NOWHERE;
use crate::effect::load;
use crate::encoding::is_sure_prologue;
use crate::idioms::linkage_stub;
use crate::instruction::Instruction;
use crate::state::State;
use crate::tables::{Entry, JumpedTable};
use crate::value::Value;

impl<P: Purpose> Walk<'_, '_, P> {
    /// A jump at `at` to `target`: into the same procedure, or a tail call.
    pub(super) fn jump(&mut self, at: u32, target: u32, state: &State) {
        if target == NOWHERE {
            return;
        }
        let is_behind = (self.root..at).contains(&target);
        let looks_like_start =
            self.known.code.code_map.is_aligned(target) && !is_behind && !self.known.recipes.is_seen(target);
        if looks_like_start && state.is_like_entry() && !self.blocks.contains(target) {
            return self.purpose.find(self.known, target);
        }
        self.arrive(target, state, false);
    }

    /// An indirect jump that ends at position `next`.
    pub(super) fn jump_indirect(&mut self, next: u32, instruction: &Instruction, state: &State) {
        let code = &self.known.code;
        let memory = instruction.memory();
        if memory.is_some_and(|memory| memory.is_beside_code())
            && linkage_stub::entry_state(code.code_map.bytes(next)).is_some()
        {
            // The lazy half of a stub: the jump leads there until the symbol is bound.
            return self.purpose.find(self.known, next);
        }
        if let Some(target) = code.data.slot_target(instruction, code.code_map.address(next).0, &code.code_map) {
            self.purpose.find(self.known, target);
        }
        let value = match memory {
            Some(memory) => load(state, &memory),
            None => instruction.register(0).general().map_or(Value::Unknown, |register| state.get(register)),
        };
        let (table, entry) = match value {
            Value::TableTarget { table, base } => (table, Entry::Distance(base)),
            Value::TablePointer(table) => (table, Entry::Pointer),
            _ if self.purpose.is_return(value, state) => return,
            _ => return self.purpose.leave_by_jump(self.known, state),
        };
        let (code, root) = (&self.known.code, self.root);
        let references = &code.sweep.data_references;
        let next = references.get(references.partition_point(|&address| address <= table)).copied();
        let table = JumpedTable { address: table, entry, bound: state.bound, next };
        let is_credible = |target: u32| {
            // For impossible cases compilers let the table lead past the procedure's end.
            let is_next = code.code_map.is_aligned(target)
                && (is_sure_prologue(code.code_map.bytes(target))
                    || (self.known.pointed.get(target) && matches!(entry, Entry::Distance(_))));
            !is_next
                && code.sweep.boundaries.get(target)
                && !code.known.get(target)
                && (!self.known.begins.starts.get(target) || target == root)
        };
        for target in table.targets(&code.data, &code.code_map, is_credible) {
            self.known.begins.add_target(target);
            self.arrive(target, state, false);
        }
    }
}
