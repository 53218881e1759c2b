//! Writes the copy of a procedure: its blocks in their order, each instruction once for each block that has it.

use callpath_format::address::LinkAddr;
use rustc_hash::FxHashMap;

use super::assembler::{Assembler, Target};
use super::body::{Body, Step};
use super::refusal::Refusal;
use crate::encoding;
use crate::instruction::motion::Motion;

/// A procedure's copy.
pub(super) struct Copy {
    pub(super) at: LinkAddr,
    pub(super) code: Vec<u8>,
    /// By ascending offset: the address of the instruction that stands there.
    pub(super) origins: Vec<(u32, LinkAddr)>,
    /// Offset of the copy of each instruction, by its address.
    places: FxHashMap<u64, u32>,
}

impl Copy {
    pub(super) fn new(body: &Body<'_, '_>, at: LinkAddr) -> Result<Copy, Refusal> {
        let mut copy = Copy { at, code: Vec::new(), origins: Vec::new(), places: FxHashMap::default() };
        let mut out = Assembler::new(at.0);
        for (number, steps) in body.blocks.iter().enumerate() {
            let Some(steps) = body.steps.get(steps.clone()) else { continue };
            for step in steps {
                let offset = out.offset();
                copy.origins.push((offset, LinkAddr(step.at)));
                copy.places.entry(step.at).or_insert(offset);
                write(&mut out, step);
            }
            let block = &body.graph.blocks[number];
            // Behind the instructions that could be read.
            let end = steps.last().map_or(block.code.start.0, Step::end);
            let continues = steps.last().is_none_or(|last| last.continues() && body.comes_back(last));
            let next = body.graph.blocks.get(number + 1).map(|next| next.code.start.0);
            if continues && next != Some(end) {
                out.jump(Target::Copied(end));
            }
        }
        copy.code = out.finish(|address| copy.places.get(&address).copied())?;
        Ok(copy)
    }

    /// Where the copy of an instruction lies, by its address.
    pub(super) fn of(&self, address: u64) -> Option<u64> {
        self.places.get(&address).map(|&offset| self.at.0.wrapping_add(offset.into()))
    }
}

fn write(out: &mut Assembler, step: &Step<'_>) {
    match step.motion {
        Motion::Verbatim => out.bytes(step.bytes),
        Motion::BesideCode(displacement_at) => {
            let address = step.instruction.beside_code(step.end()).unwrap_or(0);
            out.with_displacement(step.bytes, displacement_at, Target::Fixed(address));
        }
        Motion::Branch(condition) => out.opcode_to(&encoding::branch(condition), Target::Copied(step.target())),
        Motion::ShortBranch => {
            // Over a jump, or onto it.
            let (_, opcode) = step.bytes.split_last().unwrap_or((&0, &[]));
            out.bytes(opcode);
            out.bytes(&[encoding::SHORT_JUMP_BYTES, encoding::SHORT_JUMP, encoding::JUMP_BYTES]);
            out.jump(Target::Copied(step.target()));
        }
        Motion::Transaction => {
            let opcode = step.bytes.len().saturating_sub(4);
            out.opcode_to(step.bytes.get(..opcode).unwrap_or(&[]), Target::Copied(step.target()));
        }
        Motion::Jump => out.jump(Target::Copied(step.target())),
        Motion::Call => out.jump(Target::Fixed(step.at)),
    }
}
