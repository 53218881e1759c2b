//! Back-substitution: rewrites a query behind an instruction into one before it.

use super::linear_expression::{LinearExpression, Location, NONE, RAX, RDX, RSP, memory_location};
use super::query::{Bound, Limit, Query, Read, Source};
use crate::instruction::{Flags, Instruction, Operation};

/// The highest bound of an index that a comparison may give.
const MAX_BOUND: u64 = 1 << 16;

impl Query {
    /// Steps back over an instruction that ends at address `next`. Returns the answer when it is found, or can no
    /// longer be.
    pub(super) fn step_back(&mut self, instruction: &Instruction, next: u64) -> Option<Source> {
        let compared = self.bound_by(instruction, next);
        if !self.substitute(instruction, next) {
            return Some(Source::Unknown);
        }
        if let (Some((location, bound)), Some(_)) = (compared, self.index()) {
            self.compared.note(location, bound);
        }
        if let Some(bound) = self.index().and_then(|index| self.compared.bound(index.0)) {
            if !self.close(Some(bound.highest), true) {
                return Some(Source::Unknown);
            }
            if let Some(closed) = &mut self.closed {
                closed.is_signed = bound.is_signed;
            }
        }
        self.answer()
    }

    /// The bound that an instruction gives if it sets the flags of the branch that control came along.
    fn bound_by(&mut self, instruction: &Instruction, next: u64) -> Option<(Location, Bound)> {
        let (says, is_signed) = self.pending?;
        if instruction.flags_written() == Flags::default() {
            return None;
        }
        self.pending = None;
        if !matches!(instruction.operation(), Operation::Compare | Operation::Subtract) {
            return None;
        }
        let register = instruction.register(0);
        let (location, width) = match (register.general(), instruction.memory()) {
            (Some(number), _) => (Location::Register(number as u8), register.general_bytes().into()),
            (None, Some(memory)) => (memory_location(&memory, next)?, memory.bytes),
            (None, None) => return None,
        };
        let mask = if width >= 8 { u64::MAX } else { (1u64 << (8 * width)) - 1 };
        let limit = instruction.immediate()? & mask;
        let highest = match says {
            Limit::NotAbove => limit,
            Limit::Below => limit.checked_sub(1)?,
        };
        (highest < MAX_BOUND).then_some((location, Bound { highest: highest as u32, is_signed }))
    }

