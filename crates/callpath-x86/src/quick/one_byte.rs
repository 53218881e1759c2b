//! Instructions whose opcode is one byte.
//! Knows nothing of prefixes beyond what they do to operands.

use super::operands::{Operands, bit, byte_read, byte_source, byte_test_reads};
use super::{NONE, Op, Prefix, Quick, RAX, RCX, RDX, RIP, RSP};

const ADD: u8 = 0;
const OR: u8 = 1;
const AND: u8 = 4;
const SUB: u8 = 5;
const XOR: u8 = 6;
const CMP: u8 = 7;

/// An instruction of one byte's opcode, with operands of `size` bytes.
#[inline(always)]
pub(super) fn one_byte(operands: &mut Operands<'_>, opcode: u8, size: u8, prefix: Prefix) -> Option<Quick> {
    let is_plain = prefix == Prefix::None && !operands.has_segment;
    let extended = opcode & 7 | (operands.rex & 1) << 3;
    match opcode {
        0x00..=0x3f => arithmetic(operands, opcode, size),
        0x50..=0x57 if is_plain => Some(Quick { reg: extended, ..operands.done(Op::Push, 8)? }),
        0x58..=0x5f if is_plain => Some(Quick { reg: extended, ..operands.done(Op::Pop, 8)? }),
        0x63 if prefix == Prefix::None => {
            operands.modrm();
            if operands.reg == RSP {
                return None;
            }
            load_or_copy(operands, 4)
        }
        0x68 if is_plain => {
            let imm = operands.immediate(8);
            Some(operands.done(Op::PushConstant, 8)?.with_imm(imm))
        }
        0x6a if is_plain => {
            let imm = operands.byte() as i8 as u64;
            Some(operands.done(Op::PushConstant, 8)?.with_imm(imm))
        }
        0x69 | 0x6b => {
            operands.modrm();
            if opcode == 0x69 {
                operands.immediate(size);
            } else {
                operands.byte();
            }
            operands.write(operands.reg, operands.source())
        }
        0x70..=0x7f if is_plain => {
            let imm = operands.byte() as i8 as u64;
            Some(Quick { reg: opcode & 15, ..operands.done(Op::Branch, 0)?.with_imm(imm) })
        }
        0x80 | 0x81 | 0x83 => {
            operands.modrm();
            let size = if opcode == 0x80 { 1 } else { size };
            let imm = if opcode == 0x83 { operands.byte() as i8 as u64 } else { operands.immediate(size) };
            arithmetic_constant(operands, operands.group, size, imm)
        }
        0x84 | 0x85 => {
            operands.modrm();
            let reads = if opcode == 0x84 { byte_test_reads(operands) } else { operands.source() | bit(operands.reg) };
            operands.inert(reads)
        }
        0x88 => {
            operands.modrm();
            if operands.is_memory {
                let reads = if operands.is_al(operands.reg) {
                    0
                } else {
                    byte_read(operands, operands.reg) | operands.address()
                };
                return Some(Quick { reads, ..operands.done(operands.store_moved(Op::StoreMoved)?, 1)? });
            }
            byte_move(operands, operands.rm, operands.reg)
        }
        0x8a => {
            operands.modrm();
            if operands.is_memory {
                let reads = if operands.is_al(operands.reg) { 0 } else { operands.address() };
                return operands.write(operands.byte_of(operands.reg, 1), reads);
            }
            byte_move(operands, operands.reg, operands.rm)
        }
        0x89 => {
            operands.modrm();
            if operands.is_memory {
                let op = if size == 8 { Op::StoreRegister } else { Op::StoreMoved };
                let reads = operands.address() | bit(operands.reg);
                return Some(Quick { reads, ..operands.done(operands.store_moved(op)?, size)? });
            }
            if size == 2 {
                return operands.write(operands.rm, bit(operands.reg));
            }
            let (reg, other) = (operands.rm, operands.reg);
            let op = if size == 8 { Op::Copy } else { Op::CopyWord };
            Some(Quick { reg, other, reads: bit(other), ..operands.done(op, size)? })
        }
        0x8b => {
            operands.modrm();
            if size == 2 {
                return operands.write(operands.reg, operands.source());
            }
            load_or_copy(operands, size)
        }
        0x8d if is_plain => {
            operands.modrm();
            match size {
                _ if !operands.is_memory || (size < 8 && operands.base == RIP) => None,
                8 => Some(Quick { reads: operands.address(), ..operands.done(Op::Lea, 8)? }),
                _ => operands.write(operands.reg, operands.address()),
            }
        }
        0x90 if operands.rex == 0 && !operands.has_segment => operands.done(Op::Padding, 0),
        0x98 if is_plain && size == 8 => Some(Quick { reads: bit(RAX), ..operands.done(Op::Cdqe, 8)? }),
        0x98 if is_plain => operands.write(RAX, bit(RAX)),
        0x99 if is_plain => operands.write(RDX, bit(RAX)),
        0xa8 => {
            operands.byte();
            operands.inert(0)
        }
        0xa9 => {
            operands.immediate(size);
            operands.inert(bit(RAX))
        }
        0xb0..=0xb7 if is_plain => {
            operands.byte();
            operands.write(operands.byte_of(extended, 1), 0)
        }
        0xb8..=0xbf if is_plain => {
            if extended == RSP {
                return None;
            }
            let imm = if size == 8 {
                let imm = operands.peek();
                operands.at += 8;
                imm
            } else {
                operands.immediate(size)
            };
            Some(Quick { reg: extended, ..operands.done(Op::Constant, size)?.with_constant(imm) })
        }
        0xc0 | 0xc1 | 0xd0..=0xd3 => {
            operands.modrm();
            let size = if opcode & 1 == 0 { 1 } else { size };
            if opcode < 0xd0 {
                operands.byte();
            }
            let by_register = if opcode & 2 != 0 && opcode >= 0xd0 { bit(RCX) } else { 0 };
            operands.modified(size, by_register)
        }
        0xc3 if is_plain && operands.rex == 0 => operands.done(Op::Return, 0),
        0xc6 | 0xc7 => {
            operands.modrm();
            if operands.group != 0 {
                return None;
            }
            let size = if opcode == 0xc6 { 1 } else { size };
            let imm = operands.immediate(size);
            if operands.is_memory {
                let reads = operands.address();
                let done = operands.done(operands.store_moved(Op::StoreConstant)?, size)?;
                return Some(Quick { reads, ..done.with_imm(imm) });
            }
            if size < 4 {
                return operands.write(operands.byte_of(operands.rm, size), 0);
            }
            if operands.rm == RSP {
                return None;
            }
            Some(Quick { reg: operands.rm, ..operands.done(Op::Constant, size)?.with_constant(imm) })
        }
        0xc9 if is_plain && operands.rex == 0 => operands.done(Op::Leave, 8),
        0xcc if is_plain && operands.rex == 0 => operands.done(Op::Trap, 0),
        0xe8 | 0xe9 if is_plain && operands.rex == 0 => {
            let imm = operands.immediate(8);
            match opcode {
                0xe8 if imm == 0 => None,
                0xe8 => Some(operands.done(Op::Call, 0)?.with_imm(imm)),
                _ => Some(operands.done(Op::Jump, 0)?.with_imm(imm)),
            }
        }
        0xeb if is_plain && operands.rex == 0 => {
            let imm = operands.byte() as i8 as u64;
            Some(operands.done(Op::Jump, 0)?.with_imm(imm))
        }
        0xf6 | 0xf7 => {
            operands.modrm();
            let size = if opcode == 0xf6 { 1 } else { size };
            match operands.group {
                0 => {
                    operands.immediate(size);
                    let reads = if size == 1 { byte_source(operands) } else { operands.source() };
                    operands.inert(reads)
                }
                2 | 3 => operands.modified(size, 0),
                4..=7 if size >= 4 => {
                    // mul, imul, div, idiv
                    let dividend = if operands.group >= 6 { bit(RDX) } else { 0 };
                    let reads = operands.source() | bit(RAX) | dividend;
                    Some(Quick { reg: RAX, other: RDX, reads, ..operands.done(Op::WriteTwo, size)? })
                }
                _ => None,
            }
        }
        0xfe | 0xff => {
            operands.modrm();
            let size = if opcode == 0xfe { 1 } else { size };
            if operands.group > 1 {
                return None;
            }
            if operands.is_memory || size < 8 {
                return operands.modified(size, 0);
            }
            let imm = if operands.group == 0 { 1 } else { u64::MAX };
            let reads = bit(operands.rm);
            Some(Quick { reg: operands.rm, reads, ..operands.done(Op::AddConstant, 8)?.with_imm(imm) })
        }
        _ => None,
    }
}

