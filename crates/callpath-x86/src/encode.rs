//! The bytes of instructions that are inserted. Registers are numbered as the processor does.

/// A general-purpose register's number.
pub(crate) type Register = u8;

/// A word of eight bytes that inserted code works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    /// At this distance from the thread pointer (fs).
    OfThread(i32),
    /// At a distance from the instruction's end that is written later, into the last four bytes before a constant.
    BesideCode,
    /// At a distance from what a register holds: rsp or rbp.
    OfFrame(Register, i32),
}

/// An instruction's bytes, and where among them the displacement of [`Word::BesideCode`] is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Encoded {
    pub(crate) bytes: Vec<u8>,
    pub(crate) displacement_at: Option<usize>,
}

const FS: u8 = 0x64;
/// REX with 64-bit operands.
const REX_W: u8 = 0x48;
/// ModRM: an address of 32 bits without base and index, by a SIB byte.
const MODRM_SIB: u8 = 0x04;
const SIB_ABSOLUTE: u8 = 0x25;
/// ModRM: rip and a displacement.
const MODRM_BESIDE_CODE: u8 = 0x05;
/// ModRM: a base, or a SIB byte, and a displacement of one byte.
const MODRM_DISPLACED_SHORT: u8 = 0x40;
/// ModRM: a base, or a SIB byte, and a displacement of four bytes.
const MODRM_DISPLACED: u8 = 0x80;
const RSP: Register = 4;
/// SIB: rsp without an index.
const SIB_RSP: u8 = 0x24;
/// The number that stands for no index.
const NO_INDEX: Register = 4;

/// An opcode with a 64-bit word of memory, and a register or an opcode's extension.
fn with_word(opcode: u8, register: Register, word: Word) -> Encoded {
    let rex = REX_W | (register >> 3 & 1) << 2;
    let field = (register & 7) << 3;
    match word {
        Word::OfThread(distance) => {
            let mut bytes = vec![FS, rex, opcode, MODRM_SIB | field, SIB_ABSOLUTE];
            bytes.extend(distance.to_le_bytes());
            Encoded { bytes, displacement_at: None }
        }
        Word::BesideCode => {
            let bytes = vec![rex, opcode, MODRM_BESIDE_CODE | field, 0, 0, 0, 0];
            Encoded { bytes, displacement_at: Some(3) }
        }
        Word::OfFrame(base, distance) => {
            let short = i8::try_from(distance);
            let mode = if short.is_ok() { MODRM_DISPLACED_SHORT } else { MODRM_DISPLACED };
            let mut bytes = vec![rex, opcode, mode | field | base];
            if base == RSP {
                bytes.push(SIB_RSP);
            }
            match short {
                Ok(short) => bytes.extend(short.to_le_bytes()),
                Err(_) => bytes.extend(distance.to_le_bytes()),
            }
            Encoded { bytes, displacement_at: None }
        }
    }
}

/// ModRM and SIB of `[table + 8 * index + displacement]`, and the bits of REX that they take.
fn in_table(table: Register, index: Option<Register>) -> (u8, [u8; 2]) {
    const BY_EIGHT: u8 = 3 << 6;
    let index = index.unwrap_or(NO_INDEX);
    let rex = REX_W | (index >> 3 & 1) << 1 | table >> 3 & 1;
    (rex, [MODRM_DISPLACED | MODRM_SIB, BY_EIGHT | (index & 7) << 3 | table & 7])
}

/// `add qword [table + 8 * index + displacement], 1`: changes the flags.
pub(crate) fn count_in_table(table: Register, index: Option<Register>, displacement: i32) -> Vec<u8> {
    let (rex, [modrm, sib]) = in_table(table, index);
    let mut bytes = vec![rex, 0x83, modrm, sib];
    bytes.extend(displacement.to_le_bytes());
    bytes.push(1);
    bytes
}

