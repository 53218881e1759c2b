//! How far rsp is from where it was at a procedure's entry: a jump that leaves it there leaves the procedure.
//! Knows nothing of where such jumps lead.

use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::decode::Instructions;
use crate::graph::blocks::{Procedure, RawBlock};
use crate::graph::jump_tables::Resolution;
use crate::instruction::{Instruction, Memory, Operation, Register};
use crate::state::RBP;

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
        while instructions.position() < block.end
            && let Some(instruction) = instructions.read()
        {
            self.step(&instruction);
        }
    }

    fn step(&mut self, instruction: &Instruction) {
        let (to, from) = (instruction.register(0), instruction.register(1));
        let by = instruction.immediate().map(|by| by as i64);
        let is_rbp = to.general() == Some(RBP);
        match instruction.operation() {
            Operation::Push | Operation::Pop | Operation::PushFlags | Operation::PopFlags => {
                self.rsp = self.rsp.and_then(|rsp| rsp.checked_add(instruction.stack_change()));
                if instruction.operation() == Operation::Pop && is_rbp {
                    self.rbp = None;
                }
            }
            Operation::Call | Operation::Compare | Operation::Test => {}
            Operation::Subtract if to == Register::RSP => {
                self.rsp = self.rsp.zip(by).and_then(|(rsp, by)| rsp.checked_sub(by));
            }
            Operation::Add if to == Register::RSP => {
                self.rsp = self.rsp.zip(by).and_then(|(rsp, by)| rsp.checked_add(by));
            }
            Operation::Leave => {
                self.rsp = self.rbp.and_then(|rbp| rbp.checked_add(8));
                self.rbp = None;
            }
            Operation::Move if to == Register::RBP && from == Register::RSP => self.rbp = self.rsp,
            Operation::Move if to == Register::RSP && from == Register::RBP => self.rsp = self.rbp,
            Operation::LoadAddress if matches!(to, Register::RSP | Register::RBP) => {
                let sum = instruction.memory().and_then(|memory| self.address(&memory));
                if to == Register::RSP { self.rsp = sum } else { self.rbp = sum }
            }
            _ if to == Register::RSP => self.rsp = None,
            _ if is_rbp => self.rbp = None,
            _ => {}
        }
    }

    fn address(&self, memory: &Memory) -> Option<i64> {
        let base = match memory.base {
            Register::RSP if memory.is_only(Register::RSP) => self.rsp,
            Register::RBP if memory.is_only(Register::RBP) => self.rbp,
            // gcc's realigned frames: r10 is the caller's rsp.
            base if base.general64() == Some(10) && memory.is_only(base) && memory.displacement == -8 => Some(8),
            _ => None,
        };
        base?.checked_add(memory.displacement)
    }
}