#[inline(always)]
fn byte_move(operands: &Operands<'_>, to: u8, from: u8) -> Option<Quick> {
    let reads = if operands.is_al(to) || operands.is_al(from) { 0 } else { byte_read(operands, from) };
    operands.write(operands.byte_of(to, 1), reads)
}

/// `mov` and `movsxd` into a register of at least four bytes, from `size` bytes.
#[inline(always)]
fn load_or_copy(operands: &Operands<'_>, size: u8) -> Option<Quick> {
    let reads = operands.source();
    if !operands.is_memory {
        let op = if size == 8 { Op::Copy } else { Op::CopyWord };
        return Some(Quick { reads, ..operands.done(op, size)? });
    }
    // Of four bytes only tables' words are of interest.
    if operands.has_segment || (size < 8 && operands.index == NONE) {
        return operands.write(operands.reg, reads);
    }
    Some(Quick { reads, ..operands.done(Op::Load, size)? })
}

/// add, or, adc, sbb, and, sub, xor, cmp
#[inline(always)]
fn arithmetic(operands: &mut Operands<'_>, opcode: u8, size: u8) -> Option<Quick> {
    let kind = opcode >> 3;
    let size = if opcode & 1 == 0 { 1 } else { size };
    let (to, from) = match opcode & 7 {
        0 | 1 => {
            operands.modrm();
            (operands.rm, operands.reg)
        }
        2 | 3 => {
            operands.modrm();
            (operands.reg, operands.rm)
        }
        4 | 5 => {
            operands.rm = RAX;
            let imm = operands.immediate(size);
            return arithmetic_constant(operands, kind, size, imm);
        }
        _ => return None,
    };
    let is_store = operands.is_memory && opcode & 7 < 2;
    let is_al = size == 1 && (to == RAX && !is_store || from == RAX && (is_store || !operands.is_memory));
    let is_same = to == from && !operands.is_memory;
    let reads = match () {
        () if is_al || (is_same && matches!(kind, SUB | XOR)) => 0,
        () if size == 1 => byte_source(operands) | byte_read(operands, operands.reg),
        () => operands.source() | bit(operands.reg),
    };
    if kind == CMP {
        if size == 8 && !operands.is_memory && (to == RSP || from == RSP) {
            let reg = if to == RSP { from } else { to };
            return Some(Quick { reg, reads, ..operands.done(Op::CompareStack, 8)? });
        }
        return operands.inert(reads);
    }
    if is_store {
        return operands.write_rm(size, reads);
    }
    let op = match kind {
        XOR if is_same && size >= 4 => Op::Clear,
        ADD if size == 8 && !operands.is_memory => Op::Add,
        SUB if size == 8 && !operands.is_memory => Op::Sub,
        AND if size == 8 => Op::And,
        _ => return operands.write(operands.byte_of(to, size), reads),
    };
    Some(Quick { reg: to, other: from, reads, ..operands.done(op, size)? })
}

