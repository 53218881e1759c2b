//! Calls: the frames in which a procedure makes them, and what may stand behind one.
//! Knows nothing of what the called procedures do.

use callpath_format::recipe::{Cfa, Recipe, Rule};
use callpath_format::register::Reg;

use crate::decode::is_sure_prologue;
use crate::module::Module;
use crate::places::NOWHERE;
use crate::recipe::{dwarf, has_recipe};
use crate::state::{CALL_CLOBBERED, CALLEE_SAVED, RBP, RSP, State};
use crate::value::{Base, RETURN_ADDRESS, Value};

/// So many different frames of one procedure are kept.
const MAX_FRAMES: usize = 8;

/// The different frames at the calls of one procedure.
#[derive(Default)]
pub(crate) struct Calls {
    frames: Vec<CallFrame>,
    /// There were more.
    is_full: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct CallFrame {
    /// Its number.
    recipe: u16,
    /// rbp, from the CFA: bytes.
    frame_pointer: Option<i32>,
}

impl Module<'_> {
    /// A call is made, which may throw.
    pub(crate) fn note_call(&mut self, state: &State, recipe: u16) {
        if let Some(trial) = &mut self.trial {
            trial.note_call(state);
            return;
        }
        let frame_pointer = match state.get(RBP) {
            Value::Stack { base: Base::CFA, offset } => Some(offset),
            _ => None,
        };
        let frame = CallFrame { recipe, frame_pointer };
        let calls = self.calls.entry(self.owner).or_default();
        if !calls.frames.contains(&frame) {
            if calls.frames.len() < MAX_FRAMES {
                calls.frames.push(frame);
            } else {
                calls.is_full = true;
            }
        }
    }

    /// Behind a call of `target`, registers that hold the frame and that it leaves alone are as they were `before`. Who
    /// relies on that does so at once, or has no other way to the frame.
    pub(crate) fn keep_preserved(&mut self, state: &mut State, before: &State, target: u32, next: u32) {
        if target == NOWHERE {
            return;
        }
        let has_frame = |register: usize| state.get(register).base() == Some(Base::CFA);
        let is_lost = !has_frame(RSP) && !has_frame(RBP) && !has_recipe(state);
        if !is_lost && !sets_rsp(self.places.bytes(next)) {
            return;
        }
        for register in CALL_CLOBBERED {
            if before.get(register).base().is_some() && self.clobbers.preserves(&self.places, target, register) {
                state.set(register, before.get(register), next);
            }
        }
    }

    /// What holds where an exception lands that one of the calls of `owner` throws: the frame of that call, without what
    /// was pushed for it. Code there that makes a call has moved rsp by `call_offset` by then, which is a multiple of 16.
    pub(crate) fn landing_state(&self, owner: u32, call_offset: Option<i32>) -> Option<State> {
        let calls = self.calls.get(&owner)?;
        let mut frames: Vec<(&Recipe, Option<i32>)> = Vec::with_capacity(calls.frames.len());
        for frame in &calls.frames {
            frames.push((self.pool.recipes.get(usize::from(frame.recipe))?, frame.frame_pointer));
        }
        let is_aligned = |recipe: &Recipe| match (recipe.cfa, call_offset) {
            (Cfa::Register { reg: Reg::RSP, disp }, Some(offset)) => disp.wrapping_sub(offset).rem_euclid(16) == 0,
            _ => true,
        };
        let &(first, frame_pointer) = frames.first()?;
        if frames.iter().all(|frame| frame.0 == first) && !calls.is_full {
            let same = frames.iter().all(|frame| frame.1 == frame_pointer);
            return if is_aligned(first) { state_of(first, frame_pointer.filter(|_| same)) } else { None };
        }
        if frame_pointer.is_some() && frames.iter().all(|frame| frame.1 == frame_pointer) && !calls.is_full {
            return state_through_frame_pointer(&frames);
        }
        // The deepest frame of the procedure's own, and of those with as many saved registers the one without arguments.
        let depth = |recipe: &Recipe| match recipe.cfa {
            Cfa::Register { reg: Reg::RSP, disp } => Some((saved_count(recipe), -disp)),
            _ => None,
        };
        let mut best = None;
        for frame in frames.iter().filter(|frame| is_aligned(frame.0)) {
            let depth = depth(frame.0)?;
            if best.is_none_or(|(most, _)| depth > most) {
                best = Some((depth, frame));
            }
        }
        best.and_then(|(_, frame)| state_of(frame.0, frame.1))
    }

