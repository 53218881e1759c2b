//! The frames in which a procedure makes its calls. At a landing pad one of them holds.

use callpath_format::recipe::{Cfa, Recipe, Rule};
use callpath_format::register::Reg;

use super::pool::Pool;
use crate::recipe::dwarf;
use crate::state::{CALLEE_SAVED, RBP, RSP, State};
use crate::value::{Base, RETURN_ADDRESS, StackAddress, Value};

/// The most different frames stored for one procedure.
const MAX_FRAMES: usize = 8;

/// The different frames at the calls of one procedure.
#[derive(Default)]
pub(crate) struct CallFrames {
    frames: Vec<CallFrame>,
    /// There were more than [`MAX_FRAMES`].
    is_full: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct CallFrame {
    /// The recipe's number.
    recipe: u16,
    /// Offset of rbp's value from the CFA, bytes.
    frame_pointer: Option<i32>,
}

impl CallFrames {
    /// Records a call made in `state`, which may throw. `recipe`: its recipe's number.
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

    /// The state at a landing pad of the calls: the frame of the throwing call, without what was pushed for it.
    /// `call_offset`: how far code there has moved rsp when it makes a call; rsp is a multiple of 16 then.
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
        // The frame with the most saved registers; among equals the one closest to the CFA, without pushed arguments.
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

/// A state with the frame of `recipe`. `frame_pointer`: rbp's value, bytes from the CFA.
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

/// The state of frames that share only rbp's value and where registers were saved.
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

/// The number of a register that survives calls, in the processor's order.
fn register_of(reg: Reg) -> Option<usize> {
    CALLEE_SAVED.into_iter().chain([RSP]).find(|&register| dwarf(register) == reg)
}
