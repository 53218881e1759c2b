//! The frame of a procedure, followed to enlarge it: a copy gets words of its own between the return address and what the
//! procedure keeps on the stack.
//!
//! ```text
//!                original                      enlarged by n bytes
//! CFA ........   arguments on the stack        the same
//! CFA - 8        return address                the same
//!                                              n bytes of the copy's
//! CFA - 16 ...   the procedure's own           CFA - 16 - n ...
//! ```
//!
//! At the entry rsp is lowered by n bytes, at exits it is raised. What the procedure addresses from rsp, or a register
//! derived from it, is its own and moves along; what lies above the return address does not move, so that the displacements of
//! such operands grow by n. A procedure is refused where that could not be told.

use std::cell::Cell;
use std::collections::BTreeMap;

use callpath_format::address::LinkAddr;
use rustc_hash::FxHashMap;

use super::body::{Body, Step};
use super::refusal::{Reason, Refusal};
use crate::dataflow::{Analysis, Direction, solve};
use crate::effect;
use crate::graph::{EdgeKind, Terminator};
use crate::instruction::{Control, Instruction, Memory, Operation, Register};
use crate::state::{RBP, RSP, State};
use crate::value::{Base, Value};

/// Where the return address lies, counted from the CFA.
const RETURN_ADDRESS: i64 = -8;

/// How a procedure uses its frame.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    /// Before each instruction: how the CFA is found.
    heights: FxHashMap<u64, Height>,
    /// Behind each block, by its start.
    behind: FxHashMap<u64, Height>,
    /// Instructions whose memory operand lies above the return address, and is addressed from below.
    above: Vec<u64>,
}

/// What is known before each block, by its number; `None`: nothing known leads there. Nothing at all, if it cannot be told.
fn starts(body: &Body<'_, '_>, arguments: &BTreeMap<LinkAddr, u32>, entry: u32) -> Option<Vec<Option<State>>> {
    let mut followed = Followed { body, arguments, is_lost: Cell::new(false) };
    let mut entries = vec![(entry, State::at_entry())];
    let dead: Vec<(u32, u32)> = body.behind_dead_calls().collect();
    loop {
        let starts = solve(body.graph, &mut followed, entries.clone());
        let start = |block: u32| starts.get(block as usize).and_then(Option::as_ref);
        let is_new = |root: &u32| start(*root).is_none() && entries.iter().all(|(entered, _)| entered != root);
        // Whoever came there would have the frame as it is behind the call.
        let next =
            dead.iter().filter(|(root, _)| is_new(root)).find_map(|&(root, call)| Some((root, call, start(call)?)));
        if followed.is_lost.get() {
            return None;
        }
        let Some((root, call, before)) = next else { return Some(starts) };
        let behind = followed.transfer(call, before);
        entries.push((root, behind));
    }
}

/// A register whose distance from the CFA is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Height {
    /// Its number: rsp or rbp.
    pub(super) register: u8,
    /// It is the CFA plus this many bytes in the original.
    pub(super) from_cfa: i32,
}

impl Frame {
    /// Follows the frame of a procedure. `arguments`: see [`super::Plan::pops_arguments`].
    ///
    /// # Errors
    /// Where it cannot be told how the frame is used.
    pub(super) fn of(body: &Body<'_, '_>, arguments: &BTreeMap<LinkAddr, u32>) -> Result<Frame, Refusal> {
        let graph = body.graph;
        let unknown = |at: LinkAddr| Refusal { at, reason: Reason::FrameUnknown };
        let entry = graph.block_at(graph.entry).ok_or(unknown(graph.entry))?;
        let starts = starts(body, arguments, entry).ok_or(unknown(graph.entry))?;
        let mut frame = Frame::default();
        for (number, start) in starts.into_iter().enumerate() {
            let (Some(block), Some(steps)) = (graph.blocks.get(number), body.steps_of(number)) else { continue };
            // Nothing known leads there: who does may have any frame.
            let mut state = start.ok_or(unknown(block.code.start))?;
            for step in steps {
                frame.add(step, &mut state).ok_or(unknown(LinkAddr(step.at)))?;
            }
            let height = Height::of(&state);
            let leaves = match block.terminator {
                Terminator::TailCall(_) | Terminator::BranchOut(_) => true,
                Terminator::SharedTail(_) | Terminator::RunsOut => return Err(unknown(block.code.start)),
                _ => false,
            };
            if leaves && state.get(RSP) != Value::cfa(RETURN_ADDRESS as i32) {
                return Err(unknown(block.code.start));
            }
            frame.behind.extend(height.map(|height| (block.code.start.0, height)));
        }
        frame.above.sort_unstable();
        frame.above.dedup();
        Ok(frame)
    }

