//! Instructions: decoding, and where control goes after each.
//! Knows nothing of frames and of procedures.

use std::sync::Arc;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::decoded::Decoded;
use crate::places::{NOWHERE, Part, Places};
use crate::quick::{Op, Quick};

/// Where control goes after an instruction. Targets are positions, [`NOWHERE`] for an address that is not code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// To the next instruction.
    Next,
    /// To the target or to the next instruction.
    Branch(u32),
    /// To the target.
    Jump(u32),
    /// To where a register or memory says.
    JumpIndirect,
    /// To the target, and back.
    Call(u32),
    /// To where a register or memory says, and back.
    CallIndirect,
    /// To the caller.
    Return,
    /// Nowhere.
    Stop,
}

/// Decodes the instructions of one part of the code, one after the other.
pub(crate) struct Instructions<'a> {
    /// Made when it is needed.
    decoder: Option<Decoder<'a>>,
    part: Part<'a>,
    /// Of the next instruction, in the part.
    offset: u32,
    decoded: Arc<Decoded>,
    /// The index in `decoded` of what stands at this position, if anything does.
    known: (u32, usize),
}

impl<'a> Instructions<'a> {
    /// From `at` on, up to the end of its part.
    #[inline]
    pub(crate) fn new(places: &Places<'a>, at: u32) -> Option<Instructions<'a>> {
        let part = *places.part(at)?;
        let decoded = Arc::clone(&places.decoded);
        Some(Instructions { decoder: None, part, offset: at - part.first, decoded, known: (NOWHERE, 0) })
    }

    /// Goes on at `at`, if that is in the same part.
    #[inline]
    pub(crate) fn seek(&mut self, at: u32) -> bool {
        let is_here = at >= self.part.first && at < self.part.end();
        if is_here {
            self.offset = at - self.part.first;
        }
        is_here
    }

    /// The position of the next instruction.
    #[inline]
    pub(crate) fn position(&self) -> u32 {
        self.part.first + self.offset
    }

    /// The address of a position in the same part.
    #[inline]
    pub(crate) fn address(&self, at: u32) -> u64 {
        self.part.start.0 + u64::from(at - self.part.first)
    }

    /// The next instruction, if it was decoded already or can be quickly; otherwise nothing is passed.
    #[inline]
    pub(crate) fn quick(&mut self) -> Option<Quick> {
        let at = self.position();
        let index = if self.known.0 == at { Some(self.known.1) } else { self.decoded.index_of(at) };
        let Some(index) = index else { return self.decode_quickly() };
        let quick = self.decoded.get(index)?;
        let len = u32::from(quick.len());
        self.offset += len;
        if quick.is_followed() {
            self.known = (at + len, index + 1);
        }
        Some(quick)
    }

    /// The next instruction, if it is one of those that can be decoded quickly; otherwise nothing is passed.
    #[inline]
    pub(crate) fn decode_quickly(&mut self) -> Option<Quick> {
        let window = self.part.bytes.get(self.offset as usize..)?.first_chunk()?;
        // Not moved once more: it was written in small pieces.
        let quick = Quick::decode(window);
        if let Some(quick) = &quick {
            self.offset += u32::from(quick.len());
        }
        quick
    }

    /// The next instruction; false at the end of the part. After bytes that are none the position is not specified.
    pub(crate) fn decode(&mut self, instruction: &mut Instruction) -> bool {
        let Part { start, bytes, .. } = self.part;
        let decoder = self.decoder.get_or_insert_with(|| Decoder::with_ip(64, bytes, start.0, DecoderOptions::NONE));
        if decoder.set_position(self.offset as usize).is_err() || !decoder.can_decode() {
            return false;
        }
        decoder.set_ip(start.0.wrapping_add(u64::from(self.offset)));
        decoder.decode_out(instruction);
        self.offset = decoder.position() as u32;
        true
    }

    /// Where control goes after `quick`, which the position is behind.
    #[inline]
    pub(crate) fn flow_of(&self, quick: &Quick, places: &Places<'_>) -> Flow {
        match quick.op {
            Op::Branch => Flow::Branch(self.target_of(quick, places)),
            Op::Jump => Flow::Jump(self.target_of(quick, places)),
            Op::Call => Flow::Call(self.target_of(quick, places)),
            Op::Return => Flow::Return,
            Op::Stop | Op::Trap => Flow::Stop,
            _ => Flow::Next,
        }
    }

    #[inline]
    fn target_of(&self, quick: &Quick, places: &Places<'_>) -> u32 {
        let offset = u64::from(self.offset).wrapping_add(quick.imm());
        if offset < self.part.bytes.len() as u64 {
            return self.part.first + offset as u32;
        }
        places.position(self.part.start.0.wrapping_add(offset)).unwrap_or(NOWHERE)
    }
}

/// Where control goes after `instruction`.
pub(crate) fn flow_of(instruction: &Instruction, places: &Places<'_>) -> Flow {
    let target = || places.position(instruction.near_branch_target()).unwrap_or(NOWHERE);
    match instruction.flow_control() {
        FlowControl::Next => match instruction.code() {
            Code::Hlt => Flow::Stop,
            _ => Flow::Next,
        },
        FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => match instruction.op0_kind() {
            OpKind::NearBranch64 => Flow::Branch(target()),
            _ => Flow::Next,
        },
        FlowControl::UnconditionalBranch => Flow::Jump(target()),
        FlowControl::IndirectBranch => Flow::JumpIndirect,
        FlowControl::Call => match instruction.op0_kind() {
            OpKind::NearBranch64 if instruction.near_branch_target() == instruction.next_ip() => Flow::Next,
            OpKind::NearBranch64 => Flow::Call(target()),
            // syscall and its kin
            _ => Flow::Next,
        },
        FlowControl::IndirectCall => Flow::CallIndirect,
        FlowControl::Return => Flow::Return,
        FlowControl::Interrupt => match instruction.code() {
            Code::Int_imm8 => Flow::Next,
            _ => Flow::Stop,
        },
        FlowControl::Exception => Flow::Stop,
    }
}

/// An instruction that only fills the space between procedures or before a loop.
pub(crate) fn is_padding(instruction: &Instruction) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Nop | Mnemonic::Int3 => true,
        // xchg ax, ax; lea rsi, [rsi+0]; mov edi, edi is no padding on x86-64
        Mnemonic::Lea => {
            instruction.op0_register() == instruction.memory_base()
                && instruction.memory_index() == Register::None
                && instruction.memory_displacement64() == 0
                && instruction.op0_register().size() == 8
        }
        _ => false,
    }
}

/// The bytes begin as procedures do: endbr64, or the push of a register that belongs to the caller.
pub(crate) fn is_prologue(bytes: &[u8]) -> bool {
    matches!(bytes, [0x53 | 0x55, ..] | [0x41, 0x54..=0x57, ..] | [0xf3, 0x0f, 0x1e, 0xfa, ..])
}

/// The bytes begin as the ends of procedures do: a pop, `leave`, `ret`, or rsp moved upwards.
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

/// The bytes begin as procedures do, beyond doubt: two pushes, or a push and the frame's making.
pub(crate) fn is_sure_prologue(bytes: &[u8]) -> bool {
    let push_len = match bytes {
        [0x53 | 0x55, ..] => 1,
        [0x41, 0x54..=0x57, ..] => 2,
        _ => return false,
    };
    let rest = bytes.get(push_len..).unwrap_or(&[]);
    is_prologue(rest) || matches!(rest, [0x48, 0x89, 0xe5, ..] | [0x48, 0x83 | 0x81, 0xec, ..])
}

/// The number of a general-purpose register (of any width) in the processor's order.
#[inline]
pub(crate) fn number(register: Register) -> Option<usize> {
    register.is_gpr().then(|| register.full_register().number())
}
