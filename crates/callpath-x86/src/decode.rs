//! Reads the code's instructions by position, and determines where control goes after each.

use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions};

use crate::code_map::{CodeMap, NOWHERE, Part};
use crate::decoded::Decoded;
use crate::instruction::{Control, Instruction};
use crate::work;

/// Where control goes after an instruction. Targets are positions, [`NOWHERE`] for an address that is not code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// To the next instruction.
    Next,
    /// To the target or to the next instruction.
    Branch(u32),
    /// To the target.
    Jump(u32),
    /// To an address in a register or memory.
    JumpIndirect,
    /// To the target, and back.
    Call(u32),
    /// To an address in a register or memory, and back.
    CallIndirect,
    /// To the caller.
    Return,
    /// Nowhere.
    Stop,
}

/// Reads the instructions of one part of the code in order: those that a sweep decoded, or decodes them.
pub(crate) struct Instructions<'a> {
    /// Made when it is first needed.
    decoder: Option<Decoder<'a>>,
    part: Part<'a>,
    /// Offset of the next instruction in the part, bytes.
    offset: u32,
    decoded: Arc<Decoded>,
    /// A position, and the index in `decoded` of the instruction there.
    known: (u32, usize),
}

impl<'a> Instructions<'a> {
    /// Reads from `at` to the end of its part.
    #[inline]
    pub(crate) fn new(code_map: &CodeMap<'a>, at: u32) -> Option<Instructions<'a>> {
        let part = *code_map.part(at)?;
        let decoded = Arc::clone(&code_map.decoded);
        Some(Instructions { decoder: None, part, offset: at - part.first, decoded, known: (NOWHERE, 0) })
    }

    /// Continues at `at`. Returns false, and changes nothing, if that is in another part.
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

    /// The address after the last instruction read.
    #[inline]
    pub(crate) fn next_address(&self) -> u64 {
        self.part.start.0.wrapping_add(self.offset.into())
    }

    /// The next instruction. `None`, without advancing, at the end of the part and where no instruction can be decoded.
    #[inline]
    pub(crate) fn read(&mut self) -> Option<Instruction> {
        work::count();
        let at = self.position();
        let index = if self.known.0 == at { Some(self.known.1) } else { self.decoded.index_of(at) };
        let Some(index) = index else { return self.decode() };
        let instruction = self.decoded.get(index)?;
        let len = instruction.len();
        self.offset += len;
        if instruction.is_followed() {
            self.known = (at + len, index + 1);
        }
        Some(instruction)
    }

    /// As `next`, but always decoded from the bytes.
    pub(crate) fn decode(&mut self) -> Option<Instruction> {
        let Part { start, bytes, .. } = self.part;
        let decoder = self.decoder.get_or_insert_with(|| Decoder::with_ip(64, bytes, start.0, DecoderOptions::NONE));
        if decoder.position() != self.offset as usize {
            decoder.set_position(self.offset as usize).ok()?;
            decoder.set_ip(start.0.wrapping_add(u64::from(self.offset)));
        }
        if !decoder.can_decode() {
            return None;
        }
        let instruction = Instruction::of(&decoder.decode())?;
        self.offset += instruction.len();
        Some(instruction)
    }

    /// Where control goes after `instruction`, the last one read.
    #[inline(always)]
    pub(crate) fn flow_of(&self, instruction: &Instruction, code_map: &CodeMap<'_>) -> Flow {
        // True of most instructions.
        if instruction.only_falls_through() {
            return Flow::Next;
        }
        self.flow_elsewhere(instruction, code_map)
    }

    fn flow_elsewhere(&self, instruction: &Instruction, code_map: &CodeMap<'_>) -> Flow {
        match instruction.control() {
            Control::Next => Flow::Next,
            Control::Branch => Flow::Branch(self.target_of(instruction, code_map)),
            Control::Jump => Flow::Jump(self.target_of(instruction, code_map)),
            Control::Call => Flow::Call(self.target_of(instruction, code_map)),
            Control::JumpIndirect => Flow::JumpIndirect,
            Control::CallIndirect => Flow::CallIndirect,
            Control::Return => Flow::Return,
            Control::Stop => Flow::Stop,
        }
    }

    #[inline]
    fn target_of(&self, instruction: &Instruction, code_map: &CodeMap<'_>) -> u32 {
        let offset = u64::from(self.offset).wrapping_add_signed(instruction.distance());
        if offset < self.part.bytes.len() as u64 {
            return self.part.first + offset as u32;
        }
        code_map.position(self.part.start.0.wrapping_add(offset)).unwrap_or(NOWHERE)
    }
}
