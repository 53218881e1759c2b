//! The sweep: decodes every byte of code once, in order, and records what the instructions refer to.
//!
//! In data a linear sweep decodes wrong instructions, and recovers after a few: its results are evidence, not proof.

use std::ops::Range;

use crate::bitmap::Bitmap;
use crate::code_map::{CodeMap, NOWHERE};
use crate::decode::{Flow, Instructions};
use crate::decoded::{Decoded, Decoding};
use crate::encoding;
use crate::encoding::{calls_and_jumps, is_epilogue, is_prologue, is_sure_prologue};
use crate::idioms::{Context, linkage_stub};
use crate::instruction::{Control, Instruction, Operation, Register};
use crate::tables::Data;

/// The results of a sweep.
pub(crate) struct Sweep {
    /// Where instructions begin.
    pub(crate) boundaries: Bitmap,
    /// Positions to which no instruction falls through: after jumps, returns and calls, and after padding there.
    pub(crate) behind_ends: Bitmap,
    /// Targets of branches and jumps.
    pub(crate) jump_targets: Bitmap,
    /// Targets of calls.
    pub(crate) call_targets: Bitmap,
    /// Addresses of code that instructions compute, in no order.
    pub(crate) code_references: Vec<u32>,
    /// All addresses that instructions compute, sorted.
    pub(crate) data_references: Vec<u64>,
    /// Instructions after which control may go elsewhere, by position.
    pub(crate) events: Vec<Event>,
    /// Bytes that seem to be data: see [`Oddities`].
    pub(crate) data: Bitmap,
    oddities: Oddities,
    /// Whether there are returns that pop arguments.
    pub(crate) has_popping_returns: bool,
    /// Whether there are procedures that take arguments off the stack before they return.
    pub(crate) takes_arguments_off: bool,
    /// The decoded instructions, until the sweep ends.
    decoding: Decoding,
    /// Calls followed by padding: the call's index in `events`, and the padding's start and end.
    padded_calls: Vec<(u32, u32, u32)>,
}

/// What is known before a sweep.
pub(crate) struct Hints<'h> {
    pub(crate) code_map: &'h CodeMap<'h>,
    /// Code that is not swept.
    pub(crate) known: &'h Bitmap,
    /// Where instructions are known to begin.
    pub(crate) begins: &'h Bitmap,
    /// Addresses of words that hold the addresses of procedures that never return, sorted.
    pub(crate) no_return_slots: &'h [u64],
    pub(crate) data: &'h Data<'h>,
}

impl Hints<'_> {
    fn is_no_return_slot(&self, slot: u64) -> bool {
        self.no_return_slots.binary_search(&slot).is_ok()
    }
}

/// A run of bytes that no program executes: not instructions, or the kernel's. Every seventh instruction of random
/// bytes is one. Tables among code may be 100 kB long and more.
#[derive(Default)]
struct Oddities {
    /// Its start, and the end of the last one.
    from: u32,
    to: u32,
    count: u32,
}

impl Oddities {
    /// This many bytes without one are code.
    const FAR_BYTES: u32 = 96;
    /// This many, each close to the next, are data.
    const MANY: u32 = 12;

    /// Adds one from `at` to `next`.
    fn note(&mut self, at: u32, next: u32, data: &mut Bitmap) {
        if at.saturating_sub(self.to) > Oddities::FAR_BYTES {
            *self = Oddities { from: at, to: at, count: 0 };
        }
        self.count += 1;
        if self.count == Oddities::MANY {
            data.insert_range(self.from, next);
        } else if self.count > Oddities::MANY {
            data.insert_range(self.to, next);
        }
        self.to = next;
    }
}

/// An instruction after which control may go elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    pub(crate) at: u32,
    pub(crate) kind: EventKind,
    /// A position or [`NOWHERE`].
    pub(crate) target: u32,
}

/// The kind of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventKind {
    Branch,
    Jump,
    /// An indirect jump, or a return.
    Leave,
    Call,
    /// An indirect call that does not return, or an instruction that ends execution.
    Stop,
}

