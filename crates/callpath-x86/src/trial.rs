//! What must have held where code begins of which nothing is known, learned from where it leads.
//! Knows nothing of how control is followed.
//!
//! This is the return-state check and repair of Tallent et al. 2009, section 2.2, turned around: at a return the return
//! address is at rsp and the caller's registers are in place; where control comes to code whose frame is known, that
//! frame holds. Values were followed from the start by name (`rsp` as it was, what was at `[rsp+16]`), so each such
//! point is an equation for what they were.

use callpath_format::recipe::{Cfa, Recipe, Rule};
use callpath_format::register::Reg;
use iced_x86::{Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess, OpKind, Register};

use crate::decode::number;
use crate::effect::Effects;
use crate::recipe::dwarf;
use crate::state::{CALLEE_SAVED, RAX, RSP, State};
use crate::value::{Base, RETURN_ADDRESS, Value};

/// So many instructions are followed at most.
const MAX_INSTRUCTIONS: u32 = 400;

/// What is being learned.
pub(crate) struct Trial {
    left: u32,
    /// What bases are: `(base, offset from the CFA)`.
    bases: Vec<(Base, i32)>,
    /// What slots held: `(base, offset, value)`.
    slots: Vec<(Base, i32, Value)>,
    /// Registers that held the caller's values.
    in_place: Vec<usize>,
    is_outermost: bool,
    /// Two equations contradict each other.
    is_contradictory: bool,
    /// There was an equation.
    pub(crate) has_learned: bool,
    /// A register that belongs to the caller was used before it was saved: no procedure begins like this.
    pub(crate) uses_saved: bool,
    /// rsp at the first call, from its value at the start: bytes. Compilers keep it a multiple of 16 there.
    call_offset: Option<i32>,
    info: InstructionInfoFactory,
}

impl Trial {
    pub(crate) fn new() -> Trial {
        Trial {
            left: MAX_INSTRUCTIONS,
            bases: Vec::new(),
            slots: Vec::new(),
            in_place: Vec::new(),
            is_outermost: false,
            is_contradictory: false,
            has_learned: false,
            uses_saved: false,
            call_offset: None,
            info: InstructionInfoFactory::new(),
        }
    }

    /// How many instructions were followed.
    pub(crate) fn followed(&self) -> u32 {
        MAX_INSTRUCTIONS - self.left
    }

    /// Takes notice of an instruction; whether to go on behind it.
    pub(crate) fn allow(&mut self, _effects: &mut Effects, state: &State, instruction: &Instruction) -> bool {
        self.left = self.left.saturating_sub(1);
        self.uses_saved |= self.uses(state, instruction);
        self.left > 0 && !self.is_contradictory
    }

    fn uses(&mut self, state: &State, instruction: &Instruction) -> bool {
        let is_untouched = |register: usize| {
            (CALLEE_SAVED.contains(&register) || register == RAX)
                && state.get(register) == Value::Stack { base: Base::of_register(register), offset: 0 }
        };
        match instruction.mnemonic() {
            Mnemonic::Push | Mnemonic::Pop | Mnemonic::Leave | Mnemonic::Enter | Mnemonic::Call => return false,
            // A save, and a register cleared.
            Mnemonic::Mov
                if instruction.op0_kind() == OpKind::Memory
                    && number(instruction.memory_base()).is_some_and(|base| state.get(base).base().is_some())
                    && !number(instruction.memory_base()).is_some_and(is_untouched) =>
            {
                return false;
            }
            Mnemonic::Xor | Mnemonic::Sub if instruction.op0_register() == instruction.op1_register() => return false,
            _ => {}
        }
        // Variadic procedures look at al; landing pads take the exception from rax.
        if instruction.op1_register() == Register::AL || instruction.op0_register() == Register::AL {
            return false;
        }
        let info = self.info.info_options(instruction, InstructionInfoOptions::NO_MEMORY_USAGE);
        info.used_registers().iter().any(|used| {
            matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
                && number(used.register()).is_some_and(is_untouched)
        })
    }

    /// Control leaves for where nobody knows: with the stack and the caller's registers restored, it is a procedure's end.
    pub(crate) fn suspect_end(&mut self, state: &State) {
        let is_restored = |register: usize| match state.get(register) {
            Value::Stack { base, offset: 0 } => base == Base::of_register(register),
            Value::Content { .. } => true,
            _ => false,
        };
        let has_popped = match state.get(RSP) {
            Value::Stack { base, offset } => base == Base::of_register(RSP) && offset > 0,
            _ => false,
        };
        if has_popped && CALLEE_SAVED.into_iter().all(is_restored) {
            self.learn(state, &Recipe::with_cfa(Cfa::Register { reg: Reg::RSP, disp: 8 }));
        }
    }