/// `sub qword [table + displacement], 1`: the carry flag says that it was 0.
pub(crate) fn count_down_in_table(table: Register, displacement: i32) -> Vec<u8> {
    const SUBTRACT: u8 = 5 << 3;
    let mut bytes = count_in_table(table, None, displacement);
    if let Some(modrm) = bytes.get_mut(2) {
        *modrm |= SUBTRACT;
    }
    bytes
}

/// `lea to, [table + 8 * index + displacement]`
pub(crate) fn address_in_table(to: Register, table: Register, index: Option<Register>, displacement: i32) -> Vec<u8> {
    let (rex, [modrm, sib]) = in_table(table, index);
    let mut bytes = vec![rex | (to >> 3 & 1) << 2, 0x8d, modrm | (to & 7) << 3, sib];
    bytes.extend(displacement.to_le_bytes());
    bytes
}

fn with_constant(mut encoded: Encoded, constant: i32) -> Encoded {
    encoded.bytes.extend(constant.to_le_bytes());
    encoded
}

/// `add qword [word], constant`: changes the flags.
pub(crate) fn add_to_word(word: Word, constant: i32) -> Encoded {
    match (word, i8::try_from(constant)) {
        (Word::OfFrame(..), Ok(short)) => {
            let mut encoded = with_word(0x83, 0, word);
            encoded.bytes.extend(short.to_le_bytes());
            encoded
        }
        _ => with_constant(with_word(0x81, 0, word), constant),
    }
}

/// `lea rsp, [rsp + constant]`: leaves the flags.
pub(crate) fn move_rsp(constant: i8) -> [u8; 5] {
    [REX_W, 0x8d, MODRM_DISPLACED_SHORT | RSP << 3 | MODRM_SIB, SIB_RSP, constant as u8]
}

/// The same with any constant.
pub(crate) fn move_rsp_far(constant: i32) -> Vec<u8> {
    if let Ok(constant) = i8::try_from(constant) {
        return move_rsp(constant).to_vec();
    }
    let mut bytes = vec![REX_W, 0x8d, MODRM_DISPLACED | RSP << 3 | MODRM_SIB, SIB_RSP];
    bytes.extend(constant.to_le_bytes());
    bytes
}

/// `mov qword [word], constant`, extended with its sign.
pub(crate) fn set_word(word: Word, constant: i32) -> Encoded {
    with_constant(with_word(0xc7, 0, word), constant)
}

/// `cmp qword [word], 0`
pub(crate) fn compare_with_zero(word: Word) -> Encoded {
    let mut encoded = with_word(0x83, 7, word);
    encoded.bytes.push(0);
    encoded
}

/// `mov register, [word]`, the lowest 32 bits
pub(crate) fn load_32(register: Register, word: Word) -> Encoded {
    let mut encoded = load(register, word);
    // Without REX.W.
    let rex_at = usize::from(matches!(word, Word::OfThread(_)));
    if let Some(rex) = encoded.bytes.get_mut(rex_at) {
        *rex &= !(REX_W & 0x0f);
    }
    encoded
}

/// `mov to, constant`, 32 bits that clear the others
pub(crate) fn set_32(to: Register, constant: i32) -> Vec<u8> {
    let mut bytes = vec![0x40 | to >> 3 & 1, 0xb8 | to & 7];
    bytes.extend(constant.to_le_bytes());
    bytes
}

/// `lea to, [from + constant]`, 32 bits that clear the others
pub(crate) fn add_32(to: Register, from: Register, constant: i32) -> Vec<u8> {
    let mut bytes = vec![0x40 | (to >> 3 & 1) << 2 | from >> 3 & 1, 0x8d, MODRM_DISPLACED | (to & 7) << 3 | from & 7];
    if from & 7 == RSP {
        bytes.push(SIB_RSP);
    }
    bytes.extend(constant.to_le_bytes());
    bytes
}

