//! What one instruction does to the abstract frame.
//! Knows nothing of control flow and of recipes.
//!
//! Instructions that compilers build frames with have rules of their own; of all others it is enough to know which
//! registers they write. Stores through pointers of which nothing is known are taken not to hit saved registers: a
//! program in which they do is broken.

use iced_x86::{
    Instruction, InstructionInfoFactory, InstructionInfoOptions, MemorySize, Mnemonic, OpAccess, OpKind, Register,
};

use crate::decode::number;
use crate::state::{RAX, RBP, RSP, State};
use crate::value::{Base, Value};

/// Applies instructions to states.
pub(crate) struct Effects {
    info: InstructionInfoFactory,
}

impl Effects {
    pub(crate) fn new() -> Effects {
        Effects { info: InstructionInfoFactory::new() }
    }

    /// Changes `state` to what it is after `instruction`, which stands at position `at`.
    pub(crate) fn apply(&mut self, state: &mut State, instruction: &Instruction, at: u32) {
        if leaves_memory(instruction) {
            return;
        }
        match instruction.mnemonic() {
            Mnemonic::Mov => self.mov(state, instruction, at),
            Mnemonic::Lea => lea(state, instruction, at),
            Mnemonic::Push => push(state, instruction, at),
            Mnemonic::Pop => pop(state, instruction, at),
            Mnemonic::Add => add(state, instruction, at, 1),
            Mnemonic::Sub => add(state, instruction, at, -1),
            Mnemonic::Inc => step(state, instruction, at, 1),
            Mnemonic::Dec => step(state, instruction, at, -1),
            Mnemonic::Cmp => {
                if let Some(bound) = immediate(instruction, 1) {
                    state.bound = u32::try_from(bound).ok();
                }
            }
            Mnemonic::Test => {}
            Mnemonic::And => and(state, instruction, at),
            Mnemonic::Xor => xor(state, instruction, at),
            Mnemonic::Movsxd => self.load_or_copy(state, instruction, at),
            Mnemonic::Cdqe => {
                let value = table_word(state.get(RAX));
                state.set(RAX, value, at);
            }
            Mnemonic::Call => call(state, instruction, at),
            Mnemonic::Leave => leave(state, at),
            Mnemonic::Enter => enter(state, instruction, at),
            Mnemonic::Pushfq => push_value(state, Value::Unknown, 8, at),
            Mnemonic::Popfq => {
                let value = state.get(RSP).plus(8);
                state.set(RSP, value, at);
            }
            Mnemonic::Xchg => self.xchg(state, instruction, at),
            Mnemonic::Syscall => {
                self.any(state, instruction, at);
                state.after_system_call = true;
            }
            Mnemonic::Nop | Mnemonic::Endbr64 => {}
            _ => self.any(state, instruction, at),
        }
    }

    fn mov(&mut self, state: &mut State, instruction: &Instruction, at: u32) {
        match (instruction.op0_kind(), instruction.op1_kind()) {
            (OpKind::Memory, source) => {
                let len = instruction.memory_size().size() as i32;
                let value = match source {
                    OpKind::Register => full_register(instruction.op1_register()).map(|reg| state.get(reg)),
                    _ => None,
                };
                store(state, instruction, len, value.unwrap_or_default());
            }
            (OpKind::Register, OpKind::Memory | OpKind::Register) => self.load_or_copy(state, instruction, at),
            (OpKind::Register, _) => match (number(instruction.op0_register()), immediate(instruction, 1)) {
                (Some(register), Some(value)) if instruction.op0_register().size() >= 4 => {
                    state.set(register, Value::Constant(value), at);
                }
                _ => self.any(state, instruction, at),
            },
            _ => self.any(state, instruction, at),
        }
    }

