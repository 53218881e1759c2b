//! Encodings of some instructions, to search bytes that are too many to decode, or that may not be code.
//!
//! All instruction bytes that this crate knows are here. A match seems to be an instruction; its meaning comes from the
//! decoded instruction ([`crate::instruction`]). The tests below decode each form and compare.

use memchr::memmem::find_iter;
use memchr::{memchr_iter, memchr2_iter};

use crate::instruction::Register;

/// `endbr64`
const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
pub(crate) const INT3: u8 = 0xcc;
const NOP: u8 = 0x90;
const HLT: u8 = 0xf4;
/// `syscall`
pub(crate) const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// `call` with a distance of 32 bits.
const CALL: u8 = 0xe8;
/// `jmp` with a distance of 32 bits.
pub(crate) const JUMP: u8 = 0xe9;
/// The length of it, bytes.
pub(crate) const JUMP_BYTES: u8 = 5;
/// `jmp` with a distance of 8 bits.
pub(crate) const SHORT_JUMP: u8 = 0xeb;
/// The length of it, bytes.
pub(crate) const SHORT_JUMP_BYTES: u8 = 2;
/// First byte of two-byte opcodes.
const ESCAPE: u8 = 0x0f;
/// Operations on a word of memory: `call`, `jmp`, `push` and others, by ModRM.
const GROUP_5: u8 = 0xff;
/// ModRM of `jmp [rip + disp32]`.
const JUMP_BESIDE_CODE: u8 = 0x25;
/// ModRM of `push [rip + disp32]`.
const PUSH_BESIDE_CODE: u8 = 0x35;
/// `push` of a constant of 32 bits.
const PUSH_WORD: u8 = 0x68;
/// `bnd`, which linkers write before jumps for MPX.
const BND: u8 = 0xf2;
/// The length of `endbr64` and `bnd`, which may come before a jump, bytes.
pub(crate) const LONGEST_BEFORE_JUMP_BYTES: usize = ENDBR64.len() + 1;
/// The most bytes before ModRM: prefixes and the opcode.
pub(crate) const LONGEST_OPCODE_BYTES: usize = 6;

/// Filler between the procedures of generated code: zeros, traps, `hlt` and `nop`.
pub(crate) const FILLING: [u8; 4] = [0, INT3, HLT, NOP];

/// Whether the byte is `int3`.
pub(crate) fn is_trap(byte: u8) -> bool {
    byte == INT3
}

/// Whether the byte may end the padding of linkers and assemblers: `int3`, `nop`, or a `nop` of several bytes.
pub fn may_end_padding(byte: u8) -> bool {
    matches!(byte, INT3 | NOP | 0)
}

/// Whether the bytes begin with `endbr64`.
pub(crate) fn begins_with_endbr64(bytes: &[u8]) -> bool {
    bytes.starts_with(ENDBR64)
}

/// The bytes after the `endbr64` that a procedure may begin with.
pub fn behind_endbr64(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(ENDBR64).unwrap_or(bytes)
}

fn behind_bnd(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(&[BND]).unwrap_or(bytes)
}

/// Whether the bytes begin like a procedure: `endbr64`, or a push of a callee-saved register.
pub(crate) fn is_prologue(bytes: &[u8]) -> bool {
    matches!(bytes, [0x53 | 0x55, ..] | [0x41, 0x54..=0x57, ..]) || begins_with_endbr64(bytes)
}

/// Whether the bytes certainly begin a procedure: a push of a callee-saved register, then another, `endbr64`, `mov rbp,
/// rsp` or `sub rsp`.
pub(crate) fn is_sure_prologue(bytes: &[u8]) -> bool {
    let push_len = match bytes {
        [0x53 | 0x55, ..] => 1,
        [0x41, 0x54..=0x57, ..] => 2,
        _ => return false,
    };
    let rest = bytes.get(push_len..).unwrap_or(&[]);
    is_prologue(rest) || rest.starts_with(&FRAME_POINTERS[0]) || begins_with_subtraction(rest)
}

