//! Code that no control flow leads to: what may it be?
//! Knows nothing of how control flows where it is known.

use callpath_format::recipe::Recipe;
use iced_x86::Instruction;

use crate::decode::{Flow, Instructions, flow_of, is_prologue, is_sure_prologue};
use crate::flow::Module;
use crate::idioms;
use crate::places::{NOWHERE, Part};
use crate::state::State;
use crate::trial::Trial;

/// A procedure of more stretches is not looked through.
const MAX_STRETCHES: usize = 4096;

impl Module<'_> {
    /// Looks at every stretch that has not been seen, in order.
    pub(crate) fn fill_gaps(&mut self) {
        let parts: Vec<Part<'_>> = self.places.parts().to_vec();
        for part in parts {
            let mut at = part.first;
            while at < part.end() {
                if self.known.get(at) {
                    at = self.known.next_absent(at, part.end()).unwrap_or(part.end());
                } else if self.is_seen(at) {
                    at += 1;
                } else {
                    at = self.gap(at, part.end());
                }
            }
        }
    }

    /// One gap, which begins at `from`; where to look on.
    fn gap(&mut self, from: u32, end: u32) -> u32 {
        let bytes = self.places.bytes(from);
        let zeros = bytes.iter().take_while(|&&byte| byte == 0).count() as u32;
        if zeros >= 2 {
            return from + zeros;
        }
        let at = self.padding_end(from);
        if at > from || at >= end {
            if at < end && !self.is_seen(at) && !self.known.get(at) {
                self.gap_code(at);
            }
            return at.max(from + 1);
        }
        self.gap_code(at);
        // What was not understood is passed, up to where control does not fall to.
        let mut next = at;
        while next < end && !self.is_seen(next) {
            let mut instruction = Instruction::default();
            let Some(mut instructions) = Instructions::new(&self.places, next) else { return NOWHERE };
            if !instructions.decode(&mut instruction) || instruction.is_invalid() {
                return next + 1;
            }
            next = instructions.position();
            if matches!(
                flow_of(&instruction, &self.places),
                Flow::Jump(_) | Flow::JumpIndirect | Flow::Return | Flow::Stop
            ) {
                break;
            }
        }
        next
    }

    /// Code that nothing leads to begins at `at`.
    fn gap_code(&mut self, at: u32) {
        let bytes = self.places.bytes(at);
        if let Some(state) = idioms::linkage_stub(bytes) {
            return self.begin(at, state);
        }
        let may_begin = self.places.is_aligned(at) || is_sure_prologue(bytes);
        if may_begin && is_prologue(bytes) && !is_landing_mark(bytes) {
            return self.begin(at, State::at_entry());
        }
        if self.trial_budget == 0 {
            return;
        }
        self.trial = Some(Trial::new());
        self.run(at, State::symbolic());
        let Some(trial) = self.trial.take() else { return };
        self.trial_budget = self.trial_budget.saturating_sub(trial.followed());
        match trial.state() {
            Some(state) if state.is_like_entry() && !trial.uses_saved => self.begin(at, State::at_entry()),
            Some(state) => {
                self.follow(at, state);
                self.follow_found();
            }
            None if trial.has_learned => {}
            None if may_begin && !trial.uses_saved && trial.is_aligned_as_entry() => {
                self.begin(at, State::at_entry());
            }
            None => self.landing_pad(at),
        }
    }

    /// Code that is entered from nowhere and leads nowhere, in the middle of a procedure: an exception lands here, from one
    /// of the procedure's calls. If all of them have the same frame, it is the frame here.
    fn landing_pad(&mut self, at: u32) {
        let Some(recipe) = self.owner_of_gap(at).and_then(|root| self.calls.get(&root)).filter(|calls| calls.is_unique)
        else {
            return;
        };
        let Some(recipe) = self.pool.recipes.get(usize::from(recipe.recipe)).filter(|r| **r != Recipe::UNKNOWN) else {
            return;
        };
        let mut trial = Trial::new();
        trial.learn(&State::symbolic(), recipe);
        if let Some(state) = trial.state() {
            self.follow(at, state);
            self.follow_found();
        }
    }

    /// The root from which the code on both sides of a gap was followed; or that before it, if no procedure begins
    /// between that root and the gap.
    fn owner_of_gap(&mut self, at: u32) -> Option<u32> {
        if !self.is_owned_sorted {
            self.owned.sort_unstable();
            self.is_owned_sorted = true;
            self.owned_sorted = self.owned.len();
        }
        let sorted = self.owned.get(..self.owned_sorted)?;
        let after = sorted.partition_point(|owned| owned.0 <= at);
        let before = sorted.get(after.checked_sub(1)?)?;
        let root = before.2;
        let next = sorted.get(after);
        let is_surrounded = next.is_some_and(|next| next.2 == root);
        let is_inside = root <= at
            && self.places.is_aligned(root)
            && self.starts.next(root + 1, at + 1).is_none()
            && sorted[..after].iter().rev().take(MAX_STRETCHES).take_while(|o| o.0 > root).all(|o| o.2 == root)
            && next.is_none_or(|next| next.2 == root || (next.0 == next.2 && self.places.is_aligned(next.0)));
        (is_inside || is_surrounded).then_some(root)
    }

    fn begin(&mut self, at: u32, state: State) {
        self.starts.insert(at);
        self.follow(at, state);
        self.follow_found();
    }
}

/// `endbr64` alone: procedures begin with it, landing pads too.
fn is_landing_mark(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) && !is_sure_prologue(bytes.get(4..).unwrap_or(&[]))
}
