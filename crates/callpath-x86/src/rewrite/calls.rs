//! Calls that the copy makes. Either like the original does, with a return address in the copy; or, because at home they
//! leave no room for a springboard, with the return address at home: it is pushed, and a jump leads to the callee. Neither
//! changes flags, or registers besides rsp. The processor mispredicts the return of the second.
//!
//! What is called through a stub of the linkage table is called through the word that the stub reads, which saves one jump.

use callpath_format::address::LinkAddr;

use super::assembler::{Assembler, Target};
use super::body::Step;
use crate::encode::{self, Register};
use crate::instruction::Control;
use crate::instruction::motion::Motion;

/// The length of a return address, bytes.
const WORD_BYTES: u8 = 8;
/// The length of the distance to a word beside the code, bytes.
const DISPLACEMENT_BYTES: usize = 4;
/// `call` and `jmp`, through a register or memory, among others: ModRM tells which.
const GROUP_5: u8 = 0xff;
const CALL_EXTENSION: u8 = 2;
const JUMP_EXTENSION: u8 = 4;
/// The number of rsp as a register or a base; as an index it means none.
const RSP: u8 = 4;

/// The jump to a callee, where the return address has been pushed.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Jump {
    /// To one address.
    Direct(u64),
    /// Through a register, or memory that does not lie beside the code.
    Through(Vec<u8>),
    /// Through the word at this address, four bytes behind ModRM.
    BesideCode(Vec<u8>, u64),
}

/// Whether the copy can make a call with the return address at home.
pub(super) fn can_be_made(step: &Step<'_>) -> bool {
    jump(step).is_some()
}

/// Whether the copy can make a call like the original does.
pub(super) fn can_be_copied(step: &Step<'_>) -> bool {
    let is_call = matches!(step.instruction.control(), Control::Call | Control::CallIndirect);
    is_call && step.motion == Motion::Call && !matches!(displaced(step), Some(displaced) if displaced.is_odd)
}

/// The procedure of the module that a copy calls by its address.
pub(super) fn called_directly(step: &Step<'_>) -> Option<LinkAddr> {
    let is_direct = step.instruction.control() == Control::Call && step.slot.is_none();
    is_direct.then(|| LinkAddr(step.callee()))
}

/// Makes a call like the original does. `hands_node`: the callee's node is in a register.
pub(super) fn write_copied(out: &mut Assembler, step: &Step<'_>, hands_node: bool) {
    match (step.instruction.control(), displaced(step)) {
        (Control::Call, _) if step.slot.is_some() => {
            let word = step.taking_node.filter(|_| hands_node).or(step.slot);
            out.opcode_to(&encode::CALL_BESIDE_CODE, Target::Fixed(word.unwrap_or(0)));
        }
        (Control::Call, _) if hands_node => out.opcode_to(&encode::CALL, Target::CalledWithNode(step.callee())),
        (Control::Call, _) => out.opcode_to(&encode::CALL, Target::Called(step.callee())),
        (_, Some(Displaced { address, .. })) => {
            out.with_displacement(
                step.bytes,
                step.bytes.len().saturating_sub(DISPLACEMENT_BYTES),
                Target::Fixed(address),
            );
        }
        _ => out.bytes(step.bytes),
    }
}

/// The word beside the code that a copied call goes through, if it does; its distance is what the call ends with.
pub(super) fn called_through(step: &Step<'_>) -> Option<u64> {
    match step.instruction.control() {
        Control::Call => step.slot,
        _ if step.bytes.first().is_some_and(|first| is_segment(*first)) => None,
        _ => displaced(step).filter(|displaced| !displaced.is_odd).map(|displaced| displaced.address),
    }
}

/// A word beside the code that holds the callee's address.
struct Displaced {
    address: u64,
    /// The displacement is not what the instruction ends with.
    is_odd: bool,
}

