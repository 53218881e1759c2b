//! The instructions of a procedure, and how each of them is moved.

use std::ops::Range;

use callpath_format::address::LinkAddr;

use super::fixed::Fixed;
use super::plan::Place;
use super::refusal::{Reason, Refusal};
use crate::code_map::CodeMap;
use crate::graph::{Block, EdgeKind, ModuleFlow, ProcedureGraph, Terminator};
use crate::idioms::{linkage_stub, signal_return};
use crate::instruction::motion::{Motion, motion};
use crate::instruction::{Control, Instruction, Operation};
use crate::state::RAX;

/// An instruction of the body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step<'a> {
    /// Its address.
    pub(super) at: u64,
    pub(super) bytes: &'a [u8],
    pub(super) instruction: Instruction,
    pub(super) motion: Motion,
    /// Of a direct call, or a direct jump, to a stub of the linkage table: the word that the stub jumps through, unless it is bound.
    pub(super) slot: Option<u64>,
    /// Of a direct call to a stub whose word is bound: the procedure that is called.
    pub(super) bound: Option<u64>,
    /// Of a direct call to a stub: the word of ours through which calls go that hand over a node, if there is one.
    pub(super) taking_node: Option<u64>,
}

impl Step<'_> {
    /// One past its last byte.
    pub(super) fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    /// Where a direct jump or call goes.
    pub(super) fn target(&self) -> u64 {
        self.instruction.target(self.end())
    }

    /// The procedure that a direct call leads to, if it does not go through a word.
    pub(super) fn callee(&self) -> u64 {
        self.bound.unwrap_or_else(|| self.target())
    }

    /// Where it jumps to, if that is one address.
    pub(super) fn jump_target(&self) -> Option<u64> {
        matches!(self.instruction.control(), Control::Branch | Control::Jump).then(|| self.target())
    }

    /// Whether control may continue behind it.
    pub(super) fn continues(&self) -> bool {
        use Control::{Branch, Call, CallIndirect, Next};
        matches!(self.instruction.control(), Next | Branch | Call | CallIndirect)
    }

    /// Whether control surely does not continue behind it.
    pub(super) fn never_continues(&self) -> bool {
        !self.continues()
    }
}

/// A procedure's code.
pub(super) struct Body<'g, 'a> {
    code_map: &'g CodeMap<'a>,
    pub(super) graph: &'g ProcedureGraph,
    /// Block by block, by ascending start of the blocks.
    pub(super) steps: Vec<Step<'a>>,
    /// For each block, its range in `steps`.
    pub(super) blocks: Vec<Range<usize>>,
    /// Indices of the steps by address, each address once.
    by_address: Vec<u32>,
}

impl<'g, 'a> Body<'g, 'a> {
    pub(super) fn read(
        flow: &'g ModuleFlow<'a>,
        graph: &'g ProcedureGraph,
        fixed: &Fixed,
    ) -> Result<Body<'g, 'a>, Refusal> {
        if let Some(jump) = graph.blocks.iter().find(|block| block.terminator == Terminator::Unresolved) {
            return Err(Refusal { at: jump.code.start, reason: Reason::UnresolvedJump });
        }
        let code_map = &flow.code.code_map;
        let mut steps = Vec::new();
        let mut blocks = Vec::with_capacity(graph.blocks.len());
        for block in &graph.blocks {
            let first = steps.len();
            for (at, instruction) in flow.instructions(&block.code) {
                let bytes = code_map.position(at.0).and_then(|at| code_map.bytes(at).get(..instruction.len() as usize));
                let bytes = bytes.ok_or(Refusal { at, reason: Reason::NoCode })?;
                let beside_code = instruction.beside_code(at.0 + bytes.len() as u64);
                let is_known = |motion: &Motion| !matches!(motion, Motion::BesideCode(_)) || beside_code.is_some();
                let motion = motion(bytes).filter(is_known).ok_or(Refusal { at, reason: Reason::Immovable })?;
                let slot = match instruction.control() {
                    Control::Call | Control::Jump => {
                        let target = instruction.target(at.0 + bytes.len() as u64);
                        let is_apart = graph.block_at(LinkAddr(target)).is_none();
                        let is_stub = is_apart && fixed.is_stub(LinkAddr(target));
                        let stub = code_map.position(target).filter(|_| is_stub);
                        stub.and_then(|stub| linkage_stub::slot(code_map.bytes(stub), target))
                    }
                    _ => None,
                };
                let is_call = instruction.control() == Control::Call;
                let bound = slot.filter(|_| is_call).and_then(|slot| fixed.bound.get(&LinkAddr(slot)));
                let (slot, bound) = (slot.filter(|_| bound.is_none()), bound.map(|callee| callee.0));
                let word = slot.filter(|_| is_call).and_then(|slot| fixed.taking_nodes.get(&LinkAddr(slot)));
                let taking_node = word.map(|word| word.0);
                steps.push(Step { at: at.0, bytes, instruction, motion, slot, bound, taking_node });
            }
            blocks.push(first..steps.len());
            let start = code_map.position(block.code.start.0);
            let bytes = start
                .and_then(|at| code_map.bytes(at).get(..block.code.end.0.saturating_sub(block.code.start.0) as usize));
            if signal_return::find(bytes.unwrap_or(&[])).next().is_some() {
                return Err(Refusal { at: block.code.start, reason: Reason::SignalReturn });
            }
        }
        let mut by_address: Vec<u32> = (0..steps.len() as u32).collect();
        by_address.sort_by_key(|&step| steps[step as usize].at);
        by_address.dedup_by_key(|step| steps[*step as usize].at);
        if steps.is_empty() {
            return Err(Refusal { at: graph.entry, reason: Reason::NoCode });
        }
        Ok(Body { code_map, graph, steps, blocks, by_address })
    }

