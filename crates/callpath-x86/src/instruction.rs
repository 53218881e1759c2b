//! One instruction as a small value: what it reads, writes and does. It is built once from what iced-x86 decodes.
//!
//! The meaning of instructions is defined here alone: a new instruction needs a rule here and in `shape`, with a test
//! below. Every analysis asks this value.

#[cfg(test)]
mod agreement;
pub(crate) mod motion;
mod register;
mod shape;
mod sum;

use std::num::NonZeroU8;

use iced_x86::{Decoder, DecoderOptions, Instruction as Iced};

pub(crate) use register::{Register, RegisterSet};
use shape::{CONTROL_BITS, CONTROLS, Layout, OPERATIONS, Shape};
pub(crate) use shape::{Condition, Control, Operation};

/// The longest instruction, bytes.
pub(crate) const LONGEST_BYTES: usize = 15;

/// One instruction, without its address: distances are counted from its end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instruction {
    /// The number of its shape; above it the scale of the index.
    shape_and_scale: u16,
    /// Its length in bytes, and flags.
    len_and_flags: NonZeroU8,
    /// Its operation and control: what is asked for most.
    meaning: u8,
    /// The first two operands where they are registers.
    registers: [u8; 2],
    base: u8,
    index: u8,
    /// A constant in the lower half, a displacement in the upper; with [`Instruction::WIDE`], one of them in all 64
    /// bits. A constant beside a third or fourth register has one byte; the registers are above it.
    value: u64,
}

// Instructions are read in large numbers: no more than a quarter of a cache line each.
const _: () = assert!(size_of::<Option<Instruction>>() == 16);

/// A memory operand: `base + index * scale + displacement`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Memory {
    /// [`Register::NONE`] if there is no base; with [`Register::RIP`] the displacement is counted from the
    /// instruction's end.
    pub(crate) base: Register,
    pub(crate) index: Register,
    pub(crate) scale: u8,
    /// Bytes.
    pub(crate) displacement: i64,
    /// fs or gs is added.
    pub(crate) has_segment: bool,
    /// The size of the access, bytes; 0 if there is no access, or if its size is not fixed.
    pub(crate) bytes: u16,
}

impl Memory {
    /// `[rip + displacement]`
    #[inline]
    pub(crate) fn is_beside_code(&self) -> bool {
        self.base == Register::RIP
    }

    /// Whether it is `[base + displacement]` without index and segment.
    #[inline]
    pub(crate) fn is_only(&self, base: Register) -> bool {
        self.base == base && self.index == Register::NONE && !self.has_segment
    }
}

/// The access to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    None,
    Read,
    Write,
    ReadWrite,
}

impl Access {
    fn of(is_read: bool, is_written: bool) -> Access {
        match (is_read, is_written) {
            (false, false) => Access::None,
            (true, false) => Access::Read,
            (false, true) => Access::Write,
            (true, true) => Access::ReadWrite,
        }
    }
}

/// Flags, a bit each, in this order: overflow, sign, zero, auxiliary carry, carry, parity, direction, interrupt and
/// others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Flags(pub(crate) u16);

impl Instruction {
    const SCALE_SHIFT: u32 = 14;
    /// All bits of the constant's upper half are set.
    const NEGATIVE: u8 = 0x10;
    /// The constant or displacement takes 64 bits.
    const WIDE: u8 = 0x20;
    const SEGMENT: u8 = 0x40;
    /// In [`crate::decoded::Decoded`]: the next instruction does not follow directly.
    const UNFOLLOWED: u8 = 0x80;

