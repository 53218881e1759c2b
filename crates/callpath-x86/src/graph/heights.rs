//! How far rsp is from where it was at a procedure's entry: a jump that leaves it there leaves the procedure.
//! Knows nothing of where such jumps lead.

use crate::dataflow::{Analysis, Direction, FlowGraph, solve};
use crate::graph::origin::Ways;
use crate::instruction::{Instruction, Memory, Operation, Register};
use crate::state::RBP;

/// Bytes above the entry's rsp, as far as they are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Height {
    rsp: Option<i64>,
    rbp: Option<i64>,
}

/// The heights at the starts of the blocks that control comes to from the entry.
pub(super) struct Heights<'w, W> {
    graph: &'w W,
    starts: Vec<Option<Height>>,
}

impl<'w, W: Ways + FlowGraph> Heights<'w, W> {
    pub(super) fn new(graph: &'w W) -> Heights<'w, W> {
        let entry = graph.roots().iter().map(|&root| (root, Height { rsp: Some(0), rbp: None }));
        Heights { graph, starts: solve(graph, &mut OfBlocks(graph), entry) }
    }

    /// Behind a block, rsp is where it was at the entry.
    pub(super) fn is_empty_behind(&self, block: u32) -> bool {
        let Some(Some(start)) = self.starts.get(block as usize) else { return false };
        OfBlocks(self.graph).transfer(block, start).rsp == Some(0)
    }
}

struct OfBlocks<'w, W>(&'w W);

impl<W: Ways> Analysis for OfBlocks<'_, W> {
    type Fact = Height;
    const DIRECTION: Direction = Direction::Forward;

    fn transfer(&mut self, block: u32, start: &Height) -> Height {
        let mut height = *start;
        self.0.instructions(block).iter().for_each(|(_, instruction)| height.step(instruction));
        height
    }

    /// Compilers keep the height the same on all ways to a place: the first is as good as any.
    fn join(&self, _: &mut Height, _: &Height) -> bool {
        false
    }
}

impl Height {
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