    /// A call is made.
    pub(crate) fn note_call(&mut self, state: &State) {
        if let Value::Stack { base, offset } = state.get(RSP)
            && base == Base::of_register(RSP)
        {
            self.call_offset.get_or_insert(offset);
        }
    }

    /// The stack would be aligned at the first call if a procedure began here.
    pub(crate) fn is_aligned_as_entry(&self) -> bool {
        self.call_offset.is_none_or(|offset| offset.rem_euclid(16) == 8)
    }

    /// Where `state` holds, `recipe` holds.
    pub(crate) fn learn(&mut self, state: &State, recipe: &Recipe) {
        let value_of = |reg: Reg| state.get((0..16).find(|&register| dwarf(register) == reg).unwrap_or(RSP));
        match recipe.cfa {
            Cfa::Outermost => {
                self.is_outermost = true;
                self.has_learned = true;
                return;
            }
            Cfa::Register { reg, disp } => match value_of(reg) {
                Value::Stack { base, offset } => self.base_is(base, -i64::from(disp) - i64::from(offset)),
                _ => return,
            },
            Cfa::Deref { reg, disp, add } => match value_of(reg).plus(disp.into()) {
                Value::Stack { base, offset } => self.slot_held(base, offset, Value::cfa(add.wrapping_neg())),
                _ => return,
            },
            Cfa::Unknown | Cfa::Expression(_) => return,
        }
        self.has_learned = true;
        for register in CALLEE_SAVED {
            match recipe.registers[dwarf(register).index()] {
                Rule::Same => self.held(state.get(register), register),
                Rule::AtCfa(offset) => {
                    for (base, from) in self.bases.clone() {
                        if let Some(offset) = offset.checked_sub(from) {
                            self.held(state.load(base, offset), register);
                        }
                    }
                }
                Rule::AtRegister(reg, disp) => {
                    if let Value::Stack { base, offset } = value_of(reg).plus(disp.into()) {
                        self.held(state.load(base, offset), register);
                    }
                }
                _ => {}
            }
        }
    }

    /// What is now `value` is the caller's value of a register.
    fn held(&mut self, value: Value, register: usize) {
        match value {
            Value::Stack { base, offset: 0 }
                if base == Base::of_register(register) && !self.in_place.contains(&register) =>
            {
                self.in_place.push(register);
            }
            Value::Content { base, offset } => self.slot_held(base, offset, Value::Caller(register as u8)),
            _ => {}
        }
    }

    fn base_is(&mut self, base: Base, offset: i64) {
        let Ok(offset) = i32::try_from(offset) else { return };
        match self.bases.iter().find(|known| known.0 == base) {
            Some(known) => self.is_contradictory |= known.1 != offset,
            None => self.bases.push((base, offset)),
        }
    }

    fn slot_held(&mut self, base: Base, offset: i32, value: Value) {
        match self.slots.iter().find(|slot| slot.0 == base && slot.1 == offset) {
            Some(slot) => self.is_contradictory |= slot.2 != value,
            None => self.slots.push((base, offset, value)),
        }
    }

    /// What held at the start, if it could be learned.
    pub(crate) fn state(&self) -> Option<State> {
        if self.is_contradictory || !self.has_learned {
            return None;
        }
        let mut state = State::unknown();
        state.is_outermost = self.is_outermost;
        state.store(Base::CFA, -8, 8, Value::Caller(RETURN_ADDRESS));
        let solved = |base: Base| self.bases.iter().find(|known| known.0 == base).map(|known| known.1);
        for register in CALLEE_SAVED.into_iter().chain([RSP]) {
            let base = Base::of_register(register);
            let value = match solved(base) {
                Some(offset) => Value::cfa(offset),
                None if self.in_place.contains(&register) => Value::Caller(register as u8),
                None if register == RSP || self.slots.iter().any(|slot| slot.0 == base) => {
                    Value::Stack { base, offset: 0 }
                }
                None => Value::Unknown,
            };
            state.set(register, value, 0);
        }
        for &(base, offset, value) in &self.slots {
            match solved(base) {
                _ if base == Base::CFA => state.store(base, offset, 8, value),
                Some(from) => state.store(Base::CFA, from.checked_add(offset)?, 8, value),
                None => state.store(base, offset, 8, value),
            }
        }
        // Nobody's stack pointer is above its return address, or out of step with it.
        match state.get(RSP) {
            Value::Stack { base: Base::CFA, offset } if offset > -8 || offset % 8 != 0 => None,
            _ => Some(state),
        }
    }
}
