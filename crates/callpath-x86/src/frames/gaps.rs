//! Finds the frames of code that no control flow leads to.
//!
//! Gaps are examined in several rounds, from what is certain to what is likely: the frame of one gap is often the key
//! to that of another.

use std::ops::Range;

use super::Frames;
use super::inference::Inference;
use super::knowledge::Knowledge;
use crate::bitmap::Bitmap;
use crate::code_map::{CodeMap, NOWHERE, Part};
use crate::decode::{Flow, Instructions};
use crate::encoding::{begins_with_endbr64, behind_endbr64, is_prologue, is_sure_prologue};
use crate::idioms::linkage_stub;
use crate::recipe::has_recipe;
use crate::state::{RBP, RSP, State};
use crate::sweep::{Event, EventKind};
use crate::value::Base;

/// A procedure with more stretches is not searched.
const MAX_STRETCHES: usize = 4096;
/// How many of the stretches followed last are searched: gaps are visited in order.
const MAX_RECENT: usize = 64;
/// The most instructions of a gap that are followed for inference.
const MAX_INSTRUCTIONS: u32 = 400;

/// What a round accepts as evidence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Round {
    /// Equations, and prologues as compilers write them.
    Certain,
    /// Also: code inside a procedure belongs to it.
    Owned,
    /// Also: code where a procedure may begin, and that behaves like one, begins one.
    Likely,
}

/// Examines the code that no control flow leads to.
pub(crate) struct Gaps<'f, 'a> {
    frames: &'f mut Frames<'a>,
    /// Code that seems to be data.
    garbage: Bitmap,
    /// Where padding begins with known code after it: most gaps are that.
    padding: Bitmap,
    /// Branches and jumps into gaps: `(to, from)`, sorted.
    jumpers: Vec<(u32, u32)>,
    /// Reads padding.
    reader: Option<Instructions<'a>>,
}

impl<'f, 'a> Gaps<'f, 'a> {
    /// Requires that all known starts were followed.
    pub(crate) fn new(frames: &'f mut Frames<'a>) -> Gaps<'f, 'a> {
        let bitmap = || Bitmap::new(frames.known.code.code_map.len());
        Gaps { garbage: bitmap(), padding: bitmap(), jumpers: Vec::new(), reader: None, frames }
    }