    /// Behind a call, at `at`, something else begins: the call does not return. An `int3` stands there, or other padding.
    pub(crate) fn is_end_behind_call(&mut self, at: u32, is_trap: bool, is_padding: bool) -> bool {
        if is_trap {
            return true;
        }
        if !is_padding {
            let begins = self.places.is_aligned(at) && is_sure_prologue(self.places.bytes(at));
            if begins {
                self.find(at);
            }
            return begins;
        }
        let end = self.padding_end(at);
        if self.starts.get(end) {
            return true;
        }
        let begins = self.sweep.begins_behind_padding(&self.places, at, end);
        if begins {
            self.find(end);
        }
        begins
    }
}

/// `mov rsp, REGISTER`
fn sets_rsp(bytes: &[u8]) -> bool {
    matches!(bytes, [0x48 | 0x4c, 0x89, modrm, ..] if modrm & 0xc7 == 0xc4)
        || matches!(bytes, [0x48 | 0x49, 0x8b, modrm, ..] if modrm & 0xf8 == 0xe0)
}

fn saved_count(recipe: &Recipe) -> usize {
    let is_saved = |&&register: &&usize| matches!(recipe.registers[dwarf(register).index()], Rule::AtCfa(_));
    CALLEE_SAVED.iter().filter(is_saved).count()
}

/// A state of which `recipe` tells the frame; rbp is so many bytes from the CFA.
fn state_of(recipe: &Recipe, frame_pointer: Option<i32>) -> Option<State> {
    let mut state = State::unknown();
    state.store(Base::CFA, -8, 8, Value::Caller(RETURN_ADDRESS));
    let unknown_rsp = Value::Stack { base: Base::of_register(RSP), offset: 0 };
    state.set(RSP, unknown_rsp, 0);
    for register in CALLEE_SAVED {
        match recipe.registers[dwarf(register).index()] {
            Rule::Same => state.set(register, Value::Caller(register as u8), 0),
            Rule::AtCfa(offset) => state.store(Base::CFA, offset, 8, Value::Caller(register as u8)),
            _ => {}
        }
    }
    match recipe.cfa {
        Cfa::Register { reg, disp } => state.set(register_of(reg)?, Value::cfa(disp.checked_neg()?), 0),
        Cfa::Deref { reg, disp, add } => {
            let register = register_of(reg)?;
            let base = Base::of_register(register);
            state.set(register, Value::Stack { base, offset: 0 }, 0);
            state.store(base, disp, 8, Value::cfa(add.checked_neg()?));
        }
        _ => return None,
    }
    if let Some(offset) = frame_pointer {
        state.set(RBP, Value::cfa(offset), 0);
    }
    Some(state)
}

/// Frames that have nothing in common but rbp, and where registers were saved.
fn state_through_frame_pointer(frames: &[(&Recipe, Option<i32>)]) -> Option<State> {
    let &(first, frame_pointer) = frames.first()?;
    let mut common = Recipe::with_cfa(Cfa::Register { reg: Reg::RBP, disp: frame_pointer?.checked_neg()? });
    for register in CALLEE_SAVED {
        let index = dwarf(register).index();
        let rule = first.registers[index];
        let agreed = frames.iter().all(|frame| frame.0.registers[index] == rule);
        common.registers[index] = if agreed { rule } else { Rule::Lost };
    }
    state_of(&common, frame_pointer)
}

/// The register, in the processor's order, of those that survive calls.
fn register_of(reg: Reg) -> Option<usize> {
    CALLEE_SAVED.into_iter().chain([RSP]).find(|&register| dwarf(register) == reg)
}
