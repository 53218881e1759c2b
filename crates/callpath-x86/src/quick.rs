//! A quick decoder for the encodings that compilers write most: an instruction's length, and what of it the analysis needs.
//! Knows nothing of frames. Of what it does not know for sure it says nothing; then the full decoder decides.
//!
//! That it says of no instruction anything else than the full decoder, and what is derived from that, is what
//! `agreement.rs` tests.

#[cfg(test)]
mod agreement;
pub(crate) mod effect;
mod one_byte;
mod operands;
mod two_bytes;
mod vector;

use one_byte::one_byte;
use operands::Operands;
use two_bytes::two_bytes;

/// As many bytes are looked at.
pub(crate) const WINDOW_BYTES: usize = 16;
/// No instruction is longer.
const MAX_LEN_BYTES: u32 = 15;

/// No register.
pub(crate) const NONE: u8 = 16;
/// The instruction pointer as a memory operand's base.
pub(crate) const RIP: u8 = 17;

const RAX: u8 = 0;
const RCX: u8 = 1;
const RDX: u8 = 2;
const RSP: u8 = 4;

/// What an instruction does, as far as the analysis asks. Registers are general-purpose ones in the processor's order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    /// Nothing.
    Inert,
    /// Nothing, and it only fills space.
    Padding,
    /// `reg` is written; never rsp.
    Write,
    /// `reg` and `other` are written; never rsp.
    WriteTwo,
    /// Memory is written.
    Store,
    /// Memory is written: `mov`.
    StoreMoved,
    /// `mov [m], reg`, all eight bytes.
    StoreRegister,
    /// `mov [m], imm`
    StoreConstant,
    /// `and [m], imm`
    StoreMasked,
    /// `cmp x, imm`
    Compare,
    /// `reg` is compared with rsp.
    CompareStack,
    /// `reg = other`, 64 bits.
    Copy,
    /// `reg = other`, 32 bits, or sign-extended.
    CopyWord,
    /// `reg = [m]`, 4 or 8 bytes.
    Load,
    /// `reg = imm`
    Constant,
    /// `reg =` the operand's address, 64 bits.
    Lea,
    /// `push reg`
    Push,
    /// `push imm`
    PushConstant,
    /// `pop reg`
    Pop,
    /// `reg += imm`, 64 bits.
    AddConstant,
    /// `reg += other`, 64 bits.
    Add,
    /// `reg -= other`, 64 bits.
    Sub,
    /// `and reg, x`
    And,
    /// `and reg, imm`
    AndConstant,
    /// `reg = 0`: `xor reg, reg`
    Clear,
    /// rax = eax, sign-extended.
    Cdqe,
    /// `leave`
    Leave,
    /// To the next instruction plus `imm`, or not: condition `reg`.
    Branch,
    /// To the next instruction plus `imm`.
    Jump,
    /// To the next instruction plus `imm`, which is not 0, and back.
    Call,
    /// `ret`
    Return,
    /// `ud2`
    Stop,
    /// `int3`
    Trap,
}

/// An instruction that was decoded quickly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Quick {
    pub(crate) op: Op,
    /// Bytes.
    pub(crate) len: u8,
    /// Bytes of the operands, or of the memory operand where there is one.
    pub(crate) size: u8,
    pub(crate) reg: u8,
    pub(crate) other: u8,
    /// The memory operand's base: a register, [`NONE`] or [`RIP`].
    pub(crate) base: u8,
    /// Its index: a register or [`NONE`].
    pub(crate) index: u8,
    /// What its index is multiplied by.
    pub(crate) scale: u8,
    /// Its displacement.
    pub(crate) disp: i32,
    /// A bit for each register that is read, as far as `Trial` asks.
    pub(crate) reads: u16,
    /// Extended as the processor does it.
    pub(crate) imm: u64,
}

/// Prefixes that are part of the opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Prefix {
    None,
    /// 66
    Size,
    /// f3
    Repeat,
    /// f2
    RepeatNot,
}

/// The condition of a conditional jump where something is equal.
pub(crate) const EQUAL: u8 = 4;
/// And where it is not.
pub(crate) const NOT_EQUAL: u8 = 5;

static IS_PREFIX: [bool; 256] = {
    let mut is_prefix = [false; 256];
    is_prefix[0x64] = true;
    is_prefix[0x65] = true;
    is_prefix[0x66] = true;
    is_prefix[0xf2] = true;
    is_prefix[0xf3] = true;
    is_prefix
};

impl Quick {
    /// It only fills the space between procedures or before a loop.
    #[inline]
    pub(crate) fn is_padding(&self) -> bool {
        match self.op {
            Op::Padding | Op::Trap => true,
            Op::Lea => self.reg == self.base && self.index == NONE && self.disp == 0,
            _ => false,
        }
    }

    /// Control goes on to the next instruction, and nowhere else.
    #[inline]
    pub(crate) fn goes_on(&self) -> bool {
        !matches!(self.op, Op::Branch | Op::Jump | Op::Call | Op::Return | Op::Stop | Op::Trap)
    }

    /// The instruction that the bytes begin with, if it is one of those that are known here.
    #[inline]
    pub(crate) fn decode(bytes: &[u8; WINDOW_BYTES]) -> Option<Quick> {
        let word = u128::from_le_bytes(*bytes);
        // Of the first bytes: prefixes and opcode.
        let head = word as u64;
        let mut at = 0;
        let mut byte = head as u8;
        let mut prefix = Prefix::None;
        let mut has_segment = false;
        while IS_PREFIX[usize::from(byte)] {
            match byte {
                0x64 | 0x65 if !has_segment && prefix == Prefix::None => has_segment = true,
                0x66 if prefix == Prefix::None => prefix = Prefix::Size,
                0xf2 if prefix == Prefix::None => prefix = Prefix::RepeatNot,
                0xf3 if prefix == Prefix::None => prefix = Prefix::Repeat,
                _ => return long_nop(word),
            }
            at += 1;
            byte = (head >> (8 * at)) as u8;
        }
        let mut rex = 0;
        if byte & 0xf0 == 0x40 {
            rex = byte;
            at += 1;
            byte = (head >> (8 * at)) as u8;
        }
        let mut operands = Operands::new(word, at + 1, rex, has_segment);
        match byte {
            0x0f => two_bytes(operands, prefix),
            0x2e if prefix == Prefix::Size && rex == 0 => long_nop(word),
            0xc4 | 0xc5 if prefix == Prefix::None && rex == 0 && !has_segment => vector::vex(operands, byte),
            _ if prefix == Prefix::Repeat => {
                // rep ret
                if byte == 0xc3 && rex == 0 && !has_segment { operands.done(Op::Return, 0) } else { None }
            }
            _ if prefix == Prefix::RepeatNot => None,
            _ => {
                let size = match rex & 8 {
                    0 if prefix == Prefix::Size => 2,
                    0 => 4,
                    _ => 8,
                };
                one_byte(&mut operands, byte, size, prefix)
            }
        }
    }
}

/// `66 66 2e 0f 1f 84 ...`: one instruction that does nothing.
fn long_nop(word: u128) -> Option<Quick> {
    let mut at = 0;
    while at < 10 && matches!((word >> (8 * at)) as u8, 0x66 | 0x2e) {
        at += 1;
    }
    let mut operands = Operands::new(word, at + 2, 0, false);
    if (word >> (8 * at)) as u16 != 0x1f0f {
        return None;
    }
    operands.modrm();
    if operands.group != 0 || !operands.is_memory { None } else { operands.done(Op::Padding, 0) }
}