fn displaced(step: &Step<'_>) -> Option<Displaced> {
    let address = step.instruction.beside_code(step.end())?;
    let at = step.bytes.len().saturating_sub(DISPLACEMENT_BYTES);
    let word = step.bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map(|bytes| i32::from_le_bytes(*bytes));
    let is_odd = word.map(|word| step.end().wrapping_add_signed(word.into())) != Some(address);
    Some(Displaced { address, is_odd })
}

/// What holds the address that a call leads to: a register, or a word of memory.
#[derive(Clone, Debug)]
pub(super) struct Pointer {
    segments: Vec<u8>,
    /// The bits of REX that it takes, ModRM without the middle, and what follows.
    rex: u8,
    modrm: u8,
    operand: Vec<u8>,
    /// If it lies beside the code: its address.
    address: Option<u64>,
    registers: Vec<Register>,
}

impl Pointer {
    /// Of a call through a register or memory, or a stub. `None`: the call is another one.
    pub(super) fn of(step: &Step<'_>) -> Option<Pointer> {
        const BESIDE_CODE: u8 = 5;
        if step.motion != Motion::Call {
            return None;
        }
        if let (Control::Call, Some(_)) = (step.instruction.control(), step.slot) {
            let (segments, operand, registers) = (Vec::new(), vec![0; DISPLACEMENT_BYTES], Vec::new());
            return Some(Pointer { segments, rex: 0, modrm: BESIDE_CODE, operand, address: step.slot, registers });
        }
        if step.instruction.control() != Control::CallIndirect {
            return None;
        }
        let opcode_at = step.bytes.iter().position(|&byte| !is_segment(byte) && !is_rex(byte))?;
        let (prefixes, rest) = step.bytes.split_at_checked(opcode_at)?;
        let (segments, rex) = match prefixes.split_last() {
            Some((rex, segments)) if is_rex(*rex) => (segments, *rex & 3),
            _ => (prefixes, 0),
        };
        let [GROUP_5, modrm, operand @ ..] = rest else { return None };
        let (mode, base) = (modrm >> 6, modrm & 7);
        let is_beside_code = mode == 0 && base == BESIDE_CODE;
        let is_plain = modrm >> 3 & 7 == CALL_EXTENSION && !segments.iter().any(|byte| is_rex(*byte));
        if !is_plain || is_beside_code && (called_through(step).is_none() || !segments.is_empty()) {
            return None;
        }
        let registers = match operand.first() {
            _ if is_beside_code => Vec::new(),
            Some(sib) if mode != 3 && base == RSP => vec![sib >> 3 & 7 | (rex & 2) << 2, sib & 7 | (rex & 1) << 3],
            _ => vec![base | (rex & 1) << 3],
        };
        let address = called_through(step).filter(|_| is_beside_code);
        let (segments, modrm, operand) = (segments.to_vec(), modrm & 0xc7, operand.to_vec());
        Some(Pointer { segments, rex, modrm, operand, address, registers })
    }

    /// The register that it is, if it is one.
    pub(super) fn register(&self) -> Option<Register> {
        let is_register = self.modrm >> 6 == 3;
        self.registers.first().copied().filter(|_| is_register)
    }

    /// Whether it is a register, or its address depends on it.
    pub(super) fn uses(&self, register: Register) -> bool {
        self.registers.contains(&register)
    }

    /// Writes `cmp register, pointer`.
    pub(super) fn compare(&self, out: &mut Assembler, register: Register) {
        const COMPARE: u8 = 0x3b;
        self.with(out, COMPARE, register);
    }

    /// Writes `mov register, pointer`.
    pub(super) fn load(&self, out: &mut Assembler, register: Register) {
        const LOAD: u8 = 0x8b;
        self.with(out, LOAD, register);
    }

    fn with(&self, out: &mut Assembler, opcode: u8, register: Register) {
        const REX_W: u8 = 0x48;
        let instruction = [REX_W | (register >> 3 & 1) << 2 | self.rex, opcode, self.modrm | (register & 7) << 3];
        let bytes = [&self.segments[..], &instruction, &self.operand].concat();
        match self.address {
            Some(address) => {
                let displacement_at = bytes.len().saturating_sub(DISPLACEMENT_BYTES);
                out.with_displacement(&bytes, displacement_at, Target::Fixed(address));
            }
            None => out.bytes(&bytes),
        }
    }
}

