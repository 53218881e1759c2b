//! What is known of a module's code while it is being analysed, by position.
//! Knows nothing of how it came to be known.

use rustc_hash::FxHashMap;

use crate::bitmap::Bitmap;
use crate::calls::Calls;
use crate::claims::Claims;
use crate::clobbers::Clobbers;
use crate::decode::{Flow, Instructions};
use crate::places::Places;
use crate::pool::{Pool, UNKNOWN, UNSEEN};
use crate::repair::{Axiom, Ends};
use crate::returns::Returns;
use crate::state::State;
use crate::sweep::Sweep;
use crate::tables::Data;
use crate::trial::Trial;

/// A byte inside of an instruction that was reached.
pub(crate) const INSIDE: u16 = u16::MAX;

/// What is known of a module's code while it is being analysed.
pub(crate) struct Module<'a> {
    /// What is to be judged.
    pub(crate) claims: Option<Claims<'a>>,
    pub(crate) places: Places<'a>,
    pub(crate) data: Data<'a>,
    pub(crate) sweep: Sweep,
    pub(crate) returns: Returns,
    /// Code whose recipes are known otherwise.
    pub(crate) known: Bitmap,
    /// Sorted.
    pub(crate) no_return_slots: Vec<u64>,
    /// Where procedures begin: control from elsewhere comes here as to a procedure, or not at all.
    pub(crate) starts: Bitmap,
    /// Where control that runs on from instruction to instruction ends a block: jumps' targets, starts, known code.
    pub(crate) block_ends: Bitmap,
    /// Code whose address is taken.
    pub(crate) pointed: Bitmap,
    /// For each position, the number of its recipe; [`INSIDE`]; or [`UNSEEN`] where control has not come.
    pub(crate) recipes: Vec<u16>,
    pub(crate) pool: Pool,
    /// Starts that were found and not yet followed.
    pub(crate) found: Vec<u32>,
    /// Where control has come, and what holds there: `states` are indices in `arrivals`, of which so many are in use as
    /// there are `states`. The others wait to be used again.
    pub(crate) states: FxHashMap<u32, u32>,
    pub(crate) arrivals: Vec<Arrival>,
    pub(crate) pending: Vec<u32>,
    /// Blocks that control reaches only behind a call, which may not come back after all.
    pub(crate) soft: Bitmap,
    /// The block that is being followed is one.
    pub(crate) in_soft_block: bool,
    /// What is being followed began with a guess.
    pub(crate) is_guess: bool,
    /// What was learned to hold where control comes to.
    pub(crate) axioms: Vec<Axiom>,
    /// So many instructions may still be followed in trials.
    pub(crate) trial_budget: u32,
    /// How the procedure that is being followed ends.
    pub(crate) ends: Ends,
    /// The procedure does not end as it should: where rsp is behind a call is not known.
    pub(crate) distrusts_calls: bool,
    /// How often an instruction was followed whose frame is not known.
    pub(crate) unknown_instructions: u64,
    /// The procedure that the code being followed belongs to.
    pub(crate) owner: u32,
    /// Stretches that were followed, and to whom they belong: `(from, to, owner)`.
    pub(crate) owned: Vec<(u32, u32, u32)>,
    /// How many of them, from the first on, are sorted.
    pub(crate) owned_sorted: usize,
    /// Gaps in which data lies, it seems.
    pub(crate) garbage: Bitmap,
    /// Branches and jumps into gaps: `(to, from)`, sorted.
    pub(crate) jumpers: Vec<(u32, u32)>,
    /// The frames at each owner's calls.
    pub(crate) calls: FxHashMap<u32, Calls>,
    /// What holds at those of an owner's jumps of which nobody knows where they lead.
    pub(crate) lost_jumps: FxHashMap<u32, Box<State>>,
    pub(crate) clobbers: Clobbers,
    /// Control is followed to learn what held at the start, and nothing is kept.
    pub(crate) trial: Option<Trial>,
}

/// The index of the first number for which `is_found` holds. Looks at many at once.
#[inline]
pub(crate) fn first_where(numbers: &[u16], is_found: impl Fn(u16) -> bool) -> Option<usize> {
    const STEP: usize = 16;
    let (steps, _) = numbers.as_chunks::<STEP>();
    // No short cut inside of a step, so that it becomes a few vector instructions.
    let is_in = |step: &&[u16; STEP]| step.iter().fold(false, |found, &number| found | is_found(number));
    let skipped = steps.iter().take_while(|step| !is_in(step)).count() * STEP;
    let rest = numbers.get(skipped..)?;
    rest.iter().position(|&number| is_found(number)).map(|index| skipped + index)
}

/// How control came to a place.
pub(crate) struct Arrival {
    pub(crate) state: State,
    /// Only behind a call, which may not come back after all.
    pub(crate) is_soft: bool,
    /// How far it was followed from here already.
    pub(crate) end: u32,
}