    /// Substitutes what an instruction defines. Returns false if the target can no longer be determined.
    fn substitute(&mut self, instruction: &Instruction, next: u64) -> bool {
        let operation = instruction.operation();
        let memory = instruction.memory();
        let source = instruction.register(1);
        let from = source.general().map(|number| number as u8);
        let immediate = instruction.immediate();
        if let Some(to) = instruction.register(0).general() {
            let to = to as u8;
            let width = instruction.register(0).general_bytes();
            let is_wide = width >= 4;
            let location = Location::Register(to);
            let itself = LinearExpression::of(location);
            match (operation, from, immediate) {
                (Operation::Move, Some(from), _) if is_wide => {
                    return self.replace(location, &LinearExpression::of(Location::Register(from)));
                }
                (Operation::Move, None, Some(constant)) if is_wide => {
                    return self.replace(location, &LinearExpression::constant(constant));
                }
                (Operation::ZeroExtend | Operation::SignExtend, Some(from), _) if is_wide => {
                    if operation == Operation::ZeroExtend {
                        self.narrow(location, source.general_bytes());
                    } else if self.load.is_none() {
                        self.is_extended = true;
                    }
                    return self.replace(location, &LinearExpression::of(Location::Register(from)));
                }
                (Operation::Move | Operation::ZeroExtend | Operation::SignExtend, None, None) if is_wide => {
                    if let Some(memory) = memory {
                        let is_signed = operation == Operation::SignExtend;
                        return self.load(to, Read { memory: &memory, next, is_signed });
                    }
                }
                (Operation::LoadAddress, ..) if is_wide => {
                    return match memory.and_then(|memory| LinearExpression::address(&memory, next)) {
                        Some(address) => self.replace(location, &address),
                        None => self.kill(location),
                    };
                }
                (Operation::Add | Operation::Subtract, Some(from), _) if is_wide && from != to => {
                    let mut sum = itself;
                    let factor = if operation == Operation::Add { 1 } else { -1 };
                    return sum.add(Location::Register(from), factor) && self.replace(location, &sum);
                }
                (Operation::Add | Operation::Subtract, None, Some(by)) if is_wide => {
                    let by = if operation == Operation::Add { by } else { by.wrapping_neg() };
                    return self.replace(location, &LinearExpression { constant: by, ..itself });
                }
                (Operation::Increment, ..) if is_wide => {
                    return self.replace(location, &LinearExpression { constant: 1, ..itself });
                }
                (Operation::Decrement, ..) if is_wide => {
                    return self.replace(location, &LinearExpression { constant: u64::MAX, ..itself });
                }
                (Operation::ShiftLeft, None, Some(bits @ 0..8)) if is_wide => {
                    let sum = LinearExpression { constant: 0, terms: [Some((location, 1 << bits)), None, None] };
                    return self.replace(location, &sum);
                }
                (Operation::And, None, Some(mask)) if self.is_index(location) => {
                    let highest = (mask < MAX_BOUND).then_some(mask as u32);
                    return self.close(highest, highest.is_some()) && !self.mentions(location);
                }
                (Operation::ShiftRight, None, Some(by)) if self.is_index(location) => {
                    let bits = (8 * u64::from(width)).saturating_sub(by).min(63);
                    let highest = (1u64 << bits) - 1;
                    return self.close((highest < MAX_BOUND).then_some(highest as u32), false)
                        && !self.mentions(location);
                }
                (Operation::Xor, Some(_), _) if is_wide && instruction.is_clearing() => {
                    return self.replace(location, &LinearExpression::constant(0));
                }
                (Operation::Pop, ..) => {
                    let top = Location::Memory { base: RSP, index: NONE, scale: 1, disp: 0 };
                    return self.move_stack(8) && self.replace(location, &LinearExpression::of(top));
                }
                (Operation::Push, ..) => return self.push(Some(LinearExpression::of(location))),
                _ => {}
            }
        }
        match operation {
            Operation::Nop | Operation::Compare | Operation::Test | Operation::EndBranch => true,
            Operation::Move if memory.is_some() && instruction.writes_memory_operand() => {
                match (memory.and_then(|memory| memory_location(&memory, next)), from, immediate) {
                    (Some(memory), Some(from), _) => {
                        self.replace(memory, &LinearExpression::of(Location::Register(from)))
                    }
                    (Some(memory), None, Some(constant)) => self.replace(memory, &LinearExpression::constant(constant)),
                    (Some(memory), None, None) => self.kill_exactly(memory),
                    (None, ..) => true,
                }
            }
            Operation::SignExtendRax => {
                self.is_extended |= self.load.is_none() && self.mentions(Location::Register(RAX));
                true
            }
            // What is used after a call and not computed there has survived it, except the call's results.
            Operation::Call => self.kill(Location::Register(RAX)) && self.kill(Location::Register(RDX)),
            Operation::Push => self.push(None),
            Operation::SystemCall => self.kill(Location::Register(RAX)),
            _ => {
                let mut lives = true;
                for register in instruction.writes().general() {
                    lives &= self.kill(Location::Register(register as u8));
                }
                if instruction.writes_memory_operand()
                    && let Some(memory) = memory.and_then(|memory| memory_location(&memory, next))
                {
                    lives &= self.kill(memory);
                }
                lives
            }
        }
    }

    /// Whether it is the index of the table's entry.
    fn is_index(&self, location: Location) -> bool {
        self.index().is_some_and(|index| index.0 == location)
    }

    /// rsp was `by` bytes lower before.
    fn move_stack(&mut self, by: i64) -> bool {
        self.replace(
            Location::Register(RSP),
            &LinearExpression { constant: by as u64, ..LinearExpression::of(Location::Register(RSP)) },
        )
    }

    fn push(&mut self, what: Option<LinearExpression>) -> bool {
        let top = Location::Memory { base: RSP, index: NONE, scale: 1, disp: 0 };
        let pushed = match what {
            Some(what) => self.replace(top, &what),
            None => self.kill_exactly(top),
        };
        pushed && self.move_stack(-8)
    }

    fn kill_exactly(&mut self, location: Location) -> bool {
        !self.mentions(location) || self.kill(location)
    }
}