/// Makes a call with the return address at home. `bias`: run-time address minus link-time address.
pub(super) fn write(out: &mut Assembler, step: &Step<'_>, bias: u64) {
    let Some(jump) = jump(step) else { return };
    out.push_word(step.end().wrapping_add(bias));
    // The origin of the jump is the call. Who finds callers by the call's recipe has to know that rsp is lower.
    out.set_lowered(WORD_BYTES.into());
    match jump {
        Jump::Direct(target) => out.jump(Target::Called(target)),
        Jump::Through(bytes) => out.bytes(&bytes),
        Jump::BesideCode(bytes, address) => {
            let displacement_at = bytes.len().saturating_sub(4);
            out.with_displacement(&bytes, displacement_at, Target::Fixed(address));
        }
    }
    out.set_lowered(0);
}

/// The jump that takes the place of a call; `None` where there is none that does the same.
fn jump(step: &Step<'_>) -> Option<Jump> {
    if step.motion != Motion::Call {
        return None;
    }
    match step.instruction.control() {
        Control::Call => Some(match step.slot {
            Some(slot) => Jump::BesideCode([&encode::JUMP_BESIDE_CODE[..], &[0; DISPLACEMENT_BYTES]].concat(), slot),
            None => Jump::Direct(step.callee()),
        }),
        Control::CallIndirect => indirect(step),
        _ => None,
    }
}

fn indirect(step: &Step<'_>) -> Option<Jump> {
    let opcode_at = step.bytes.iter().position(|&byte| !is_segment(byte) && !is_rex(byte))?;
    let rex = opcode_at.checked_sub(1).and_then(|at| step.bytes.get(at)).copied().filter(|&byte| is_rex(byte));
    let (prefixes, rest) = step.bytes.split_at_checked(opcode_at)?;
    let [GROUP_5, modrm, operand @ ..] = rest else { return None };
    let (extends_base, extends_index) = rex.map_or((false, false), |rex| (rex & 1 != 0, rex & 2 != 0));
    let (mode, register) = (modrm >> 6, modrm & 7);
    if modrm >> 3 & 7 != CALL_EXTENSION {
        return None;
    }
    let with_mode = |mode: u8| [prefixes, &[GROUP_5, mode << 6 | JUMP_EXTENSION << 3 | register]].concat();
    let unchanged = || [with_mode(mode), operand.to_vec()].concat();
    match (mode, register, operand) {
        // The push has changed it.
        (3, RSP, _) if !extends_base => None,
        (0, 5, _) => Some(Jump::BesideCode(unchanged(), step.instruction.beside_code(step.end())?)),
        (0..=2, RSP, [sib, displacement @ ..]) if sib & 7 == RSP && !extends_base => {
            let has_index = sib >> 3 & 7 != RSP || extends_index;
            let displacement = match mode {
                0 => 0,
                1 => i32::from(i8::from_le_bytes(*displacement.first_chunk()?)),
                _ => i32::from_le_bytes(*displacement.first_chunk()?),
            };
            // With an index, or below rsp, it may be the word that the push overwrites.
            if has_index || displacement < 0 {
                return None;
            }
            let displacement = displacement.checked_add(WORD_BYTES.into())?;
            Some(Jump::Through(match i8::try_from(displacement) {
                Ok(short) => [with_mode(1), vec![*sib], short.to_le_bytes().to_vec()].concat(),
                Err(_) => [with_mode(2), vec![*sib], displacement.to_le_bytes().to_vec()].concat(),
            }))
        }
        // Elsewhere a callee's address is not below rsp: it would not outlive a signal.
        _ => Some(Jump::Through(unchanged())),
    }
}

/// Whether a prefix chooses a segment, or means nothing here.
fn is_segment(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65)
}

