//! The blocks of one procedure: the code that control reaches from its entry, cut where control joins.
//!
//! The sweep has decoded every instruction; blocks are built from its events alone. Where control reaches the middle of
//! a decoded instruction, a few instructions are decoded anew.

mod endings;
mod finish;

use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::code_map::NOWHERE;
use crate::decode::{Flow, Instructions};
use crate::graph::module_flow::ModuleFlow;
use crate::graph::procedure::{Ending, Procedure, RawBlock, Stretch};
use crate::graph::resolution::Resolution;
use crate::graph::steps::{Step, StepKind};
use crate::graph::{ProcedureGraph, jump_tables};

/// How often tables are resolved anew: the cases of one may jump through others.
const MAX_ROUNDS: usize = 32;
/// The most instructions that are decoded where the sweep has others.
const MAX_STRAY: usize = 64;
/// How many instructions, and ways between blocks, are traced back to find tables: for each event of a procedure, and
/// at least.
const BUDGET_FOR_EVENT: usize = 150;
const LEAST_BUDGET: usize = 40_000;

impl ModuleFlow<'_> {
    /// The graph of a procedure; empty if there is no such procedure. Takes time in proportion to the procedure's
    /// length.
    pub fn graph(&self, procedure: usize) -> ProcedureGraph {
        let Some(mut procedure) = Procedure::new(self, self.members_of(procedure)) else {
            return ProcedureGraph::default();
        };
        procedure.walk(procedure.entry);
        let mut budget = LEAST_BUDGET + BUDGET_FOR_EVENT * procedure.steps.len();
        procedure.resolve(&mut budget);
        if procedure.walk_gaps() {
            procedure.resolve(&mut budget);
            procedure.walk_gaps();
        }
        procedure.finish()
    }
}

impl Procedure<'_, '_> {
    /// Control reaches `at`, where a block begins.
    fn arrive(&mut self, at: u32) {
        if self.is_inside(at) {
            self.pending.push(at);
        }
    }

    /// Follows control from `root`.
    pub(super) fn walk(&mut self, root: u32) {
        self.arrive(root);
        while let Some(at) = self.pending.pop() {
            if self.flow.code.sweep.boundaries.get(at) {
                self.leaders.push(at);
                self.run(at);
            } else if !self.strays.contains_key(&at) {
                self.stray(at);
            }
        }
    }

    /// Follows control over the events from `leader` on.
    fn run(&mut self, leader: u32) {
        let Some(stretch) = self.stretch_at(leader) else { return };
        let (steps, stretch_end) = (stretch.steps.clone(), stretch.end);
        let mut from = leader;
        let mut index = steps.start + self.steps[steps.clone()].partition_point(|step| step.at < leader);
        while index < steps.end {
            let step = &mut self.steps[index];
            let is_new = step.from == NOWHERE;
            step.from = step.from.min(from);
            let step = *step;
            if !is_new {
                return;
            }
            let pad = if step.is_call() { self.landing_pad(&step) } else { None };
            if let Some(pad) = pad {
                self.arrive(pad);
            }
            match step.kind {
                // Control may go to the landing pad: the block ends after it.
                StepKind::Call if pad.is_some() => return self.arrive(step.end),
                StepKind::Call => {}
                StepKind::Branch => {
                    self.arrive(step.target);
                    return self.arrive(step.end);
                }
                StepKind::Jump => return self.arrive(step.target),
                StepKind::JumpIndirect => {
                    let resolution = self.resolved.get(&index).map(Rc::clone);
                    if let Some(Resolution::Table { targets, .. }) = resolution.as_deref() {
                        targets.iter().for_each(|&target| self.arrive(target));
                    }
                    return;
                }
                _ => return,
            }
            from = step.end;
            index += 1;
        }
        self.arrive(stretch_end);
    }