    /// How the CFA is found before an instruction.
    pub(super) fn before(&self, at: LinkAddr) -> Option<Height> {
        self.heights.get(&at.0).copied()
    }

    /// The same behind the last instruction of the block that begins at an address.
    pub(super) fn behind(&self, block: LinkAddr) -> Option<Height> {
        self.behind.get(&block.0).copied()
    }

    /// Instructions whose displacement grows with the frame, by ascending address.
    pub(super) fn above(&self) -> &[u64] {
        &self.above
    }

    /// Notes what an instruction does, and follows it. `None`: that could not be told.
    fn add(&mut self, step: &Step<'_>, state: &mut State) -> Option<()> {
        let instruction = &step.instruction;
        if let Some(height) = Height::of(state) {
            let before = self.heights.insert(step.at, height);
            if before.is_some_and(|before| before != height) {
                return None;
            }
        }
        if instruction.operation() == Operation::Return && state.get(RSP) != Value::cfa(RETURN_ADDRESS as i32)
            || matches!(instruction.operation(), Operation::Enter | Operation::PushFlags)
                && state.get(RSP) == Value::Unknown
        {
            return None;
        }
        let moves_above = Frame::is_above(instruction, state)?;
        if moves_above {
            self.above.push(step.at);
        }
        let before = state.clone();
        follow(state, step);
        if instruction.control() == Control::Return {
            return Some(());
        }
        // Addresses cross the return address by `lea` alone, in one direction.
        let is_address = instruction.operation() == Operation::LoadAddress;
        let written = instruction.writes().general();
        for register in written.chain([RSP]) {
            let Some(now) = from_cfa(state.get(register)) else { continue };
            let is_known = |value: Value| from_cfa(value) == Some(now);
            // Copied, or loaded from where it was kept.
            let is_copy = (0..16).any(|from| is_known(before.get(from)))
                || before.slots().iter().any(|slot| is_known(slot.value()));
            let is_own = now < RETURN_ADDRESS;
            let comes_from_own = instruction
                .memory()
                .filter(|_| is_address)
                .and_then(|memory| from_cfa(value_of(&before, memory.base)))
                .or_else(|| from_cfa(before.get(register)))
                .is_none_or(|from| from < 0);
            let is_told = match () {
                () if is_copy => true,
                () if is_own || now == RETURN_ADDRESS => comes_from_own,
                () if register == RSP => false,
                () => is_address && (moves_above || !comes_from_own),
            };
            if !is_told {
                return None;
            }
        }
        Some(())
    }

    /// Whether an instruction's memory operand lies above the return address, and is addressed from below. `None`: that
    /// could not be told.
    fn is_above(instruction: &Instruction, state: &State) -> Option<bool> {
        let is_used = |memory: &Memory| !memory.has_segment && instruction.operation() != Operation::Nop;
        let Some(memory) = instruction.memory().filter(is_used) else { return Some(false) };
        let is_address = instruction.operation() == Operation::LoadAddress;
        let (base, index) = (from_cfa(value_of(state, memory.base)), from_cfa(value_of(state, memory.index)));
        let has_index = memory.index != Register::NONE;
        let from = match (base, index) {
            (None, None) => return Some(false),
            (Some(from), None) => from,
            (None, Some(from)) if memory.scale == 1 => from,
            _ => return None,
        };
        // A pop addresses memory from what rsp is afterwards.
        let popped = if instruction.operation() == Operation::Pop && memory.base == Register::RSP { 8 } else { 0 };
        let at = from + popped + memory.displacement;
        let len = if is_address { 0 } else { i64::from(memory.bytes.max(1)) };
        if from >= 0 {
            // An address of arguments, of which the return address may be read.
            return (at >= 0 || at == RETURN_ADDRESS && !is_address && !instruction.writes_memory_operand())
                .then_some(false);
        }
        if has_index {
            return (at < RETURN_ADDRESS).then_some(false);
        }
        match at {
            // The end of what is the procedure's own.
            RETURN_ADDRESS if is_address => Some(false),
            _ if at + len <= RETURN_ADDRESS => Some(false),
            0.. => Some(true),
            _ => None,
        }
    }
}

