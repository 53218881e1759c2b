//! Stack heights: the distance of rsp from its value at a procedure's entry. A jump at height 0 leaves the procedure.

use crate::dataflow::{Analysis, Direction, FlowGraph, solve};
use crate::graph::{ModuleFlow, ProcedureGraph};
use crate::instruction::{Control, Instruction, Operation, Register};

/// The instructions of blocks.
pub(super) trait BlockCode {
    /// Those of a block, in order, with the addresses of their ends.
    fn instructions(&self, block: u32) -> Vec<(u64, Instruction)>;
}

/// A procedure's graph, with its instructions.
struct WholeGraph<'f, 'a> {
    flow: &'f ModuleFlow<'a>,
    graph: &'f ProcedureGraph,
}

impl BlockCode for WholeGraph<'_, '_> {
    fn instructions(&self, block: u32) -> Vec<(u64, Instruction)> {
        let block = self.graph.blocks.get(block as usize);
        let instructions = block.map_or_else(Vec::new, |block| self.flow.instructions(&block.code));
        instructions.into_iter().map(|(at, instruction)| (at.0 + u64::from(instruction.len()), instruction)).collect()
    }
}

impl ModuleFlow<'_> {
    /// For each block of a procedure: how far rsp is above its value at the entry before the block's last instruction
    /// takes effect, if that is a return or a jump, else behind it. Bytes; `None` where that is not known.
    pub(crate) fn heights_at_ends(&self, graph: &ProcedureGraph) -> Vec<Option<i64>> {
        let whole = WholeGraph { flow: self, graph };
        let entry = graph.block_at(graph.entry).map(|entry| (entry, StackHeight { rsp: Some(0), rbp: None }));
        let starts = solve(graph, &mut OfBlocks(&whole), entry);
        let at_end = |(number, start): (u32, Option<StackHeight>)| {
            let mut height = start?;
            for (_, instruction) in whole.instructions(number) {
                if instruction.control() != Control::Return {
                    height.step(&instruction);
                }
            }
            height.rsp
        };
        (0u32..).zip(starts).map(at_end).collect()
    }
}

/// Bytes above the entry's rsp, where known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct StackHeight {
    rsp: Option<i64>,
    rbp: Option<i64>,
}

/// The stack heights at the starts of the blocks that are reachable from the entry.
pub(super) struct StackHeights<'w, W> {
    graph: &'w W,
    starts: Vec<Option<StackHeight>>,
}

impl<'w, W: BlockCode + FlowGraph> StackHeights<'w, W> {
    pub(super) fn new(graph: &'w W) -> StackHeights<'w, W> {
        let entry = graph.roots().iter().map(|&root| (root, StackHeight { rsp: Some(0), rbp: None }));
        StackHeights { graph, starts: solve(graph, &mut OfBlocks(graph), entry) }
    }

    /// Whether rsp is at the entry's value after a block.
    pub(super) fn is_empty_behind(&self, block: u32) -> bool {
        let Some(Some(start)) = self.starts.get(block as usize) else { return false };
        OfBlocks(self.graph).transfer(block, start).rsp == Some(0)
    }
}

struct OfBlocks<'w, W>(&'w W);

impl<W: BlockCode> Analysis for OfBlocks<'_, W> {
    type Fact = StackHeight;
    const DIRECTION: Direction = Direction::Forward;

    fn transfer(&mut self, block: u32, start: &StackHeight) -> StackHeight {
        let mut height = *start;
        self.0.instructions(block).iter().for_each(|(_, instruction)| height.step(instruction));
        height
    }

    /// Compilers keep the height equal on all paths to a block: the first one is used.
    fn join(&self, _: &mut StackHeight, _: &StackHeight) -> bool {
        false
    }
}

impl StackHeight {
    fn step(&mut self, instruction: &Instruction) {
        *self = match instruction.operation() {
            // A call of the next instruction only pushes its address.
            Operation::Call if instruction.control() == Control::Next => {
                StackHeight { rsp: self.rsp.and_then(|rsp| rsp.checked_sub(8)), rbp: self.rbp }
            }
            Operation::Call => *self,
            Operation::Leave => StackHeight { rsp: self.rbp.and_then(|rbp| rbp.checked_add(8)), rbp: None },
            _ => StackHeight {
                rsp: self.behind(instruction, Register::RSP),
                rbp: self.behind(instruction, Register::RBP),
            },
        };
    }

    /// The value of a register after the instruction.
    fn behind(&self, instruction: &Instruction, register: Register) -> Option<i64> {
        let (from, by) = instruction.sum(register)?;
        let base = match from {
            Register::RSP => self.rsp?,
            Register::RBP => self.rbp?,
            // gcc's realigned frames: r10 is the caller's rsp.
            from if from.general64() == Some(10) && by == -8 => 8,
            _ => return None,
        };
        base.checked_add(by)
    }
}