    /// `mov` and `movsxd` from a register or from memory.
    fn load_or_copy(&mut self, state: &mut State, instruction: &Instruction, at: u32) {
        let destination = instruction.op0_register();
        let Some(register) = number(destination) else { return self.any(state, instruction, at) };
        if destination.size() < 4 {
            return self.any(state, instruction, at);
        }
        let value = match instruction.op1_kind() {
            OpKind::Register if instruction.op1_register().size() == 8 => {
                number(instruction.op1_register()).map_or(Value::Unknown, |source| state.get(source))
            }
            OpKind::Register => {
                number(instruction.op1_register()).map_or(Value::Unknown, |source| table_word(state.get(source)))
            }
            OpKind::Memory => load(state, instruction),
            _ => Value::Unknown,
        };
        state.set(register, value, at);
    }

    fn xchg(&mut self, state: &mut State, instruction: &Instruction, at: u32) {
        let (a, b) = (full_register(instruction.op0_register()), full_register(instruction.op1_register()));
        match (instruction.op0_kind(), a, b) {
            (OpKind::Register, Some(a), Some(b)) => {
                let (x, y) = (state.get(a), state.get(b));
                state.set(a, y, at);
                state.set(b, x, at);
            }
            (OpKind::Memory, _, Some(b)) => {
                let (from, to) = (state.get(b), load(state, instruction));
                store(state, instruction, 8, from);
                state.set(b, to, at);
            }
            _ => self.any(state, instruction, at),
        }
    }

    /// An instruction of which only the written registers are of interest.
    fn any(&mut self, state: &mut State, instruction: &Instruction, at: u32) {
        if instruction.op0_kind() == OpKind::Memory && writes_memory(instruction) {
            store_unknown(state, instruction);
        }
        if works_on_vectors(instruction) {
            return;
        }
        if let Some(register) = only_written(instruction).filter(|&register| register != RSP) {
            return state.set(register, Value::Unknown, at);
        }
        let info = self.info.info_options(instruction, InstructionInfoOptions::NO_MEMORY_USAGE);
        for used in info.used_registers() {
            let writes = matches!(
                used.access(),
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            );
            if writes && let Some(register) = number(used.register()) {
                if register == RSP {
                    let by = instruction.stack_pointer_increment();
                    let value = if by != 0 { state.get(RSP).plus(by.into()) } else { state.fresh(at) };
                    state.set(RSP, value, at);
                } else {
                    state.set(register, Value::Unknown, at);
                }
            }
        }
    }
}

/// Of an instruction it is enough to know what it writes ([`Effects::any`]), and what it reads (`Trial::uses`).
pub(crate) fn is_plain(instruction: &Instruction) -> bool {
    !leaves_memory(instruction)
        && !matches!(
            instruction.mnemonic(),
            Mnemonic::Mov
                | Mnemonic::Lea
                | Mnemonic::Push
                | Mnemonic::Pop
                | Mnemonic::Add
                | Mnemonic::Sub
                | Mnemonic::Inc
                | Mnemonic::Dec
                | Mnemonic::Cmp
                | Mnemonic::Test
                | Mnemonic::And
                | Mnemonic::Xor
                | Mnemonic::Movsxd
                | Mnemonic::Cdqe
                | Mnemonic::Call
                | Mnemonic::Leave
                | Mnemonic::Enter
                | Mnemonic::Pushfq
                | Mnemonic::Popfq
                | Mnemonic::Xchg
                | Mnemonic::Syscall
                | Mnemonic::Nop
                | Mnemonic::Endbr64
                | Mnemonic::Hlt
        )
}

/// The register of an operand of eight bytes.
fn full_register(register: Register) -> Option<usize> {
    if register.size() == 8 { number(register) } else { None }
}

/// An immediate operand, sign-extended.
fn immediate(instruction: &Instruction, operand: u32) -> Option<u64> {
    match instruction.op_kind(operand) {
        OpKind::Immediate8
        | OpKind::Immediate16
        | OpKind::Immediate32
        | OpKind::Immediate64
        | OpKind::Immediate8to16
        | OpKind::Immediate8to32
        | OpKind::Immediate8to64
        | OpKind::Immediate32to64 => Some(instruction.immediate(operand)),
        _ => None,
    }
}

