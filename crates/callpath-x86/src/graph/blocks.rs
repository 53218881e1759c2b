//! The blocks of one procedure: where control goes from its entry, cut where it comes together.
//! Knows nothing of what tables hold.
//!
//! The sweep has decoded every instruction: its events between two positions are all that blocks are made of. Where
//! control comes to the middle of one of its instructions, a few are decoded anew.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use iced_x86::Instruction;
use rustc_hash::FxHashMap;

use crate::decode::{Flow, Instructions, flow_of, is_padding};
use crate::graph::fragments::{Piece, address_range};
use crate::graph::jump_tables::{self, Resolution};
use crate::graph::module_flow::ModuleFlow;
use crate::graph::{Block, CallSite, JumpTable, ProcedureGraph, Terminator};
use crate::places::NOWHERE;
use crate::sweep::{Event, EventKind};

/// Tables whose cases jump through tables whose cases jump are looked through so often.
const MAX_ROUNDS: usize = 32;
/// So many instructions are decoded where the sweep has others.
const MAX_STRAY: usize = 64;
/// So many instructions are gone back over for tables, for each event of a procedure, and at least.
const BUDGET_FOR_EVENT: usize = 100;
const LEAST_BUDGET: usize = 20_000;

/// An event of the sweep, as this procedure has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) at: u32,
    /// Where its instruction ends.
    pub(super) end: u32,
    pub(super) kind: StepKind,
    pub(super) target: u32,
    /// Control comes to it from here on, as far as there is no other event between; [`NOWHERE`] if it does not come.
    from: u32,
}

impl Step {
    fn is_call(&self) -> bool {
        matches!(self.kind, StepKind::Call | StepKind::NoReturn)
    }
}

/// What a step does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StepKind {
    Branch,
    Jump,
    /// A jump to where a register or memory says.
    JumpIndirect,
    Return,
    /// It comes back.
    Call,
    NoReturn,
    /// A jump that leaves the procedure, who knows where to.
    Leave,
    Trap,
}

/// A stretch of the procedure's code, with its steps.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    pub(super) start: u32,
    pub(super) end: u32,
    steps: Range<usize>,
    piece: u32,
}

/// A block before it has a number.
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
    /// As this instruction says, which the sweep does not have.
    Stray { flow: Flow },
}

/// Where a jump out of a block leads.
enum Destination {
    Inside,
    /// To the start of another procedure, or where no code is known.
    Out(Option<LinkAddr>),
    /// Into the middle of another procedure.
    Shared(LinkAddr),
}

/// A procedure while its control flow is being followed.
pub(super) struct Procedure<'m, 'a> {
    pub(super) flow: &'m ModuleFlow<'a>,
    pub(super) entry: u32,
    /// Sorted.
    pub(super) stretches: Vec<Stretch>,
    pub(super) steps: Vec<Step>,
    leaders: Vec<u32>,
    strays: FxHashMap<u32, RawBlock>,
    pending: Vec<u32>,
    /// Where control begins that comes from nowhere.
    extra_roots: Vec<u32>,
    /// What became of indirect jumps, by the index of their step.
    pub(super) resolved: FxHashMap<usize, Resolution>,
}

/// The graph of the procedure that these pieces make up, the one with its entry first.
pub(super) fn graph(flow: &ModuleFlow<'_>, members: &[u32]) -> ProcedureGraph {
    let Some(entry) = members.first().and_then(|&piece| flow.pieces.get(piece as usize)).map(|piece| piece.start)
    else {
        return ProcedureGraph::default();
    };
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
    members.iter().for_each(|&piece| procedure.add_piece(piece));
    procedure.walk(entry);
    let mut budget = LEAST_BUDGET + BUDGET_FOR_EVENT * procedure.steps.len();
    procedure.resolve(&mut budget);
    if procedure.walk_gaps() {
        procedure.resolve(&mut budget);
        procedure.walk_gaps();
    }
    procedure.finish()
}

impl Procedure<'_, '_> {
    /// Adds a piece of code; if it is not there already.
    pub(super) fn add_piece(&mut self, number: u32) {
        let Some(piece) = self.flow.pieces.get(number as usize) else { return };
        let index = self.stretches.partition_point(|stretch| stretch.start < piece.start);
        if self.stretches.get(index).is_some_and(|stretch| stretch.piece == number) {
            return;
        }
        let first = self.steps.len();
        let events = &self.flow.sweep.events;
        let from = events.partition_point(|event| event.at < piece.start);
        let events = events.get(from..).unwrap_or(&[]).iter().take_while(|event| event.at < piece.end);
        let part_end = self.flow.places.part(piece.start).map_or(piece.end, |part| part.end());
        for event in events {
            let end = self.flow.sweep.boundaries.next(event.at + 1, part_end).unwrap_or(part_end);
            // What is behind bytes that are none belongs to nobody.
            let end = end.min(event.at + 15);
            let kind = self.kind_of(event, end, piece);
            self.steps.push(Step { at: event.at, end, kind, target: event.target, from: NOWHERE });
        }
        let stretch = Stretch { start: piece.start, end: piece.end, steps: first..self.steps.len(), piece: number };
        self.stretches.insert(index, stretch);
    }