impl Height {
    /// At a procedure's first instruction.
    pub(super) const AT_ENTRY: Height = Height { register: RSP as u8, from_cfa: RETURN_ADDRESS as i32 };

    /// How far above the register the word lies that is so many bytes above the lowest one that the frame is enlarged by.
    pub(super) fn distance_of(self, offset: u32) -> i32 {
        offset as i32 + RETURN_ADDRESS as i32 - self.from_cfa
    }

    fn of(state: &State) -> Option<Height> {
        let height = |register: usize| match state.get(register) {
            Value::Stack { base: Base::CFA, offset } if offset < 0 => {
                Some(Height { register: register as u8, from_cfa: offset })
            }
            _ => None,
        };
        height(RSP).or_else(|| height(RBP))
    }
}

/// The states of a procedure's blocks.
struct Followed<'b, 'g, 'a> {
    body: &'b Body<'g, 'a>,
    arguments: &'b BTreeMap<LinkAddr, u32>,
    /// Of a landing pad it cannot be said where rsp is.
    is_lost: Cell<bool>,
}

impl Analysis for Followed<'_, '_, '_> {
    type Fact = State;
    const DIRECTION: Direction = Direction::Forward;

    fn transfer(&mut self, block: u32, start: &State) -> State {
        let mut state = start.clone();
        for step in self.body.steps_of(block as usize).unwrap_or(&[]) {
            follow(&mut state, step);
        }
        state
    }

    /// A landing pad of a call does not have on the stack what was pushed for that call.
    fn along(&self, from: u32, to: u32, behind: &State) -> Option<State> {
        if self.arguments.is_empty() {
            return None;
        }
        let kinds = || self.body.graph.edges_of(from).filter(|(block, _)| *block == to).map(|(_, kind)| kind);
        if !kinds().any(|kind| kind == EdgeKind::LandingPad) {
            return None;
        }
        // A block ends behind the call that has the pad.
        let call = self.body.steps_of(from as usize).and_then(<[Step<'_>]>::last);
        let bytes = self.arguments.get(&LinkAddr(call?.at))?;
        let Value::Stack { base, offset } = behind.get(RSP) else { return None };
        let above = i32::try_from(*bytes).ok().and_then(|bytes| offset.checked_add(bytes));
        let rsp = match above.filter(|_| kinds().count() == 1) {
            Some(offset) => Value::Stack { base, offset },
            None => {
                self.is_lost.set(true);
                Value::Unknown
            }
        };
        let start = self.body.graph.blocks.get(to as usize).map_or(0, |block| block.code.start.0);
        let mut state = behind.clone();
        state.set(RSP, rsp, start as u32);
        Some(state)
    }

    fn join(&self, known: &mut State, new: &State) -> bool {
        known.merge(new, 0)
    }

    fn join_at(&self, block: u32, known: &mut State, new: &State) -> bool {
        let start = self.body.graph.blocks.get(block as usize).map_or(0, |block| block.code.start.0);
        known.merge(new, start as u32)
    }
}

fn follow(state: &mut State, step: &Step<'_>) {
    // Calls that push the next instruction's address are refused elsewhere: such a procedure looks at it.
    effect::apply(state, &step.instruction, step.at as u32, step.end());
}

fn value_of(state: &State, register: Register) -> Value {
    register.general64().map_or(Value::Unknown, |register| state.get(register))
}

/// The distance of an address from the CFA, where it is known, bytes.
fn from_cfa(value: Value) -> Option<i64> {
    match value {
        Value::Stack { base: Base::CFA, offset } => Some(offset.into()),
        _ => None,
    }
}
