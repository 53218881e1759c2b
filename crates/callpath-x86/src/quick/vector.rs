//! Instructions on vector registers, and those that came with them: `0f` and VEX.
//! Knows nothing of the others.
//!
//! Most of them write no general-purpose register and no memory. A table says for each opcode, by its prefix, what it does.

use super::operands::{Operands, bit};
use super::{Op, Prefix, Quick};

/// The maps of opcodes: behind `0f`, `0f 38` and `0f 3a`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Map {
    Second,
    Third,
    Fourth,
}

/// What an opcode does, with one of the four prefixes.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Form {
    /// Not known here.
    None,
    /// Writes the vector register `modrm.reg`.
    Vector,
    /// The same, from memory only.
    VectorFromMemory,
    /// Writes the vector register `modrm.reg`, from a general-purpose one or memory.
    VectorFromGeneral,
    /// Writes the general-purpose register `modrm.reg` from a vector register or memory.
    General,
    /// The same, from a register only.
    GeneralFromRegister,
    /// Writes the vector register `modrm.rm` or so many bytes of memory.
    Store16,
    Store8,
    Store4,
    /// Writes memory only.
    StoreMemory16,
    StoreMemory8,
    /// Writes the general-purpose register `modrm.rm` or memory: four bytes or eight.
    GeneralOrMemory,
    /// A group of shifts, of registers only, by a constant.
    Shift,
}

use Form::{
    General, GeneralFromRegister, GeneralOrMemory, Shift, Store4, Store8, Store16, StoreMemory8, StoreMemory16, Vector,
    VectorFromGeneral, VectorFromMemory,
};

const N: u8 = 1;
const D: u8 = 2;
const S: u8 = 4;
const T: u8 = 8;

type Forms = [[Form; 4]; 256];

const fn fill(mut forms: Forms, first: usize, last: usize, prefixes: u8, form: Form) -> Forms {
    let mut opcode = first;
    while opcode <= last {
        let mut prefix = 0;
        while prefix < 4 {
            if prefixes >> prefix & 1 != 0 {
                forms[opcode][prefix] = form;
            }
            prefix += 1;
        }
        opcode += 1;
    }
    forms
}

const fn second_map() -> Forms {
    let mut forms = [[Form::None; 4]; 256];
    let all: &[(usize, usize, u8, Form)] = &[
        (0x10, 0x10, N | D | S | T, Vector),
        (0x11, 0x11, N | D, Store16),
        (0x11, 0x11, S, Store4),
        (0x11, 0x11, T, Store8),
        (0x12, 0x12, N | S | T, Vector),
        (0x12, 0x12, D, VectorFromMemory),
        (0x13, 0x13, N | D, StoreMemory8),
        (0x14, 0x15, N | D, Vector),
        (0x16, 0x16, N | S, Vector),
        (0x16, 0x16, D, VectorFromMemory),
        (0x17, 0x17, N | D, StoreMemory8),
        (0x28, 0x28, N | D, Vector),
        (0x29, 0x29, N | D, Store16),
        (0x2a, 0x2a, S | T, VectorFromGeneral),
        (0x2b, 0x2b, N | D, StoreMemory16),
        (0x2c, 0x2d, S | T, General),
        (0x2e, 0x2f, N | D, Vector),
        (0x50, 0x50, N | D, GeneralFromRegister),
        (0x51, 0x51, N | D | S | T, Vector),
        (0x52, 0x53, N | S, Vector),
        (0x54, 0x57, N | D, Vector),
        (0x58, 0x5a, N | D | S | T, Vector),
        (0x5b, 0x5b, N | D | S, Vector),
        (0x5c, 0x5f, N | D | S | T, Vector),
        (0x60, 0x6d, D, Vector),
        (0x6e, 0x6e, D, VectorFromGeneral),
        (0x6f, 0x6f, D | S, Vector),
        (0x70, 0x70, D | S | T, Vector),
        (0x71, 0x73, D, Shift),
        (0x74, 0x76, D, Vector),
        (0x7c, 0x7d, D | T, Vector),
        (0x7e, 0x7e, D, GeneralOrMemory),
        (0x7e, 0x7e, S, Vector),
        (0x7f, 0x7f, D | S, Store16),
        (0xc2, 0xc2, N | D | S | T, Vector),
        (0xc4, 0xc4, D, VectorFromGeneral),
        (0xc5, 0xc5, D, GeneralFromRegister),
        (0xc6, 0xc6, N | D, Vector),
        (0xd0, 0xd0, D | T, Vector),
        (0xd1, 0xd5, D, Vector),
        (0xd6, 0xd6, D, Store8),
        (0xd7, 0xd7, D, GeneralFromRegister),
        (0xd8, 0xe5, D, Vector),
        (0xe6, 0xe6, D | S | T, Vector),
        (0xe7, 0xe7, D, StoreMemory16),
        (0xe8, 0xef, D, Vector),
        (0xf1, 0xf6, D, Vector),
        (0xf8, 0xfe, D, Vector),
    ];
    let mut index = 0;
    while index < all.len() {
        let (first, last, prefixes, form) = all[index];
        forms = fill(forms, first, last, prefixes, form);
        index += 1;
    }
    forms
}