/// A memory operand on the stack whose place is known.
fn stack_operand(state: &State, instruction: &Instruction) -> Option<(Base, i32)> {
    if instruction.memory_index() != Register::None || instruction.segment_prefix() != Register::None {
        return None;
    }
    let address = state.get(full_register(instruction.memory_base())?);
    match address.plus(instruction.memory_displacement64() as i64) {
        Value::Stack { base, offset } => Some((base, offset)),
        _ => None,
    }
}

/// What a memory operand holds.
pub(crate) fn load(state: &State, instruction: &Instruction) -> Value {
    if instruction.segment_prefix() != Register::None {
        return Value::Unknown;
    }
    let size = instruction.memory_size();
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    if index == Register::None {
        let is_word = matches!(size, MemorySize::UInt64 | MemorySize::Int64 | MemorySize::QwordOffset);
        return match stack_operand(state, instruction) {
            Some((base, offset)) if is_word => state.load(base, offset),
            _ => Value::Unknown,
        };
    }
    let of = |register| full_register(register).map_or(Value::Unknown, |register| state.get(register));
    let displacement = instruction.memory_displacement64();
    let table = match (of(base), of(index)) {
        (Value::Constant(table), _) => table.wrapping_add(displacement),
        (_, Value::Constant(table)) if instruction.memory_index_scale() == 1 => table.wrapping_add(displacement),
        _ if base == Register::None => displacement,
        _ => return Value::Unknown,
    };
    match size {
        MemorySize::UInt32 | MemorySize::Int32 => Value::TableWord(table),
        MemorySize::UInt64 | MemorySize::Int64 | MemorySize::QwordOffset => Value::TablePointer(table),
        _ => Value::Unknown,
    }
}

/// A value of 32 bits that was copied or extended: only a table's word survives that.
pub(crate) fn table_word(value: Value) -> Value {
    match value {
        Value::TableWord(_) => value,
        _ => Value::Unknown,
    }
}

fn lea(state: &mut State, instruction: &Instruction, at: u32) {
    let destination = instruction.op0_register();
    let Some(register) = number(destination) else { return };
    let displacement = instruction.memory_displacement64();
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    let of = |register| full_register(register).map_or(Value::Unknown, |register| state.get(register));
    let value = match () {
        () if destination.size() < 8 => Value::Unknown,
        () if instruction.is_ip_rel_memory_operand() => Value::Constant(instruction.ip_rel_memory_address()),
        () if base == Register::None && index == Register::None => Value::Constant(displacement),
        () if index == Register::None => of(base).plus(displacement as i64),
        () if displacement == 0 && instruction.memory_index_scale() == 1 => sum(of(base), of(index)),
        () => Value::Unknown,
    };
    state.set(register, value, at);
}

fn push(state: &mut State, instruction: &Instruction, at: u32) {
    let value = match instruction.op0_kind() {
        OpKind::Register => full_register(instruction.op0_register()).map_or(Value::Unknown, |reg| state.get(reg)),
        OpKind::Memory => load(state, instruction),
        _ => immediate(instruction, 0).map_or(Value::Unknown, Value::Constant),
    };
    push_value(state, value, -instruction.stack_pointer_increment(), at);
}

pub(crate) fn push_value(state: &mut State, value: Value, len: i32, at: u32) {
    let top = state.get(RSP).plus(-i64::from(len));
    state.set(RSP, top, at);
    if let Value::Stack { base, offset } = state.get(RSP) {
        state.store(base, offset, len, value);
    }
}

fn pop(state: &mut State, instruction: &Instruction, at: u32) {
    let top = state.get(RSP);
    let value = match top {
        Value::Stack { base, offset } => state.load(base, offset),
        _ => Value::Unknown,
    };
    let after = top.plus(instruction.stack_pointer_increment().into());
    state.set(RSP, after, at);
    match instruction.op0_kind() {
        OpKind::Register => {
            let register = instruction.op0_register();
            match number(register) {
                Some(full) if register.size() == 8 => state.set(full, value, at),
                Some(part) => state.set(part, Value::Unknown, at),
                None => {}
            }
        }
        _ => {
            store(state, instruction, 8, value);
        }
    }
}