/// Whether the bytes begin like an epilogue: a pop, `leave`, `ret`, or an instruction that raises rsp.
pub(crate) fn is_epilogue(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [0x58..=0x5f | 0xc9 | 0xc3, ..]
            | [0x41, 0x58..=0x5f, ..]
            | [0x48, 0x83 | 0x81, 0xc4, ..]
            | [0x48, 0x8d, 0x65 | 0xa5, ..]
            | [0x48, 0x89, 0xec, ..]
    )
}

/// `mov rbp, rsp`, in both encodings.
const FRAME_POINTERS: [[u8; 3]; 2] = [[0x48, 0x89, 0xe5], [0x48, 0x8b, 0xec]];
/// The length of `push rbp; mov rbp, rsp`, bytes.
pub(crate) const FRAME_PROLOGUE_BYTES: usize = 4;

/// Whether the bytes begin with `push rbp; mov rbp, rsp`.
pub(crate) fn makes_frame(bytes: &[u8]) -> bool {
    matches!(bytes, [0x55, rest @ ..] if FRAME_POINTERS.iter().any(|pointer| rest.starts_with(pointer)))
}

/// `sub rsp, N`
pub(crate) fn begins_with_subtraction(bytes: &[u8]) -> bool {
    matches!(bytes, [0x48, 0x83 | 0x81, 0xec, ..])
}

/// `push` of a register.
pub(crate) fn begins_with_push(bytes: &[u8]) -> bool {
    matches!(bytes, [0x50..=0x57, ..] | [0x41, 0x50..=0x57, ..])
}

/// `mov [rsp - N], eax` far below the stack: HotSpot's check for stack overflow.
pub(crate) fn touches_below_stack(bytes: &[u8]) -> bool {
    matches!(bytes, [0x89, 0x84, 0x24, _, _, _, 0xff, ..])
}

/// `mov rcx, [rbp - N]; lea rsp, [rbp + 8 * rcx]`, with displacements of one byte: the frame keeps the distance.
pub(crate) fn takes_stack_distance_from_frame(bytes: &[u8]) -> bool {
    matches!(bytes, [0x48, 0x8b, 0x4d, 0x80..=0xff, 0x48, 0x8d, 0x64, 0xcd, 0, ..])
}

/// `mov rsp, [rbp - N]` or `lea rsp, [rbp - N]`, with a displacement of one byte or of four.
pub(crate) fn takes_stack_pointer_from_frame(bytes: &[u8]) -> bool {
    matches!(bytes, [0x48, 0x8b | 0x8d, 0x65, 0x80..=0xff, ..] | [0x48, 0x8b | 0x8d, 0xa5, _, _, _, 0x80..=0xff, ..])
}

/// Whether the code before a return takes arguments off the stack, as V8's does: `pop R; lea rsp, [...]; push R`.
pub(crate) fn takes_arguments_off(before: &[u8]) -> bool {
    // `pop` and `push` differ in one bit of the last byte.
    let of_push = match before {
        [.., 0x41, 0x50..=0x57] => 2,
        [.., 0x50..=0x57] => 1,
        _ => return false,
    };
    let (before, push) = before.split_at(before.len() - of_push);
    let is_pop = |bytes: &[u8]| match (bytes, push) {
        ([.., prefix, pop], [0x41, push]) => (*prefix, *pop) == (0x41, push | 8),
        ([.., pop], [push]) => *pop == push | 8,
        _ => false,
    };
    // The operand's middle three bits are the register, rsp; an address has two bytes to six.
    let loads_rsp = |bytes: &[u8]| matches!(bytes, [0x48..=0x4b, 0x8d, operand, ..] if operand >> 3 & 7 == 4);
    (4..=8)
        .filter_map(|len| before.split_at_checked(before.len().checked_sub(len)?))
        .any(|(before, lea)| loads_rsp(lea) && is_pop(before))
}

/// The longest code that [`takes_arguments_off`] looks at, bytes.
pub(crate) const TAKES_ARGUMENTS_OFF_BYTES: u32 = 12;

/// Whether the byte is a prefix that turns rsp or rbp as a base into r12 or r13.
pub(crate) fn extends_base(byte: u8) -> bool {
    byte & 0xf1 == 0x41
}