    /// Decodes instructions where the sweep has others, up to where both agree.
    fn stray(&mut self, at: u32) {
        let Some(stretch_end) = self.stretch_at(at).map(|stretch| stretch.end) else { return };
        let Some(mut instructions) = Instructions::new(&self.flow.code.code_map, at) else { return };
        let mut block = RawBlock { start: at, end: at + 1, how: Ending::Stray { flow: Flow::Stop } };
        for _ in 0..MAX_STRAY {
            if block.end >= stretch_end {
                break;
            }
            let Some(instruction) = instructions.read() else { break };
            block.end = instructions.position();
            match instructions.flow_of(&instruction, &self.flow.code.code_map) {
                Flow::Next | Flow::Call(_) | Flow::CallIndirect if self.flow.code.sweep.boundaries.get(block.end) => {
                    block.how = Ending::Falls;
                    self.arrive(block.end);
                    break;
                }
                Flow::Next | Flow::Call(_) | Flow::CallIndirect => {}
                flow => {
                    block.how = Ending::Stray { flow };
                    match flow {
                        Flow::Branch(target) => {
                            self.arrive(target);
                            self.arrive(block.end);
                        }
                        Flow::Jump(target) => self.arrive(target),
                        _ => {}
                    }
                    break;
                }
            }
        }
        self.strays.insert(at, block);
    }

    /// Resolves the indirect jumps that control reaches, until there are no new ones.
    fn resolve(&mut self, budget: &mut usize) {
        for _ in 0..MAX_ROUNDS {
            let is_reached = |step: &Step| step.kind == StepKind::JumpIndirect && step.from != NOWHERE;
            if !self.steps.iter().any(is_reached) {
                return;
            }
            let blocks = self.raw_blocks();
            let mut has_news = false;
            let mut kept = Vec::new();
            // The earlier and the new result: copies of a jump share both.
            let mut merged: FxHashMap<(*const Resolution, *const Resolution), Rc<Resolution>> = FxHashMap::default();
            for (step, now) in jump_tables::resolve(self, &blocks, budget) {
                let before = self.resolved.get(&step).map(Rc::clone);
                let pair = (before.as_ref().map_or(std::ptr::null(), Rc::as_ptr), Rc::as_ptr(&now));
                if let Some(known) = merged.get(&pair) {
                    self.resolved.insert(step, Rc::clone(known));
                    continue;
                }
                if let Resolution::Table { targets, fragment_indices, .. } = &*now {
                    fragment_indices.iter().for_each(|&index| self.add_fragment(index));
                    let known = match before.as_deref() {
                        Some(Resolution::Table { targets, .. }) => targets.as_slice(),
                        _ => &[],
                    };
                    let new: Vec<u32> = targets.iter().filter(|t| known.binary_search(t).is_err()).copied().collect();
                    has_news |= !new.is_empty();
                    new.into_iter().for_each(|target| self.walk(target));
                }
                let all = match &before {
                    Some(before) => Resolution::merge(before, &now),
                    None => Rc::clone(&now),
                };
                // `before` is retained until the round ends, so that its address is not reused.
                kept.extend(before);
                self.resolved.insert(step, Rc::clone(&all));
                merged.insert(pair, all);
            }
            if !has_news {
                return;
            }
        }
    }

    /// Follows control from all code that it has not reached, except padding. Returns whether there was any.
    fn walk_gaps(&mut self) -> bool {
        let mut has_gaps = false;
        for index in 0..self.stretches.len() {
            let Some(Stretch { start, end, steps, .. }) = self.stretches.get(index).cloned() else { break };
            let mut at = start;
            for step in steps {
                let Some(&Step { at: step_at, end: step_end, from, kind, .. }) = self.steps.get(step) else { break };
                if from > at && step_at >= at {
                    let root = self.flow.code.padding_end(at, step_at.min(from).min(end));
                    // A lone trap need not be reached.
                    if root < from.min(end) && (root < step_at || kind != StepKind::Trap) {
                        has_gaps = true;
                        self.extra_roots.push(root);
                        self.walk(root);
                    }
                }
                at = at.max(step_end);
            }
        }
        has_gaps
    }
}