/// `add` and `sub`, by sign.
fn add(state: &mut State, instruction: &Instruction, at: u32, sign: i64) {
    if instruction.op0_kind() != OpKind::Register {
        return store_unknown(state, instruction);
    }
    let Some(register) = number(instruction.op0_register()) else { return };
    if instruction.op0_register().size() < 8 {
        return state.set(register, Value::Unknown, at);
    }
    let old = state.get(register);
    let value = match (immediate(instruction, 1), instruction.op1_kind()) {
        (Some(by), _) => old.plus((by as i64).wrapping_mul(sign)),
        (None, OpKind::Register) => {
            let other = full_register(instruction.op1_register()).map_or(Value::Unknown, |reg| state.get(reg));
            match other {
                Value::Constant(by) if sign < 0 => old.plus((by as i64).wrapping_neg()),
                _ if sign > 0 => sum(old, other),
                _ => Value::Unknown,
            }
        }
        _ => Value::Unknown,
    };
    state.set(register, value, at);
}

/// `a + b`
pub(crate) fn sum(a: Value, b: Value) -> Value {
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
    match number(instruction.op0_register()) {
        _ if instruction.op0_kind() != OpKind::Register => store_unknown(state, instruction),
        Some(register) if instruction.op0_register().size() == 8 => {
            let value = state.get(register).plus(by);
            state.set(register, value, at);
        }
        Some(register) => state.set(register, Value::Unknown, at),
        None => {}
    }
}

fn and(state: &mut State, instruction: &Instruction, at: u32) {
    if let Some(mask) = immediate(instruction, 1) {
        state.bound = u32::try_from(mask).ok().or(state.bound);
    }
    if instruction.op0_kind() != OpKind::Register {
        return store_unknown(state, instruction);
    }
    let Some(register) = number(instruction.op0_register()) else { return };
    let is_stack = instruction.op0_register().size() == 8 && state.get(register).base().is_some();
    let value = if is_stack { state.fresh(at) } else { Value::Unknown };
    state.set(register, value, at);
}

fn xor(state: &mut State, instruction: &Instruction, at: u32) {
    if instruction.op0_kind() != OpKind::Register {
        return store_unknown(state, instruction);
    }
    let Some(register) = number(instruction.op0_register()) else { return };
    let clears = instruction.op1_kind() == OpKind::Register
        && instruction.op0_register() == instruction.op1_register()
        && instruction.op0_register().size() >= 4;
    if clears && register == RBP && state.after_system_call {
        // The psABI's mark of the outermost frame, where a new thread begins.
        state.is_outermost = true;
        state.is_changed = true;
    }
    state.set(register, if clears { Value::Constant(0) } else { Value::Unknown }, at);
}

fn call(state: &mut State, instruction: &Instruction, at: u32) {
    if instruction.op0_kind() == OpKind::NearBranch64 && instruction.near_branch_target() == instruction.next_ip() {
        return push_value(state, Value::Constant(instruction.next_ip()), 8, at);
    }
    state.call();
}

pub(crate) fn leave(state: &mut State, at: u32) {
    let frame = state.get(RBP);
    state.set(RSP, frame, at);
    let saved = match frame {
        Value::Stack { base, offset } => state.load(base, offset),
        _ => Value::Unknown,
    };
    state.set(RBP, saved, at);
    let top = state.get(RSP).plus(8);
    state.set(RSP, top, at);
}

fn enter(state: &mut State, instruction: &Instruction, at: u32) {
    let frame = state.get(RBP);
    push_value(state, frame, 8, at);
    let top = state.get(RSP);
    state.set(RBP, top, at);
    let below = i64::from(instruction.stack_pointer_increment()) + 8;
    state.set(RSP, top.plus(below), at);
}