/// `imul to, from, constant`, 32 bits that clear the others
pub(crate) fn multiply(to: Register, from: Register, constant: i32) -> Vec<u8> {
    let mut bytes = vec![0x40 | (to >> 3 & 1) << 2 | from >> 3 & 1, 0x69, 0xc0 | (to & 7) << 3 | from & 7];
    bytes.extend(constant.to_le_bytes());
    bytes
}

/// `add register, [word]`
pub(crate) fn add_word(register: Register, word: Word) -> Encoded {
    with_word(0x03, register, word)
}

/// `cmp [base + displacement], register`, of its lower half
pub(crate) fn compare_in(base: Register, displacement: i32, register: Register) -> Vec<u8> {
    let (rex, [modrm, sib]) = in_table(base, None);
    let rex = rex & !(REX_W & 0x0f);
    let mut bytes = vec![rex | (register >> 3 & 1) << 2, 0x39, modrm | (register & 7) << 3, sib];
    bytes.extend(displacement.to_le_bytes());
    bytes
}

/// `mov to, [base + displacement]`
pub(crate) fn load_beside(to: Register, base: Register, displacement: i32) -> Vec<u8> {
    let (rex, [modrm, sib]) = in_table(base, None);
    let mut bytes = vec![rex | (to >> 3 & 1) << 2, 0x8b, modrm | (to & 7) << 3, sib];
    bytes.extend(displacement.to_le_bytes());
    bytes
}

/// `push register`
pub(crate) fn push_register(register: Register) -> [u8; 2] {
    [0x40 | register >> 3 & 1, 0x50 | register & 7]
}

/// `push qword [word]`
pub(crate) fn push(word: Word) -> Encoded {
    with_word(0xff, 6, word)
}

/// `pop qword [word]`: an address from rsp is counted from what it is afterwards.
pub(crate) fn pop_to(word: Word) -> Encoded {
    with_word(0x8f, 0, word)
}

/// `mov register, [word]`
pub(crate) fn load(register: Register, word: Word) -> Encoded {
    with_word(0x8b, register, word)
}

/// `mov [word], register`
pub(crate) fn store(register: Register, word: Word) -> Encoded {
    with_word(0x89, register, word)
}

/// `lea register, [register + constant]`: leaves the flags.
pub(crate) fn add_without_flags(register: Register, constant: i32) -> Vec<u8> {
    let high = register >> 3 & 1;
    let mut bytes = vec![REX_W | high << 2 | high, 0x8d, 0x80 | (register & 7) << 3 | register & 7];
    // rsp and r12 as a base take a SIB byte.
    if register & 7 == 4 {
        bytes.push(0x24);
    }
    bytes.extend(constant.to_le_bytes());
    bytes
}

/// `mov register, constant`
pub(crate) fn set_register(register: Register, constant: u64) -> Vec<u8> {
    let mut bytes = vec![REX_W | register >> 3 & 1, 0xb8 | register & 7];
    bytes.extend(constant.to_le_bytes());
    bytes
}

/// `mov register, constant`, extended with its sign.
pub(crate) fn set_register_short(register: Register, constant: i32) -> Vec<u8> {
    let mut bytes = vec![REX_W | register >> 3 & 1, 0xc7, 0xc0 | register & 7];
    bytes.extend(constant.to_le_bytes());
    bytes
}

/// `pcmpeqd xmm, xmm`: sets all bits of one of the first sixteen.
pub(crate) fn fill_vector(number: u8) -> Vec<u8> {
    let high = number >> 3 & 1;
    vec![0x66, 0x40 | high << 2 | high, 0x0f, 0x76, 0xc0 | (number & 7) << 3 | number & 7]
}

/// `cmp rsp, constant`: replaces the flags of arithmetic.
pub(crate) fn change_flags(constant: i32) -> Vec<u8> {
    let mut bytes = vec![REX_W, 0x81, 0xfc];
    bytes.extend(constant.to_le_bytes());
    bytes
}

