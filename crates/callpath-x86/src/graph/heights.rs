//! How far rsp is from where it was at a procedure's entry: a jump that leaves it there leaves the procedure.
//! Knows nothing of where such jumps lead.

use std::rc::Rc;

use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::decode::Instructions;
use crate::graph::blocks::{Procedure, RawBlock};
use crate::graph::jump_tables::Resolution;

/// Bytes above the entry's rsp, as far as they are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Height {
    rsp: Option<i64>,
    rbp: Option<i64>,
}

/// The heights at the ends of the blocks that control comes to from the entry.
pub(super) struct Heights {
    /// By a block's start.
    ends: FxHashMap<u32, Height>,
}

impl Heights {
    pub(super) fn new(procedure: &Procedure<'_, '_>, blocks: &[RawBlock]) -> Heights {
        let mut heights = Heights { ends: FxHashMap::default() };
        let mut pending = vec![(procedure.entry, Height { rsp: Some(0), rbp: None })];
        let mut targets = Vec::new();
        // Tables whose cases are pending, or done.
        let mut followed: FxHashSet<*const Resolution> = FxHashSet::default();
        while let Some((start, mut height)) = pending.pop() {
            // Compilers keep the height the same on all ways to a place: the first is as good as any.
            if heights.ends.contains_key(&start) {
                continue;
            }
            let Ok(index) = blocks.binary_search_by_key(&start, |block| block.start) else { continue };
            let Some(block) = blocks.get(index) else { continue };
            height.run(procedure, block);
            heights.ends.insert(start, height);
            if let Some((_, resolution)) = procedure.table_of(block)
                && !followed.insert(Rc::as_ptr(resolution))
            {
                continue;
            }
            procedure.ending(block, &mut targets);
            pending.extend(targets.iter().map(|&target| (target, height)));
        }
        heights
    }

    /// Behind the block that begins at `start`, rsp is where it was at the entry.
    pub(super) fn is_empty_behind(&self, start: u32) -> bool {
        self.ends.get(&start).is_some_and(|height| height.rsp == Some(0))
    }
}

impl Height {
    fn run(&mut self, procedure: &Procedure<'_, '_>, block: &RawBlock) {
        let Some(mut instructions) = Instructions::new(&procedure.flow.places, block.start) else { return };
        let mut instruction = Instruction::default();
        while instructions.position() < block.end && instructions.decode(&mut instruction) {
            self.step(&instruction);
        }
    }

    fn step(&mut self, instruction: &Instruction) {
        let to = if instruction.op0_kind() == OpKind::Register { instruction.op0_register() } else { Register::None };
        let by = instruction.try_immediate(1).ok().map(|by| by as i64);
        match (instruction.mnemonic(), to) {
            (Mnemonic::Push | Mnemonic::Pop | Mnemonic::Pushfq | Mnemonic::Popfq, _) => {
                let by = i64::from(instruction.stack_pointer_increment());
                self.rsp = self.rsp.and_then(|rsp| rsp.checked_add(by));
                if instruction.mnemonic() == Mnemonic::Pop && to == Register::RBP {
                    self.rbp = None;
                }
            }
            (Mnemonic::Call, _) => {}
            (Mnemonic::Sub, Register::RSP) => {
                self.rsp = self.rsp.zip(by).and_then(|(rsp, by)| rsp.checked_sub(by));
            }
            (Mnemonic::Add, Register::RSP) => {
                self.rsp = self.rsp.zip(by).and_then(|(rsp, by)| rsp.checked_add(by));
            }
            (Mnemonic::Leave, _) => {
                self.rsp = self.rbp.and_then(|rbp| rbp.checked_add(8));
                self.rbp = None;
            }
            (Mnemonic::Mov, Register::RBP) if instruction.op1_register() == Register::RSP => self.rbp = self.rsp,
            (Mnemonic::Mov, Register::RSP) if instruction.op1_register() == Register::RBP => self.rsp = self.rbp,
            (Mnemonic::Lea, Register::RSP | Register::RBP) => {
                let displacement = instruction.memory_displacement64() as i64;
                let base = match (instruction.memory_base(), instruction.memory_index()) {
                    (Register::RSP, Register::None) => self.rsp,
                    (Register::RBP, Register::None) => self.rbp,
                    // gcc's realigned frames: r10 is the caller's rsp.
                    (Register::R10, Register::None) if displacement == -8 => Some(8),
                    _ => None,
                };
                let sum = base.and_then(|base| base.checked_add(displacement));
                if to == Register::RSP { self.rsp = sum } else { self.rbp = sum }
            }
            (Mnemonic::Cmp | Mnemonic::Test, _) => {}
            (_, Register::RSP) => self.rsp = None,
            (_, Register::RBP | Register::EBP | Register::BP | Register::BPL) => self.rbp = None,
            _ => {}
        }
    }
}
