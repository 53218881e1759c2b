//! Converts an abstract frame to the recipe that locates its caller's registers.
//!
//! ```text
//! rsp = CFA + k                      CFA = rsp - k
//! reg = CFA + k                      CFA = reg - k
//! *(B + o) = CFA + k, reg = B + m    CFA = *(reg + o - m) - k
//! *(B + o + s * i) = CFA + k, reg = B + m, i a register    CFA = *(reg + s * i + o - m) - k
//! ```
//!
//! in this order, registers that survive calls first.

use callpath_format::recipe::{Cfa, Expression, Packed, Recipe, Rule};
use callpath_format::register::Reg;
use rustc_hash::FxHashMap;

use crate::state::{CALLEE_SAVED, RSP, Slot, State};
use crate::value::{Base, RETURN_ADDRESS, Value};

/// The order in which registers are tried as the base of the CFA: rsp, rbp, the others that survive calls, the rest.
const BASES: [usize; 16] = [4, 5, 3, 12, 13, 14, 15, 10, 11, 0, 1, 2, 6, 7, 8, 9];
/// How many of them survive a call.
const SURVIVORS: usize = 7;

/// The index in [`CALLEE_SAVED`], or a higher one.
const INDEX_OF_SAVED: [u8; 16] = {
    let mut indices = [u8::MAX; 16];
    let mut index = 0;
    while index < CALLEE_SAVED.len() {
        indices[CALLEE_SAVED[index]] = index as u8;
        index += 1;
    }
    indices
};

/// The packed recipe in the simple case: rsp is known from the CFA, and every register is in place or was pushed.
pub(crate) fn plain_recipe_of(state: &State) -> Option<Packed> {
    let Value::Stack { base: Base::CFA, offset: top } = state.get(RSP) else { return None };
    let mut slots = [Packed::SLOT_SAME; CALLEE_SAVED.len()];
    let mut has_return_address = false;
    for slot in state.slots() {
        let Some(what) = slot.packed.caller() else { continue };
        if slot.base != Base::CFA || slot.offset < top || slot.offset % 8 != 0 {
            continue;
        }
        if what == RETURN_ADDRESS {
            has_return_address |= slot.offset == -8;
        } else if let Some(&index) = INDEX_OF_SAVED.get(usize::from(what))
            && let index = usize::from(index)
            && index < slots.len()
        {
            if !(-8 * 255..=-16).contains(&slot.offset) {
                return None;
            }
            if slots[index] == Packed::SLOT_SAME {
                slots[index] = (slot.offset / -8) as u8;
            }
        }
    }
    let in_place = |(&slot, &register): (&u8, &usize)| {
        slot != Packed::SLOT_SAME || state.packed(register).caller() == Some(register as u8)
    };
    if !has_return_address || state.is_outermost || !slots.iter().zip(&CALLEE_SAVED).all(in_place) {
        return None;
    }
    let head = Packed::REGISTER | (Reg::RSP.index() as u16) << 3;
    Some(Packed { disp: top.checked_neg()?, add: 0, head, slots })
}

/// The expressions of recipes, without duplicates.
#[derive(Default)]
pub(crate) struct Expressions {
    pub(crate) bytes: Vec<u8>,
    known: FxHashMap<Vec<u8>, Expression>,
}

impl Expressions {
    pub(crate) fn intern(&mut self, code: Vec<u8>) -> Option<Expression> {
        if let Some(known) = self.known.get(&code) {
            return Some(*known);
        }
        let expression = Expression {
            start: u32::try_from(self.bytes.len()).ok()?,
            len: u16::try_from(code.len()).ok().filter(|&len| usize::from(len) <= Expression::MAX_LEN_BYTES)?,
        };
        self.bytes.extend_from_slice(&code);
        self.known.insert(code, expression);
        Some(expression)
    }
}

/// Whether the frame is known in `state`.
pub(crate) fn has_recipe(state: &State) -> bool {
    state.is_outermost
        || (cfa_of(state).is_some() || indexed_cfa_of(state).is_some()) && saved(state, RETURN_ADDRESS).is_some()
}

/// The recipe for an address with this state.
pub(crate) fn recipe_of(state: &State, expressions: &mut Expressions) -> Recipe {
    if state.is_outermost {
        return Recipe::OUTERMOST;
    }
    let indexed = || indexed_cfa_of(state).and_then(|code| expressions.intern(code)).map(Cfa::Expression);
    let Some(cfa) = cfa_of(state).or_else(indexed) else { return Recipe::UNKNOWN };
    let mut recipe = Recipe::with_cfa(cfa);
    match saved(state, RETURN_ADDRESS) {
        Some(rule) => recipe.return_address = rule,
        None => return Recipe::UNKNOWN,
    }
    for register in CALLEE_SAVED {
        recipe.registers[dwarf(register).index()] = saved(state, register as u8).unwrap_or(Rule::Lost);
    }
    recipe
}