const fn third_map() -> Forms {
    let mut forms = [[Form::None; 4]; 256];
    let all: &[(usize, usize, u8, Form)] = &[
        (0x00, 0x0b, D, Vector),
        (0x1c, 0x1e, D, Vector),
        (0x20, 0x25, D, Vector),
        (0x28, 0x29, D, Vector),
        (0x2b, 0x2b, D, Vector),
        (0x30, 0x35, D, Vector),
        (0x37, 0x41, D, Vector),
        (0xc8, 0xcd, N, Vector),
        (0xdb, 0xdf, D, Vector),
        // adcx, adox
        (0xf6, 0xf6, D | S, General),
    ];
    let mut index = 0;
    while index < all.len() {
        let (first, last, prefixes, form) = all[index];
        forms = fill(forms, first, last, prefixes, form);
        index += 1;
    }
    forms
}

const fn fourth_map() -> Forms {
    let mut forms = [[Form::None; 4]; 256];
    let all: &[(usize, usize, u8, Form)] = &[
        (0x08, 0x0f, D, Vector),
        (0x40, 0x42, D, Vector),
        (0x44, 0x44, D, Vector),
        (0xcc, 0xcc, N, Vector),
        (0xdf, 0xdf, D, Vector),
    ];
    let mut index = 0;
    while index < all.len() {
        let (first, last, prefixes, form) = all[index];
        forms = fill(forms, first, last, prefixes, form);
        index += 1;
    }
    forms
}

static SECOND: Forms = second_map();
static THIRD: Forms = third_map();
static FOURTH: Forms = fourth_map();

/// Those of the second map that have a constant behind.
const fn has_constant(opcode: u8) -> bool {
    matches!(opcode, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6)
}

/// An instruction without VEX. The opcode was read.
#[inline]
pub(super) fn legacy(mut operands: Operands<'_>, prefix: Prefix, map: Map, opcode: u8) -> Option<Quick> {
    let forms = match map {
        Map::Second => &SECOND,
        Map::Third => &THIRD,
        Map::Fourth => &FOURTH,
    };
    let form = forms[usize::from(opcode)][prefix as usize & 3];
    if form == Form::None {
        return None;
    }
    operands.modrm();
    if map == Map::Fourth || (map == Map::Second && has_constant(opcode)) {
        operands.byte();
    }
    let general = if operands.rex & 8 != 0 { 8 } else { 4 };
    if map == Map::Third && form == General {
        return operands.write(operands.reg, operands.source() | bit(operands.reg));
    }
    finish(&operands, form, opcode, general, 1)
}

/// `vectors` is how many times 16 bytes a vector has.
#[inline(always)]
fn finish(operands: &Operands<'_>, form: Form, opcode: u8, general: u8, vectors: u8) -> Option<Quick> {
    let in_memory = operands.is_memory;
    // A vector register is not one of those that are asked for.
    let address = if in_memory { operands.address() } else { 0 };
    let store = |size| Some(Quick { reads: address, ..operands.done(operands.store(Op::Store), size)? });
    match form {
        Form::None => None,
        Vector => operands.inert(address),
        VectorFromMemory if !in_memory => None,
        VectorFromMemory => operands.inert(address),
        VectorFromGeneral => operands.inert(operands.source()),
        GeneralFromRegister if in_memory => None,
        General | GeneralFromRegister => operands.write(operands.reg, address),
        Store16 | Store8 | Store4 if !in_memory => operands.inert(0),
        StoreMemory16 | StoreMemory8 if !in_memory => None,
        Store16 | StoreMemory16 => store(16 * vectors),
        Store8 | StoreMemory8 => store(8),
        Store4 => store(4),
        GeneralOrMemory if in_memory => store(general),
        GeneralOrMemory => operands.write(operands.rm, 0),
        Shift if in_memory => None,
        Shift => {
            let is_shift = match opcode {
                0x71 | 0x72 => matches!(operands.group, 2 | 4 | 6),
                _ => matches!(operands.group, 2 | 3 | 6 | 7),
            };
            if is_shift { operands.inert(0) } else { None }
        }
    }
}

/// An instruction with VEX, of which the first byte was read.
pub(super) fn vex(mut operands: Operands<'_>, first: u8) -> Option<Quick> {
    let mut byte = operands.byte();
    let mut map = 1;
    let mut is_wide = false;
    operands.rex = if byte & 0x80 == 0 { 4 } else { 0 };
    if first == 0xc4 {
        map = byte & 0x1f;
        operands.rex = (!byte >> 5) & 7;
        byte = operands.byte();
        is_wide = byte & 0x80 != 0;
    }
    let register = !byte >> 3 & 15;
    let is_long = byte & 4 != 0;
    let prefix = byte & 3;
    let opcode = operands.byte();
    operands.modrm();
    match map {
        1 => second_with_vex(operands, opcode, prefix, register, is_long, is_wide),
        2 => third_with_vex(operands, opcode, prefix, register, is_long, is_wide),
        3 => fourth_with_vex(operands, opcode, prefix, register, is_long, is_wide),
        _ => None,
    }
}