/// An operand of an instruction, given as a distance from the instruction's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Relative {
    /// Offset of the opcode's last byte in the bytes.
    pub(crate) at: usize,
    /// Offset of the instruction's end.
    end: usize,
    pub(crate) distance: i32,
}

impl Relative {
    /// Reads the distance, `opcode_len` bytes after `at`.
    #[inline]
    fn behind(bytes: &[u8], at: usize, opcode_len: usize) -> Option<Relative> {
        let from = at + opcode_len;
        let distance = i32::from_le_bytes(*bytes.get(from..)?.first_chunk()?);
        Some(Relative { at, end: from + 4, distance })
    }

    /// The address that the operand refers to. `start`: the address of the bytes.
    #[inline]
    pub(crate) fn address(&self, start: u64) -> u64 {
        start.wrapping_add(self.end as u64).wrapping_add_signed(self.distance.into())
    }
}

/// The distance of 32 bits from one address to another.
pub(crate) fn distance(from: u64, to: u64) -> Option<i32> {
    i32::try_from(to.wrapping_sub(from) as i64).ok()
}

/// Whether the bytes are a whole `jmp` to one address, of either length.
pub(crate) fn is_jump(bytes: &[u8]) -> bool {
    matches!(bytes, [JUMP, _, _, _, _] | [SHORT_JUMP, _])
}

/// `jmp` at one address to another, if that is not too far.
pub(crate) fn jump(at: u64, to: u64) -> Option<[u8; JUMP_BYTES as usize]> {
    let [a, b, c, d] = distance(at.wrapping_add(JUMP_BYTES.into()), to)?.to_le_bytes();
    Some([JUMP, a, b, c, d])
}

/// `jmp` at one address to another that is no further than 127 bytes; what is further is cut.
pub(crate) fn short_jump(at: u64, to: u64) -> [u8; SHORT_JUMP_BYTES as usize] {
    [SHORT_JUMP, to.wrapping_sub(at.wrapping_add(SHORT_JUMP_BYTES.into())) as u8]
}

/// A conditional jump with a distance of 32 bits, up to that distance. `condition`: its number in the processor's order.
pub(crate) fn branch(condition: u8) -> [u8; 2] {
    [ESCAPE, 0x80 | condition & 15]
}

/// The same with a distance of 8 bits.
pub(crate) fn near_branch(condition: u8) -> u8 {
    0x70 | condition & 15
}

/// Candidates for calls.
#[inline]
pub(crate) fn calls(bytes: &[u8]) -> impl Iterator<Item = Relative> + '_ {
    memchr_iter(CALL, bytes).filter_map(|at| Relative::behind(bytes, at, 1))
}

/// Candidates for calls and jumps with a distance of 32 bits.
#[inline]
pub(crate) fn calls_and_jumps(bytes: &[u8]) -> impl Iterator<Item = Relative> + '_ {
    memchr2_iter(CALL, JUMP, bytes).filter_map(|at| Relative::behind(bytes, at, 1))
}

/// Candidates for jumps with a distance of 32 bits, conditional ones included.
pub(crate) fn jumps(bytes: &[u8]) -> impl Iterator<Item = Relative> + '_ {
    memchr2_iter(JUMP, ESCAPE, bytes).filter_map(|at| {
        if bytes[at] == JUMP {
            return Relative::behind(bytes, at, 1);
        }
        bytes.get(at + 1).filter(|&opcode| opcode & 0xf0 == 0x80)?;
        Relative::behind(bytes, at + 1, 1)
    })
}

/// Candidates for jumps through a word beside the code, with the word.
pub(crate) fn jumps_beside_code(bytes: &[u8]) -> impl Iterator<Item = Relative> + '_ {
    find_iter(bytes, &[GROUP_5, JUMP_BESIDE_CODE]).filter_map(|at| Relative::behind(bytes, at, 2))
}

/// As `jumps_beside_code`, if the bytes begin with one, perhaps after `bnd`.
pub(crate) fn jump_beside_code(bytes: &[u8]) -> Option<Relative> {
    let at = bytes.len() - behind_bnd(bytes).len();
    bytes[at..].starts_with(&[GROUP_5, JUMP_BESIDE_CODE]).then(|| Relative::behind(bytes, at, 2))?
}