/// REX of two registers: `reg` in ModRM's middle, `base` in its end.
fn rex_of(wide: u8, reg: Register, base: Register) -> u8 {
    0x40 | wide << 3 | (reg >> 3 & 1) << 2 | base >> 3 & 1
}

/// ModRM with a displacement of one byte from a register other than rsp and r12, and the displacement.
fn near(reg: u8, base: Register, displacement: i8) -> [u8; 2] {
    [MODRM_DISPLACED_SHORT | (reg & 7) << 3 | base & 7, displacement as u8]
}

/// `mov to, [base + displacement]`; `base` is neither rsp nor r12.
pub(crate) fn load_from(to: Register, base: Register, displacement: i8) -> [u8; 4] {
    let [modrm, displacement] = near(to, base, displacement);
    [rex_of(1, to, base), 0x8b, modrm, displacement]
}

/// `mov to, [base + 8 * index + displacement]`
pub(crate) fn load_from_table(to: Register, base: Register, index: Register, displacement: i32) -> Vec<u8> {
    let (rex, [modrm, sib]) = in_table(base, Some(index));
    let mut bytes = vec![rex | (to >> 3 & 1) << 2, 0x8b, modrm | (to & 7) << 3, sib];
    bytes.extend(displacement.to_le_bytes());
    bytes
}

/// `cmp register, constant`, of the lower half.
pub(crate) fn compare(register: Register, constant: u32) -> Vec<u8> {
    let mut bytes = vec![rex_of(0, 0, register), 0x81, 0xf8 | register & 7];
    bytes.extend(constant.to_le_bytes());
    bytes
}

/// `lea register, [rip + distance]`, up to the distance.
pub(crate) fn address_beside_code(register: Register) -> [u8; 3] {
    [rex_of(1, register, 0), 0x8d, MODRM_BESIDE_CODE | (register & 7) << 3]
}

/// `sub register, [rip + distance]`, up to the distance.
pub(crate) fn subtract_beside_code(register: Register) -> [u8; 3] {
    [rex_of(1, register, 0), 0x2b, MODRM_BESIDE_CODE | (register & 7) << 3]
}

/// `add register, [rip + distance]`, up to the distance.
pub(crate) fn add_beside_code(register: Register) -> [u8; 3] {
    [rex_of(1, register, 0), 0x03, MODRM_BESIDE_CODE | (register & 7) << 3]
}

/// `cmp [base + displacement], register`; `base` is neither rsp nor r12.
pub(crate) fn compare_with(base: Register, displacement: i8, register: Register) -> [u8; 4] {
    let [modrm, displacement] = near(register, base, displacement);
    [rex_of(1, register, base), 0x39, modrm, displacement]
}

/// `lea register, [register + other]`: leaves the flags. Neither is rsp; the register is neither rbp nor r13.
pub(crate) fn add_register_without_flags(register: Register, other: Register) -> [u8; 4] {
    let high = register >> 3 & 1;
    let rex = REX_W | high << 2 | (other >> 3 & 1) << 1 | high;
    [rex, 0x8d, MODRM_SIB | (register & 7) << 3, (other & 7) << 3 | register & 7]
}

/// `lea register, [8 * register]`
pub(crate) fn times_8(register: Register) -> [u8; 8] {
    let high = register >> 3 & 1;
    [REX_W | high << 2 | high << 1, 0x8d, MODRM_SIB | (register & 7) << 3, 0xc5 | (register & 7) << 3, 0, 0, 0, 0]
}

/// `cmp register, [rip + distance]`, up to the distance.
pub(crate) fn compare_beside_code(register: Register) -> [u8; 3] {
    [rex_of(1, register, 0), 0x3b, MODRM_BESIDE_CODE | (register & 7) << 3]
}

