//! What an instruction that was decoded quickly does to the abstract frame.
//! Knows nothing of how it was decoded. It does the same as `crate::effect` does with what the full decoder says.

use super::{NONE, Op, Quick, RIP};
use crate::effect::{leave, push_value, sum, table_word};
use crate::state::{RAX, RBP, RSP, State};
use crate::value::{Base, Value};

impl Quick {
    /// Changes `state` to what it is after this, which stands at position `at` and address `addr`. Of calls nothing.
    #[inline]
    pub(crate) fn apply(&self, state: &mut State, at: u32, addr: u64) {
        let reg = usize::from(self.reg);
        match self.op {
            Op::Inert | Op::Padding | Op::CompareStack => {}
            Op::Write => state.set(reg, Value::Unknown, at),
            Op::WriteTwo => {
                state.set(reg, Value::Unknown, at);
                state.set(usize::from(self.other), Value::Unknown, at);
            }
            Op::Store | Op::StoreMoved | Op::StoreConstant => self.store(state, Value::Unknown),
            Op::StoreRegister => {
                let value = state.get(reg);
                self.store(state, value);
            }
            Op::StoreMasked => {
                state.bound = u32::try_from(self.imm()).ok().or(state.bound);
                self.store(state, Value::Unknown);
            }
            Op::Compare => state.bound = u32::try_from(self.imm()).ok(),
            Op::Copy => {
                let value = state.get(usize::from(self.other));
                state.set(reg, value, at);
            }
            Op::CopyWord => {
                let value = table_word(state.get(usize::from(self.other)));
                state.set(reg, value, at);
            }
            Op::Load => {
                let value = self.load(state);
                state.set(reg, value, at);
            }
            Op::Constant => state.set(reg, Value::Constant(self.imm()), at),
            Op::Lea => {
                let value = self.lea(state, addr);
                state.set(reg, value, at);
            }
            Op::Push => {
                let value = state.get(reg);
                push_value(state, value, 8, at);
            }
            Op::PushConstant => push_value(state, Value::Constant(self.imm()), 8, at),
            Op::Pop => {
                let top = state.get(RSP);
                let value = match top {
                    Value::Stack { base, offset } => state.load(base, offset),
                    _ => Value::Unknown,
                };
                state.set(RSP, top.plus(8), at);
                state.set(reg, value, at);
            }
            Op::AddConstant => {
                let value = state.get(reg).plus(self.imm() as i64);
                state.set(reg, value, at);
            }
            Op::Add => {
                let value = sum(state.get(reg), state.get(usize::from(self.other)));
                state.set(reg, value, at);
            }
            Op::Sub => {
                let value = match state.get(usize::from(self.other)) {
                    Value::Constant(by) => state.get(reg).plus((by as i64).wrapping_neg()),
                    _ => Value::Unknown,
                };
                state.set(reg, value, at);
            }
            Op::And | Op::AndConstant => {
                if self.op == Op::AndConstant {
                    state.bound = u32::try_from(self.imm()).ok().or(state.bound);
                }
                let is_stack = self.size == 8 && state.get(reg).base().is_some();
                let value = if is_stack { state.fresh(at) } else { Value::Unknown };
                state.set(reg, value, at);
            }
            Op::Clear => {
                if reg == RBP && state.after_system_call {
                    // The psABI's mark of the outermost frame, where a new thread begins.
                    state.is_outermost = true;
                    state.is_changed = true;
                }
                state.set(reg, Value::Constant(0), at);
            }
            Op::Cdqe => {
                let value = table_word(state.get(RAX));
                state.set(RAX, value, at);
            }
            Op::Leave => leave(state, at),
            Op::Call => state.call(),
            Op::Branch | Op::Jump | Op::Return | Op::Stop | Op::Trap => {}
        }
    }

    fn value_of(&self, state: &State, register: u8) -> Value {
        // No register is known there.
        state.get(usize::from(register))
    }

    /// The memory operand, if it is on the stack and its place is known.
    #[inline]
    fn place(&self, state: &State) -> Option<(Base, i32)> {
        if self.index != NONE {
            return None;
        }
        match self.value_of(state, self.base).plus(self.disp.into()) {
            Value::Stack { base, offset } => Some((base, offset)),
            _ => None,
        }
    }

    #[inline]
    fn store(&self, state: &mut State, value: Value) {
        let Some((base, offset)) = self.place(state) else { return };
        let len = i32::from(self.size);
        match usize::from(self.base) {
            RSP | RBP => state.store(base, offset, len, value),
            _ if value == Value::Unknown => state.store_through_pointer(base, offset, len),
            _ => state.store(base, offset, len, value),
        }
    }

    #[inline]
    fn load(&self, state: &State) -> Value {
        if self.index == NONE {
            return match self.place(state) {
                Some((base, offset)) if self.size == 8 => state.load(base, offset),
                _ => Value::Unknown,
            };
        }
        let disp = i64::from(self.disp) as u64;
        let table = match (self.value_of(state, self.base), self.value_of(state, self.index)) {
            (Value::Constant(table), _) => table.wrapping_add(disp),
            (_, Value::Constant(table)) if self.is_unscaled() => table.wrapping_add(disp),
            _ if self.base == NONE => disp,
            _ => return Value::Unknown,
        };
        if self.size == 4 { Value::TableWord(table) } else { Value::TablePointer(table) }
    }

    #[inline]
    fn lea(&self, state: &State, addr: u64) -> Value {
        let disp = i64::from(self.disp);
        match (self.base, self.index) {
            (RIP, _) => Value::Constant(addr.wrapping_add(u64::from(self.len())).wrapping_add(disp as u64)),
            (NONE, NONE) => Value::Constant(disp as u64),
            (base, NONE) => self.value_of(state, base).plus(disp),
            (base, index) if disp == 0 && self.is_unscaled() => {
                sum(self.value_of(state, base), self.value_of(state, index))
            }
            _ => Value::Unknown,
        }
    }
}
