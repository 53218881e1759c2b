//! How the blocks of a procedure end, and where control goes from there.

use std::rc::Rc;

use callpath_format::address::LinkAddr;

use crate::code_map::NOWHERE;
use crate::decode::Flow;
use crate::graph::procedure::{Ending, Procedure, RawBlock};
use crate::graph::resolution::Resolution;
use crate::graph::steps::{Step, StepKind};
use crate::graph::{EdgeKind, Terminator};

/// The target of a jump out of a block.
enum Destination {
    Inside,
    /// The start of another procedure, or an address without known code.
    Out(Option<LinkAddr>),
    /// The middle of another procedure.
    Shared(LinkAddr),
}

impl Procedure<'_, '_> {
    /// Cuts the code that control reaches into blocks, by ascending start.
    pub(in crate::graph) fn raw_blocks(&mut self) -> Vec<RawBlock> {
        self.leaders.sort_unstable();
        self.leaders.dedup();
        let mut blocks = Vec::with_capacity(self.leaders.len() + self.strays.len());
        let mut leaders = self.leaders.iter().copied().peekable();
        for stretch in &self.stretches {
            let mut step = stretch.steps.start;
            while let Some(start) = leaders.next_if(|&leader| leader < stretch.end) {
                let next = leaders.peek().copied().unwrap_or(NOWHERE).min(stretch.end);
                let mut block = RawBlock { start, end: next, how: Ending::Falls };
                while step < stretch.steps.end && self.steps[step].at < next {
                    if self.steps[step].at >= start && self.steps[step].kind != StepKind::Call {
                        block.end = self.steps[step].end;
                        block.how = Ending::Step(step);
                        break;
                    }
                    step += 1;
                }
                blocks.push(block);
            }
        }
        blocks.extend(self.strays.values());
        blocks.sort_unstable_by_key(|block| block.start);
        blocks.dedup_by_key(|block| block.start);
        blocks
    }

    fn destination(&self, target: u32) -> Destination {
        if target == NOWHERE {
            return Destination::Out(None);
        }
        if self.is_inside(target) {
            return Destination::Inside;
        }
        let address = self.flow.code.code_map.address(target);
        match self.flow.fragment_at(target) {
            Some(fragment) if fragment.start != target => Destination::Shared(address),
            _ => Destination::Out(Some(address)),
        }
    }

    /// How a block ends. `targets`: the positions of its successors within the procedure, each with the kind of edge.
    pub(in crate::graph) fn ending(&self, block: &RawBlock, targets: &mut Vec<(u32, EdgeKind)>) -> Terminator {
        targets.clear();
        let jump = |target: u32, targets: &mut Vec<(u32, EdgeKind)>| match self.destination(target) {
            Destination::Inside => {
                targets.push((target, EdgeKind::Jump));
                Terminator::Jump
            }
            Destination::Out(out) => Terminator::TailCall(out),
            Destination::Shared(address) => Terminator::SharedTail(address),
        };
        let branch = |target: u32, next: u32, targets: &mut Vec<(u32, EdgeKind)>| {
            if self.is_inside(next) {
                let is_both = next == target;
                targets.push((next, if is_both { EdgeKind::FallThrough } else { EdgeKind::NotTaken }));
            }
            match self.destination(target) {
                Destination::Inside => {
                    if target != next {
                        targets.push((target, EdgeKind::Taken));
                    }
                    Terminator::Branch
                }
                Destination::Out(Some(address)) | Destination::Shared(address) => Terminator::BranchOut(address),
                Destination::Out(None) => Terminator::Branch,
            }
        };
        match block.how {
            Ending::Falls => match self.destination(block.end) {
                Destination::Inside => {
                    let is_call = self.ends_with_call(block);
                    targets.push((block.end, if is_call { EdgeKind::AfterCall } else { EdgeKind::FallThrough }));
                    Terminator::FallsThrough
                }
                _ => match self.flow.fragment_at(block.end) {
                    Some(_) => Terminator::TailCall(Some(self.flow.code.code_map.address(block.end))),
                    None => Terminator::RunsOut,
                },
            },
            Ending::Stray { flow } => match flow {
                Flow::Branch(target) => branch(target, block.end, targets),
                Flow::Jump(target) => jump(target, targets),
                Flow::JumpIndirect => Terminator::Unresolved,
                Flow::Return => Terminator::Return,
                _ => Terminator::Trap,
            },
            Ending::Step(index) => {
                let Some(step) = self.steps.get(index) else { return Terminator::Trap };
                match step.kind {
                    StepKind::Branch => branch(step.target, step.end, targets),
                    StepKind::Jump => jump(step.target, targets),
                    StepKind::JumpIndirect => match self.resolved.get(&index).map(|resolution| &**resolution) {
                        Some(Resolution::Table { targets: found, .. }) => {
                            targets.extend(found.iter().map(|&target| (target, EdgeKind::Table)));
                            Terminator::Switch(0)
                        }
                        Some(Resolution::Leaves(target)) => {
                            Terminator::TailCall(target.map(|target| self.flow.code.code_map.address(target)))
                        }
                        Some(Resolution::Unresolved) | None => Terminator::Unresolved,
                    },
                    StepKind::Return => Terminator::Return,
                    StepKind::NoReturn | StepKind::Call => Terminator::NoReturnCall,
                    StepKind::Leave => Terminator::TailCall(None),
                    StepKind::Trap => Terminator::Trap,
                }
            }
        }
    }

    /// If a block ends with a jump through a table: its step, and how it was resolved.
    pub(in crate::graph) fn table_of(&self, block: &RawBlock) -> Option<(usize, &Rc<Resolution>)> {
        let Ending::Step(step) = block.how else { return None };
        let is_indirect = self.steps.get(step).is_some_and(|step| step.kind == StepKind::JumpIndirect);
        let resolution = self.resolved.get(&step).filter(|_| is_indirect)?;
        matches!(**resolution, Resolution::Table { .. }).then_some((step, resolution))
    }

    /// Adds the landing pads of the calls in a block.
    pub(in crate::graph) fn landings(&self, block: &RawBlock, targets: &mut Vec<(u32, EdgeKind)>) {
        if self.flow.landing_pads.is_empty() {
            return;
        }
        for step in self.calls_in(block) {
            let is_new = |pad: &u32| !targets.iter().any(|(target, _)| target == pad);
            if let Some(pad) = self.landing_pad(step).filter(|&pad| self.is_inside(pad)).filter(is_new) {
                targets.push((pad, EdgeKind::LandingPad));
            }
        }
    }

    fn ends_with_call(&self, block: &RawBlock) -> bool {
        self.calls_in(block).any(|call| call.end == block.end)
    }

    fn calls_in(&self, block: &RawBlock) -> impl Iterator<Item = &Step> {
        let steps = self.stretch_at(block.start).map_or(0..0, |stretch| stretch.steps.clone());
        let steps = self.steps.get(steps).unwrap_or(&[]);
        let steps = steps.get(steps.partition_point(|step| step.at < block.start)..).unwrap_or(&[]);
        let end = block.end;
        steps.iter().take_while(move |step| step.at < end).filter(|step| step.is_call())
    }
}
