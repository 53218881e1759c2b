//! One procedure while its control flow is being followed: its fragments of code, and the sweep's events in them.

use std::ops::Range;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::code_map::NOWHERE;
use crate::decode::Flow;
use crate::graph::module_flow::ModuleFlow;
use crate::graph::resolution::Resolution;
use crate::graph::steps::Step;

/// A block without a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawBlock {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) how: Ending,
}

/// How it ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    /// With this step.
    Step(usize),
    /// At the next block, or the end of the stretch.
    Falls,
    /// As this instruction does; the sweep did not decode it.
    Stray { flow: Flow },
}

/// A stretch of the procedure's code, with its steps.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) steps: Range<usize>,
    pub(super) fragment_index: u32,
}

/// A procedure while its control flow is being followed.
pub(super) struct Procedure<'m, 'a> {
    pub(super) flow: &'m ModuleFlow<'a>,
    pub(super) entry: u32,
    /// Sorted.
    pub(super) stretches: Vec<Stretch>,
    pub(super) steps: Vec<Step>,
    pub(super) leaders: Vec<u32>,
    pub(super) strays: FxHashMap<u32, RawBlock>,
    pub(super) pending: Vec<u32>,
    /// Roots that nothing known leads to.
    pub(super) extra_roots: Vec<u32>,
    /// Results for indirect jumps, by the index of their step.
    pub(super) resolved: FxHashMap<usize, Rc<Resolution>>,
}

impl<'m, 'a> Procedure<'m, 'a> {
    /// A procedure of these fragments, by index: the one with its entry first.
    pub(super) fn new(flow: &'m ModuleFlow<'a>, members: &[u32]) -> Option<Procedure<'m, 'a>> {
        let entry = members.first().and_then(|&index| flow.fragment(index))?.start;
        let mut procedure = Procedure {
            flow,
            entry,
            stretches: Vec::with_capacity(members.len()),
            steps: Vec::new(),
            leaders: Vec::new(),
            strays: FxHashMap::default(),
            pending: Vec::new(),
            extra_roots: Vec::new(),
            resolved: FxHashMap::default(),
        };
        members.iter().for_each(|&index| procedure.add_fragment(index));
        Some(procedure)
    }

    /// Adds a fragment, unless it was added before.
    pub(super) fn add_fragment(&mut self, index: u32) {
        let Some(fragment) = self.flow.fragment(index) else { return };
        let place = self.stretches.partition_point(|stretch| stretch.start < fragment.start);
        if self.stretches.get(place).is_some_and(|stretch| stretch.fragment_index == index) {
            return;
        }
        let first = self.steps.len();
        let events = &self.flow.code.sweep.events;
        let from = events.partition_point(|event| event.at < fragment.start);
        let events = events.get(from..).unwrap_or(&[]).iter().take_while(|event| event.at < fragment.end);
        for event in events {
            let Some(instruction) = self.flow.code.instruction_at(event.at) else { continue };
            let end = event.at + instruction.len();
            let kind = self.flow.kind_of(event, &instruction, fragment);
            self.steps.push(Step { at: event.at, end, kind, target: event.target, from: NOWHERE });
        }
        let stretch =
            Stretch { start: fragment.start, end: fragment.end, steps: first..self.steps.len(), fragment_index: index };
        self.stretches.insert(place, stretch);
    }

    pub(super) fn stretch_at(&self, at: u32) -> Option<&Stretch> {
        let index = self.stretches.partition_point(|stretch| stretch.start <= at).checked_sub(1)?;
        self.stretches.get(index).filter(|stretch| at < stretch.end)
    }

    pub(super) fn is_inside(&self, at: u32) -> bool {
        self.stretch_at(at).is_some()
    }

    /// The landing pad of a call. Unwinders look it up by the last byte of the instruction.
    pub(super) fn landing_pad(&self, call: &Step) -> Option<u32> {
        let (at, pads) = (call.end.checked_sub(1)?, &self.flow.landing_pads);
        let &(from, to, pad) = pads.get(pads.partition_point(|pad| pad.0 <= at).checked_sub(1)?)?;
        (from <= at && at < to).then_some(pad)
    }
}
