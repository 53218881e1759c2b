//! Constraints: what must hold at a block, as inference learned it.

use crate::state::State;
use crate::value::{StackAddress, Value};

/// A constraint: it holds whenever control reaches `block`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Constraint {
    pub(crate) block: u32,
    pub(crate) fact: Fact,
}

/// The CFA's location.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fact {
    /// `register = CFA + offset`
    Register { register: usize, offset: i32 },
    /// `*(register + at) = CFA + offset`
    Slot { register: usize, at: i32, offset: i32 },
}

impl Fact {
    /// Adds the fact, which holds at `block`, to `state`.
    pub(crate) fn assume(self, state: &mut State, block: u32) {
        match self {
            Fact::Register { register, offset } => state.set(register, Value::cfa(offset), block),
            Fact::Slot { register, at, offset } => {
                if state.get(register).base().is_none() {
                    let base = state.fresh(block);
                    state.set(register, base, block);
                }
                if let Value::Stack { base, offset: from } = state.get(register).plus(at.into()) {
                    state.store(StackAddress::new(base, from), 8, Value::cfa(offset));
                }
            }
        }
    }
}