    /// The instruction that `bytes` begin with; `None` if they are not one, or end inside it.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Instruction> {
        let bytes = bytes.get(..LONGEST_BYTES).unwrap_or(bytes);
        let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
        let mut iced = Iced::default();
        if !decoder.can_decode() {
            return None;
        }
        decoder.decode_out(&mut iced);
        Instruction::of(&iced)
    }

    /// Converts what iced-x86 decoded.
    #[inline]
    pub(crate) fn of(iced: &Iced) -> Option<Instruction> {
        if iced.is_invalid() {
            return None;
        }
        let (number, shape) = shape::shape_of(iced);
        let register = |iced: iced_x86::Register, blank: u8| Register::of(iced).encoded() | blank;
        let mut instruction = Instruction {
            shape_and_scale: number,
            len_and_flags: NonZeroU8::new(iced.len() as u8)?,
            meaning: shape.meaning,
            registers: [register(iced.op0_register(), shape.blanks[0]), register(iced.op1_register(), shape.blanks[1])],
            base: Register::NONE.encoded(),
            index: Register::NONE.encoded(),
            value: 0,
        };
        if shape.layout.has(Layout::DISTANCE) {
            let distance = iced.near_branch_target().wrapping_sub(iced.next_ip()) as i32;
            instruction.value = u64::from(distance as u32);
            if distance < 0 {
                instruction.len_and_flags |= Instruction::NEGATIVE;
            }
        }
        if shape.layout.has(Layout::CONSTANT) {
            instruction.put_constant(iced, shape);
        }
        if shape.layout.has(Layout::MORE_REGISTERS) {
            instruction.put_more_registers(iced, shape);
        }
        if shape.layout.has(Layout::MEMORY) {
            instruction.put_memory(iced);
        }
        Some(instruction)
    }

    #[inline]
    fn put_constant(&mut self, iced: &Iced, shape: &Shape) {
        let constant = match shape.operation {
            // Both of its constants, as one value.
            Operation::Enter => i64::from(iced.stack_pointer_increment()) as u64,
            _ => iced.immediate(shape.immediate.unwrap_or(0).into()),
        };
        self.value = match constant >> 32 {
            0 => constant,
            0xffff_ffff => {
                self.len_and_flags |= Instruction::NEGATIVE;
                constant & 0xffff_ffff
            }
            _ => {
                self.len_and_flags |= Instruction::WIDE;
                constant
            }
        };
    }

    #[inline(never)]
    fn put_more_registers(&mut self, iced: &Iced, shape: &Shape) {
        self.value &= 0xff;
        for (operand, iced) in [(2, iced.op2_register()), (3, iced.op3_register())] {
            if shape.registers[operand] {
                self.value |= u64::from(Register::of(iced).encoded()) << (8 * (operand - 1));
            }
        }
    }

    #[inline]
    fn put_memory(&mut self, iced: &Iced) {
        let base = match Register::of(iced.memory_base()) {
            Register::NONE => Register::FLAT,
            base => base,
        };
        let index = Register::of(iced.memory_index());
        (self.base, self.index) = (base.encoded(), index.encoded());
        self.shape_and_scale |= (iced.memory_index_scale().trailing_zeros() as u16) << Instruction::SCALE_SHIFT;
        let address = iced.memory_displacement64();
        let displacement = if base == Register::RIP { address.wrapping_sub(iced.next_ip()) } else { address };
        if base == Register::FLAT && index == Register::NONE && displacement as i32 as u64 != displacement {
            self.len_and_flags |= Instruction::WIDE;
            self.value = displacement;
        } else {
            self.value |= displacement << 32;
        }
        if matches!(iced.memory_segment(), iced_x86::Register::FS | iced_x86::Register::GS) {
            self.len_and_flags |= Instruction::SEGMENT;
        }
    }

    #[inline]
    fn shape(&self) -> &'static Shape {
        shape::known(self.shape_and_scale & ((1 << Instruction::SCALE_SHIFT) - 1))
    }

    #[inline]
    fn has(&self, flag: u8) -> bool {
        self.len_and_flags.get() & flag != 0
    }

    pub(crate) fn set_unfollowed(&mut self) {
        self.len_and_flags |= Instruction::UNFOLLOWED;
    }

    #[inline]
    pub(crate) fn is_followed(&self) -> bool {
        !self.has(Instruction::UNFOLLOWED)
    }

    /// Bytes.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        u32::from(self.len_and_flags.get() & 15)
    }

    #[inline]
    pub(crate) fn operation(&self) -> Operation {
        OPERATIONS[usize::from(self.meaning >> CONTROL_BITS)]
    }

    /// Where control goes. A call of the next instruction, which only pushes its address, counts as continuing.
    #[inline]
    pub(crate) fn control(&self) -> Control {
        match CONTROLS[usize::from(self.meaning & ((1 << CONTROL_BITS) - 1))] {
            Control::Call if self.distance() == 0 => Control::Next,
            control => control,
        }
    }

    /// Whether control goes only to the next instruction, whatever the operands are.
    #[inline]
    pub(crate) fn only_falls_through(&self) -> bool {
        self.meaning & ((1 << CONTROL_BITS) - 1) == Control::Next as u8
    }

    /// The condition on flags.
    #[inline]
    pub(crate) fn condition(&self) -> Option<Condition> {
        self.shape().condition
    }

    /// The distance of a jump's or call's target from the instruction's end.
    #[inline]
    pub(crate) fn distance(&self) -> i64 {
        i64::from(self.value as u32 as i32)
    }

    /// The target of a jump or call that ends at `next`.
    #[inline]
    pub(crate) fn target(&self, next: u64) -> u64 {
        next.wrapping_add_signed(self.distance())
    }

    /// An operand by number, from 0, if it is a register; else [`Register::NONE`].
    #[inline]
    pub(crate) fn register(&self, operand: usize) -> Register {
        match self.registers.get(operand) {
            Some(&encoded) => Register::decoded(encoded),
            None => self.further_register(operand),
        }
    }

    /// The third operand, or the fourth.
    fn further_register(&self, operand: usize) -> Register {
        let is_register = self.shape().registers.get(operand) == Some(&true);
        if is_register { Register::decoded((self.value >> (8 * (operand - 1))) as u8) } else { Register::NONE }
    }

    /// A constant operand, extended as the processor extends it.
    #[inline]
    pub(crate) fn immediate(&self) -> Option<u64> {
        let shape = self.shape();
        shape.immediate?;
        if shape.layout.has(Layout::MORE_REGISTERS) {
            return Some(self.value & 0xff);
        }
        if self.has(Instruction::WIDE) && self.base == Register::NONE.encoded() {
            return Some(self.value);
        }
        let upper = if self.has(Instruction::NEGATIVE) { u64::from(u32::MAX) << 32 } else { 0 };
        Some(upper | u64::from(self.value as u32))
    }

    /// Whether it has a memory operand, accessed or not.
    #[inline]
    pub(crate) fn has_memory(&self) -> bool {
        self.base != Register::NONE.encoded()
    }

    /// The memory operand.
    #[inline]
    pub(crate) fn memory(&self) -> Option<Memory> {
        if !self.has_memory() {
            return None;
        }
        let base = Register::decoded(self.base);
        let displacement = if self.has(Instruction::WIDE) { self.value as i64 } else { self.value as i64 >> 32 };
        Some(Memory {
            base: if base == Register::FLAT { Register::NONE } else { base },
            index: Register::decoded(self.index),
            scale: 1 << (self.shape_and_scale >> Instruction::SCALE_SHIFT),
            displacement,
            has_segment: self.has(Instruction::SEGMENT),
            bytes: self.shape().memory_bytes,
        })
    }

    /// The access to the memory operand.
    #[inline]
    pub(crate) fn memory_access(&self) -> Access {
        if self.has_memory() { self.shape().memory } else { Access::None }
    }

    #[inline]
    pub(crate) fn writes_memory_operand(&self) -> bool {
        matches!(self.memory_access(), Access::Write | Access::ReadWrite)
    }

    /// The address of the word beside the code that the instruction, which ends at `next`, uses.
    #[inline]
    pub(crate) fn beside_code(&self, next: u64) -> Option<u64> {
        let memory = self.memory().filter(Memory::is_beside_code)?;
        Some(next.wrapping_add_signed(memory.displacement))
    }

    /// What the instruction adds to rsp, bytes, if the instruction alone determines it.
    #[inline]
    pub(crate) fn stack_change(&self) -> i64 {
        let shape = self.shape();
        let own = match shape.control {
            _ if shape.operation == Operation::Enter => self.immediate().unwrap_or(0) as i64,
            Control::Return => self.immediate().unwrap_or(0) as i64,
            _ => 0,
        };
        i64::from(shape.stack_change) + own
    }

    /// Whether the result does not depend on the operands: `xor eax, eax`.
    #[inline]
    pub(crate) fn is_clearing(&self) -> bool {
        self.shape().clears && self.registers[0] == self.registers[1] && self.registers[0] != Register::NONE.encoded()
    }

    /// Whole registers that are read in part or completely, also to compute an address.
    pub(crate) fn reads(&self) -> RegisterSet {
        let shape = self.shape();
        let mut reads = shape.reads;
        if !self.is_clearing() {
            for (operand, register) in shape.operands.iter().zip(self.operand_registers()) {
                if operand.is_read {
                    reads = reads.with(register.set());
                }
            }
        }
        if shape.uses_address {
            reads = reads.with(Register::decoded(self.base).set()).with(Register::decoded(self.index).set());
        }
        reads
    }

    /// Whole registers that may be written in part or completely.
    #[inline]
    pub(crate) fn writes(&self) -> RegisterSet {
        self.written(|operand, _| operand.is_written, self.shape().writes)
    }

    /// Whole registers whose old values are lost completely.
    pub(crate) fn replaces(&self) -> RegisterSet {
        self.written(|operand, register| operand.is_always_written && register.is_replaced(), self.shape().replaces)
    }

    #[inline]
    fn written(&self, is_in: impl Fn(&shape::OperandShape, Register) -> bool, implicit: RegisterSet) -> RegisterSet {
        let mut written = implicit;
        for (operand, register) in self.shape().operands.iter().zip(self.operand_registers()) {
            if is_in(operand, register) {
                written = written.with(register.set());
            }
        }
        written
    }

    #[inline]
    fn operand_registers(&self) -> [Register; 4] {
        let [a, b] = self.registers.map(Register::decoded);
        if !self.shape().layout.has(Layout::MORE_REGISTERS) {
            return [a, b, Register::NONE, Register::NONE];
        }
        [a, b, self.further_register(2), self.further_register(3)]
    }

    /// Flags that are read.
    pub(crate) fn flags_read(&self) -> Flags {
        self.shape().flags_read
    }

    /// Flags that may be changed.
    pub(crate) fn flags_written(&self) -> Flags {
        self.shape().flags_written
    }

    /// Flags whose old values are lost.
    pub(crate) fn flags_replaced(&self) -> Flags {
        self.shape().flags_replaced
    }

    /// Whether only the kernel may execute it.
    #[inline]
    pub(crate) fn is_privileged(&self) -> bool {
        self.operation() == Operation::Privileged
    }

    /// Whether it may raise a signal: by its memory access, by a division, or by design.
    #[cfg_attr(not(test), expect(dead_code, reason = "code that changes code will ask, from the next issues on"))]
    pub(crate) fn may_fault(&self) -> bool {
        self.shape().may_fault
    }

    /// Whether it only fills the space between procedures or before a loop: `nop`, `int3`, `lea rsi, [rsi+0]`. Not `mov
    /// edi, edi`, which clears the upper half.
    #[inline]
    pub(crate) fn is_padding(&self) -> bool {
        match self.operation() {
            Operation::Nop | Operation::Breakpoint => true,
            Operation::LoadAddress => {
                self.registers[0] == self.base
                    && self.index == Register::NONE.encoded()
                    && self.value >> 32 == 0
                    && self.register(0).general64().is_some()
            }
            _ => false,
        }
    }

    /// The constant of four or eight bytes that a `mov` or `push` stores: where addresses are not relocated, it may be
    /// one.
    pub(crate) fn stored_word(&self) -> Option<u64> {
        let bytes = self.memory().map_or(self.register(0).general_bytes().into(), |memory| memory.bytes);
        let is_word = match self.operation() {
            Operation::Move => bytes == 4 || bytes == 8,
            Operation::Push => true,
            _ => false,
        };
        self.immediate().filter(|_| is_word)
    }

    /// Whether it is `mov rsp, x`, from a register or memory.
    #[inline]
    pub(crate) fn loads_stack_pointer(&self) -> bool {
        self.operation() == Operation::Move && self.register(0) == Register::RSP
    }

    /// Whether it is `mov rsp, x`, from a register.
    pub(crate) fn copies_to_stack_pointer(&self) -> bool {
        self.loads_stack_pointer() && self.register(1).general64().is_some()
    }

    /// The register that a comparison of all 64 bits compares with rsp.
    pub(crate) fn compared_with_stack_pointer(&self) -> Option<usize> {
        if self.operation() != Operation::Compare {
            return None;
        }
        match (self.register(0), self.register(1)) {
            (Register::RSP, other) | (other, Register::RSP) => other.general64(),
            _ => None,
        }
    }
}