/// The operands of what seem to be indirect jumps: a word beside the code; `None` for any other.
pub(crate) fn indirect_jumps(bytes: &[u8]) -> impl Iterator<Item = Option<Relative>> + '_ {
    memchr_iter(GROUP_5, bytes).filter_map(|at| match bytes[at + 1..] {
        [JUMP_BESIDE_CODE, _, _, _, _, ..] => Some(Relative::behind(bytes, at, 2)),
        [modrm, ..] => (modrm >> 3 & 7 == 4).then_some(None),
        [] => None,
    })
}

/// Words beside the code that seem to be loaded (`mov`, `push`), not called.
pub(crate) fn loads_beside_code(bytes: &[u8]) -> impl Iterator<Item = Relative> + '_ {
    memchr2_iter(0x8b, GROUP_5, bytes).filter_map(|at| {
        let modrm = *bytes.get(at + 1)?;
        let is_load = if bytes[at] == GROUP_5 { modrm == PUSH_BESIDE_CODE } else { modrm & 0xc7 == 0x05 };
        if is_load { Relative::behind(bytes, at, 2) } else { None }
    })
}

/// `push [rip + N]; [bnd] jmp [rip + N]`
pub(crate) fn pushes_and_jumps_beside_code(bytes: &[u8]) -> bool {
    bytes.starts_with(&[GROUP_5, PUSH_BESIDE_CODE])
        && behind_bnd(bytes.get(6..).unwrap_or(&[])).starts_with(&[GROUP_5, JUMP_BESIDE_CODE])
}

/// `push N; [bnd] jmp`
pub(crate) fn pushes_word_and_jumps(bytes: &[u8]) -> bool {
    bytes.starts_with(&[PUSH_WORD]) && behind_bnd(bytes.get(5..).unwrap_or(&[])).starts_with(&[JUMP])
}

/// Candidates for returns that pop arguments of the caller: a few words of eight bytes.
pub(crate) fn popping_returns(bytes: &[u8]) -> impl Iterator<Item = usize> + '_ {
    memchr_iter(0xc2, bytes).filter(|at| {
        let operand = bytes.get(at + 1..).and_then(|rest| rest.first_chunk());
        operand.is_some_and(|&[low, high]| high == 0 && low > 0 && low.is_multiple_of(8))
    })
}

/// Whether an instruction seems to copy rsp to another register: `mov` in either form.
pub(crate) fn copies_stack_pointer(bytes: &[u8]) -> bool {
    memchr2_iter(0x89, 0x8b, bytes).any(|at| {
        let (Some(rex), Some(modrm)) = (at.checked_sub(1).and_then(|before| bytes.get(before)), bytes.get(at + 1))
        else {
            return false;
        };
        // The register that is not rsp may be any; that which is has no bit of the prefix.
        if bytes[at] == 0x89 {
            rex & 0xfe == 0x48 && modrm & 0xf8 == 0xe0
        } else {
            rex & 0xfb == 0x48 && modrm & 0xc7 == 0xc4
        }
    })
}