impl<'a> Module<'a> {
    pub(crate) fn new(
        places: Places<'a>,
        data: Data<'a>,
        sweep: Sweep,
        returns: Returns,
        known: Bitmap,
        starts: Bitmap,
        no_return_slots: Vec<u64>,
    ) -> Module<'a> {
        let len = places.len();
        let mut block_ends = sweep.jump_targets.clone();
        block_ends.insert_all(&starts);
        block_ends.insert_all(&known);
        Module {
            claims: None,
            places,
            data,
            sweep,
            returns,
            known,
            no_return_slots,
            starts,
            block_ends,
            pointed: Bitmap::new(len),
            recipes: vec![UNSEEN; len as usize],
            pool: Pool::new(),
            found: Vec::new(),
            states: FxHashMap::default(),
            arrivals: Vec::new(),
            pending: Vec::new(),
            soft: Bitmap::new(len),
            in_soft_block: false,
            is_guess: false,
            axioms: Vec::new(),
            // As many as there may be, once.
            trial_budget: len,
            ends: Ends::default(),
            distrusts_calls: false,
            unknown_instructions: 0,
            owner: 0,
            owned: Vec::new(),
            owned_sorted: 0,
            garbage: Bitmap::new(len),
            jumpers: Vec::new(),
            calls: FxHashMap::default(),
            lost_jumps: FxHashMap::default(),
            clobbers: Clobbers::default(),
            trial: None,
        }
    }

    /// The number of the recipe of an instruction that was followed.
    pub(crate) fn recipe_number(&self, at: u32) -> Option<u16> {
        self.recipes.get(at as usize).copied().filter(|&recipe| !matches!(recipe, UNSEEN | INSIDE))
    }

    /// An instruction here has been followed. Where that gave nothing, a trial may go the same way.
    pub(crate) fn is_followed(&self, at: u32) -> bool {
        self.recipe_number(at).is_some_and(|recipe| recipe != UNKNOWN || self.trial.is_none())
    }

    /// Control has come to this position.
    pub(crate) fn is_seen(&self, at: u32) -> bool {
        self.recipes.get(at as usize).is_none_or(|&recipe| recipe != UNSEEN)
    }

    /// The first position from `at` up to `end` that control has not come to, or `end`.
    pub(crate) fn next_unseen(&self, at: u32, end: u32) -> u32 {
        let rest = self.recipes.get(at as usize..end as usize).unwrap_or(&[]);
        first_where(rest, |recipe| recipe == UNSEEN).map_or(end, |skipped| at + skipped as u32)
    }

    /// The first position from `at` up to `end` that control has come to, or `end`.
    pub(crate) fn next_seen(&self, at: u32, end: u32) -> u32 {
        let rest = self.recipes.get(at as usize..end as usize).unwrap_or(&[]);
        first_where(rest, |recipe| recipe != UNSEEN).map_or(end, |skipped| at + skipped as u32)
    }

    /// The recipe that holds before the `len` bytes of the instruction at `at`.
    pub(crate) fn mark(&mut self, at: u32, next: u32, recipe: u16) {
        if let Some((first, rest)) = self.recipes.get_mut(at as usize..next as usize).and_then(<[u16]>::split_first_mut)
        {
            *first = recipe;
            for inside in rest.iter_mut().filter(|inside| **inside == UNSEEN) {
                *inside = INSIDE;
            }
        }
    }

    /// Forgets the stretches that were followed from `root` since there were `begun` of them.
    pub(crate) fn forget_stretches(&mut self, root: u32, begun: usize) {
        for (from, to, _) in self.owned.split_off(begun) {
            if let Some(recipes) = self.recipes.get_mut(from as usize..to as usize) {
                recipes.fill(UNSEEN);
            }
        }
        self.ends = Ends::default();
        if self.owner == root {
            self.calls.remove(&root);
            self.lost_jumps.remove(&root);
        }
    }

    /// Forgets the recipes from `at` on, up to where control does not fall to or comes from elsewhere.
    pub(crate) fn forget_block(&mut self, at: u32) {
        let Some(mut instructions) = Instructions::new(&self.places, at) else { return };
        loop {
            let from = instructions.position();
            let joins = from != at && self.sweep.jump_targets.get(from) && !self.soft.get(from);
            if joins || !self.is_seen(from) {
                return;
            }
            let Some(instruction) = instructions.read() else { return };
            let next = instructions.position();
            if let Some(recipes) = self.recipes.get_mut(from as usize..next as usize) {
                recipes.fill(UNSEEN);
            }
            self.soft.remove(from);
            if !matches!(instructions.flow_of(&instruction, &self.places), Flow::Next | Flow::Branch(_) | Flow::Call(_))
            {
                return;
            }
        }
    }

    /// The first position from `at` on that is no padding.
    pub(crate) fn padding_end(&self, at: u32) -> u32 {
        let Some(mut instructions) = Instructions::new(&self.places, at) else { return at };
        loop {
            let at = instructions.position();
            if !instructions.read().is_some_and(|instruction| instruction.is_padding()) {
                return at;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_is_found_in_steps_and_behind_them() {
        for len in [0, 1, 15, 16, 17, 40] {
            let mut numbers = vec![7; len];
            assert_eq!(first_where(&numbers, |number| number == 3), None);
            for at in (0..len).rev() {
                numbers[at] = 3;
                assert_eq!(first_where(&numbers, |number| number == 3), Some(at));
            }
        }
    }
}
