//! What is known of a module's frames so far, by position and by procedure.

use rustc_hash::FxHashMap;

use super::calls::CallFrames;
use super::clobbers::Clobbers;
use super::recipe_map::RecipeMap;
use crate::bitmap::Bitmap;
use crate::code::ModuleCode;
use crate::code_map::NOWHERE;
use crate::cross_validation::CrossValidation;
use crate::decode::{Flow, Instructions};
use crate::recipe::recipe_of;
use crate::state::State;

/// What is known of a module's frames; it grows as control is followed through its code.
pub(crate) struct Knowledge<'a> {
    /// The code, read. It does not change.
    pub(crate) code: ModuleCode<'a>,
    /// Code whose address is taken. It does not change.
    pub(crate) pointed: Bitmap,
    pub(crate) begins: Beginnings,
    pub(crate) recipes: RecipeMap,
    pub(crate) procedures: Procedures,
    pub(crate) clobbers: Clobbers,
    /// The recipes of call frame information, to check against the code.
    pub(crate) cross_validation: Option<CrossValidation<'a>>,
}

/// Where blocks and procedures begin.
pub(crate) struct Beginnings {
    /// Where procedures begin: control reaches these from elsewhere as procedures, or not at all.
    pub(crate) starts: Bitmap,
    /// Where branches, jumps and jump tables lead.
    pub(crate) jump_targets: Bitmap,
    /// Where control that falls through ends a block: jumps' targets, starts, known code.
    pub(crate) block_ends: Bitmap,
    /// Starts that were not followed yet.
    pub(crate) unfollowed: Vec<u32>,
}

impl Beginnings {
    fn new(code: &ModuleCode<'_>) -> Beginnings {
        let mut starts = code.sure_starts.clone();
        for target in code.sweep.call_targets.range(0, code.code_map.len()) {
            if code.sweep.boundaries.get(target) {
                starts.insert(target);
            }
        }
        let jump_targets = code.sweep.jump_targets.clone();
        let mut block_ends = jump_targets.clone();
        block_ends.insert_all(&starts);
        block_ends.insert_all(&code.known);
        Beginnings { starts, jump_targets, block_ends, unfollowed: Vec::new() }
    }

    /// Adds a procedure that begins at `at`. Returns whether it is new.
    pub(crate) fn add_start(&mut self, at: u32) -> bool {
        self.block_ends.insert(at);
        self.starts.insert(at)
    }

    /// Adds a block that begins at `at`, the target of a jump.
    pub(crate) fn add_target(&mut self, at: u32) {
        self.jump_targets.insert(at);
        self.block_ends.insert(at);
    }
}

/// What is known of each procedure, by the position of its start.
#[derive(Default)]
pub(crate) struct Procedures {
    /// Stretches that were followed, and their owners: `(from, to, owner)`.
    pub(crate) stretches: Vec<(u32, u32, u32)>,
    /// How many of them, from the first on, are sorted.
    pub(crate) sorted: usize,
    /// The frames at its calls.
    pub(crate) calls: FxHashMap<u32, CallFrames>,
    /// The state at those of its jumps that could not be followed.
    pub(crate) lost_jumps: FxHashMap<u32, Box<State>>,
}

impl<'a> Knowledge<'a> {
    /// Begins with only the code. `pointed`: code whose address is taken.
    pub(crate) fn new(code: ModuleCode<'a>, pointed: &[u32]) -> Knowledge<'a> {
        let len = code.code_map.len();
        let mut is_pointed = Bitmap::new(len);
        for &at in pointed {
            is_pointed.insert(at);
        }
        Knowledge {
            begins: Beginnings::new(&code),
            code,
            pointed: is_pointed,
            recipes: RecipeMap::new(len),
            procedures: Procedures::default(),
            clobbers: Clobbers::default(),
            cross_validation: None,
        }
    }

    /// Makes `at` a start to follow.
    pub(crate) fn find(&mut self, at: u32) {
        if at != NOWHERE && self.begins.starts.insert(at) && !self.code.known.get(at) {
            self.begins.block_ends.insert(at);
            self.begins.unfollowed.push(at);
        }
    }

    /// Forgets the stretches after the first `begun`.
    pub(crate) fn forget_stretches(&mut self, begun: usize) {
        for (from, to, _) in self.procedures.stretches.split_off(begun) {
            self.recipes.forget(from, to);
        }
    }

    /// Forgets the recipes from `at` up to where control does not fall through or arrives from elsewhere.
    pub(crate) fn forget_block(&mut self, at: u32) {
        let Some(mut instructions) = Instructions::new(&self.code.code_map, at) else { return };
        loop {
            let from = instructions.position();
            let joins = from != at && self.begins.jump_targets.get(from) && !self.recipes.need_return.get(from);
            if joins || !self.recipes.is_seen(from) {
                return;
            }
            let Some(instruction) = instructions.read() else { return };
            self.recipes.forget(from, instructions.position());
            self.recipes.need_return.remove(from);
            let flow = instructions.flow_of(&instruction, &self.code.code_map);
            if !matches!(flow, Flow::Next | Flow::Branch(_) | Flow::Call(_)) {
                return;
            }
        }
    }

    /// The state at a landing pad of the calls of `owner`. `call_offset`: how far code there has moved rsp when it
    /// makes a call.
    pub(crate) fn landing_state(&self, owner: u32, call_offset: Option<i32>) -> Option<State> {
        self.procedures.calls.get(&owner)?.landing_state(&self.recipes.pool, call_offset)
    }

    /// Records that `owner` jumps to an unknown target, perhaps a label of its own, in `state`.
    pub(crate) fn note_lost_jump(&mut self, owner: u32, state: &State) {
        match self.procedures.lost_jumps.get_mut(&owner) {
            Some(known) => {
                let expressions = &mut self.recipes.pool.expressions;
                if recipe_of(known, expressions) != recipe_of(state, expressions) {
                    known.merge(state, owner);
                }
            }
            None => {
                self.procedures.lost_jumps.insert(owner, Box::new(state.clone()));
            }
        }
    }
}
