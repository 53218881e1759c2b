//! The frames in which a procedure makes its calls: one of them holds where an exception lands.

use callpath_format::recipe::{Cfa, Recipe, Rule};
use callpath_format::register::Reg;

use super::pool::Pool;
use crate::recipe::dwarf;
use crate::state::{CALLEE_SAVED, RBP, RSP, State};
use crate::value::{Base, RETURN_ADDRESS, StackAddress, Value};

/// So many different frames of one procedure are kept.
const MAX_FRAMES: usize = 8;

/// The different frames at the calls of one procedure.
#[derive(Default)]
pub(crate) struct CallFrames {
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

impl CallFrames {
    /// A call is made in `state`, which may throw; `recipe` is its recipe's number.
    pub(super) fn note(&mut self, state: &State, recipe: u16) {
        let frame_pointer = match state.get(RBP) {
            Value::Stack { base: Base::CFA, offset } => Some(offset),
            _ => None,
        };
        let frame = CallFrame { recipe, frame_pointer };
        if !self.frames.contains(&frame) {
            if self.frames.len() < MAX_FRAMES {
                self.frames.push(frame);
            } else {
                self.is_full = true;
            }
        }
    }

    /// What holds where an exception lands that one of the calls throws: the frame of that call, without what was pushed for it.
    /// Code there that makes a call has moved rsp by `call_offset` by then, which is a multiple of 16.
    pub(super) fn landing_state(&self, pool: &Pool, call_offset: Option<i32>) -> Option<State> {
        let mut frames: Vec<(&Recipe, Option<i32>)> = Vec::with_capacity(self.frames.len());
        for frame in &self.frames {
            frames.push((pool.recipes.get(usize::from(frame.recipe))?, frame.frame_pointer));
        }
        let is_aligned = |recipe: &Recipe| match (recipe.cfa, call_offset) {
            (Cfa::Register { reg: Reg::RSP, disp }, Some(offset)) => disp.wrapping_sub(offset).rem_euclid(16) == 0,
            _ => true,
        };
        let &(first, frame_pointer) = frames.first()?;
        if frames.iter().all(|frame| frame.0 == first) && !self.is_full {
            let same = frames.iter().all(|frame| frame.1 == frame_pointer);
            return if is_aligned(first) { state_of(first, frame_pointer.filter(|_| same)) } else { None };
        }
        if frame_pointer.is_some() && frames.iter().all(|frame| frame.1 == frame_pointer) && !self.is_full {
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
}

fn saved_count(recipe: &Recipe) -> usize {
    let is_saved = |&&register: &&usize| matches!(recipe.registers[dwarf(register).index()], Rule::AtCfa(_));
    CALLEE_SAVED.iter().filter(is_saved).count()
}

/// A state of which `recipe` tells the frame; rbp is so many bytes from the CFA.
fn state_of(recipe: &Recipe, frame_pointer: Option<i32>) -> Option<State> {
    let mut state = State::unknown();
    state.store(StackAddress::cfa(-8), 8, Value::Caller(RETURN_ADDRESS));
    let unknown_rsp = Value::Stack { base: Base::of_register(RSP), offset: 0 };
    state.set(RSP, unknown_rsp, 0);
    for register in CALLEE_SAVED {
        match recipe.registers[dwarf(register).index()] {
            Rule::Same => state.set(register, Value::Caller(register as u8), 0),
            Rule::AtCfa(offset) => state.store(StackAddress::cfa(offset), 8, Value::Caller(register as u8)),
            _ => {}
        }
    }
    match recipe.cfa {
        Cfa::Register { reg, disp } => state.set(register_of(reg)?, Value::cfa(disp.checked_neg()?), 0),
        Cfa::Deref { reg, disp, add } => {
            let register = register_of(reg)?;
            let base = Base::of_register(register);
            state.set(register, Value::Stack { base, offset: 0 }, 0);
            state.store(StackAddress::new(base, disp), 8, Value::cfa(add.checked_neg()?));
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
