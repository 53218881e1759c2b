//! Code that no control flow leads to: what may it be?
//! Knows nothing of how control flows where it is known.
//!
//! Gaps are looked at in several rounds, from what is certain to what is likely: the frame of one is often the key to
//! that of another.

use std::ops::Range;

use crate::decode::{Flow, Instructions, is_prologue, is_sure_prologue};
use crate::idioms;
use crate::module::Module;
use crate::places::{NOWHERE, Part};
use crate::recipe::has_recipe;
use crate::state::{RBP, RSP, State};
use crate::sweep::{Event, EventKind};
use crate::trial::Trial;
use crate::value::Base;

/// A procedure of more stretches is not looked through.
const MAX_STRETCHES: usize = 4096;
/// So many stretches that were followed last are looked through: gaps come in order.
const MAX_RECENT: usize = 64;
/// So many instructions of a gap are tried.
const MAX_TRIAL: u32 = 400;

/// What is believed in a round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Round {
    /// Equations, and beginnings as compilers write them.
    Certain,
    /// Also: what lies inside of a procedure belongs to it.
    Owned,
    /// Also: what lies where a procedure may begin, and does nothing that one would not do, begins one.
    Likely,
}

impl Module<'_> {
    /// Looks at every stretch that has not been seen, in order.
    pub(crate) fn fill_gaps(&mut self) {
        let parts: Vec<Part<'_>> = self.places.parts().to_vec();
        let unseen =
            |event: &&Event| matches!(event.kind, EventKind::Branch | EventKind::Jump) && !self.is_seen(event.target);
        self.jumpers = self.sweep.events.iter().filter(unseen).map(|event| (event.target, event.at)).collect();
        self.jumpers.sort_unstable();
        for round in [Round::Certain, Round::Owned, Round::Owned, Round::Likely] {
            // As many as there may be, once.
            self.trial_budget = self.places.len();
            // Most of it is in order already, which a merging sort is quick with.
            self.owned.sort();
            self.owned_sorted = self.owned.len();
            for part in &parts {
                let mut at = part.first;
                while at < part.end() {
                    if self.known.get(at) {
                        at = self.known.next_absent(at, part.end()).unwrap_or(part.end());
                    } else if self.is_seen(at) {
                        at = self.next_unseen(at, part.end());
                    } else {
                        at = self.gap(at, part.end(), round);
                    }
                }
            }
        }
    }

    /// One gap, which begins at `from`; where to look on.
    fn gap(&mut self, from: u32, end: u32, round: Round) -> u32 {
        if self.sweep.data.get(from) {
            let data_end = self.sweep.data.next_absent(from, end).unwrap_or(end);
            let code = self.known.next(from, data_end).unwrap_or(data_end);
            return self.next_seen(from, code);
        }
        let bytes = self.places.bytes(from);
        let zeros = bytes.iter().take_while(|&&byte| byte == 0).count() as u32;
        if zeros >= 2 {
            return from + zeros;
        }
        let at = self.padding_end(from);
        if at > from || at >= end {
            if at < end && !self.is_seen(at) && !self.known.get(at) {
                self.gap_code(at, round);
            }
            return at.max(from + 1);
        }
        self.gap_code(at, round);
        // What was not understood is passed, up to where control does not fall to.
        let Some(mut instructions) = Instructions::new(&self.places, at) else { return NOWHERE };
        let mut next = at;
        while next < end && !self.is_seen(next) {
            let Some(instruction) = instructions.read() else { return next + 1 };
            let flow = instructions.flow_of(&instruction, &self.places);
            next = instructions.position();
            let ends = match flow {
                Flow::Jump(_) | Flow::JumpIndirect | Flow::Return | Flow::Stop => true,
                Flow::Call(target) => target != NOWHERE && !self.returns.of(&self.sweep.events, target),
                _ => false,
            };
            if ends || self.begins_surely(next) {
                break;
            }
        }
        next
    }

    /// Follows control from `at` without keeping anything, to learn what must hold there.
    pub(crate) fn try_from(&mut self, at: u32, limit: u32, is_strict: bool) -> Option<Trial> {
        if self.trial_budget == 0 {
            return None;
        }
        self.trial = Some(Trial::new(limit.min(self.trial_budget), is_strict));
        self.run(at, &State::symbolic());
        self.end_trial()
    }

    /// The same, slowly: states settle before anything is learned, so that what is learned of a loop holds each time round.
    pub(crate) fn try_settled_from(&mut self, at: u32, limit: u32) -> Option<Trial> {
        if self.trial_budget == 0 {
            return None;
        }
        let mut trial = Trial::new(limit.min(self.trial_budget), false);
        trial.is_unsettled = true;
        self.trial = Some(trial);
        self.run(at, &State::symbolic());
        if let Some(trial) = &mut self.trial {
            trial.settle();
        }
        self.run_again(at);
        self.end_trial()
    }

    fn end_trial(&mut self) -> Option<Trial> {
        let trial = self.trial.take()?;
        self.trial_budget = self.trial_budget.saturating_sub(trial.followed().max(1));
        Some(trial)
    }

    /// Code whose address is taken, in data or by an instruction: a procedure, or a label inside of one.
    pub(crate) fn pointed_code(&mut self, at: u32) {
        let Some(trial) = self.try_from(at, MAX_TRIAL, true) else { return };
        let misaligned = trial.call_offset().is_some() && !trial.is_aligned_as_entry();
        if !self.follow_solved(at, &trial) && !trial.has_learned && !trial.uses_saved && !misaligned {
            self.begin(at, State::at_entry());
        }
    }

    /// Code whose address is taken begins like a procedure.
    pub(crate) fn begins_probably(&self, at: u32) -> bool {
        let bytes = self.places.bytes(at);
        is_prologue(bytes) && !is_landing_mark(bytes)
    }

    /// Procedures begin like this, and nothing else does.
    fn begins_surely(&self, at: u32) -> bool {
        if !self.sweep.behind_ends.get(at) {
            return false;
        }
        let bytes = self.places.bytes(at);
        is_prologue(bytes) && !is_landing_mark(bytes) && (self.places.is_aligned(at) || is_sure_prologue(bytes))
    }

    /// Code that nothing leads to begins at `at`.
    fn gap_code(&mut self, at: u32, round: Round) {
        let bytes = self.places.bytes(at);
        if let Some(state) = idioms::linkage_stub(bytes) {
            return self.begin(at, state);
        }
        if self.begins_surely(at) {
            return self.begin(at, State::at_entry());
        }
        if self.garbage.get(at) {
            return;
        }
        let Some(trial) = self.try_from(at, MAX_TRIAL, round < Round::Likely) else { return };
        if trial.meets_garbage && !trial.has_learned {
            // Data between the code: once is enough.
            self.garbage.insert(at);
        }
        if self.follow_solved(at, &trial) || trial.has_learned || round == Round::Certain {
            return;
        }
        let is_like_entry = !trial.uses_saved && trial.is_aligned_as_entry();
        let is_inside = trial.uses_saved
            || trial.joins_likely_code
            || (trial.call_offset().is_some() && !trial.is_aligned_as_entry());
        if is_inside && let Some((owner, state)) = self.inner_state(at, &trial) {
            self.follow_guess(owner, at, state);
            return self.follow_found();
        }
        let may_begin = self.places.is_aligned(at) || self.begins_probably(at);
        if round >= Round::Likely && may_begin && is_like_entry {
            self.begin(at, State::at_entry());
        }
    }

    /// Follows control from `at`, if the trial told what holds there.
    fn follow_solved(&mut self, at: u32, trial: &Trial) -> bool {
        let Some(state) = trial.state().filter(has_recipe) else { return false };
        if state.is_like_entry() && !trial.uses_saved {
            self.begin(at, State::at_entry());
        } else {
            // It belongs to the code before it, if that has the same frame.
            let owner = self.owner_of_gap(at).filter(|&owner| {
                self.landing_state(owner, None).is_some_and(|landing| has_same_frame(&landing, &state))
            });
            self.follow_for(owner.unwrap_or(at), at, state);
            self.follow_found();
        }
        true
    }

    /// In the middle of a procedure: a label that one of its jumps leads to which nobody could follow, or a place where an
    /// exception lands that one of its calls throws. Whose it is, and what holds there.
    fn inner_state(&mut self, at: u32, trial: &Trial) -> Option<(u32, State)> {
        let owner = self.owner_of_gap(at)?;
        if self.pointed.get(at)
            && let Some(state) = self.lost_jumps.get(&owner)
        {
            return Some((owner, State::clone(state)));
        }
        Some((owner, self.landing_state(owner, trial.call_offset())?))
    }

    /// The owner of the code on both sides of a gap; or of that before it, if no procedure begins between that owner and the
    /// gap.
    fn owner_of_gap(&self, at: u32) -> Option<u32> {
        let (sorted, recent) = self.owned.split_at_checked(self.owned_sorted)?;
        let after = sorted.partition_point(|owned| owned.0 <= at);
        let mut before = after.checked_sub(1).and_then(|before| sorted.get(before)).copied();
        let next = sorted.get(after);
        // What was followed in this round.
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
        // In the cold parts of procedures nothing is between one's code and that of the next.
        if self.is_seen(at.saturating_sub(1)) && !self.starts.get(at) {
            return Some(owner);
        }
        let is_inside = owner <= at
            && self.starts.next(owner + 1, at + 1).is_none()
            && sorted[..after].iter().rev().take(MAX_STRETCHES).take_while(|o| o.0 > owner).all(|o| o.2 == owner)
            && next.is_none_or(|next| next.0 == next.2);
        is_inside.then_some(owner)
    }

    /// Into this gap, up to `at`, leads a jump from elsewhere that was not followed yet: it will say more.
    fn is_awaited(&self, gap: Range<u32>, at: u32) -> bool {
        let first = self.jumpers.partition_point(|jumper| jumper.0 < gap.start);
        let jumpers = self.jumpers.get(first..).unwrap_or(&[]).iter();
        jumpers
            .take(MAX_STRETCHES)
            .take_while(|jumper| jumper.0 <= at)
            .any(|jumper| !gap.contains(&jumper.1) && !self.is_seen(jumper.0))
    }

    fn begin(&mut self, at: u32, state: State) {
        self.starts.insert(at);
        self.block_ends.insert(at);
        self.follow(at, state);
        self.follow_found();
    }
}

/// rsp or rbp, or both, are as far from the CFA in one state as in the other.
fn has_same_frame(a: &State, b: &State) -> bool {
    let known = |state: &State, register| Some(state.get(register)).filter(|value| value.base() == Some(Base::CFA));
    let both = [RSP, RBP].map(|register| known(a, register).zip(known(b, register)));
    both.iter().any(Option::is_some) && both.iter().flatten().all(|(a, b)| a == b)
}

/// `endbr64` alone: procedures begin with it, landing pads too.
fn is_landing_mark(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) && !is_sure_prologue(bytes.get(4..).unwrap_or(&[]))
}
