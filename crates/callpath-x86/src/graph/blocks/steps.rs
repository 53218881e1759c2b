//! The events of the sweep as one procedure has them.
//! Knows nothing of where control comes from.

use iced_x86::Instruction;

use crate::decode::{Instructions, is_padding};
use crate::graph::fragments::Piece;
use crate::graph::module_flow::ModuleFlow;
use crate::sweep::{Event, EventKind};

/// An event of the sweep, as this procedure has it.
#[derive(Clone, Copy, Debug)]
pub(in crate::graph) struct Step {
    pub(in crate::graph) at: u32,
    /// Where its instruction ends.
    pub(in crate::graph) end: u32,
    pub(in crate::graph) kind: StepKind,
    pub(in crate::graph) target: u32,
    /// Control comes to it from here on, as far as there is no other event between; `NOWHERE` if it does not come.
    pub(super) from: u32,
}

impl Step {
    pub(super) fn is_call(&self) -> bool {
        matches!(self.kind, StepKind::Call | StepKind::NoReturn)
    }
}

/// What a step does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::graph) enum StepKind {
    Branch,
    Jump,
    /// A jump to where a register or memory says.
    JumpIndirect,
    Return,
    /// It comes back.
    Call,
    NoReturn,
    /// A jump that leaves the procedure, who knows where to.
    Leave,
    Trap,
}

impl ModuleFlow<'_> {
    /// What an event does in a piece of code; its instruction ends at `end`.
    pub(super) fn kind_of(&self, event: &Event, end: u32, piece: &Piece) -> StepKind {
        match event.kind {
            EventKind::Branch => StepKind::Branch,
            EventKind::Jump => StepKind::Jump,
            EventKind::Leave => match opcode(self.places.bytes(event.at)) {
                [0xff, ..] => StepKind::JumpIndirect,
                _ => StepKind::Return,
            },
            EventKind::Call | EventKind::Stop => {
                let bytes = opcode(self.places.bytes(event.at));
                let is_call = matches!(bytes, [0xe8, ..]) || is_group(bytes, 2);
                if !is_call {
                    return match bytes {
                        [0xe9 | 0xeb, ..] => StepKind::Jump,
                        _ if is_group(bytes, 4) => StepKind::Leave,
                        _ => StepKind::Trap,
                    };
                }
                let slot = match bytes {
                    [0xff, 0x15, rest @ ..] => rest.first_chunk().map(|displacement| {
                        self.places.address(end).0.wrapping_add_signed(i32::from_le_bytes(*displacement).into())
                    }),
                    _ => None,
                };
                let stops = slot.is_some_and(|slot| self.no_return_slots.binary_search(&slot).is_ok())
                    || !self.returns.of(&self.sweep.events, event.target)
                    // The sweep takes padding behind a call for a procedure's end, where it does not know one.
                    || (event.kind == EventKind::Stop && !piece.is_given);
                if stops || self.is_padding_up_to(end, piece.end) { StepKind::NoReturn } else { StepKind::Call }
            }
        }
    }

    /// There is nothing but padding.
    fn is_padding_up_to(&self, at: u32, end: u32) -> bool {
        self.behind_padding(at, end) >= end
    }

    /// The first position from `at` on that is no padding, or `end`.
    pub(super) fn behind_padding(&self, at: u32, end: u32) -> u32 {
        let looks_like = |byte: u8| matches!(byte, 0x90 | 0xcc | 0x66 | 0x0f | 0x2e | 0x48 | 0x8d | 0xf3);
        if at >= end || !self.places.bytes(at).first().is_some_and(|&byte| looks_like(byte)) {
            return at.min(end);
        }
        let Some(mut instructions) = Instructions::new(&self.places, at) else { return end };
        let mut instruction = Instruction::default();
        loop {
            let at = instructions.position();
            if at >= end {
                return end;
            }
            if !instructions.decode(&mut instruction) || instruction.is_invalid() || !is_padding(&instruction) {
                return at;
            }
        }
    }
}

/// The bytes from the opcode on.
fn opcode(bytes: &[u8]) -> &[u8] {
    let is_prefix =
        |byte: &&u8| matches!(byte, 0x66 | 0xf2 | 0xf3 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65 | 0x40..=0x4f);
    bytes.get(bytes.iter().take(14).take_while(is_prefix).count()..).unwrap_or(&[])
}

/// `ff` with this operation, or the next, which is its far form.
fn is_group(bytes: &[u8], operation: u8) -> bool {
    matches!(bytes, [0xff, modrm, ..] if (operation..operation + 2).contains(&(modrm >> 3 & 7)))
}