    fn kind_of(&self, event: &Event, end: u32, piece: &Piece) -> StepKind {
        let flow = self.flow;
        match event.kind {
            EventKind::Branch => StepKind::Branch,
            EventKind::Jump => StepKind::Jump,
            EventKind::Leave => match opcode(flow.places.bytes(event.at)) {
                [0xff, ..] => StepKind::JumpIndirect,
                _ => StepKind::Return,
            },
            EventKind::Call | EventKind::Stop => {
                let bytes = opcode(flow.places.bytes(event.at));
                let is_call = matches!(bytes, [0xe8, ..]) || is_group(bytes, 2);
                if !is_call {
                    return match bytes {
                        [0xe9 | 0xeb, ..] => StepKind::Jump,
                        _ if is_group(bytes, 4) => StepKind::Leave,
                        _ => StepKind::Trap,
                    };
                }
                let slot = match bytes {
                    [0xff, 0x15, rest @ ..] => rest.first_chunk().map(|displacement| {
                        flow.places.address(end).0.wrapping_add_signed(i32::from_le_bytes(*displacement).into())
                    }),
                    _ => None,
                };
                let stops = slot.is_some_and(|slot| flow.no_return_slots.binary_search(&slot).is_ok())
                    || !flow.returns.of(&flow.sweep.events, event.target)
                    // The sweep takes padding behind a call for a procedure's end, where it does not know one.
                    || (event.kind == EventKind::Stop && !piece.is_given);
                if stops || self.is_padding_up_to(end, piece.end) { StepKind::NoReturn } else { StepKind::Call }
            }
        }
    }

    /// There is nothing but padding.
    fn is_padding_up_to(&self, at: u32, end: u32) -> bool {
        self.behind_padding(at, end) >= end
    }

    /// The first position from `at` on that is no padding, or `end`.
    fn behind_padding(&self, at: u32, end: u32) -> u32 {
        let looks_like = |byte: u8| matches!(byte, 0x90 | 0xcc | 0x66 | 0x0f | 0x2e | 0x48 | 0x8d | 0xf3);
        if at >= end || !self.flow.places.bytes(at).first().is_some_and(|&byte| looks_like(byte)) {
            return at.min(end);
        }
        let Some(mut instructions) = Instructions::new(&self.flow.places, at) else { return end };
        let mut instruction = Instruction::default();
        loop {
            let at = instructions.position();
            if at >= end {
                return end;
            }
            if !instructions.decode(&mut instruction) || instruction.is_invalid() || !is_padding(&instruction) {
                return at;
            }
        }
    }

    fn stretch_at(&self, at: u32) -> Option<&Stretch> {
        let index = self.stretches.partition_point(|stretch| stretch.start <= at).checked_sub(1)?;
        self.stretches.get(index).filter(|stretch| at < stretch.end)
    }

    pub(super) fn is_inside(&self, at: u32) -> bool {
        self.stretch_at(at).is_some()
    }

    /// Control comes to `at`, where a block begins.
    fn arrive(&mut self, at: u32) {
        if self.is_inside(at) {
            self.pending.push(at);
        }
    }