/// `lock or qword [rsp], 0` and its kin: a barrier or a probe of the stack, which changes nothing.
fn leaves_memory(instruction: &Instruction) -> bool {
    let neutral = match instruction.mnemonic() {
        Mnemonic::Or | Mnemonic::Add | Mnemonic::Sub | Mnemonic::Xor => 0,
        Mnemonic::And => u64::MAX,
        _ => return false,
    };
    instruction.op0_kind() == OpKind::Memory && immediate(instruction, 1) == Some(neutral)
}

fn store_unknown(state: &mut State, instruction: &Instruction) {
    store(state, instruction, (instruction.memory_size().size() as i32).max(1), Value::Unknown);
}

/// Writes `len` bytes to the memory operand.
fn store(state: &mut State, instruction: &Instruction, len: i32, value: Value) {
    let Some((base, offset)) = stack_operand(state, instruction) else { return };
    match number(instruction.memory_base()) {
        Some(RSP | RBP) => state.store(base, offset, len, value),
        _ if value == Value::Unknown => state.store_through_pointer(base, offset, len),
        _ => state.store(base, offset, len, value),
    }
}

/// The only register that a frequent instruction writes. What [`InstructionInfoFactory`] says of it is the same, and
/// takes much longer to say.
fn only_written(instruction: &Instruction) -> Option<usize> {
    let writes_first = match instruction.mnemonic() {
        Mnemonic::Movzx
        | Mnemonic::Movsx
        | Mnemonic::Or
        | Mnemonic::Shl
        | Mnemonic::Shr
        | Mnemonic::Sar
        | Mnemonic::Not
        | Mnemonic::Neg
        | Mnemonic::Cmova
        | Mnemonic::Cmovae
        | Mnemonic::Cmovb
        | Mnemonic::Cmovbe
        | Mnemonic::Cmove
        | Mnemonic::Cmovg
        | Mnemonic::Cmovge
        | Mnemonic::Cmovl
        | Mnemonic::Cmovle
        | Mnemonic::Cmovne
        | Mnemonic::Cmovs
        | Mnemonic::Cmovns
        | Mnemonic::Seta
        | Mnemonic::Setae
        | Mnemonic::Setb
        | Mnemonic::Setbe
        | Mnemonic::Sete
        | Mnemonic::Setg
        | Mnemonic::Setge
        | Mnemonic::Setl
        | Mnemonic::Setle
        | Mnemonic::Setne => true,
        Mnemonic::Imul => instruction.op_count() >= 2,
        _ => false,
    };
    if writes_first && instruction.op0_kind() == OpKind::Register { number(instruction.op0_register()) } else { None }
}

/// It writes vector registers, or stores one: no general-purpose register.
pub(crate) fn works_on_vectors(instruction: &Instruction) -> bool {
    let register = match instruction.op0_kind() {
        OpKind::Register => instruction.op0_register(),
        OpKind::Memory => instruction.op1_register(),
        _ => return false,
    };
    register.is_vector_register()
        && !matches!(
            instruction.mnemonic(),
            Mnemonic::Pcmpestri | Mnemonic::Pcmpistri | Mnemonic::Vpcmpestri | Mnemonic::Vpcmpistri
        )
}

/// Of an instruction whose first operand is memory.
pub(crate) fn writes_memory(instruction: &Instruction) -> bool {
    !matches!(
        instruction.mnemonic(),
        Mnemonic::Cmp
            | Mnemonic::Test
            | Mnemonic::Bt
            | Mnemonic::Div
            | Mnemonic::Idiv
            | Mnemonic::Mul
            | Mnemonic::Imul
            | Mnemonic::Fld
            | Mnemonic::Fild
            | Mnemonic::Fldcw
            | Mnemonic::Fadd
            | Mnemonic::Fmul
            | Mnemonic::Fsub
            | Mnemonic::Fdiv
            | Mnemonic::Ldmxcsr
            | Mnemonic::Prefetcht0
            | Mnemonic::Prefetchnta
            | Mnemonic::Jmp
    )
}