    /// The module's frames so far.
    pub(crate) fn known(&self) -> &Knowledge<'a> {
        &self.frames.known
    }

    /// Examines every unseen stretch, in order.
    pub(crate) fn fill(&mut self) {
        let known = &self.frames.known;
        let parts: Vec<Part<'_>> = known.code.code_map.parts().to_vec();
        let is_unseen = |event: &&Event| {
            matches!(event.kind, EventKind::Branch | EventKind::Jump) && !known.recipes.is_seen(event.target)
        };
        let jumpers = known.code.sweep.events.iter().filter(is_unseen);
        self.jumpers = jumpers.map(|event| (event.target, event.at)).collect();
        self.jumpers.sort_unstable();
        for round in [Round::Certain, Round::Owned, Round::Owned, Round::Likely] {
            self.frames.renew_budget();
            let procedures = &mut self.frames.known.procedures;
            // Most of it is sorted already, which suits a merge sort.
            procedures.stretches.sort();
            procedures.sorted = procedures.stretches.len();
            for part in &parts {
                let mut at = part.first;
                while at < part.end() {
                    let known = &self.frames.known;
                    if known.code.known.get(at) {
                        at = known.code.known.next_absent(at, part.end()).unwrap_or(part.end());
                    } else if known.recipes.is_seen(at) {
                        at = known.recipes.next_unseen(at, part.end());
                    } else {
                        at = self.gap(at, part.end(), round);
                    }
                }
            }
        }
    }

    /// Examines the gap that begins at `from`. Returns where to continue.
    fn gap(&mut self, from: u32, end: u32, round: Round) -> u32 {
        let known = &self.frames.known;
        if self.padding.get(from) {
            return known.recipes.next_seen(from, end);
        }
        if known.code.sweep.data.get(from) {
            let data_end = known.code.sweep.data.next_absent(from, end).unwrap_or(end);
            let code = known.code.known.next(from, data_end).unwrap_or(data_end);
            return known.recipes.next_seen(from, code);
        }
        let bytes = known.code.code_map.bytes(from);
        let zeros = bytes.iter().take_while(|&&byte| byte == 0).count() as u32;
        if zeros >= 2 {
            return from + zeros;
        }
        let at = known.code.padding_end_by(&mut self.reader, from, NOWHERE);
        if at > from || at >= end {
            if at < end && !known.recipes.is_seen(at) && !known.code.known.get(at) {
                self.code(at, round);
            } else if at < end && known.recipes.is_seen(at) {
                self.padding.insert(from);
            }
            return at.max(from + 1);
        }
        self.code(at, round);
        // Skips code that was not understood, up to where control does not fall through.
        let known = &self.frames.known;
        let Some(mut instructions) = Instructions::new(&known.code.code_map, at) else { return NOWHERE };
        let mut next = at;
        while next < end && !known.recipes.is_seen(next) {
            let Some(instruction) = instructions.read() else { return next + 1 };
            let flow = instructions.flow_of(&instruction, &known.code.code_map);
            next = instructions.position();
            let ends = match flow {
                Flow::Jump(_) | Flow::JumpIndirect | Flow::Return | Flow::Stop => true,
                Flow::Call(target) => !known.code.returns(target),
                _ => false,
            };
            if ends || self.begins_surely(next) {
                break;
            }
        }
        next
    }

    /// Examines code whose address is taken, in data or by an instruction: a procedure, or a label inside one.
    pub(crate) fn pointed_code(&mut self, at: u32) {
        let Some(inferred) = self.frames.infer_from(at, MAX_INSTRUCTIONS, true) else { return };
        let misaligned = inferred.call_offset().is_some() && !inferred.is_aligned_as_entry();
        if !self.follow_solved(at, &inferred) && !inferred.has_learned && !inferred.uses_saved && !misaligned {
            self.frames.begin(at, State::at_entry());
        }
    }

    /// Whether a procedure begins at `at` beyond doubt.
    fn begins_surely(&self, at: u32) -> bool {
        let code = &self.frames.known.code;
        if !code.sweep.behind_ends.get(at) {
            return false;
        }
        let bytes = code.code_map.bytes(at);
        is_prologue(bytes) && !is_landing_mark(bytes) && (code.code_map.is_aligned(at) || is_sure_prologue(bytes))
    }

    /// Examines code that nothing leads to, at `at`.
    fn code(&mut self, at: u32, round: Round) {
        let code_map = &self.frames.known.code.code_map;
        let is_aligned = code_map.is_aligned(at);
        if let Some(state) = linkage_stub::entry_state(code_map.bytes(at)) {
            return self.frames.begin(at, state);
        }
        if self.begins_surely(at) {
            return self.frames.begin(at, State::at_entry());
        }
        if self.garbage.get(at) {
            return;
        }
        let inferred = self.frames.infer_from(at, MAX_INSTRUCTIONS, round < Round::Likely);
        let Some(inferred) = inferred else { return };
        if inferred.meets_garbage && !inferred.has_learned {
            // Data among the code: it is not tried again.
            self.garbage.insert(at);
        }
        if self.follow_solved(at, &inferred) || inferred.has_learned || round == Round::Certain {
            return;
        }
        let is_like_entry = !inferred.uses_saved && inferred.is_aligned_as_entry();
        let is_inside = inferred.uses_saved
            || inferred.joins_likely_code
            || (inferred.call_offset().is_some() && !inferred.is_aligned_as_entry());
        if is_inside && let Some((owner, state)) = self.inner_state(at, &inferred) {
            self.frames.follow_guess(owner, at, state);
            return self.frames.follow_starts();
        }
        let may_begin = is_aligned || begins_probably(&self.frames.known.code.code_map, at);
        if round >= Round::Likely && may_begin && is_like_entry {
            self.frames.begin(at, State::at_entry());
        }
    }

    /// Follows control from `at`, if `inferred` has a state with a recipe. Returns whether it has.
    fn follow_solved(&mut self, at: u32, inferred: &Inference) -> bool {
        let Some(state) = inferred.state().filter(has_recipe) else { return false };
        if state.is_like_entry() && !inferred.uses_saved {
            self.frames.begin(at, State::at_entry());
        } else {
            // It belongs to the code before it if that has the same frame.
            let landing = |owner: u32| self.frames.known.landing_state(owner, None);
            let owner = self
                .owner_of_gap(at)
                .filter(|&owner| landing(owner).is_some_and(|landing| has_same_frame(&landing, &state)));
            self.frames.follow_for(owner.unwrap_or(at), at, state);
            self.frames.follow_starts();
        }
        true
    }

    /// The owner and state of code in the middle of a procedure: a label of one of its jumps that could not be
    /// followed, or a landing pad of one of its calls.
    fn inner_state(&mut self, at: u32, inferred: &Inference) -> Option<(u32, State)> {
        let owner = self.owner_of_gap(at)?;
        let known = &self.frames.known;
        if known.pointed.get(at)
            && let Some(state) = known.procedures.lost_jumps.get(&owner)
        {
            return Some((owner, State::clone(state)));
        }
        Some((owner, known.landing_state(owner, inferred.call_offset())?))
    }

    /// The owner of the code on both sides of a gap; or of the code before it, if no procedure begins between that
    /// owner and the gap.
    fn owner_of_gap(&self, at: u32) -> Option<u32> {
        let known = &self.frames.known;
        let (sorted, recent) = known.procedures.stretches.split_at_checked(known.procedures.sorted)?;
        let after = sorted.partition_point(|owned| owned.0 <= at);
        let mut before = after.checked_sub(1).and_then(|before| sorted.get(before)).copied();
        let next = sorted.get(after);
        // Code followed in this round.
        for &stretch in recent.iter().rev().take(MAX_RECENT).filter(|stretch| stretch.0 <= at) {
            before = before.max(Some(stretch));
        }
        let owner = before?.2;
        if next.is_some_and(|next| next.2 == owner) {
            return Some(owner);
        }
        if self.is_awaited(before?.1..next.map_or(NOWHERE, |next| next.0), at) {
            return None;
        }
        // Cold parts of procedures follow each other without padding.
        if known.recipes.is_seen(at.saturating_sub(1)) && !known.begins.starts.get(at) {
            return Some(owner);
        }
        let is_inside = owner <= at
            && known.begins.starts.next(owner + 1, at + 1).is_none()
            && sorted[..after].iter().rev().take(MAX_STRETCHES).take_while(|o| o.0 > owner).all(|o| o.2 == owner)
            && next.is_none_or(|next| next.0 == next.2);
        is_inside.then_some(owner)
    }

    /// Whether a jump from elsewhere, not yet followed, leads into this gap, up to `at`: following it will show more.
    fn is_awaited(&self, gap: Range<u32>, at: u32) -> bool {
        let first = self.jumpers.partition_point(|jumper| jumper.0 < gap.start);
        let jumpers = self.jumpers.get(first..).unwrap_or(&[]).iter();
        jumpers
            .take(MAX_STRETCHES)
            .take_while(|jumper| jumper.0 <= at)
            .any(|jumper| !gap.contains(&jumper.1) && !self.frames.known.recipes.is_seen(jumper.0))
    }
}

/// Whether code whose address is taken begins like a procedure.
pub(crate) fn begins_probably(code_map: &CodeMap<'_>, at: u32) -> bool {
    let bytes = code_map.bytes(at);
    is_prologue(bytes) && !is_landing_mark(bytes)
}

/// Whether rsp or rbp, or both, are as far from the CFA in one state as in the other.
fn has_same_frame(a: &State, b: &State) -> bool {
    let known = |state: &State, register| Some(state.get(register)).filter(|value| value.base() == Some(Base::CFA));
    let both = [RSP, RBP].map(|register| known(a, register).zip(known(b, register)));
    both.iter().any(Option::is_some) && both.iter().flatten().all(|(a, b)| a == b)
}

/// Whether the bytes begin with `endbr64` but not like a procedure beyond doubt: procedures begin with it, and landing
/// pads too.
fn is_landing_mark(bytes: &[u8]) -> bool {
    begins_with_endbr64(bytes) && !is_sure_prologue(behind_endbr64(bytes))
}