/// The DWARF number of a register in the processor's order.
pub(crate) fn dwarf(register: usize) -> Reg {
    const ORDER: [u16; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
    ORDER.get(register).and_then(|&number| Reg::from_dwarf(number)).unwrap_or(Reg::RSP)
}

fn cfa_of(state: &State) -> Option<Cfa> {
    let direct = |&register: &usize| match state.get(register) {
        Value::Stack { base: Base::CFA, offset } => {
            Some(Cfa::Register { reg: dwarf(register), disp: offset.checked_neg()? })
        }
        _ => None,
    };
    let (survivors, others) = BASES.split_at(SURVIVORS);
    if let Some(cfa) = survivors.iter().find_map(direct) {
        return Some(cfa);
    }
    let through = |&register: &usize, below: bool| {
        let Value::Stack { base, offset } = state.get(register) else { return None };
        let slots = state.slots().iter().filter(|slot| slot.base == base && is_below(state, slot) == below);
        let (slot, kept) = slots.into_iter().find_map(|slot| match slot.value() {
            Value::Stack { base: Base::CFA, offset } => Some((slot, offset)),
            _ => None,
        })?;
        Some(Cfa::Deref { reg: dwarf(register), disp: slot.offset.checked_sub(offset)?, add: kept.checked_neg()? })
    };
    survivors
        .iter()
        .find_map(|register| through(register, false))
        .or_else(|| others.iter().find_map(direct))
        .or_else(|| survivors.iter().find_map(|register| through(register, true)))
        .or_else(|| others.iter().find_map(|register| through(register, false)))
}

/// `*(reg + scale * index + disp) + add` as a DWARF expression, if a register is known relative to the slot's base.
fn indexed_cfa_of(state: &State) -> Option<Vec<u8>> {
    const BREG0: u8 = 0x70;
    const LIT0: u8 = 0x30;
    const MUL: u8 = 0x1e;
    const PLUS: u8 = 0x22;
    const DEREF: u8 = 0x06;
    const CONST8S: u8 = 0x0f;
    let slot = state.indexed?;
    let (register, from) = BASES.iter().take(SURVIVORS).find_map(|&register| match state.get(register) {
        Value::Stack { base, offset } if base == slot.base => Some((register, offset)),
        _ => None,
    })?;
    let number = |register: usize| dwarf(register).index() as u8;
    let constant = |code: &mut Vec<u8>, value: i64| {
        code.push(CONST8S);
        code.extend(value.to_le_bytes());
        code.push(PLUS);
    };
    let mut code =
        vec![BREG0 + number(register), 0, BREG0 + number(slot.index.into()), 0, LIT0 + slot.scale, MUL, PLUS];
    constant(&mut code, i64::from(slot.offset) - i64::from(from));
    code.push(DEREF);
    constant(&mut code, -i64::from(slot.from_cfa));
    Some(code)
}

/// The location of a caller's value, in this order: on the stack above rsp, in its register, in another one, on the
/// stack below rsp.
fn saved(state: &State, what: u8) -> Option<Rule> {
    let value = Value::Caller(what);
    let in_slots = |below: bool| {
        let slots = state.slots().iter().filter(|slot| slot.value() == value && is_below(state, slot) == below);
        slots.into_iter().find_map(|slot| match slot.base {
            Base::CFA => Some(Rule::AtCfa(slot.offset)),
            base => relative(state, base, slot.offset),
        })
    };
    let in_place = || (what != RETURN_ADDRESS && state.get(usize::from(what)) == value).then_some(Rule::Same);
    let elsewhere = || {
        let holder = BASES.iter().find(|&&register| state.get(register) == value);
        holder.map(|&register| Rule::RegisterPlus(dwarf(register), 0))
    };
    in_slots(false).or_else(in_place).or_else(elsewhere).or_else(|| in_slots(true))
}

/// Whether the slot is below rsp: popped, or in the red zone.
fn is_below(state: &State, slot: &Slot) -> bool {
    match state.get(RSP) {
        Value::Stack { base, offset } => slot.base == base && slot.offset < offset,
        _ => false,
    }
}

/// `*(base + offset)`, by a register that is known relative to `base`.
fn relative(state: &State, base: Base, offset: i32) -> Option<Rule> {
    BASES.iter().take(SURVIVORS).find_map(|&register| match state.get(register) {
        Value::Stack { base: its, offset: there } if its == base => {
            Some(Rule::AtRegister(dwarf(register), offset.checked_sub(there)?))
        }
        _ => None,
    })
}