/// The instructions of `code` in order, with their addresses, up to the first bytes that are not one.
pub(crate) struct Listing<'c> {
    decoder: Decoder<'c>,
    len: usize,
    start: u64,
    /// Offset of the next instruction, bytes.
    offset: usize,
}

impl<'c> Listing<'c> {
    /// `start`: the address of `code`.
    pub(crate) fn new(code: &'c [u8], start: u64) -> Listing<'c> {
        Listing { decoder: Decoder::new(64, code, DecoderOptions::NONE), len: code.len(), start, offset: 0 }
    }

    /// The address of the next instruction.
    pub(crate) fn address(&self) -> u64 {
        self.start.wrapping_add(self.offset as u64)
    }

    /// Whether all bytes were instructions.
    pub(crate) fn is_at_end(&self) -> bool {
        self.offset == self.len
    }
}

impl Iterator for Listing<'_> {
    /// The address, and the instruction.
    type Item = (u64, Instruction);

    fn next(&mut self) -> Option<(u64, Instruction)> {
        let at = self.address();
        if !self.decoder.can_decode() || self.decoder.position() != self.offset {
            return None;
        }
        let instruction = Instruction::of(&self.decoder.decode())?;
        self.offset += instruction.len() as usize;
        Some((at, instruction))
    }
}

impl std::fmt::Debug for Instruction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?}", self.operation(), self.registers.map(Register::decoded))?;
        if let Some(memory) = self.memory() {
            write!(f, " [{:?} + {:?} * {} + {:#x}]", memory.base, memory.index, memory.scale, memory.displacement)?;
        }
        self.immediate().map_or(Ok(()), |immediate| write!(f, " {immediate:#x}"))
    }
}