/// `cmp dword [base + displacement], constant`; `base` is neither rsp nor r12.
pub(crate) fn compare_word(base: Register, displacement: i8, constant: u32) -> Vec<u8> {
    const COMPARE: u8 = 7;
    let mut bytes = vec![rex_of(0, 0, base), 0x81];
    bytes.extend(near(COMPARE, base, displacement));
    bytes.extend(constant.to_le_bytes());
    bytes
}

/// `cmp qword [base + displacement], constant`; `base` is neither rsp nor r12.
pub(crate) fn compare_long(base: Register, displacement: i8, constant: u32) -> Vec<u8> {
    let mut bytes = compare_word(base, displacement, constant);
    if let Some(rex) = bytes.first_mut() {
        *rex |= REX_W;
    }
    bytes
}

/// `shr register, bits`
pub(crate) fn shift_right(register: Register, bits: u8) -> [u8; 4] {
    [rex_of(1, 0, register), 0xc1, 0xe8 | register & 7, bits]
}

/// `shl register, bits`
pub(crate) fn shift_left(register: Register, bits: u8) -> [u8; 4] {
    [rex_of(1, 0, register), 0xc1, 0xe0 | register & 7, bits]
}

/// `or to, from`
pub(crate) fn or(to: Register, from: Register) -> [u8; 3] {
    [rex_of(1, from, to), 0x09, 0xc0 | (from & 7) << 3 | to & 7]
}

/// `mov [base + displacement], from`; `base` is neither rsp nor r12.
pub(crate) fn store_to(base: Register, displacement: i32, from: Register) -> Vec<u8> {
    let mut bytes = vec![rex_of(1, from, base), 0x89, MODRM_DISPLACED | (from & 7) << 3 | base & 7];
    bytes.extend(displacement.to_le_bytes());
    bytes
}

/// `movzx to, from`: the lowest 16 bits.
pub(crate) fn lowest_16(to: Register, from: Register) -> [u8; 4] {
    [rex_of(0, to, from), 0x0f, 0xb7, 0xc0 | (to & 7) << 3 | from & 7]
}

/// `mov to, from`
pub(crate) fn copy(to: Register, from: Register) -> [u8; 3] {
    [rex_of(1, from, to), 0x89, 0xc0 | (from & 7) << 3 | to & 7]
}

/// `test register, register`
pub(crate) fn test(register: Register) -> [u8; 3] {
    [rex_of(1, register, register), 0x85, 0xc0 | (register & 7) << 3 | register & 7]
}

/// `pop register`
pub(crate) fn pop(register: Register) -> [u8; 2] {
    [rex_of(0, 0, register), 0x58 | register & 7]
}

/// `call`, up to the distance.
pub(crate) const CALL: [u8; 1] = [0xe8];
/// `and register, constant`, 32 bits that clear the others
pub(crate) fn and_32(register: Register, constant: u32) -> Vec<u8> {
    const AND: u8 = 4;
    let mut bytes = vec![rex_of(0, 0, register), 0x81, 0xc0 | AND << 3 | register & 7];
    bytes.extend(constant.to_le_bytes());
    bytes
}

/// `call [base + displacement]`; `base` is neither rsp nor r12.
pub(crate) fn call_through(base: Register, displacement: i8) -> [u8; 4] {
    const CALL: u8 = 2;
    let [modrm, displacement] = near(CALL, base, displacement);
    [rex_of(0, 0, base), 0xff, modrm, displacement]
}

