//! What an instruction says of a target that is wanted behind it: instruction by instruction.
//! Knows nothing of ways through the code.

use iced_x86::{Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess, OpKind, Register};

use super::formula::{NONE, Place, RAX, RDX, RSP, Sum, memory_place};
use super::query::{Limit, Query, Source};
use crate::decode::number;

/// An index is not compared with more.
const MAX_BOUND: u64 = 1 << 16;

impl Query {
    /// Goes back over an instruction. The answer, if it is found or can no longer be.
    pub(super) fn step_back(
        &mut self,
        instruction: &Instruction,
        infos: &mut InstructionInfoFactory,
    ) -> Option<Source> {
        let compared = self.bound_by(instruction);
        if !self.undo(instruction, infos) {
            return Some(Source::Unknown);
        }
        if let Some((place, highest)) = compared
            && self.index().is_some()
        {
            self.compared = Some((place, highest));
        }
        if let (Some((place, highest)), Some(index)) = (self.compared, self.index())
            && place == index.0
            && !self.close(Some(highest), true)
        {
            return Some(Source::Unknown);
        }
        self.answer()
    }

    /// The instruction sets the flags that the branch behind it asked for: what that says.
    fn bound_by(&mut self, instruction: &Instruction) -> Option<(Place, u32)> {
        let says = self.pending?;
        if instruction.rflags_modified() == 0 {
            return None;
        }
        self.pending = None;
        if !matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Sub) {
            return None;
        }
        let (place, width) = match instruction.op0_kind() {
            OpKind::Register => {
                let register = instruction.op0_register();
                (Place::Register(number(register)? as u8), register.size())
            }
            OpKind::Memory => (memory_place(instruction)?, instruction.memory_size().size()),
            _ => return None,
        };
        let mask = if width >= 8 { u64::MAX } else { (1u64 << (8 * width)) - 1 };
        let limit = instruction.try_immediate(1).ok()? & mask;
        let highest = match says {
            Limit::NotAbove => limit,
            Limit::Below => limit.checked_sub(1)?,
        };
        (highest < MAX_BOUND).then_some((place, highest as u32))
    }

    /// Puts in what an instruction defines. False if the target can no longer be told.
    fn undo(&mut self, instruction: &Instruction, infos: &mut InstructionInfoFactory) -> bool {
        let kinds = (instruction.op0_kind(), instruction.op1_kind());
        let register = |register: Register| number(register).map(|number| number as u8);
        let (to, width) = match kinds.0 {
            OpKind::Register => (register(instruction.op0_register()), instruction.op0_register().size()),
            _ => (None, 0),
        };
        let from = if kinds.1 == OpKind::Register { register(instruction.op1_register()) } else { None };
        let immediate = instruction.try_immediate(1).ok();
        let is_immediate = immediate.is_some();
        let immediate = immediate.unwrap_or(0);
        let is_wide = width >= 4;
        if let Some(to) = to {
            let place = Place::Register(to);
            let itself = Sum::of(place);
            let mnemonic = instruction.mnemonic();
            match (mnemonic, from) {
                (Mnemonic::Mov, Some(from)) if is_wide => return self.replace(place, &Sum::of(Place::Register(from))),
                (Mnemonic::Mov, None) if is_wide && is_immediate && instruction.op_count() == 2 => {
                    return self.replace(place, &Sum::constant(immediate));
                }
                (Mnemonic::Mov, None) if is_wide && kinds.1 == OpKind::Memory => {
                    return self.load(to, instruction, width as u8, false);
                }
                (Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd, Some(from)) if is_wide => {
                    if mnemonic == Mnemonic::Movzx {
                        self.narrow(place, instruction.op1_register().size() as u8);
                    } else if self.load.is_none() {
                        self.is_extended = true;
                    }
                    return self.replace(place, &Sum::of(Place::Register(from)));
                }
                (Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd, None) if is_wide => {
                    let width = instruction.memory_size().size() as u8;
                    return self.load(to, instruction, width, mnemonic != Mnemonic::Movzx);
                }
                (Mnemonic::Lea, _) if is_wide => {
                    return match Sum::address(instruction) {
                        Some(address) => self.replace(place, &address),
                        None => self.kill(place),
                    };
                }
                (Mnemonic::Add | Mnemonic::Sub, Some(from)) if is_wide && from != to => {
                    let mut sum = itself;
                    let factor = if mnemonic == Mnemonic::Add { 1 } else { -1 };
                    return sum.add(Place::Register(from), factor) && self.replace(place, &sum);
                }
                (Mnemonic::Add | Mnemonic::Sub, None) if is_wide && is_immediate => {
                    let by = immediate;
                    let by = if mnemonic == Mnemonic::Add { by } else { by.wrapping_neg() };
                    return self.replace(place, &Sum { constant: by, ..itself });
                }
                (Mnemonic::Inc, _) if is_wide => return self.replace(place, &Sum { constant: 1, ..itself }),
                (Mnemonic::Dec, _) if is_wide => return self.replace(place, &Sum { constant: u64::MAX, ..itself }),
                (Mnemonic::Shl, None) if is_wide && is_immediate && immediate < 8 => {
                    let sum = Sum { constant: 0, terms: [Some((place, 1 << immediate)), None, None] };
                    return self.replace(place, &sum);
                }
                (Mnemonic::And, None) if is_immediate && self.index().is_some_and(|index| index.0 == place) => {
                    let mask = immediate;
                    let highest = (mask < MAX_BOUND).then_some(mask as u32);
                    return self.close(highest, highest.is_some()) && !self.mentions(place);
                }
                (Mnemonic::Shr, None) if is_immediate && self.index().is_some_and(|index| index.0 == place) => {
                    let bits = (8 * width as u64).saturating_sub(immediate).min(63);
                    let highest = (1u64 << bits) - 1;
                    return self.close((highest < MAX_BOUND).then_some(highest as u32), false) && !self.mentions(place);
                }
                (Mnemonic::Xor, Some(from)) if is_wide && from == to => {
                    return self.replace(place, &Sum::constant(0));
                }
                (Mnemonic::Pop, _) => {
                    let top = Place::Memory { base: RSP, index: NONE, scale: 1, disp: 0 };
                    return self.move_stack(8) && self.replace(place, &Sum::of(top));
                }
                (Mnemonic::Push, _) => return self.push(Some(Sum::of(place))),
                _ => {}
            }
        }
        match instruction.mnemonic() {
            Mnemonic::Nop | Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Endbr64 => true,
            Mnemonic::Mov if kinds.0 == OpKind::Memory => match (memory_place(instruction), from) {
                (Some(memory), Some(from)) => self.replace(memory, &Sum::of(Place::Register(from))),
                (Some(memory), None) if is_immediate => self.replace(memory, &Sum::constant(immediate)),
                (Some(memory), None) => self.kill_exactly(memory),
                (None, _) => true,
            },
            Mnemonic::Cdqe => {
                self.is_extended |= self.load.is_none() && self.mentions(Place::Register(RAX));
                true
            }
            // What is used behind a call and not made there has survived it: but for what the call gives.
            Mnemonic::Call => self.kill(Place::Register(RAX)) && self.kill(Place::Register(RDX)),
            Mnemonic::Push => self.push(None),
            Mnemonic::Syscall => self.kill(Place::Register(RAX)),
            _ => {
                let info = infos.info_options(instruction, InstructionInfoOptions::NO_MEMORY_USAGE);
                let mut lives = true;
                for used in info.used_registers() {
                    let writes = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None);
                    if writes && let Some(number) = register(used.register()) {
                        lives &= self.kill(Place::Register(number));
                    }
                }
                if kinds.0 == OpKind::Memory
                    && info.op0_access() != OpAccess::Read
                    && let Some(memory) = memory_place(instruction)
                {
                    lives &= self.kill(memory);
                }
                lives
            }
        }
    }

    /// rsp was so many bytes lower before.
    fn move_stack(&mut self, by: i64) -> bool {
        self.replace(Place::Register(RSP), &Sum { constant: by as u64, ..Sum::of(Place::Register(RSP)) })
    }

    fn push(&mut self, what: Option<Sum>) -> bool {
        let top = Place::Memory { base: RSP, index: NONE, scale: 1, disp: 0 };
        let pushed = match what {
            Some(what) => self.replace(top, &what),
            None => self.kill_exactly(top),
        };
        pushed && self.move_stack(-8)
    }

    fn kill_exactly(&mut self, place: Place) -> bool {
        !self.mentions(place) || self.kill(place)
    }
}
