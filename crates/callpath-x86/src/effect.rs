//! What one instruction does to the abstract frame.
//!
//! Instructions that compilers build frames with have rules of their own; of all others only the registers that they
//! write matter. Stores through unknown pointers are assumed not to hit saved registers: a program that does this is
//! broken.

use crate::instruction::{Control, Instruction, Memory, Operation, Register};
use crate::state::{IndexedSlot, RAX, RBP, RSP, State};
use crate::value::{Base, StackAddress, Value};

/// Changes `state` to what holds after `instruction`, which is at position `at` and ends at address `next`.
#[inline(always)]
pub(crate) fn apply(state: &mut State, instruction: &Instruction, at: u32, next: u64) {
    match instruction.operation() {
        Operation::Move => mov(state, instruction, at),
        Operation::LoadAddress => lea(state, instruction, at, next),
        Operation::Push => push(state, instruction, at),
        Operation::Pop => pop(state, instruction, at),
        Operation::Add => add(state, instruction, at, 1),
        Operation::Subtract => add(state, instruction, at, -1),
        Operation::Increment => step(state, instruction, at, 1),
        Operation::Decrement => step(state, instruction, at, -1),
        Operation::Compare => {
            if let Some(bound) = instruction.immediate() {
                state.bound = u32::try_from(bound).ok();
            }
        }
        Operation::And => and(state, instruction, at),
        Operation::Or if leaves_memory(instruction) => {}
        Operation::Xor => xor(state, instruction, at),
        Operation::SignExtend if instruction.register(0).general_bytes() >= 4 && source_bytes(instruction) >= 4 => {
            load_or_copy(state, instruction, at);
        }
        Operation::SignExtendRax => {
            let value = table_word(state.get(RAX));
            state.set(RAX, value, at);
        }
        Operation::Call if instruction.control() == Control::Next => {
            push_value(state, Value::Constant(next), 8, at);
        }
        Operation::Call => state.call(),
        Operation::Leave => leave(state, at),
        Operation::Enter => enter(state, instruction, at),
        Operation::PushFlags => push_value(state, Value::Unknown, 8, at),
        Operation::PopFlags => move_stack(state, 8, at),
        Operation::Exchange => exchange(state, instruction, at),
        Operation::SystemCall => {
            any(state, instruction, at);
            state.after_system_call = true;
        }
        Operation::Test | Operation::Nop | Operation::EndBranch => {}
        _ => any(state, instruction, at),
    }
}

/// Whether an operation on memory does not change it: `lock or qword [rsp], 0`.
fn leaves_memory(instruction: &Instruction) -> bool {
    let neutral = match instruction.operation() {
        Operation::Or | Operation::Add | Operation::Subtract | Operation::Xor => 0,
        Operation::And => u64::MAX,
        _ => return false,
    };
    instruction.writes_memory_operand() && instruction.immediate() == Some(neutral)
}

/// The value of a register of eight bytes.
#[inline]
fn value_of(state: &State, register: Register) -> Value {
    register.general64().map_or(Value::Unknown, |register| state.get(register))
}

/// How many bytes a move reads.
fn source_bytes(instruction: &Instruction) -> u16 {
    match instruction.memory() {
        Some(memory) => memory.bytes,
        None => instruction.register(1).general_bytes().into(),
    }
}

fn mov(state: &mut State, instruction: &Instruction, at: u32) {
    let destination = instruction.register(0);
    if destination == Register::NONE {
        if let Some(memory) = instruction.memory() {
            let value = value_of(state, instruction.register(1));
            store(state, &memory, memory.bytes.into(), value);
        }
        return;
    }
    match (destination.general(), instruction.immediate()) {
        (Some(register), Some(constant)) if destination.general_bytes() >= 4 => {
            state.set(register, Value::Constant(constant), at);
        }
        (Some(_), None) if destination.general_bytes() >= 4 => load_or_copy(state, instruction, at),
        _ => any(state, instruction, at),
    }
}

/// `mov` and `movsxd` to at least four bytes of a register, from a register or from memory.
fn load_or_copy(state: &mut State, instruction: &Instruction, at: u32) {
    let Some(register) = instruction.register(0).general() else { return };
    let source = instruction.register(1);
    let value = match (instruction.memory(), source.general()) {
        (Some(memory), _) => load(state, &memory),
        (None, Some(number)) if source.general_bytes() == 8 => state.get(number),
        (None, Some(number)) => table_word(state.get(number)),
        _ => Value::Unknown,
    };
    state.set(register, value, at);
}

fn exchange(state: &mut State, instruction: &Instruction, at: u32) {
    let (a, b) = (instruction.register(0).general64(), instruction.register(1).general64());
    match (instruction.memory(), a, b) {
        (None, Some(a), Some(b)) => {
            let (x, y) = (state.get(a), state.get(b));
            state.set(a, y, at);
            state.set(b, x, at);
        }
        (Some(memory), _, Some(b)) => {
            let (from, to) = (state.get(b), load(state, &memory));
            store(state, &memory, 8, from);
            state.set(b, to, at);
        }
        _ => any(state, instruction, at),
    }
}