impl Sweep {
    /// Sweeps over all code. The decoded instructions take four bytes for each byte of code.
    pub(crate) fn new(hints: &Hints<'_>) -> (Sweep, Decoded) {
        let code_map = hints.code_map;
        let bitmap = || Bitmap::new(code_map.len());
        let mut sweep = Sweep {
            boundaries: bitmap(),
            behind_ends: bitmap(),
            jump_targets: bitmap(),
            call_targets: bitmap(),
            code_references: Vec::new(),
            data_references: Vec::new(),
            events: Vec::new(),
            data: bitmap(),
            oddities: Oddities::default(),
            has_popping_returns: false,
            takes_arguments_off: false,
            decoding: Decoding::new(code_map.len()),
            padded_calls: Vec::new(),
        };
        for part in code_map.parts() {
            let mut from = part.first;
            while let Some(start) = hints.known.next_absent(from, part.end()) {
                let end = hints.known.next(start, part.end()).unwrap_or(part.end());
                sweep.stretch(start..end, hints);
                from = end;
            }
        }
        sweep.data_references.sort_unstable();
        sweep.data_references.dedup();
        sweep.leave_for_known(hints);
        sweep.padded_calls(code_map);
        let decoded = std::mem::take(&mut sweep.decoding).finish(&sweep.boundaries);
        (sweep, decoded)
    }

    /// Known code has no events: calls of it return, except through a stub of the procedure linkage table for a
    /// procedure that does not.
    fn leave_for_known(&mut self, hints: &Hints<'_>) {
        let code_map = hints.code_map;
        let is_known = |event: &&mut Event| event.target != NOWHERE && hints.known.get(event.target);
        for event in self.events.iter_mut().filter(is_known) {
            let slot = linkage_stub::slot(code_map.bytes(event.target), code_map.address(event.target).0);
            if slot.is_some_and(|slot| hints.is_no_return_slot(slot)) && event.kind != EventKind::Branch {
                event.kind = EventKind::Stop;
            }
            event.target = NOWHERE;
        }
    }

    /// Calls followed by padding, up to where another procedure seems to begin, do not return.
    fn padded_calls(&mut self, code_map: &CodeMap<'_>) {
        for (call, from, end) in std::mem::take(&mut self.padded_calls) {
            if self.begins_behind_padding(code_map, &self.jump_targets, from..end)
                && let Some(event) = self.events.get_mut(call as usize)
                && event.kind == EventKind::Call
            {
                event.kind = EventKind::Stop;
            }
        }
    }

    /// Whether a procedure, not a loop or an epilogue, begins after a call and `padding`. One `nop` is not enough
    /// evidence: gcc without optimisation writes one after many calls.
    pub(crate) fn begins_behind_padding(
        &self,
        code_map: &CodeMap<'_>,
        jump_targets: &Bitmap,
        padding: Range<u32>,
    ) -> bool {
        let at = padding.end;
        let bytes = code_map.bytes(at);
        let is_free = !jump_targets.get(at) || is_prologue(bytes);
        let is_padded = at - padding.start > 1 || is_prologue(bytes);
        self.call_targets.get(at)
            || (code_map.is_aligned(at) && self.boundaries.get(at) && is_free && is_padded && !is_epilogue(bytes))
    }

    fn stretch(&mut self, range: Range<u32>, hints: &Hints<'_>) {
        let code_map = hints.code_map;
        let (start, end) = (range.start, range.end);
        let Some(mut instructions) = Instructions::new(code_map, start) else { return };
        self.behind_ends.insert(start);
        let mut padding = None;
        let mut context = Context::default();
        // The end of the last event's instruction.
        let mut behind = NOWHERE;
        let mut sure = hints.begins.next(start + 1, end).unwrap_or(end);
        loop {
            let at = instructions.position();
            if at >= end {
                return;
            }
            let instruction = instructions.decode();
            if instruction.is_none() && !instructions.seek(at + 1) {
                return;
            }
            let next = instructions.position();
            if next > sure || at >= sure {
                if next > sure && at < sure {
                    instructions.seek(sure);
                }
                let from = sure.max(at) + 1;
                let passed = sure;
                sure = hints.begins.next(from, end).unwrap_or(end);
                if next > passed && at < passed {
                    continue;
                }
            }
            if instruction.is_none_or(|instruction| instruction.is_privileged()) {
                self.oddities.note(at, next, &mut self.data);
            }
            let Some(instruction) = instruction else { continue };
            self.boundaries.insert(at);
            let is_padding = instruction.is_padding();
            if is_padding && self.behind_ends.get(at) {
                self.behind_ends.insert(next);
            }
            if is_padding {
                let is_call = |event: &Event| event.kind == EventKind::Call;
                if padding.is_none() && behind == at && self.events.last().is_some_and(is_call) {
                    padding = Some(self.events.len() as u32 - 1);
                }
            } else if behind == at
                && instructions.address(at).is_multiple_of(16)
                && is_sure_prologue(code_map.bytes(at))
            {
                self.padded_calls.push((self.events.len().saturating_sub(1) as u32, at, at));
            } else if let Some(call) = padding.take() {
                self.padded_calls.push((call, behind, at));
            }
            let events = self.events.len();
            // Of an event.
            let is_left = context.is_left_by_jump();
            self.decoding.push(at, instruction);
            self.note(&instructions, &instruction, hints);
            context.note(&instruction);
            if self.events.len() > events {
                behind = next;
                if self.events.last().is_some_and(|event| event.kind != EventKind::Branch) {
                    self.behind_ends.insert(next);
                }
                if let Some(event) = self.events.last_mut()
                    && matches!(event.kind, EventKind::Leave | EventKind::Jump | EventKind::Stop)
                {
                    if is_left && event.kind == EventKind::Leave && instruction.control() != Control::Return {
                        event.kind = EventKind::Stop;
                    }
                    context = Context::default();
                }
            }
        }
    }

