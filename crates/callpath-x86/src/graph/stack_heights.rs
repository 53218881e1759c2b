//! Stack heights: the distance of rsp from its value at a procedure's entry. A jump at height 0 leaves the procedure.

use callpath_format::address::{CodePoint, LinkAddr, RunAddr};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::dataflow::{Analysis, Direction, FlowGraph, solve};
use crate::encoding;
use crate::graph::{CallSite, ModuleFlow, ProcedureGraph};

use crate::instruction::{Control, Instruction, Operation, Register};

/// The instructions of blocks.
pub(super) trait BlockCode {
    /// Those of a block, in order, with the addresses of their ends.
    fn instructions(&self, block: u32) -> Vec<(u64, Instruction)>;

    /// Whether a height counts as known only where it is the same on all paths to a block. Without that the first path's is taken:
    /// compilers keep heights equal, but below memory of a length that is computed (`alloca`) and behind calls that do not return.
    fn compares_paths(&self) -> bool {
        false
    }

    /// How control comes to the procedure, if that is known.
    fn begins(&self) -> Option<Begins> {
        None
    }

    /// What else is known behind the instruction that ends at an address.
    fn correct(&self, _end: u64, _height: &mut StackHeight) {}
}

/// How control comes to a procedure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begins {
    /// By a call: rsp at its entry is 8 below a multiple of 16 (psABI, section 3.2.2).
    Called,
    /// From the kernel or the loader: it is the entry of a program. rsp is a multiple of 16 (the same, section 3.4.1).
    Program,
}

/// A procedure's graph, with its instructions.
struct WholeGraph<'f, 'a> {
    flow: &'f ModuleFlow<'a>,
    graph: &'f ProcedureGraph,
    /// The ends of calls of procedures that may pop their arguments.
    popped: FxHashSet<u64>,
    begins: Begins,
    compares_paths: bool,
}

impl WholeGraph<'_, '_> {
    fn entry(&self) -> Option<(u32, StackHeight)> {
        self.graph.block_at(self.graph.entry).map(|entry| (entry, StackHeight { rsp: Some(0), rbp: None }))
    }
}

impl BlockCode for WholeGraph<'_, '_> {
    fn instructions(&self, block: u32) -> Vec<(u64, Instruction)> {
        let block = self.graph.blocks.get(block as usize);
        let instructions = block.map_or_else(Vec::new, |block| self.flow.instructions(&block.code));
        instructions.into_iter().map(|(at, instruction)| (at.0 + u64::from(instruction.len()), instruction)).collect()
    }

    fn compares_paths(&self) -> bool {
        self.compares_paths
    }

    fn begins(&self) -> Option<Begins> {
        Some(self.begins)
    }

    fn correct(&self, end: u64, height: &mut StackHeight) {
        if self.popped.contains(&end) {
            height.rsp = None;
        }
    }
}

impl<'a> ModuleFlow<'a> {
    /// For each block of a procedure: how far rsp is above its value at the entry before the block's last instruction
    /// takes effect, if that is a return or a jump, else behind it. Bytes; `None` where that is not known.
    pub(crate) fn heights_at_ends(&self, graph: &ProcedureGraph) -> Vec<Option<i64>> {
        let whole = self.whole(graph, Begins::Called, false);
        let starts = solve(graph, &mut OfBlocks(&whole), whole.entry());
        let at_end = |(number, start): (u32, Option<StackHeight>)| {
            let mut height = start?;
            for (end, instruction) in whole.instructions(number) {
                if instruction.control() != Control::Return {
                    height.step(&instruction, whole.begins());
                    whole.correct(end, &mut height);
                }
            }
            height.rsp
        };
        (0u32..).zip(starts).map(at_end).collect()
    }

    /// How far a procedure's CFA is above that of what it calls, by where frames of each call have their address, as far as it is known how control
    /// comes there. Bytes; `None` where that is not known before the program runs: below memory of a length that is computed
    /// (`alloca`), or a frame that is aligned to more than 16 bytes.
    pub fn call_heights(&self, graph: &ProcedureGraph, begins: Begins) -> FxHashMap<LinkAddr, Option<i64>> {
        let whole = self.whole(graph, begins, true);
        let starts = solve(graph, &mut OfBlocks(&whole), whole.entry());
        let mut heights = FxHashMap::default();
        for (number, start) in (0u32..).zip(starts) {
            // Nothing that is known leads to the others.
            let Some(mut height) = start else { continue };
            for (end, instruction) in whole.instructions(number) {
                if instruction.operation() == Operation::Call && instruction.control() != Control::Next {
                    // The callee's CFA is rsp before the call, ours 8 above rsp at the entry.
                    let site = CodePoint::Return(RunAddr(end)).lookup();
                    heights.insert(LinkAddr(site.0), height.rsp.and_then(|rsp| 8_i64.checked_sub(rsp)));
                }
                height.step(&instruction, whole.begins());
                whole.correct(end, &mut height);
            }
        }
        heights
    }

    fn whole<'f>(&'f self, graph: &'f ProcedureGraph, begins: Begins, compares_paths: bool) -> WholeGraph<'f, 'a> {
        let pops = |target: LinkAddr| self.procedure_at(target).is_some_and(|callee| self.may_pop_arguments(callee));
        let is_popped = |call: &&CallSite| call.target.is_some_and(pops);
        let popped = graph.calls.iter().filter(is_popped).map(|call| call.code.end.0).collect();
        WholeGraph { flow: self, graph, popped, begins, compares_paths }
    }

    /// Whether a procedure seems to contain a return that pops arguments.
    fn may_pop_arguments(&self, procedure: usize) -> bool {
        self.members_of(procedure).iter().filter_map(|&index| self.fragment(index)).any(|fragment| {
            let len = fragment.end.saturating_sub(fragment.start) as usize;
            let bytes = self.code.code_map.bytes(fragment.start);
            encoding::popping_returns(bytes.get(..len).unwrap_or(bytes)).next().is_some()
        })
    }
}

/// Bytes above the entry's rsp, where known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StackHeight {
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
        for (end, instruction) in self.0.instructions(block) {
            height.step(&instruction, self.0.begins());
            self.0.correct(end, &mut height);
        }
        height
    }

    fn join(&self, known: &mut StackHeight, other: &StackHeight) -> bool {
        if !self.0.compares_paths() {
            return false;
        }
        let same = |one: Option<i64>, other| one.filter(|_| one == other);
        let joined = StackHeight { rsp: same(known.rsp, other.rsp), rbp: same(known.rbp, other.rbp) };
        std::mem::replace(known, joined) != joined
    }
}

impl StackHeight {
    fn step(&mut self, instruction: &Instruction, begins: Option<Begins>) {
        *self = match instruction.operation() {
            Operation::And if instruction.register(0) == Register::RSP => {
                let mask = instruction.immediate().map(|mask| mask as i64);
                StackHeight { rsp: begins.zip(mask).and_then(|(begins, mask)| self.aligned(begins, mask)), ..*self }
            }
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

    /// rsp with low bits cleared. What they are is only known up to the alignment that every procedure's stack has.
    fn aligned(&self, begins: Begins, mask: i64) -> Option<i64> {
        let at_entry = match begins {
            Begins::Called => 8,
            Begins::Program => 0,
        };
        let is_known = (-16..0).contains(&mask) && mask.unsigned_abs().is_power_of_two();
        self.rsp.filter(|_| is_known)?.checked_add(at_entry).and_then(|rsp| (rsp & mask).checked_sub(at_entry))
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