/// Any other instruction: only its writes matter.
fn any(state: &mut State, instruction: &Instruction, at: u32) {
    if instruction.writes_memory_operand()
        && let Some(memory) = instruction.memory()
    {
        store_unknown(state, &memory);
    }
    for register in instruction.writes().general() {
        if register == RSP {
            match instruction.stack_change() {
                0 => {
                    let value = state.fresh(at);
                    state.set(RSP, value, at);
                }
                by => move_stack(state, by, at),
            }
        } else {
            state.set(register, Value::Unknown, at);
        }
    }
}

/// The location of a memory operand on the stack, if it is known.
#[inline]
fn on_stack(state: &State, memory: &Memory) -> Option<(Base, i32)> {
    if !memory.is_only(memory.base) {
        return None;
    }
    match value_of(state, memory.base).plus(memory.displacement) {
        Value::Stack { base, offset } => Some((base, offset)),
        _ => None,
    }
}

/// The value in a memory operand.
pub(crate) fn load(state: &State, memory: &Memory) -> Value {
    if memory.has_segment {
        return Value::Unknown;
    }
    if memory.index == Register::NONE {
        return match on_stack(state, memory) {
            Some((base, offset)) if memory.bytes == 8 => state.load(StackAddress::new(base, offset)),
            _ => Value::Unknown,
        };
    }
    if let Some((base, offset, index)) = on_stack_by_index(state, memory) {
        return state.load_indexed(StackAddress::new(base, offset), index, memory.scale);
    }
    let displacement = memory.displacement as u64;
    let table = match (value_of(state, memory.base), value_of(state, memory.index)) {
        (Value::Constant(table), _) => table.wrapping_add(displacement),
        (_, Value::Constant(table)) if memory.scale == 1 => table.wrapping_add(displacement),
        _ if memory.base == Register::NONE => displacement,
        _ => return Value::Unknown,
    };
    match memory.bytes {
        4 => Value::TableWord(table),
        8 => Value::TablePointer(table),
        _ => Value::Unknown,
    }
}

/// What remains of a value that is copied or extended at 32 bits: only a jump table's entry.
fn table_word(value: Value) -> Value {
    match value {
        Value::TableWord(_) => value,
        _ => Value::Unknown,
    }
}

fn lea(state: &mut State, instruction: &Instruction, at: u32, next: u64) {
    let (destination, Some(memory)) = (instruction.register(0), instruction.memory()) else { return };
    let Some(register) = destination.general() else { return };
    let Memory { base, index, displacement, .. } = memory;
    let value = match () {
        () if destination.general_bytes() < 8 => Value::Unknown,
        () if memory.is_beside_code() => Value::Constant(next.wrapping_add_signed(displacement)),
        () if base == Register::NONE && index == Register::NONE => Value::Constant(displacement as u64),
        () if index == Register::NONE => value_of(state, base).plus(displacement),
        () if displacement == 0 && memory.scale == 1 => sum(value_of(state, base), value_of(state, index)),
        () => Value::Unknown,
    };
    state.set(register, value, at);
}

fn push(state: &mut State, instruction: &Instruction, at: u32) {
    let value = match (instruction.memory(), instruction.immediate()) {
        (Some(memory), _) => load(state, &memory),
        (None, Some(constant)) => Value::Constant(constant),
        (None, None) => value_of(state, instruction.register(0)),
    };
    push_value(state, value, -instruction.stack_change() as i32, at);
}

fn push_value(state: &mut State, value: Value, len: i32, at: u32) {
    move_stack(state, -i64::from(len), at);
    if let Value::Stack { base, offset } = state.get(RSP) {
        state.store(StackAddress::new(base, offset), len, value);
    }
}

fn move_stack(state: &mut State, by: i64, at: u32) {
    let top = state.get(RSP).plus(by);
    state.set(RSP, top, at);
}

/// The value at the top of the stack.
fn top_of_stack(state: &State) -> Value {
    match state.get(RSP) {
        Value::Stack { base, offset } => state.load(StackAddress::new(base, offset)),
        _ => Value::Unknown,
    }
}

fn pop(state: &mut State, instruction: &Instruction, at: u32) {
    let value = top_of_stack(state);
    move_stack(state, instruction.stack_change(), at);
    if let Some(memory) = instruction.memory() {
        return store(state, &memory, 8, value);
    }
    let register = instruction.register(0);
    match register.general() {
        Some(full) if register.general_bytes() == 8 => state.set(full, value, at),
        Some(part) => state.set(part, Value::Unknown, at),
        None => {}
    }
}