/// Offsets of ModRM in what seem to be operands `[base + displacement]` with a `wanted` displacement. `base`: rsp or
/// rbp.
pub(crate) fn stack_operands<'b>(
    bytes: &'b [u8],
    base: Register,
    wanted: impl Fn(i64) -> bool + Copy + 'b,
) -> impl Iterator<Item = usize> + 'b {
    let displacement = move |modrm: u8, behind: &[u8]| match modrm & 0xc0 {
        0x00 => Some(0),
        0x40 => behind.first().map(|&byte| i64::from(byte as i8)),
        0x80 => behind.first_chunk().map(|bytes| i64::from(i32::from_le_bytes(*bytes))),
        _ => None,
    };
    let is_rsp = base == Register::RSP;
    // Found by the SIB byte for rsp alone.
    let with_sib = memchr_iter(0x24, if is_rsp { bytes } else { &[] }).filter_map(move |sib| {
        let modrm = sib.checked_sub(1)?;
        let here = bytes[modrm];
        (here & 7 == 4 && displacement(here, &bytes[sib + 1..]).is_some_and(wanted)).then_some(modrm)
    });
    let without = if is_rsp { &[] } else { bytes };
    let without = without.windows(2).enumerate().filter_map(move |(at, pair)| {
        let is_operand = pair[0] & 0xc7 == 0x45 && wanted(i64::from(pair[1] as i8));
        is_operand.then_some(at)
    });
    with_sib.chain(without)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::{Control, Instruction, Listing, Operation};
    use crate::state::CALLEE_SAVED;

    fn decode(bytes: &[u8]) -> Instruction {
        Instruction::decode(bytes).unwrap_or_else(|| panic!("no instruction: {bytes:x?}"))
    }

    #[test]
    fn arguments_taken_off_before_a_return() {
        // As V8 has it: pop rcx; lea rsp, [r15+8]; push rcx     pop r10; lea rsp, [rsp+8*rcx]; push r10
        assert!(takes_arguments_off(&[0x59, 0x49, 0x8d, 0x67, 8, 0x51]));
        assert!(takes_arguments_off(&[0x90, 0x41, 0x5a, 0x48, 0x8d, 0x24, 0xcc, 0x41, 0x52]));
        // pop rcx; lea rsp, [rsp+0x100]; push rcx
        assert!(takes_arguments_off(&[0x59, 0x48, 0x8d, 0xa4, 0x24, 0, 1, 0, 0, 0x51]));
        // Another register; no lea of rsp; no pop; only a part
        assert!(!takes_arguments_off(&[0x59, 0x49, 0x8d, 0x67, 8, 0x52]));
        assert!(!takes_arguments_off(&[0x41, 0x59, 0x49, 0x8d, 0x67, 8, 0x41, 0x52]));
        assert!(!takes_arguments_off(&[0x59, 0x49, 0x8d, 0x47, 8, 0x51]));
        assert!(!takes_arguments_off(&[0x51, 0x49, 0x8d, 0x67, 8, 0x51]));
        assert!(!takes_arguments_off(&[0x49, 0x8d, 0x67, 8, 0x51]));
        assert!(!takes_arguments_off(&[]));
    }

    /// Bytes that begin with every opcode, without a prefix and with each of those that matter here.
    fn beginnings() -> impl Iterator<Item = [u8; 16]> {
        const PREFIXES: [&[u8]; 8] = [&[], &[0x41], &[0x48], &[0x49], &[0x4c], &[BND], &[0xf3, 0x0f], &[0x55, 0x48]];
        const TAILS: [&[u8]; 4] =
            [&[0x24, 0x90, 0xff], &[0x83, 0x44, 0xff], &[0xfa, 0x55, 0xff], &[0xf0, 0x48, 0x8d, 0x64, 0xcd, 0]];
        PREFIXES.iter().flat_map(|prefix| {
            (0..=u16::MAX).flat_map(move |head| {
                TAILS.map(|tail| {
                    let mut bytes = [0xff; 16];
                    let begin = [prefix, &head.to_le_bytes()[..], tail].concat();
                    bytes[..begin.len()].copy_from_slice(&begin);
                    bytes
                })
            })
        })
    }

    fn is_push_of_callers(instruction: &Instruction) -> bool {
        let register = instruction.register(0).general64();
        instruction.operation() == Operation::Push && register.is_some_and(|number| CALLEE_SAVED.contains(&number))
    }

    fn makes_pointer(instruction: &Instruction) -> bool {
        instruction.operation() == Operation::Move
            && (instruction.register(0), instruction.register(1)) == (Register::RBP, Register::RSP)
    }

    fn subtracts(instruction: &Instruction) -> bool {
        let is_of_rsp = instruction.register(0) == Register::RSP && instruction.immediate().is_some();
        instruction.operation() == Operation::Subtract && is_of_rsp
    }

    /// Compares each form with the decoded instructions: of all beginnings, none is taken for what it is not.
    #[test]
    fn forms_are_what_the_instructions_say() {
        let mut found = [0; 11];
        let mut note = |form: usize| found[form] += 1;
        for bytes in beginnings() {
            let first = || decode(&bytes);
            let second = || decode(&bytes[first().len() as usize..]);
            if begins_with_endbr64(&bytes) {
                note(0);
                assert_eq!(first().operation(), Operation::EndBranch, "{bytes:x?}");
                assert_eq!(behind_endbr64(&bytes), &bytes[first().len() as usize..]);
            }
            if is_prologue(&bytes) {
                note(1);
                let is = is_push_of_callers(&first()) || first().operation() == Operation::EndBranch;
                assert!(is, "{bytes:x?}");
            }
            if is_sure_prologue(&bytes) {
                note(2);
                let is = is_push_of_callers(&second()) || second().operation() == Operation::EndBranch;
                let is_sure = is || makes_pointer(&second()) || subtracts(&second());
                assert!(is_push_of_callers(&first()) && is_sure, "{bytes:x?}");
            }
            if makes_frame(&bytes) {
                note(3);
                assert_eq!((first().operation(), first().register(0)), (Operation::Push, Register::RBP));
                assert!(makes_pointer(&second()), "{bytes:x?}");
                assert_eq!((first().len() + second().len()) as usize, FRAME_PROLOGUE_BYTES);
            }
            if is_epilogue(&bytes) {
                note(4);
                let (operation, to) = (first().operation(), first().register(0));
                let is = match operation {
                    Operation::Pop | Operation::Leave | Operation::Return => true,
                    Operation::Add | Operation::LoadAddress => to == Register::RSP,
                    Operation::Move => (to, first().register(1)) == (Register::RSP, Register::RBP),
                    _ => false,
                };
                assert!(is, "{bytes:x?}");
            }
            if begins_with_subtraction(&bytes) {
                note(5);
                assert!(subtracts(&first()), "{bytes:x?}");
            }
            if begins_with_push(&bytes) {
                note(6);
                assert_eq!(first().operation(), Operation::Push);
                assert!(first().register(0).general64().is_some(), "{bytes:x?}");
            }
            let memory = || first().memory().unwrap_or_else(|| panic!("no memory operand: {bytes:x?}"));
            if touches_below_stack(&bytes) {
                note(7);
                assert!(first().writes_memory_operand() && memory().is_only(Register::RSP), "{bytes:x?}");
                assert!(memory().displacement < 0, "{bytes:x?}");
            }
            if takes_stack_pointer_from_frame(&bytes) {
                note(8);
                assert!(matches!(first().operation(), Operation::Move | Operation::LoadAddress), "{bytes:x?}");
                assert_eq!(first().register(0), Register::RSP);
                assert!(memory().is_only(Register::RBP) && memory().displacement < 0, "{bytes:x?}");
            }
            if takes_stack_distance_from_frame(&bytes) {
                note(10);
                assert_eq!(
                    (first().operation(), first().register(0).general64()),
                    (Operation::Move, Some(1)),
                    "{bytes:x?}"
                );
                assert!(memory().is_only(Register::RBP) && memory().displacement < 0, "{bytes:x?}");
                assert_eq!((second().operation(), second().register(0)), (Operation::LoadAddress, Register::RSP));
                let place = second().memory().expect("an address");
                assert!(place.base == Register::RBP && place.displacement == 0, "{bytes:x?}");
            }
            if let Some(jump) = jump_beside_code(&bytes) {
                note(9);
                assert_eq!(first().control(), Control::JumpIndirect, "{bytes:x?}");
                assert_eq!(Some(jump.address(0x1000)), first().beside_code(0x1000 + u64::from(first().len())));
            }
        }
        assert!(found.iter().all(|&count| count > 0), "{found:?}");
    }

    #[test]
    fn single_bytes() {
        assert_eq!(decode(&[INT3]).operation(), Operation::Breakpoint);
        assert!(is_trap(INT3) && !is_trap(NOP));
        assert_eq!(decode(&[NOP]).operation(), Operation::Nop);
        assert!(decode(&[HLT]).is_privileged());
        assert_eq!(decode(&SYSCALL).operation(), Operation::SystemCall);
        // Of each length, as gas and ld write them.
        for padding in [&[INT3][..], &[NOP], &[0x66, NOP], &[0x0f, 0x1f, 0x40, 0], &[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]] {
            assert!(decode(padding).is_padding() && may_end_padding(padding[padding.len() - 1]), "{padding:x?}");
        }
        assert!(!may_end_padding(0xc3));
        for prefix in 0x40..=0x4f {
            // mov rax, [rsp], with the prefix
            let base = decode(&[prefix, 0x8b, 0x04, 0x24]).memory().map(|memory| memory.base);
            assert_eq!(extends_base(prefix), base != Some(Register::RSP), "{prefix:x}");
        }
    }

    /// The searches find exactly the instructions that decoding this program's code shows.
    #[test]
    fn searches_find_what_is_decoded() {
        const LEN_BYTES: usize = 1 << 20;
        let program = std::fs::read(std::env::current_exe().expect("a program")).expect("readable");
        let code = elf_text(&program);
        let code = &code[..code.len().min(LEN_BYTES)];
        let by_end = |found: &mut dyn Iterator<Item = Relative>| -> std::collections::BTreeMap<usize, u64> {
            found.map(|relative| (relative.end, relative.address(0))).collect()
        };
        let calls = by_end(&mut calls(code));
        let both = by_end(&mut calls_and_jumps(code));
        let jumps = by_end(&mut jumps(code));
        let through = by_end(&mut jumps_beside_code(code));
        let loads = by_end(&mut loads_beside_code(code));
        let any: Vec<bool> = indirect_jumps(code).map(|slot| slot.is_some()).collect();
        let (mut seen, mut at) = ([0; 5], 0);
        let mut indirect = 0;
        while at < code.len() {
            let mut listing = Listing::new(&code[at..], at as u64);
            for (from, instruction) in listing.by_ref() {
                let next = from + u64::from(instruction.len());
                let (end, target) = (next as usize, instruction.target(next));
                let beside = instruction.beside_code(next);
                let say = || format!("{from:x}: {instruction:?}");
                match instruction.control() {
                    Control::Call if instruction.len() == 5 => {
                        seen[0] += 1;
                        assert_eq!((calls.get(&end), both.get(&end)), (Some(&target), Some(&target)), "{}", say());
                    }
                    Control::Jump if instruction.len() == 5 => {
                        seen[1] += 1;
                        assert_eq!((jumps.get(&end), both.get(&end)), (Some(&target), Some(&target)), "{}", say());
                    }
                    Control::Branch if instruction.len() == 6 => {
                        seen[2] += 1;
                        assert_eq!(jumps.get(&end), Some(&target), "{}", say());
                    }
                    Control::JumpIndirect => {
                        indirect += 1;
                        if let Some(slot) = beside {
                            seen[3] += 1;
                            assert_eq!(through.get(&end), Some(&slot), "{}", say());
                        }
                    }
                    Control::Next
                        if instruction.operation() == Operation::Move && !instruction.writes_memory_operand() =>
                    {
                        let is_whole = instruction.register(0).general64().is_some();
                        if let Some(slot) = beside.filter(|_| is_whole) {
                            seen[4] += 1;
                            assert_eq!(loads.get(&end), Some(&slot), "{}", say());
                        }
                    }
                    _ => {}
                }
            }
            at = listing.address() as usize + 1;
        }
        assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
        assert!(any.len() >= indirect && indirect > 0, "{} {indirect}", any.len());
    }

    /// The bytes of this program's largest executable segment.
    fn elf_text(program: &[u8]) -> &[u8] {
        let number = |at: usize, len: usize| {
            program[at..at + len].iter().rev().fold(0usize, |number, &byte| number << 8 | usize::from(byte))
        };
        let (headers, len, count) = (number(0x20, 8), number(0x36, 2), number(0x38, 2));
        let segments = (0..count).map(|index| headers + index * len);
        let code = segments.filter(|&header| number(header, 4) == 1 && number(header + 4, 4) & 1 != 0);
        let code = code.max_by_key(|&header| number(header + 0x20, 8)).expect("code");
        &program[number(code + 8, 8)..][..number(code + 0x20, 8)]
    }
}