fn second_with_vex(
    mut operands: Operands<'_>,
    opcode: u8,
    prefix: u8,
    register: u8,
    is_long: bool,
    is_wide: bool,
) -> Option<Quick> {
    // VEX numbers the prefixes as `Prefix` does: none, 66, f3, f2.
    let is_packed = prefix < 2;
    let form = SECOND[usize::from(opcode)][usize::from(prefix & 3)];
    let is_free = register == 0;
    let in_memory = operands.is_memory;
    let allowed = match opcode {
        // One operand more than without VEX, in any length.
        0x14 | 0x15 | 0x54..=0x59 | 0x5c..=0x5f | 0x60..=0x6d | 0x74..=0x76 | 0x7c | 0x7d | 0xc2 | 0xc6 => true,
        0xd0..=0xd5 | 0xd8..=0xe5 | 0xe8..=0xef | 0xf1..=0xf6 | 0xf8..=0xfe => true,
        0x51 | 0x5a if !is_packed => true,
        0x71..=0x73 => true,
        0x10 | 0x11 => is_free && (is_packed || in_memory),
        0x12 => is_free && !is_packed,
        0x16 => is_free && prefix == 2,
        0x28 | 0x29 | 0x2e | 0x2f | 0x51 | 0x5a | 0x5b | 0x6f | 0x70 | 0x7f | 0xe6 | 0xe7 | 0x50 | 0xd7 => is_free,
        0x2a => true,
        0x2c | 0x2d => is_free,
        0x6e | 0x7e | 0xd6 => is_free && !is_long,
        _ => false,
    };
    if !allowed || form == Form::None {
        return None;
    }
    if has_constant(opcode) {
        operands.byte();
    }
    finish(&operands, form, opcode, if is_wide { 8 } else { 4 }, 1 + u8::from(is_long))
}

fn third_with_vex(
    operands: Operands<'_>,
    opcode: u8,
    prefix: u8,
    register: u8,
    is_long: bool,
    is_wide: bool,
) -> Option<Quick> {
    let is_free = register == 0;
    let address = if operands.is_memory { operands.address() } else { 0 };
    if prefix == 1 {
        let allowed = match opcode {
            0x00..=0x0b | 0x28 | 0x29 | 0x2b | 0x37..=0x40 | 0xdc..=0xdf => true,
            0x16 | 0x36 => is_long && !is_wide,
            0x45 | 0x47 => true,
            0x46 => !is_wide,
            // Fused multiplications and additions.
            0x96..=0x9f | 0xa6..=0xaf | 0xb6..=0xbf => true,
            0x17 | 0x1c..=0x1e | 0x20..=0x25 | 0x30..=0x35 => is_free,
            0x18 | 0x58 | 0x59 | 0x78 | 0x79 => is_free && !is_wide,
            _ => false,
        };
        if allowed {
            return operands.inert(address);
        }
    }
    if is_long {
        return None;
    }
    let sources = operands.source() | bit(register);
    match (opcode, prefix) {
        // andn; bzhi, pext, pdep; bextr, shlx, sarx, shrx
        (0xf2, 0) | (0xf5, 0 | 2 | 3) | (0xf7, _) => operands.write(operands.reg, sources),
        // mulx
        (0xf6, 3) if operands.reg != super::RSP && register != super::RSP => {
            let reads = operands.source() | bit(super::RDX);
            let reg = operands.reg;
            Some(Quick { reg, other: register, reads, ..operands.done(Op::WriteTwo, 0)? })
        }
        // blsr, blsmsk, blsi
        (0xf3, 0) if matches!(operands.group, 1..=3) => operands.write(register, operands.source()),
        _ => None,
    }
}

fn fourth_with_vex(
    mut operands: Operands<'_>,
    opcode: u8,
    prefix: u8,
    register: u8,
    is_long: bool,
    is_wide: bool,
) -> Option<Quick> {
    operands.byte();
    let is_free = register == 0;
    let address = if operands.is_memory { operands.address() } else { 0 };
    match (opcode, prefix) {
        (0x00 | 0x01, 1) if is_free && is_long && is_wide => operands.inert(address),
        (0x02, 1) if !is_wide => operands.inert(address),
        (0x0c..=0x0f | 0x44, 1) => operands.inert(address),
        (0x06 | 0x18 | 0x38 | 0x46, 1) if is_long && !is_wide => operands.inert(address),
        (0x19 | 0x39, 1) if is_free && is_long && !is_wide => {
            if !operands.is_memory {
                return operands.inert(0);
            }
            Some(Quick { reads: address, ..operands.done(operands.store(Op::Store), 16)? })
        }
        // rorx
        (0xf0, 3) if is_free && !is_long => operands.write(operands.reg, operands.source()),
        _ => None,
    }
}