fn is_rex(byte: u8) -> bool {
    byte & 0xf0 == 0x40
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::Instruction;
    use crate::instruction::motion::motion;
    use crate::listing::listing;

    const AT: u64 = 0x1000;

    /// What the call is as a jump, in words.
    fn text(bytes: &[u8]) -> Option<String> {
        text_of(bytes, None)
    }

    fn text_of(bytes: &[u8], slot: Option<u64>) -> Option<String> {
        let instruction = Instruction::decode(bytes).expect("an instruction");
        let motion = motion(bytes).expect("it can be moved");
        Some(match jump(&Step { at: AT, bytes, instruction, motion, slot, bound: None, taking_node: None })? {
            Jump::Direct(target) => format!("{target:#x}"),
            Jump::BesideCode(bytes, address) => {
                assert_eq!(bytes.len(), usize::from(bytes[0] != GROUP_5) + 6);
                format!("[{address:#x}]")
            }
            Jump::Through(bytes) => {
                let lines = listing(&bytes, LinkAddr(AT));
                assert_eq!(lines.len(), 1, "{bytes:x?}");
                lines[0].text.clone()
            }
        })
    }

    #[test]
    fn a_call_is_the_jump_to_the_same_place() {
        let cases: [(&[u8], Option<&str>); 20] = [
            // call 0x1105
            (&[0xe8, 0, 1, 0, 0], Some("0x1105")),
            // call rax; call r12
            (&[0xff, 0xd0], Some("jmp rax")),
            (&[0x41, 0xff, 0xd4], Some("jmp r12")),
            // call rsp
            (&[0xff, 0xd4], None),
            // call [rax+0x10]
            (&[0xff, 0x50, 0x10], Some("jmp [rax+0x10]")),
            // call [r12]; call [r12+8]
            (&[0x41, 0xff, 0x14, 0x24], Some("jmp [r12]")),
            (&[0x41, 0xff, 0x54, 0x24, 8], Some("jmp [r12+8]")),
            // call [rsp]; call [rsp+8]; call [rsp+0x78]; call [rsp+0x100]; call [rsp-8]
            (&[0xff, 0x14, 0x24], Some("jmp [rsp+8]")),
            (&[0xff, 0x54, 0x24, 8], Some("jmp [rsp+0x10]")),
            (&[0xff, 0x54, 0x24, 0x78], Some("jmp [rsp+0x80]")),
            (&[0xff, 0x94, 0x24, 0, 1, 0, 0], Some("jmp [rsp+0x108]")),
            (&[0xff, 0x54, 0x24, 0xf8], None),
            // call [rsp+rax*8]; call [rsp+r12*8]
            (&[0xff, 0x14, 0xc4], None),
            (&[0x42, 0xff, 0x14, 0xe4], None),
            // call [rip+0x10]; rex.w call [rip+0x10]
            (&[0xff, 0x15, 0x10, 0, 0, 0], Some("[0x1016]")),
            (&[0x48, 0xff, 0x15, 0x10, 0, 0, 0], Some("[0x1017]")),
            // call fs:[0x10]
            (&[0x64, 0xff, 0x14, 0x25, 0x10, 0, 0, 0], Some("jmp fs:[0x10]")),
            // call [rbp+rax*8-8]
            (&[0xff, 0x54, 0xc5, 0xf8], Some("jmp [rbp+rax*8-8]")),
            // call [rax], with a prefix that processors disagree about; call [eax]
            (&[0x66, 0xff, 0x10], None),
            (&[0x67, 0xff, 0x10], None),
        ];
        for (bytes, expected) in cases {
            let found = text(bytes).map(|text| text.replace("qword ptr ", ""));
            assert_eq!(found.as_deref(), expected, "{bytes:02x?}");
        }
        // A stub's word.
        assert_eq!(text_of(&[0xe8, 0, 1, 0, 0], Some(0x4000)).as_deref(), Some("[0x4000]"));
    }
}
