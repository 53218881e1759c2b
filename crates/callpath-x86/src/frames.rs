//! Unwind recipes from machine code: an abstract frame at every instruction that control is known to reach.
//!
//! The analysis has phases. [`crate::code::ModuleCode`] is the code, read. [`Frames`] follows each procedure from its
//! start ([`recording::Recording`]) and repairs frames that it lost, by constraints. [`gaps::Gaps`] then examines code
//! that no control flow leads to: it infers from where such code leads what must hold at its beginning
//! ([`inference::Inference`]). All of them share [`knowledge::Knowledge`].

mod calls;
mod clobbers;
mod constraint;
pub(crate) mod gaps;
mod inference;
mod jumps;
pub(crate) mod knowledge;
pub(crate) mod pool;
mod purpose;
pub(crate) mod recipe_map;
mod recording;
mod walk;

use constraint::Constraint;
use inference::Inference;
use knowledge::Knowledge;
use pool::UNKNOWN;
use purpose::Purpose;
use recording::Recording;
use walk::{Arrival, Walk};

use crate::idioms::linkage_stub;
use crate::recipe::has_recipe;
use crate::state::{RSP, State};
use crate::value::{Base, Value};
use crate::worklist::Discovered;

/// The most times that a procedure is followed anew.
const MAX_ROUNDS: u32 = 4;
/// The most blocks of one procedure at which a lost frame is inferred, in a round.
const MAX_LOST_FRAMES: usize = 16;
/// The most instructions followed from each.
const MAX_INSTRUCTIONS: u32 = 4000;

/// The frames of a module's code, as far as control was followed.
pub(crate) struct Frames<'a> {
    pub(crate) known: Knowledge<'a>,
    /// The blocks followed last.
    blocks: Discovered<Arrival>,
    /// How many more instructions may be followed for inference.
    inference_budget: u32,
}

impl<'a> Frames<'a> {
    pub(crate) fn new(known: Knowledge<'a>) -> Frames<'a> {
        let mut frames = Frames { known, blocks: Discovered::default(), inference_budget: 0 };
        frames.renew_budget();
        frames
    }

    /// Allows as many instructions for inference as the code has bytes.
    fn renew_budget(&mut self) {
        self.inference_budget = self.known.code.code_map.len();
    }

    /// Adds a procedure that begins at `at`, in `state`.
    fn begin(&mut self, at: u32, state: State) {
        self.known.begins.add_start(at);
        self.follow(at, state);
        self.follow_starts();
    }

    /// Follows all unfollowed starts.
    pub(crate) fn follow_starts(&mut self) {
        while let Some(start) = self.known.begins.unfollowed.pop() {
            let bytes = self.known.code.code_map.bytes(start);
            self.follow(start, linkage_stub::entry_state(bytes).unwrap_or_else(State::at_entry));
        }
    }

    /// Follows control from a procedure's start, in `state`, unless control has reached it before.
    pub(crate) fn follow(&mut self, start: u32, state: State) {
        self.record(Recording::new(start, start), state);
    }

    /// As `follow`, for code at `root` that belongs to `owner`.
    fn follow_for(&mut self, owner: u32, root: u32, state: State) {
        self.record(Recording::new(owner, root), state);
    }

    /// As `follow_for`, where `state` is only likely: better knowledge overrides it.
    fn follow_guess(&mut self, owner: u32, root: u32, state: State) {
        let mut recording = Recording::new(owner, root);
        recording.is_guess = true;
        self.record(recording, state);
    }

    /// Follows control, and repeats it if the procedure does not end as it must.
    ///
    /// Tallent et al. 2009, section 2.2, check at each return that the return address is at rsp, and repair recipes
    /// backwards where it is not. Here there are two such repairs: of a start that is entered with more on the stack;
    /// and of code in the middle where the frame was lost (a loop that lowers rsp in each iteration), by inference from
    /// there to a return.
    fn record(&mut self, mut recording: Recording, mut state: State) {
        let root = recording.root;
        if self.known.recipes.is_seen(root) || self.known.code.known.get(root) {
            return;
        }
        recording.begun = self.known.procedures.stretches.len();
        self.walk(root, &mut recording).run(&state);
        if let Some(surplus) = recording.ends.surplus()
            // A called procedure has the return address at rsp.
            && !self.known.code.sweep.call_targets.get(root)
            && let Value::Stack { base: Base::CFA, offset } = state.get(RSP)
        {
            state.set(RSP, Value::cfa(offset - surplus), root);
            self.record_again(&mut recording, &state);
        }
        if recording.ends.are_wrong_behind_calls() || recording.ends.may_lose_arguments() {
            recording.distrusts_calls = true;
            self.record_again(&mut recording, &state);
        }
        for _ in 0..MAX_ROUNDS {
            if !recording.has_unknown || !self.infer_constraints(&mut recording) {
                return;
            }
            self.record_again(&mut recording, &state);
        }
    }

    /// Discards the recording, and follows control from the root once more.
    fn record_again(&mut self, recording: &mut Recording, state: &State) {
        let root = recording.root;
        self.known.forget_stretches(recording.begun);
        recording.ends = recording::Ends::default();
        if recording.owner == root {
            self.known.procedures.calls.remove(&root);
            self.known.procedures.lost_jumps.remove(&root);
        }
        self.walk(root, recording).run(state);
    }

    fn walk<'w, P: Purpose>(&'w mut self, root: u32, purpose: &'w mut P) -> Walk<'w, 'a, P> {
        Walk::new(&mut self.known, &mut self.blocks, purpose, root)
    }