/// `add` and `sub`, by sign.
fn add(state: &mut State, instruction: &Instruction, at: u32, sign: i64) {
    if instruction.writes_memory_operand() {
        return change_memory(state, instruction);
    }
    let Some(register) = instruction.register(0).general() else { return };
    let old = value_of(state, instruction.register(0));
    let value = match instruction.immediate() {
        Some(by) => old.plus((by as i64).wrapping_mul(sign)),
        None => match value_of(state, instruction.register(1)) {
            Value::Constant(by) if sign < 0 => old.plus((by as i64).wrapping_neg()),
            other if sign > 0 => sum(old, other),
            _ => Value::Unknown,
        },
    };
    // A write to half of a register leaves nothing known.
    let is_whole = instruction.register(0).general_bytes() == 8;
    state.set(register, if is_whole { value } else { Value::Unknown }, at);
}

/// `a + b`
fn sum(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::TableWord(table), Value::Constant(base)) | (Value::Constant(base), Value::TableWord(table)) => {
            let base = i32::try_from(base.wrapping_sub(table) as i64);
            base.map_or(Value::Unknown, |base| Value::TableTarget { table, base })
        }
        (Value::Stack { .. }, Value::Constant(by)) => a.plus(by as i64),
        (Value::Constant(by), Value::Stack { .. }) => b.plus(by as i64),
        _ => Value::Unknown,
    }
}

fn step(state: &mut State, instruction: &Instruction, at: u32, by: i64) {
    if instruction.writes_memory_operand() {
        return change_memory(state, instruction);
    }
    let Some(register) = instruction.register(0).general() else { return };
    let is_whole = instruction.register(0).general_bytes() == 8;
    let value = if is_whole { state.get(register).plus(by) } else { Value::Unknown };
    state.set(register, value, at);
}

fn and(state: &mut State, instruction: &Instruction, at: u32) {
    if instruction.writes_memory_operand() && leaves_memory(instruction) {
        return;
    }
    if let Some(mask) = instruction.immediate() {
        state.bound = u32::try_from(mask).ok().or(state.bound);
    }
    if instruction.writes_memory_operand() {
        return change_memory(state, instruction);
    }
    let Some(register) = instruction.register(0).general() else { return };
    let is_stack = value_of(state, instruction.register(0)).base().is_some();
    let value = if is_stack { state.fresh(at) } else { Value::Unknown };
    state.set(register, value, at);
}

fn xor(state: &mut State, instruction: &Instruction, at: u32) {
    if instruction.writes_memory_operand() {
        return change_memory(state, instruction);
    }
    let Some(register) = instruction.register(0).general() else { return };
    let clears = instruction.is_clearing() && instruction.register(0).general_bytes() >= 4;
    if clears && register == RBP && state.after_system_call {
        // The psABI's mark of the outermost frame, where a new thread begins.
        state.is_outermost = true;
        state.is_changed = true;
    }
    state.set(register, if clears { Value::Constant(0) } else { Value::Unknown }, at);
}

fn leave(state: &mut State, at: u32) {
    let frame = state.get(RBP);
    state.set(RSP, frame, at);
    let saved = match frame {
        Value::Stack { base, offset } => state.load(StackAddress::new(base, offset)),
        _ => Value::Unknown,
    };
    state.set(RBP, saved, at);
    move_stack(state, 8, at);
}

fn enter(state: &mut State, instruction: &Instruction, at: u32) {
    let frame = state.get(RBP);
    push_value(state, frame, 8, at);
    let top = state.get(RSP);
    state.set(RBP, top, at);
    move_stack(state, instruction.stack_change() + 8, at);
}

/// Marks the memory operand as changed, unless the instruction leaves it as it was.
fn change_memory(state: &mut State, instruction: &Instruction) {
    if !leaves_memory(instruction)
        && let Some(memory) = instruction.memory()
    {
        store_unknown(state, &memory);
    }
}

fn store_unknown(state: &mut State, memory: &Memory) {
    store(state, memory, i32::from(memory.bytes).max(1), Value::Unknown);
}

/// A memory operand of eight bytes on the stack whose index is unknown: base, offset, and the index's register.
fn on_stack_by_index(state: &State, memory: &Memory) -> Option<(Base, i32, usize)> {
    let index = memory.index.general64().filter(|&index| state.get(index) == Value::Unknown)?;
    match value_of(state, memory.base).plus(memory.displacement) {
        Value::Stack { base, offset } if memory.bytes == 8 && !memory.has_segment => Some((base, offset, index)),
        _ => None,
    }
}

/// Writes `len` bytes to the memory operand.
fn store(state: &mut State, memory: &Memory, len: i32, value: Value) {
    if let Value::Stack { base: Base::CFA, offset: from_cfa } = value
        && memory.index != Register::NONE
        && let Some((base, offset, index)) = on_stack_by_index(state, memory)
    {
        return state.store_indexed(IndexedSlot { base, offset, index: index as u8, scale: memory.scale, from_cfa });
    }
    let Some((base, offset)) = on_stack(state, memory) else { return };
    match memory.base {
        Register::RSP | Register::RBP => state.store(StackAddress::new(base, offset), len, value),
        _ if value == Value::Unknown => state.store_through_pointer(StackAddress::new(base, offset), len),
        _ => state.store(StackAddress::new(base, offset), len, value),
    }
}
