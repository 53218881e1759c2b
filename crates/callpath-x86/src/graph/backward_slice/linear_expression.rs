//! Linear expressions: sums of registers and memory words with factors, from which targets are computed.

use crate::instruction::{Memory, Register};

pub(super) const RAX: u8 = 0;
pub(super) const RDX: u8 = 2;
pub(super) const RSP: u8 = 4;
pub(super) const RBP: u8 = 5;
/// No register.
pub(super) const NONE: u8 = 16;
/// A register or a word of memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Location {
    Register(u8),
    /// A word at `base + scale * index + disp`.
    Memory {
        base: u8,
        index: u8,
        scale: u8,
        disp: i64,
    },
}

/// `constant + factor * location + ...`
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct LinearExpression {
    pub(super) constant: u64,
    pub(super) terms: [Option<(Location, i64)>; 3],
}

impl LinearExpression {
    pub(super) fn constant(constant: u64) -> LinearExpression {
        LinearExpression { constant, terms: [None; 3] }
    }

    pub(super) fn of(location: Location) -> LinearExpression {
        LinearExpression { constant: 0, terms: [Some((location, 1)), None, None] }
    }

    /// Adds a term. Returns false if there is no room.
    pub(super) fn add(&mut self, location: Location, factor: i64) -> bool {
        if let Some(term) = self.terms.iter_mut().flatten().find(|term| term.0 == location) {
            term.1 = term.1.wrapping_add(factor);
            self.terms.iter_mut().filter(|term| term.is_some_and(|term| term.1 == 0)).for_each(|term| *term = None);
        } else if let Some(free) = self.terms.iter_mut().find(|term| term.is_none()) {
            *free = Some((location, factor));
        } else {
            return false;
        }
        self.terms.sort_unstable();
        true
    }

    pub(super) fn is_constant(&self) -> bool {
        self.terms.iter().all(Option::is_none)
    }

    /// The location and the constant, if the expression is one location plus a constant.
    pub(super) fn single(&self) -> Option<(Location, u64)> {
        let mut terms = self.terms.iter().flatten();
        match (terms.next(), terms.next()) {
            (Some(&(location, 1)), None) => Some((location, self.constant)),
            _ => None,
        }
    }

    /// The address of a memory operand, in an instruction that ends at address `next`.
    pub(super) fn address(memory: &Memory, next: u64) -> Option<LinearExpression> {
        if memory.has_segment {
            return None;
        }
        if memory.is_beside_code() {
            return Some(LinearExpression::constant(next.wrapping_add_signed(memory.displacement)));
        }
        let mut sum = LinearExpression::constant(memory.displacement as u64);
        for (register, factor) in [(memory.base, 1), (memory.index, memory.scale.into())] {
            if register != Register::NONE && !sum.add(Location::Register(register.general()? as u8), factor) {
                return None;
            }
        }
        Some(sum)
    }
}

/// Whether a change of `changed` changes what `location` means.
pub(super) fn touches(location: Location, changed: Location) -> bool {
    match (location, changed) {
        (Location::Memory { base, index, .. }, Location::Register(register)) => base == register || index == register,
        _ => location == changed,
    }
}

/// What `location` was before `changed` became `by`.
pub(super) fn moved(location: Location, changed: Location, by: &LinearExpression) -> Option<Location> {
    if !touches(location, changed) {
        return Some(location);
    }
    let (Location::Memory { base, index, scale, disp }, Location::Register(register)) = (location, changed) else {
        return None;
    };
    if index == register {
        return match by.single() {
            Some((Location::Register(from), 0)) if base != register => {
                Some(Location::Memory { base, index: from, scale, disp })
            }
            _ => None,
        };
    }
    match by.single() {
        // A pointer that is advanced leads elsewhere each time; rbp, too, if it is added to.
        Some((Location::Register(from), constant))
            if constant == 0 || from == RSP || (from == RBP && register != RBP) =>
        {
            Some(Location::Memory { base: from, index, scale, disp: disp.wrapping_add(constant as i64) })
        }
        None if by.is_constant() => {
            Some(Location::Memory { base: NONE, index, scale, disp: disp.wrapping_add(by.constant as i64) })
        }
        _ => None,
    }
}

/// The word of a memory operand, in an instruction that ends at address `next`.
pub(super) fn memory_location(memory: &Memory, next: u64) -> Option<Location> {
    if memory.has_segment {
        return None;
    }
    if memory.is_beside_code() {
        let disp = next.wrapping_add_signed(memory.displacement) as i64;
        return Some(Location::Memory { base: NONE, index: NONE, scale: 1, disp });
    }
    let of = |register: Register| match register {
        Register::NONE => Some(NONE),
        register => register.general().map(|number| number as u8),
    };
    let index = of(memory.index)?;
    let scale = if index == NONE { 1 } else { memory.scale };
    Some(Location::Memory { base: of(memory.base)?, index, scale, disp: memory.displacement })
}
