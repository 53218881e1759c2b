//! A quick decoder for the encodings that compilers write most: an instruction's length, and what of it the analysis needs.
//! Knows nothing of frames. Of what it does not know for sure it says nothing; then the full decoder decides.
//!
//! That it says of no instruction anything else than the full decoder, and what is derived from that, is what
//! `agreement.rs` tests.

#[cfg(test)]
mod agreement;
pub(crate) mod digest;
pub(crate) mod effect;
mod one_byte;
mod operands;
mod two_bytes;
mod vector;

use one_byte::one_byte;
use operands::Operands;
use two_bytes::two_bytes;

/// As many bytes are looked at: eight at a time, from wherever an instruction may still have one.
pub(crate) const WINDOW_BYTES: usize = 24;
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

/// The registers that [`Quick::reads`] tells of: those whose values a procedure finds where it begins.
pub(crate) const ASKED_FOR: [usize; 7] = [0, 3, 5, 12, 13, 14, 15];

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
    /// Its length in bytes, and flags: see [`Quick::len`], [`Quick::SCALED`], [`Quick::NEGATIVE`].
    len_and_flags: u8,
    /// Bytes of the operands, or of the memory operand where there is one.
    pub(crate) size: u8,
    pub(crate) reg: u8,
    pub(crate) other: u8,
    /// The memory operand's base: a register, [`NONE`] or [`RIP`].
    pub(crate) base: u8,
    /// Its index: a register or [`NONE`].
    pub(crate) index: u8,
    /// A bit for each register of [`ASKED_FOR`] that is read, as far as `Trial` asks.
    pub(crate) reads: u8,
    /// Its displacement. Of [`Op::Constant`], the upper half of the constant.
    pub(crate) disp: i32,
    /// The lower half of a constant: see [`Quick::imm`].
    imm: u32,
}

// Whoever reads them, reads many: no more than a quarter of a cache line.
const _: () = assert!(size_of::<Option<Quick>>() == 16);

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

/// Eight bytes from `at` on. Behind where the last byte of an instruction may be, others.
#[inline(always)]
fn word_at(bytes: &[u8; WINDOW_BYTES], at: u32) -> u64 {
    const MASK: u32 = WINDOW_BYTES as u32 - 8 - 1;
    let at = (at & MASK) as usize;
    bytes[at..at + 8].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

impl Quick {
    /// Its index is multiplied by something.
    const SCALED: u8 = 0x10;
    /// All bits of the upper half of the constant are set.
    const NEGATIVE: u8 = 0x20;

    /// In [`crate::decoded::Decoded`], the next one does not stand directly behind it.
    const UNFOLLOWED: u8 = 0x40;

    pub(crate) fn set_unfollowed(&mut self) {
        self.len_and_flags |= Quick::UNFOLLOWED;
    }

    #[inline]
    pub(crate) fn is_followed(&self) -> bool {
        self.len_and_flags & Quick::UNFOLLOWED == 0
    }

    /// Bytes.
    #[inline]
    pub(crate) fn len(&self) -> u8 {
        self.len_and_flags & 15
    }

    /// Its index is added as it is.
    #[inline]
    fn is_unscaled(&self) -> bool {
        self.len_and_flags & Quick::SCALED == 0
    }

    /// A constant, extended as the processor does it.
    #[inline]
    pub(crate) fn imm(&self) -> u64 {
        let upper = match self.op {
            Op::Constant => self.disp as u32,
            _ if self.len_and_flags & Quick::NEGATIVE != 0 => u32::MAX,
            _ => 0,
        };
        u64::from(upper) << 32 | u64::from(self.imm)
    }

    /// The same with a constant of at most 32 bits, or sign-extended from 32.
    #[inline(always)]
    fn with_imm(self, imm: u64) -> Quick {
        let sign = if imm >> 32 == 0 { 0 } else { Quick::NEGATIVE };
        Quick { imm: imm as u32, len_and_flags: self.len_and_flags | sign, ..self }
    }

    /// The same with the constant of [`Op::Constant`].
    #[inline(always)]
    fn with_constant(self, imm: u64) -> Quick {
        Quick { imm: imm as u32, disp: (imm >> 32) as i32, ..self }
    }

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
        // Of the first bytes: prefixes and opcode.
        let head = word_at(bytes, 0);
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
                _ => return long_nop(bytes),
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
        let mut operands = Operands::new(bytes, at + 1, rex, has_segment);
        match byte {
            0x0f => two_bytes(operands, prefix),
            0x2e if prefix == Prefix::Size && rex == 0 => long_nop(bytes),
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
fn long_nop(bytes: &[u8; WINDOW_BYTES]) -> Option<Quick> {
    let mut at = 0;
    while at < 10 && matches!(bytes[at], 0x66 | 0x2e) {
        at += 1;
    }
    let mut operands = Operands::new(bytes, at as u32 + 2, 0, false);
    if word_at(bytes, at as u32) as u16 != 0x1f0f {
        return None;
    }
    operands.modrm();
    if operands.group != 0 || !operands.is_memory { None } else { operands.done(Op::Padding, 0) }
}
