//! Instructions whose opcode begins with `0f`.
//! Knows nothing of vector registers.

use super::operands::{Operands, bit, byte_source};
use super::vector::{self, Map};
use super::{Op, Prefix, Quick, RCX};

/// The map behind `0f`.
#[inline(always)]
pub(super) fn two_bytes(mut operands: Operands<'_>, prefix: Prefix) -> Option<Quick> {
    let opcode = operands.byte();
    let is_plain = prefix == Prefix::None && !operands.has_segment;
    let size = match operands.rex & 8 {
        0 if prefix == Prefix::Size => 2,
        0 => 4,
        _ => 8,
    };
    let no_repeat = matches!(prefix, Prefix::None | Prefix::Size);
    match opcode {
        0x0b if is_plain && operands.rex == 0 => operands.done(Op::Stop, 0),
        0x1e if prefix == Prefix::Repeat && operands.rex == 0 && !operands.has_segment => {
            if operands.byte() == 0xfa {
                operands.done(Op::Inert, 0)
            } else {
                None
            }
        }
        0x1f if no_repeat && !operands.has_segment => {
            operands.modrm();
            if operands.group != 0 || !operands.is_memory { None } else { operands.done(Op::Padding, 0) }
        }
        0x40..=0x4f if no_repeat => {
            operands.modrm();
            // The full decoder says of the others that they may write it.
            let kept = if size == 4 { bit(operands.reg) } else { 0 };
            operands.write(operands.reg, operands.source() | kept)
        }
        0x80..=0x8f if is_plain && operands.rex == 0 => {
            let imm = operands.immediate(8);
            Some(Quick { reg: opcode & 15, ..operands.done(Op::Branch, 0)?.with_imm(imm) })
        }
        0x90..=0x9f if prefix == Prefix::None => {
            operands.modrm();
            let reads = if operands.is_memory { operands.address() } else { 0 };
            operands.write_rm(1, reads)
        }
        0xa3 | 0xab | 0xb3 | 0xbb if no_repeat => {
            operands.modrm();
            let reads = operands.source() | bit(operands.reg);
            if opcode == 0xa3 { operands.inert(reads) } else { operands.write_rm(size, reads) }
        }
        0xba if no_repeat => {
            operands.modrm();
            operands.byte();
            let reads = operands.source();
            match operands.group {
                4 => operands.inert(reads),
                5..=7 => operands.write_rm(size, reads),
                _ => None,
            }
        }
        0xa4 | 0xa5 | 0xac | 0xad if no_repeat => {
            operands.modrm();
            let mut reads = operands.source() | bit(operands.reg);
            if opcode & 1 == 0 {
                operands.byte();
            } else {
                reads |= bit(RCX);
            }
            operands.write_rm(size, reads)
        }
        0xaf if no_repeat => {
            operands.modrm();
            operands.write(operands.reg, operands.source() | bit(operands.reg))
        }
        0xb6 | 0xb7 | 0xbe | 0xbf if no_repeat => {
            operands.modrm();
            let reads = if opcode & 1 == 0 { byte_source(&operands) } else { operands.source() };
            operands.write(operands.reg, reads)
        }
        0xb8 | 0xbc | 0xbd if prefix == Prefix::Repeat => {
            operands.modrm();
            operands.write(operands.reg, operands.source())
        }
        0xbc | 0xbd if no_repeat => {
            operands.modrm();
            operands.write(operands.reg, operands.source())
        }
        0xc8..=0xcf if is_plain => {
            let reg = opcode & 7 | (operands.rex & 1) << 3;
            operands.write(reg, bit(reg))
        }
        0x38 => {
            let opcode = operands.byte();
            vector::legacy(operands, prefix, Map::Third, opcode)
        }
        0x3a => {
            let opcode = operands.byte();
            vector::legacy(operands, prefix, Map::Fourth, opcode)
        }
        _ => vector::legacy(operands, prefix, Map::Second, opcode),
    }
}