/// `call`, through a word beside the code
pub(crate) const CALL_BESIDE_CODE: [u8; 2] = [0xff, 0x15];
/// `jmp`, through a word beside the code
pub(crate) const JUMP_BESIDE_CODE: [u8; 2] = [0xff, 0x25];
/// `push qword ptr [rip + distance]`, up to the distance.
pub(crate) const PUSH_BESIDE_CODE: [u8; 2] = [0xff, 0x35];
/// `pushfq`
pub(crate) const PUSH_FLAGS: [u8; 1] = [0x9c];
/// `popfq`
pub(crate) const POP_FLAGS: [u8; 1] = [0x9d];
/// `push rax`
pub(crate) const PUSH_RAX: [u8; 1] = [0x50];
/// `pop rax`
pub(crate) const POP_RAX: [u8; 1] = [0x58];
/// `lahf; seto al`: the flags of arithmetic to ax.
pub(crate) const FLAGS_TO_AX: [u8; 4] = [0x9f, 0x0f, 0x90, 0xc0];
/// `add al, 127; sahf`: they are what they were.
pub(crate) const FLAGS_FROM_AX: [u8; 3] = [0x04, 0x7f, 0x9e];

#[cfg(test)]
mod tests {
    use callpath_format::address::LinkAddr;

    use super::*;
    use crate::listing::listing;

    fn text(bytes: &[u8]) -> String {
        let lines: Vec<String> = listing(bytes, LinkAddr(0x1000)).into_iter().map(|line| line.text).collect();
        lines.join("; ")
    }