    /// Records what the last instruction read refers to, and where control goes after it.
    #[inline]
    fn note(&mut self, instructions: &Instructions<'_>, instruction: &Instruction, hints: &Hints<'_>) {
        let code_map = hints.code_map;
        let at = instructions.position() - instruction.len();
        if let Some(memory) = instruction.memory()
            && memory.index != Register::NONE
            && memory.base == Register::NONE
        {
            self.data_references.push(memory.displacement as u64);
        }
        let next = instructions.next_address();
        let mut event = |kind, target| self.events.push(Event { at, kind, target });
        match instructions.flow_of(instruction, code_map) {
            Flow::Next => match instruction.operation() {
                Operation::LoadAddress => {
                    if let Some(address) = instruction.beside_code(next) {
                        self.refer(code_map, address);
                    }
                }
                Operation::Move | Operation::Push if hints.data.is_absolute => {
                    if let Some(address) = instruction.stored_word() {
                        self.refer(code_map, address);
                    }
                }
                _ => {}
            },
            Flow::Branch(target) => {
                event(EventKind::Branch, target);
                self.jump_targets.insert(target);
            }
            Flow::Jump(target) => {
                event(EventKind::Jump, target);
                self.jump_targets.insert(target);
            }
            Flow::Call(target) => {
                event(EventKind::Call, target);
                self.call_targets.insert(target);
            }
            flow @ (Flow::CallIndirect | Flow::JumpIndirect) => {
                let slot = instruction.beside_code(next);
                let stops = slot.is_some_and(|slot| hints.is_no_return_slot(slot));
                let is_call = flow == Flow::CallIndirect;
                match hints.data.slot_target(instruction, next, code_map) {
                    _ if stops => event(EventKind::Stop, NOWHERE),
                    Some(target) => {
                        event(if is_call { EventKind::Call } else { EventKind::Jump }, target);
                        self.call_targets.insert(target);
                    }
                    None => event(if is_call { EventKind::Call } else { EventKind::Leave }, NOWHERE),
                }
            }
            Flow::Return => {
                event(EventKind::Leave, NOWHERE);
                self.has_popping_returns |= instruction.immediate().is_some();
                let from = at.saturating_sub(encoding::TAKES_ARGUMENTS_OFF_BYTES);
                let before = code_map.bytes(from).get(..(at - from) as usize).unwrap_or(&[]);
                self.takes_arguments_off |= encoding::takes_arguments_off(before);
            }
            Flow::Stop => event(EventKind::Stop, NOWHERE),
        }
    }

    fn refer(&mut self, code_map: &CodeMap<'_>, address: u64) {
        self.code_references.extend(code_map.position(address));
        self.data_references.push(address);
    }
}

/// Adds the targets of what seem to be calls and jumps out of the `known` code to `targets`. Searches bytes without
/// decoding: it is rare that other bytes look like a displacement to unknown code.
pub(crate) fn targets_of_known(code_map: &CodeMap<'_>, known: &Bitmap, targets: &mut Bitmap) {
    for part in code_map.parts() {
        for transfer in calls_and_jumps(part.bytes).filter(|transfer| known.get(part.first + transfer.at as u32)) {
            let target = code_map.position(transfer.address(part.start.0));
            if let Some(target) = target.filter(|&target| !known.get(target)) {
                targets.insert(target);
            }
        }
    }
}