    /// Follows control from `root`.
    pub(super) fn walk(&mut self, root: u32) {
        self.arrive(root);
        while let Some(at) = self.pending.pop() {
            if self.flow.sweep.boundaries.get(at) {
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
                // Control may leave behind it: a block ends.
                StepKind::Call if pad.is_some() => return self.arrive(step.end),
                StepKind::Call => {}
                StepKind::Branch => {
                    self.arrive(step.target);
                    return self.arrive(step.end);
                }
                StepKind::Jump => return self.arrive(step.target),
                StepKind::JumpIndirect => {
                    if let Some(Resolution::Table { targets, .. }) = self.resolved.get(&index) {
                        targets.clone().into_iter().for_each(|target| self.arrive(target));
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

    /// Decodes what the sweep has other instructions for, up to where it has the same.
    fn stray(&mut self, at: u32) {
        let Some(stretch_end) = self.stretch_at(at).map(|stretch| stretch.end) else { return };
        let Some(mut instructions) = Instructions::new(&self.flow.places, at) else { return };
        let mut instruction = Instruction::default();
        let mut block = RawBlock { start: at, end: at + 1, how: Ending::Stray { flow: Flow::Stop } };
        for _ in 0..MAX_STRAY {
            if block.end >= stretch_end || !instructions.decode(&mut instruction) || instruction.is_invalid() {
                break;
            }
            block.end = instructions.position();
            match flow_of(&instruction, &self.flow.places) {
                Flow::Next | Flow::Call(_) | Flow::CallIndirect if self.flow.sweep.boundaries.get(block.end) => {
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

    /// Where an exception of a call lands. As unwinders do, the last byte of the instruction is asked for.
    fn landing_pad(&self, call: &Step) -> Option<u32> {
        let (at, pads) = (call.end.checked_sub(1)?, &self.flow.landing_pads);
        let &(from, to, pad) = pads.get(pads.partition_point(|pad| pad.0 <= at).checked_sub(1)?)?;
        (from <= at && at < to).then_some(pad)
    }

    /// Resolves the indirect jumps that control has come to, until no new ones are met.
    fn resolve(&mut self, budget: &mut usize) {
        for _ in 0..MAX_ROUNDS {
            let is_reached = |step: &Step| step.kind == StepKind::JumpIndirect && step.from != NOWHERE;
            if !self.steps.iter().any(is_reached) {
                return;
            }
            let blocks = self.raw_blocks();
            let mut has_news = false;
            for (step, resolution) in jump_tables::resolve(self, &blocks, budget) {
                if let Resolution::Table { targets, pieces, .. } = &resolution {
                    pieces.iter().for_each(|&piece| self.add_piece(piece));
                    let known = match self.resolved.get(&step) {
                        Some(Resolution::Table { targets, .. }) => targets.as_slice(),
                        _ => &[],
                    };
                    let new: Vec<u32> = targets.iter().filter(|t| known.binary_search(t).is_err()).copied().collect();
                    has_news |= !new.is_empty();
                    new.into_iter().for_each(|target| self.walk(target));
                }
                let resolution = match (self.resolved.remove(&step), resolution) {
                    (Some(before), now) => before.merge(now),
                    (None, now) => now,
                };
                self.resolved.insert(step, resolution);
            }
            if !has_news {
                return;
            }
        }
    }

    /// Follows control from all code that it does not come to, but padding. Whether there was any.
    fn walk_gaps(&mut self) -> bool {
        let mut has_gaps = false;
        for index in 0..self.stretches.len() {
            let Some(Stretch { start, end, steps, .. }) = self.stretches.get(index).cloned() else { break };
            let mut at = start;
            for step in steps {
                let Some(&Step { at: step_at, end: step_end, from, kind, .. }) = self.steps.get(step) else { break };
                if from > at && step_at >= at {
                    let root = self.behind_padding(at, step_at.min(from).min(end));
                    // Who does not come to a trap alone loses nothing.
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

    /// Cuts the code that control comes to into blocks, by ascending start.
    pub(super) fn raw_blocks(&mut self) -> Vec<RawBlock> {
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
        let address = self.flow.places.address(target);
        match self.flow.piece_at(target).and_then(|piece| self.flow.pieces.get(piece as usize)) {
            Some(piece) if piece.start != target => Destination::Shared(address),
            _ => Destination::Out(Some(address)),
        }
    }

    /// How a block ends, and the positions of its successors.
    pub(super) fn ending(&self, block: &RawBlock, targets: &mut Vec<u32>) -> Terminator {
        targets.clear();
        let jump = |target: u32, targets: &mut Vec<u32>| match self.destination(target) {
            Destination::Inside => {
                targets.push(target);
                Terminator::Jump
            }
            Destination::Out(out) => Terminator::TailCall(out),
            Destination::Shared(address) => Terminator::SharedTail(address),
        };
        let branch = |target: u32, next: u32, targets: &mut Vec<u32>| {
            if self.is_inside(next) {
                targets.push(next);
            }
            match self.destination(target) {
                Destination::Inside => {
                    if !targets.contains(&target) {
                        targets.push(target);
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
                    targets.push(block.end);
                    Terminator::FallsThrough
                }
                _ => match self.flow.piece_at(block.end) {
                    Some(_) => Terminator::TailCall(Some(self.flow.places.address(block.end))),
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
                    StepKind::JumpIndirect => match self.resolved.get(&index) {
                        Some(Resolution::Table { targets: found, .. }) => {
                            targets.extend(found);
                            Terminator::Switch(0)
                        }
                        Some(Resolution::Leaves(target)) => {
                            Terminator::TailCall(target.map(|target| self.flow.places.address(target)))
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

    /// Where exceptions of the calls in a block land.
    pub(super) fn landings(&self, block: &RawBlock, targets: &mut Vec<u32>) {
        if self.flow.landing_pads.is_empty() {
            return;
        }
        for step in self.calls_in(block) {
            if let Some(pad) = self.landing_pad(step).filter(|&pad| self.is_inside(pad) && !targets.contains(&pad)) {
                targets.push(pad);
            }
        }
    }

    fn calls_in(&self, block: &RawBlock) -> impl Iterator<Item = &Step> {
        let steps = self.stretch_at(block.start).map_or(0..0, |stretch| stretch.steps.clone());
        let steps = self.steps.get(steps).unwrap_or(&[]);
        let steps = steps.get(steps.partition_point(|step| step.at < block.start)..).unwrap_or(&[]);
        let end = block.end;
        steps.iter().take_while(move |step| step.at < end).filter(|step| step.is_call())
    }

    fn finish(mut self) -> ProcedureGraph {
        let raw = self.raw_blocks();
        let places = &self.flow.places;
        let index_of = |at: u32| raw.binary_search_by_key(&at, |block| block.start).ok().map(|index| index as u32);
        let mut graph = ProcedureGraph { entry: places.address(self.entry), ..ProcedureGraph::default() };
        let pieces = self.stretches.iter().filter_map(|stretch| self.flow.pieces.get(stretch.piece as usize));
        graph.fragments = pieces.map(|piece| address_range(places, piece)).collect();
        if let Some(first) = graph.fragments.iter().position(|fragment| fragment.start == graph.entry) {
            graph.fragments[..=first].rotate_right(1);
        }
        let mut targets = Vec::new();
        graph.blocks.reserve(raw.len());
        let base = raw.first().map_or((0, LinkAddr(0)), |block| (block.start, places.address(block.start)));
        // Positions between parts are apart by one, addresses by more.
        let part_end = places.part(base.0).map_or(0, |part| part.end());
        let address = |at: u32| {
            if (base.0..=part_end).contains(&at) {
                LinkAddr(base.1.0 + u64::from(at - base.0))
            } else {
                places.address(at)
            }
        };
        for block in &raw {
            let mut terminator = self.ending(block, &mut targets);
            if let Ending::Step(step) = block.how
                && let (Terminator::Switch(_), Some(Resolution::Table { addresses, end, .. })) =
                    (terminator, self.resolved.get(&step))
            {
                terminator = Terminator::Switch(graph.tables.len() as u32);
                graph.tables.push(JumpTable {
                    jump: address(self.steps[step].at),
                    addresses: addresses.iter().copied().map(LinkAddr).collect(),
                    targets: targets.iter().copied().map(address).collect(),
                    end: *end,
                });
            }
            self.landings(block, &mut targets);
            let first = graph.edges.len() as u32;
            graph.edges.extend(targets.iter().filter_map(|&target| index_of(target)));
            let edges = first..graph.edges.len() as u32;
            let start = address(block.start);
            let code = start..LinkAddr(start.0 + u64::from(block.end - block.start));
            graph.blocks.push(Block { code, terminator, edges });
        }
        for step in &self.steps {
            if step.is_call() && step.from != NOWHERE {
                graph.calls.push(CallSite {
                    code: address(step.at)..address(step.end),
                    target: Some(step.target).filter(|&target| target != NOWHERE).map(address),
                    returns: step.kind == StepKind::Call,
                });
            }
        }
        graph.calls.sort_unstable_by_key(|call| call.code.start);
        let entry = index_of(self.entry).into_iter();
        let roots: Vec<u32> = entry.chain(self.extra_roots.iter().filter_map(|&root| index_of(root))).collect();
        graph.roots = needed_roots(&graph, &roots);
        graph
    }
}

/// Of the roots, those that no earlier one leads to.
fn needed_roots(graph: &ProcedureGraph, roots: &[u32]) -> Vec<u32> {
    if roots.len() < 2 {
        return roots.to_vec();
    }
    let mut is_reached = vec![false; graph.blocks.len()];
    let mut needed = Vec::new();
    let mut pending = Vec::new();
    for &root in roots {
        if is_reached[root as usize] {
            continue;
        }
        needed.push(root);
        pending.push(root);
        while let Some(block) = pending.pop() {
            if !std::mem::replace(&mut is_reached[block as usize], true) {
                pending.extend(graph.successors(block));
            }
        }
    }
    needed
}

/// The bytes from the opcode on.
fn opcode(bytes: &[u8]) -> &[u8] {
    let is_prefix =
        |byte: &&u8| matches!(byte, 0x66 | 0xf2 | 0xf3 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65 | 0x40..=0x4f);
    bytes.get(bytes.iter().take(14).take_while(is_prefix).count()..).unwrap_or(&[])
}

/// `ff` with this operation, or the next, which is its far form.
fn is_group(bytes: &[u8], operation: u8) -> bool {
    matches!(bytes, [0xff, modrm, ..] if (operation..operation + 2).contains(&(modrm >> 3 & 7)))
}