    #[test]
    fn the_bytes_are_the_instructions_that_they_are_called() {
        let thread = Word::OfThread(-0x40);
        let cases = [
            (add_to_word(thread, 3).bytes, "add qword ptr fs:[0xffffffffffffffc0], 3"),
            (add_to_word(Word::BesideCode, 0x1234).bytes, "add qword ptr [0x100b], 0x1234"),
            (set_word(thread, -1).bytes, "mov qword ptr fs:[0xffffffffffffffc0], 0xffffffffffffffff"),
            (load(0, thread).bytes, "mov rax, fs:[0xffffffffffffffc0]"),
            (store(9, thread).bytes, "mov fs:[0xffffffffffffffc0], r9"),
            (load(11, Word::BesideCode).bytes, "mov r11, [0x1007]"),
            (add_without_flags(2, -8).to_vec(), "lea rdx, [rdx-8]"),
            (add_without_flags(12, 5).to_vec(), "lea r12, [r12+5]"),
            (set_register(8, 0x1122_3344_5566_7788), "mov r8, 0x1122334455667788"),
            (set_register_short(11, -2), "mov r11, 0xfffffffffffffffe"),
            (load(11, Word::OfFrame(4, 0x18)).bytes, "mov r11, [rsp+0x18]"),
            (add_to_word(Word::OfFrame(5, -8), 3).bytes, "add qword ptr [rbp-8], 3"),
            (add_to_word(Word::OfFrame(4, 0x1000), 0x300).bytes, "add qword ptr [rsp+0x1000], 0x300"),
            (move_rsp(-0x20).to_vec(), "lea rsp, [rsp-0x20]"),
            (move_rsp_far(0x70), "lea rsp, [rsp+0x70]"),
            (move_rsp_far(-0x200), "lea rsp, [rsp-0x200]"),
            (count_in_table(1, Some(12), 0x40), "add qword ptr [rcx+r12*8+0x40], 1"),
            (count_in_table(11, None, 0), "add qword ptr [r11], 1"),
            (address_in_table(2, 9, Some(8), -8), "lea rdx, [r9+r8*8-8]"),
            (fill_vector(3), "pcmpeqd xmm3, xmm3"),
            (fill_vector(12), "pcmpeqd xmm12, xmm12"),
            (load_from(1, 9, 0x10).to_vec(), "mov rcx, [r9+0x10]"),
            (load_from_table(11, 4, 2, 0x28), "mov r11, [rsp+rdx*8+0x28]"),
            (load_from_table(0, 1, 11, 16), "mov rax, [rcx+r11*8+0x10]"),
            (compare(11, 0xc884_1f0f), "cmp r11d, 0xc8841f0f"),
            ([&subtract_beside_code(9)[..], &[1, 0, 0, 0]].concat(), "sub r9, [0x1008]"),
            ([&add_beside_code(11)[..], &[1, 0, 0, 0]].concat(), "add r11, [0x1008]"),
            (compare_with(9, 24, 2).to_vec(), "cmp [r9+0x18], rdx"),
            (times_8(9).to_vec(), "lea r9, [r9*8]"),
            (times_8(1).to_vec(), "lea rcx, [rcx*8]"),
            ([&compare_beside_code(2)[..], &[1, 0, 0, 0]].concat(), "cmp rdx, [0x1008]"),
            (compare_word(0, 8, 0x77), "cmp dword ptr [rax+8], 0x77"),
            (shift_right(8, 48).to_vec(), "shr r8, 0x30"),
            (shift_left(9, 48).to_vec(), "shl r9, 0x30"),
            (or(9, 1).to_vec(), "or r9, rcx"),
            (store_to(11, 0x8_0000, 2), "mov [r11+0x80000], rdx"),
            (copy(11, 4).to_vec(), "mov r11, rsp"),
            (lowest_16(9, 1).to_vec(), "movzx r9d, cx"),
            (copy(11, 0).to_vec(), "mov r11, rax"),
            (test(6).to_vec(), "test rsi, rsi"),
            (pop(11).to_vec(), "pop r11"),
            (pop(1).to_vec(), "pop rcx"),
            (count_down_in_table(9, 0x40), "sub qword ptr [r9+0x40], 1"),
            (compare_with_zero(Word::OfFrame(4, 0x18)).bytes, "cmp qword ptr [rsp+0x18], 0"),
            (push(Word::OfFrame(5, -8)).bytes, "push qword ptr [rbp-8]"),
            (push(thread).bytes, "push qword ptr fs:[0xffffffffffffffc0]"),
            (pop_to(Word::OfFrame(4, 0x18)).bytes, "pop qword ptr [rsp+0x18]"),
            (push_register(11).to_vec(), "push r11"),
            (push_register(2).to_vec(), "push rdx"),
            (load_32(9, Word::OfFrame(4, 0x18)).bytes, "mov r9d, [rsp+0x18]"),
            (load_32(1, thread).bytes, "mov ecx, fs:[0xffffffffffffffc0]"),
            (set_32(8, 5), "mov r8d, 5"),
            (add_32(9, 1, 0x100), "lea r9d, [rcx+0x100]"),
            (add_32(2, 8, -5), "lea edx, [r8-5]"),
            (multiply(9, 1, 0x1234_5678), "imul r9d, ecx, 0x12345678"),
            (multiply(2, 11, -2), "imul edx, r11d, 0xfffffffe"),
            (add_word(11, thread).bytes, "add r11, fs:[0xffffffffffffffc0]"),
            (compare_in(9, 16, 1), "cmp [r9+0x10], ecx"),
            (compare_in(2, 16, 8), "cmp [rdx+0x10], r8d"),
            (load_beside(8, 11, 0x1000), "mov r8, [r11+0x1000]"),
            (change_flags(0x7fff_0001), "cmp rsp, 0x7fff0001"),
            (add_without_flags(4, -128), "lea rsp, [rsp-0x80]"),
            ([&CALL[..], &[1, 0, 0, 0]].concat(), "call 0x1006"),
            ([&PUSH_BESIDE_CODE[..], &[2, 0, 0, 0]].concat(), "push qword ptr [0x1008]"),
            ([&CALL_BESIDE_CODE[..], &[2, 0, 0, 0]].concat(), "call qword ptr [0x1008]"),
            ([&JUMP_BESIDE_CODE[..], &[2, 0, 0, 0]].concat(), "jmp qword ptr [0x1008]"),
            ([PUSH_FLAGS, POP_FLAGS].concat(), "pushfq; popfq"),
            ([PUSH_RAX, POP_RAX].concat(), "push rax; pop rax"),
            ([&FLAGS_TO_AX[..], &FLAGS_FROM_AX].concat(), "lahf; seto al; add al, 0x7f; sahf"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(text(&bytes), expected);
        }
    }
}