/// The same with a constant, on `modrm.rm`.
#[inline(always)]
fn arithmetic_constant(operands: &Operands<'_>, kind: u8, size: u8, imm: u64) -> Option<Quick> {
    let reads = if size == 1 { byte_source(operands) } else { operands.source() };
    if kind == CMP {
        return Some(Quick { reads, ..operands.done(Op::Compare, size)?.with_imm(imm) });
    }
    if operands.is_memory {
        let op = match (kind, imm) {
            (ADD | OR | SUB | XOR, 0) | (AND, u64::MAX) => Op::Inert,
            (AND, _) if operands.has_segment => return None,
            (AND, _) => Op::StoreMasked,
            _ => operands.store(Op::Store),
        };
        // `Trial` takes two operands that are no registers for the same one.
        let reads = if matches!(kind, SUB | XOR) { 0 } else { reads };
        return Some(Quick { reads, ..operands.done(op, size)?.with_imm(imm) });
    }
    let reg = operands.byte_of(operands.rm, size);
    match kind {
        ADD if size == 8 => Some(Quick { reg, reads, ..operands.done(Op::AddConstant, 8)?.with_imm(imm) }),
        SUB if size == 8 => {
            let negated = operands.done(Op::AddConstant, 8)?.with_imm(imm.wrapping_neg());
            Some(Quick { reg, reads, ..negated })
        }
        AND => Some(Quick { reg, reads, ..operands.done(Op::AndConstant, size)?.with_imm(imm) }),
        _ => operands.write(reg, reads),
    }
}
