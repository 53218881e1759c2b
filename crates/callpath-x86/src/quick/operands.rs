//! What stands behind an opcode: registers, memory operands, constants.
//! Knows nothing of what opcodes mean.

use super::{ASKED_FOR, MAX_LEN_BYTES, NONE, Op, Quick, RAX, RIP, RSP, WINDOW_BYTES, word_at};

/// What stands behind the opcode, in the making.
pub(super) struct Operands<'b> {
    pub(super) bytes: &'b [u8; WINDOW_BYTES],
    /// Bytes that were read.
    pub(super) at: u32,
    pub(super) rex: u8,
    pub(super) has_segment: bool,
    pub(super) is_memory: bool,
    /// The register of `modrm.reg`, without `rex.r` in `group`.
    pub(super) group: u8,
    pub(super) reg: u8,
    /// The register of `modrm.rm`, if that is one.
    pub(super) rm: u8,
    pub(super) base: u8,
    pub(super) index: u8,
    /// [`Quick::SCALED`] if the index is multiplied.
    pub(super) scaled: u8,
    pub(super) disp: i32,
}

impl<'b> Operands<'b> {
    #[inline(always)]
    pub(super) fn new(bytes: &'b [u8; WINDOW_BYTES], at: u32, rex: u8, has_segment: bool) -> Operands<'b> {
        Operands {
            bytes,
            at,
            rex,
            has_segment,
            is_memory: false,
            group: 0,
            reg: NONE,
            rm: NONE,
            base: NONE,
            index: NONE,
            scaled: 0,
            disp: 0,
        }
    }

    /// The next eight bytes. What is read behind the longest instruction is not used: see [`Operands::done`].
    #[inline(always)]
    pub(super) fn peek(&self) -> u64 {
        word_at(self.bytes, self.at)
    }

    #[inline(always)]
    pub(super) fn modrm(&mut self) {
        let bytes = self.peek();
        let modrm = bytes as u8;
        self.group = modrm >> 3 & 7;
        self.reg = self.group | (self.rex & 4) << 1;
        let low = modrm & 7;
        if modrm >= 0xc0 {
            self.at += 1;
            self.rm = low | (self.rex & 1) << 3;
            return;
        }
        self.is_memory = true;
        let mode = modrm >> 6;
        let mut disp_len = [0, 1, 4, 0][usize::from(mode & 3)];
        let rest;
        if low == 4 {
            let sib = (bytes >> 8) as u8;
            let index = sib >> 3 & 7 | (self.rex & 2) << 2;
            self.index = if index == 4 { NONE } else { index };
            self.scaled = if sib >= 0x40 { Quick::SCALED } else { 0 };
            self.base = sib & 7 | (self.rex & 1) << 3;
            if sib & 7 == 5 && mode == 0 {
                self.base = NONE;
                disp_len = 4;
            }
            rest = bytes >> 16;
            self.at += 2;
        } else {
            self.base = low | (self.rex & 1) << 3;
            if low == 5 && mode == 0 {
                self.base = RIP;
                disp_len = 4;
            }
            rest = bytes >> 8;
            self.at += 1;
        }
        self.disp = match disp_len {
            0 => 0,
            1 => i32::from(rest as i8),
            _ => rest as i32,
        };
        self.at += disp_len;
    }

    /// An immediate operand of one byte, zero-extended.
    #[inline(always)]
    pub(super) fn byte(&mut self) -> u8 {
        let byte = self.bytes[self.at as usize & 15];
        self.at += 1;
        byte
    }

    /// An immediate operand as long as operands of `size` bytes have it: zero-extended, but for those of eight.
    #[inline(always)]
    pub(super) fn immediate(&mut self, size: u8) -> u64 {
        let bytes = self.peek();
        let (len, value) = match size {
            1 => (1, u64::from(bytes as u8)),
            2 => (2, u64::from(bytes as u16)),
            4 => (4, u64::from(bytes as u32)),
            _ => (4, bytes as i32 as u64),
        };
        self.at += len;
        value
    }

    /// The registers of the memory operand's address.
    #[inline(always)]
    pub(super) fn address(&self) -> u8 {
        bit(self.base) | bit(self.index)
    }

    /// `modrm.rm` is read: a register, or memory.
    #[inline(always)]
    pub(super) fn source(&self) -> u8 {
        if self.is_memory { self.address() } else { bit(self.rm) }
    }

    #[inline(always)]
    pub(super) fn done(&self, op: Op, size: u8) -> Option<Quick> {
        if self.at > MAX_LEN_BYTES {
            return None;
        }
        Some(Quick {
            op,
            len_and_flags: self.at as u8 | self.scaled,
            size,
            reg: self.reg,
            other: self.rm,
            base: self.base,
            index: self.index,
            disp: self.disp,
            reads: 0,
            imm: 0,
        })
    }

    /// Writes register `reg`.
    #[inline(always)]
    pub(super) fn write(&self, reg: u8, reads: u8) -> Option<Quick> {
        if reg == RSP {
            return None;
        }
        Some(Quick { reg, reads, ..self.done(Op::Write, 0)? })
    }

    /// Writes `modrm.rm`: a register or memory of `size` bytes.
    #[inline(always)]
    pub(super) fn write_rm(&self, size: u8, reads: u8) -> Option<Quick> {
        if self.is_memory {
            return Some(Quick { reads, ..self.done(self.store(Op::Store), size)? });
        }
        self.write(self.byte_of(self.rm, size), reads)
    }

    /// A store through a segment hits nothing on the stack.
    #[inline(always)]
    pub(super) fn store(&self, op: Op) -> Op {
        if self.has_segment { Op::Inert } else { op }
    }

    /// The register that `reg` is of, with operands of `size` bytes: ah, ch, dh and bh are of the first four.
    #[inline(always)]
    pub(super) fn byte_of(&self, reg: u8, size: u8) -> u8 {
        if size == 1 && self.rex == 0 { reg & 3 } else { reg }
    }

    pub(super) fn inert(&self, reads: u8) -> Option<Quick> {
        Some(Quick { reads, ..self.done(Op::Inert, 0)? })
    }
}

/// The bit of a register in [`Quick::reads`], 0 for those that nobody asks for.
#[inline(always)]
pub(super) fn bit(reg: u8) -> u8 {
    static BITS: [u8; 32] = {
        let mut bits = [0; 32];
        let mut index = 0;
        while index < ASKED_FOR.len() {
            bits[ASKED_FOR[index]] = 1 << index;
            index += 1;
        }
        bits
    };
    BITS[usize::from(reg & 31)]
}

impl Operands<'_> {
    /// `modrm.rm` is read and written.
    #[inline(always)]
    pub(super) fn modified(&self, size: u8, reads: u8) -> Option<Quick> {
        let reads = match size {
            1 if !self.is_memory && self.is_al(self.rm) => 0,
            1 => byte_source(self) | reads,
            _ => self.source() | reads,
        };
        self.write_rm(size, reads)
    }

    /// `reg` is al in an instruction on bytes.
    #[inline(always)]
    pub(super) fn is_al(&self, reg: u8) -> bool {
        reg == RAX
    }

    /// A `mov` through a segment is none that saves anything.
    #[inline(always)]
    pub(super) fn store_moved(&self, op: Op) -> Option<Op> {
        if self.has_segment { None } else { Some(op) }
    }
}

/// The bit of a register of one byte.
#[inline(always)]
pub(super) fn byte_read(operands: &Operands, reg: u8) -> u8 {
    bit(operands.byte_of(reg, 1))
}

#[inline(always)]
pub(super) fn byte_source(operands: &Operands) -> u8 {
    match operands.is_memory {
        true => operands.address(),
        false if operands.is_al(operands.rm) => 0,
        false => byte_read(operands, operands.rm),
    }
}

#[inline(always)]
pub(super) fn byte_test_reads(operands: &Operands) -> u8 {
    if operands.is_al(operands.reg) || (!operands.is_memory && operands.is_al(operands.rm)) {
        return 0;
    }
    byte_source(operands) | byte_read(operands, operands.reg)
}