    /// Infers constraints at blocks whose frame is not known. Returns whether there is a new one.
    fn infer_constraints(&mut self, recording: &mut Recording) -> bool {
        let is_lost = |block: u32, arrival: &Arrival| {
            self.known.recipes.number_at(block) == Some(UNKNOWN) && !has_recipe(&arrival.state)
        };
        let blocks = self.blocks.in_order().into_iter();
        let lost = blocks.filter(|(block, arrival)| is_lost(*block, arrival));
        let lost: Vec<(u32, bool)> =
            lost.map(|(block, arrival)| (block, arrival.meets_entry)).take(MAX_LOST_FRAMES).collect();
        let before = recording.constraints.len();
        for (block, meets_entry) in lost {
            if recording.constraints.iter().any(|constraint| constraint.block == block) {
                continue;
            }
            let Some(limit) = self.inference_limit(MAX_INSTRUCTIONS) else { break };
            let inference = Inference::unsettled(limit, recording.distrusts_calls).may_end_at_once(meets_entry);
            let inferred = self.infer_settled_from(block, inference);
            recording.constraints.extend(inferred.facts().into_iter().map(|fact| Constraint { block, fact }));
        }
        recording.constraints.len() > before
    }

    /// Follows control from `at` without recording, to infer what must hold there.
    fn infer_from(&mut self, at: u32, limit: u32, is_strict: bool) -> Option<Inference> {
        let limit = self.inference_limit(limit)?;
        let mut inference = Inference::new(limit, is_strict);
        self.walk(at, &mut inference).run(&State::symbolic());
        Some(self.charge(inference))
    }

    /// As `infer_from`, but slower: states settle before anything is learned, so what is learned in a loop holds in
    /// each iteration.
    fn infer_settled_from(&mut self, at: u32, mut inference: Inference) -> Inference {
        self.walk(at, &mut inference).run(&State::symbolic());
        inference.settle();
        self.walk(at, &mut inference).run_again();
        self.charge(inference)
    }

    fn inference_limit(&self, limit: u32) -> Option<u32> {
        (self.inference_budget > 0).then(|| limit.min(self.inference_budget))
    }

    fn charge(&mut self, inference: Inference) -> Inference {
        self.inference_budget = self.inference_budget.saturating_sub(inference.followed().max(1));
        inference
    }
}