    /// The instructions of a block, by its number.
    pub(super) fn steps_of(&self, block: usize) -> Option<&[Step<'a>]> {
        self.blocks.get(block).and_then(|steps| self.steps.get(steps.clone()))
    }

    /// The instructions of the block that begins at an address; none if there is no such block.
    pub(super) fn block_steps(&self, start: LinkAddr) -> &[Step<'a>] {
        let found = self.graph.blocks.binary_search_by_key(&start, |block| block.code.start);
        let steps = found.ok().and_then(|index| self.blocks.get(index)).cloned().unwrap_or_default();
        self.steps.get(steps).unwrap_or(&[])
    }

    /// The instruction that begins at an address.
    pub(super) fn step_at(&self, address: u64) -> Option<&Step<'a>> {
        let found = self.by_address.binary_search_by_key(&address, |&step| self.steps[step as usize].at).ok()?;
        self.steps.get(self.by_address[found] as usize)
    }

    /// The instructions, by ascending address, each once.
    pub(super) fn in_order(&self) -> impl Iterator<Item = &Step<'a>> {
        self.by_address.iter().filter_map(|&step| self.steps.get(step as usize))
    }

    /// The addresses of its blocks, joined where they touch or overlap.
    pub(super) fn ranges(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for block in &self.graph.blocks {
            match ranges.last_mut() {
                Some(last) if block.code.start.0 <= last.end => last.end = last.end.max(block.code.end.0),
                _ => ranges.push(block.code.start.0..block.code.end.0),
            }
        }
        ranges
    }

    pub(super) fn entry(&self) -> LinkAddr {
        self.graph.entry
    }

    /// The last instruction that begins before an address.
    pub(super) fn step_before(&self, address: u64) -> Option<&Step<'a>> {
        let after = self.by_address.partition_point(|&step| self.steps[step as usize].at < address);
        self.steps.get(*self.by_address.get(after.checked_sub(1)?)? as usize)
    }

    /// Whether an address is inside an instruction, not at its beginning.
    pub(super) fn is_inside_step(&self, address: u64) -> bool {
        self.step_at(address).is_none() && self.step_before(address).is_some_and(|step| step.end() > address)
    }

    /// Whether a call comes back.
    pub(super) fn comes_back(&self, call: &Step<'_>) -> bool {
        let calls = &self.graph.calls;
        let found = calls.binary_search_by_key(&call.at, |site| site.code.start.0);
        found.ok().and_then(|index| calls.get(index)).is_none_or(|site| site.returns)
    }

    /// A call of `vfork`, or that system call. `vforks`: procedures, stubs, and words with its address; sorted.
    pub(super) fn vfork(&self, vforks: &[LinkAddr]) -> Option<Refusal> {
        /// The system call's number.
        const VFORK: u64 = 58;
        let is_vfork = |address: u64| vforks.binary_search(&LinkAddr(address)).is_ok();
        let mut number = None;
        for step in &self.steps {
            let instruction = &step.instruction;
            let is_it = match instruction.control() {
                Control::Call | Control::Jump | Control::Branch => is_vfork(step.target()),
                Control::CallIndirect | Control::JumpIndirect => {
                    instruction.beside_code(step.end()).is_some_and(is_vfork)
                }
                _ => instruction.operation() == Operation::SystemCall && number == Some(VFORK),
            };
            if is_it {
                return Some(Refusal { at: LinkAddr(step.at), reason: Reason::Vfork });
            }
            if instruction.operation() == Operation::Move && instruction.register(0).general() == Some(RAX) {
                number = instruction.immediate();
            }
        }
        None
    }

    /// If it does not have a place: that place's address.
    pub(super) fn lacks(&self, place: Place) -> Option<LinkAddr> {
        match place {
            Place::Entry => None,
            Place::Before(at) => self.step_at(at.0).is_none().then_some(at),
            Place::Arrival(at) => (!self.comes_home_to(at) && !self.is_entered_at(at)).then_some(at),
            Place::AfterCall(call) => {
                let step = self.step_at(call.0).filter(|step| step.motion == Motion::Call && self.comes_back(step));
                step.and_then(|step| self.step_at(step.end())).is_none().then_some(call)
            }
            Place::Edge(from, to) => {
                let number = self.graph.block_at(from);
                let starts = |&block: &u32| self.graph.blocks.get(block as usize).map(|block| block.code.start);
                let is_edge = |number: u32| self.graph.successors(number).iter().any(|block| starts(block) == Some(to));
                let last = self.block_steps(from).last();
                let leads =
                    |last: &Step<'_>| last.jump_target() == Some(to.0) || last.continues() && last.end() == to.0;
                (!last.is_some_and(leads) && !number.is_some_and(is_edge)).then_some(from)
            }
        }
    }

    /// Whether unknown code may lead to the block at an address, which is not the procedure's first one.
    pub(super) fn is_entered_at(&self, at: LinkAddr) -> bool {
        let mut roots = self.graph.roots.iter().skip(1).filter_map(|&root| self.graph.blocks.get(root as usize));
        roots.any(|block| block.code.start == at)
    }

    /// Blocks that control could only come to from a call that does not return, each with the block that ends with that
    /// call: the compiler did not know, and went on behind it.
    pub(super) fn behind_dead_calls(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let roots = self.graph.roots.iter().skip(1).copied();
        roots.filter_map(|root| {
            let start = self.graph.blocks.get(root as usize)?.code.start;
            let ends_there = |block: &Block| block.terminator == Terminator::NoReturnCall && block.code.end == start;
            Some((root, self.graph.blocks.iter().position(ends_there)? as u32))
        })
    }

    /// Whether control comes to the block at an address through a table, or as to a landing pad.
    pub(super) fn comes_home_to(&self, at: LinkAddr) -> bool {
        self.through_home().any(|to| to == at)
    }

    /// Where that is so; an address for each way.
    pub(super) fn through_home(&self) -> impl Iterator<Item = LinkAddr> + '_ {
        let is_home = |(_, kind): &(u32, EdgeKind)| matches!(kind, EdgeKind::Table | EdgeKind::LandingPad);
        let edges = (0..self.graph.blocks.len() as u32).flat_map(|block| self.graph.edges_of(block));
        edges.filter(is_home).filter_map(|(to, _)| Some(self.graph.blocks.get(to as usize)?.code.start))
    }

    /// Whether control leaves the procedure with the instruction at an address, a return or a jump.
    pub(super) fn leaves_at(&self, address: u64) -> bool {
        let block = self.graph.block_at(LinkAddr(address)).and_then(|block| self.graph.blocks.get(block as usize));
        let Some((block, step)) = block.zip(self.step_at(address)) else { return false };
        let is_last = step.end() == block.code.end.0;
        let leaves = matches!(block.terminator, Terminator::Return | Terminator::TailCall(_));
        is_last && leaves && step.never_continues()
    }

    /// What of its blocks could not be read as instructions.
    pub(super) fn unread(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.graph.blocks.iter().zip(&self.blocks).filter_map(|(block, steps)| {
            let last = self.steps.get(steps.clone()).and_then(|steps| steps.last());
            let end = last.map_or(block.code.start.0, Step::end);
            (end < block.code.end.0).then_some(end..block.code.end.0)
        })
    }

    /// Bytes of the module's code.
    pub(super) fn bytes(&self, at: u64, len: u64) -> Option<&'a [u8]> {
        self.code_map.bytes(self.code_map.position(at)?).get(..len as usize)
    }
}
