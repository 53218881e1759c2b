//! What the full decoder says of an instruction that the quick one does not know, in the words of the quick one, if it has any.
//! Knows nothing of bytes. What is derived from those words is what is derived from the full ones: see `agreement.rs`.

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess, OpKind, Register,
    UsedRegister,
};

use super::operands::bit;
use super::{NONE, Op, Quick, RSP};
use crate::decode::number;
use crate::effect::{is_plain, works_on_vectors, writes_memory};

/// Finds the words.
pub(crate) struct Digester {
    info: InstructionInfoFactory,
}

impl Digester {
    pub(crate) fn new() -> Digester {
        Digester { info: InstructionInfoFactory::new() }
    }

    /// Of instructions that do nothing to frames but write registers, or memory, of which it is not asked what.
    pub(crate) fn digest(&mut self, instruction: &Instruction) -> Option<Quick> {
        let goes_on = instruction.flow_control() == FlowControl::Next;
        let is_nop = instruction.mnemonic() == Mnemonic::Nop;
        if !goes_on || !(is_plain(instruction) || is_nop) || instruction.is_privileged() {
            return None;
        }
        let in_memory = instruction.op0_kind() == OpKind::Memory && writes_memory(instruction);
        let is_store = in_memory && instruction.segment_prefix() == Register::None;
        let info = self.info.info_options(instruction, InstructionInfoOptions::NO_MEMORY_USAGE);
        let registers = |is_asked_for: fn(&UsedRegister) -> bool| {
            info.used_registers()
                .iter()
                .filter(move |used| is_asked_for(used))
                .filter_map(|used| number(used.register()))
        };
        let mut written = [NONE; 2];
        if !works_on_vectors(instruction) {
            for register in registers(is_written) {
                let register = register as u8;
                if register == RSP || in_memory {
                    return None;
                }
                if !written.contains(&register) {
                    *written.iter_mut().find(|free| **free == NONE)? = register;
                }
            }
        }
        // See `Trial::uses`.
        let is_al = instruction.op0_register() == Register::AL || instruction.op1_register() == Register::AL;
        let reads = if is_al { 0 } else { registers(is_read).fold(0, |reads, register| reads | bit(register as u8)) };
        let op = match written {
            _ if is_nop => Op::Padding,
            _ if is_store => Op::Store,
            [NONE, _] => Op::Inert,
            [_, NONE] => Op::Write,
            _ => Op::WriteTwo,
        };
        let full = |register: Register| match number(register) {
            Some(register_number) if register.size() == 8 => register_number as u8,
            _ => NONE,
        };
        let index = match instruction.memory_index() {
            Register::None => NONE,
            // Whatever it is: a place with an index is not known.
            index => number(index).unwrap_or(0) as u8,
        };
        Some(Quick {
            op,
            len_and_flags: u8::try_from(instruction.len()).ok()? & 15,
            size: u8::try_from(instruction.memory_size().size().max(1)).ok()?,
            reg: written[0],
            other: written[1],
            base: if is_store { full(instruction.memory_base()) } else { NONE },
            index: if is_store { index } else { NONE },
            reads,
            disp: if is_store { i32::try_from(instruction.memory_displacement64() as i64).ok()? } else { 0 },
            imm: 0,
        })
    }
}

fn is_written(used: &UsedRegister) -> bool {
    matches!(used.access(), OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

fn is_read(used: &UsedRegister) -> bool {
    matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}
