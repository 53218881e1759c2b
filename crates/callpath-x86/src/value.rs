//! The known value of a register or a stack slot.

/// The base that addresses on the stack are counted from.
///
/// The base of a frame is its CFA. An instruction that computes an address with an unknown distance from the CFA (`and
/// rsp, -64`) defines a base named by the instruction's position: it is the value computed there last.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Base(pub(crate) u32);

impl Base {
    pub(crate) const CFA: Base = Base(0);
    const MERGE: u32 = 1 << 31;
    /// Greater than any position.
    const OF_REGISTER: u32 = u32::MAX - 15;

    /// Computed by the instruction at this position.
    pub(crate) fn defined_at(at: u32) -> Base {
        Base((at & !Base::MERGE) + 1)
    }

    /// Different values joined at this position.
    pub(crate) fn merged_at(at: u32) -> Base {
        Base(((at & !Base::MERGE) + 1) | Base::MERGE)
    }

    /// A register's value where an analysis without knowledge begins.
    pub(crate) fn of_register(register: usize) -> Base {
        Base(Base::OF_REGISTER + (register as u32 & 15))
    }

    /// The register of [`Base::of_register`].
    pub(crate) fn register(self) -> Option<usize> {
        self.0.checked_sub(Base::OF_REGISTER).map(|register| register as usize)
    }
}

/// The return address as a value of the caller: after the registers 0 to 15.
pub(crate) const RETURN_ADDRESS: u8 = 16;

/// An address on the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StackAddress {
    pub(crate) base: Base,
    /// Bytes.
    pub(crate) offset: i32,
}

impl StackAddress {
    /// `base + offset`
    pub(crate) const fn new(base: Base, offset: i32) -> StackAddress {
        StackAddress { base, offset }
    }

    /// `CFA + offset`
    pub(crate) const fn cfa(offset: i32) -> StackAddress {
        StackAddress::new(Base::CFA, offset)
    }
}

/// A value of 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Value {
    /// Unknown.
    #[default]
    Unknown,
    /// The value of this register (in the processor's order, or [`RETURN_ADDRESS`]) at the procedure's entry.
    Caller(u8),
    /// `base + offset`, on the stack.
    Stack {
        base: Base,
        /// Bytes.
        offset: i32,
    },
    /// A known number: an address of code or data, a frame's size.
    Constant(u64),
    /// A word of four bytes from the table at this address.
    TableWord(u64),
    /// An address plus such a word: a jump's target.
    TableTarget {
        /// The table.
        table: u64,
        /// What the words are added to, minus the table's address: bytes.
        base: i32,
    },
    /// An address of eight bytes from the table at this address: a jump's target.
    TablePointer(u64),
    /// The content of eight bytes on the stack where an analysis without knowledge began, plus `offset`.
    Content {
        base: Base,
        /// Bytes.
        offset: i32,
        plus: i32,
    },
}

impl Value {
    /// `CFA + offset`
    pub(crate) const fn cfa(offset: i32) -> Value {
        Value::Stack { base: Base::CFA, offset }
    }

    /// `self + by`, modulo 2^64.
    pub(crate) fn plus(self, by: i64) -> Value {
        match self {
            Value::Stack { base, offset } => {
                let sum = i32::try_from(i64::from(offset).saturating_add(by));
                sum.map_or(Value::Unknown, |offset| Value::Stack { base, offset })
            }
            Value::Constant(value) => Value::Constant(value.wrapping_add(by as u64)),
            Value::Content { base, offset, plus } => {
                let sum = i32::try_from(i64::from(plus).saturating_add(by));
                sum.map_or(Value::Unknown, |plus| Value::Content { base, offset, plus })
            }
            _ if by == 0 => self,
            _ => Value::Unknown,
        }
    }

    /// The base of an address on the stack.
    pub(crate) fn base(self) -> Option<Base> {
        match self {
            Value::Stack { base, .. } => Some(base),
            _ => None,
        }
    }
}

/// A [`Value`] in two words, so that all those of a state are copied and compared fast.
///
/// ```text
/// bits 0 to 63      a number, or a base and above it an offset
/// bits 64 to 66     which value it is
/// bits 96 to 127    what more there is
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Packed(pub(crate) u128);

const UNKNOWN: u64 = 0;
const CALLER: u64 = 1;
const STACK: u64 = 2;
const CONSTANT: u64 = 3;
const TABLE_WORD: u64 = 4;
const TABLE_TARGET: u64 = 5;
const TABLE_POINTER: u64 = 6;
const CONTENT: u64 = 7;

impl Packed {
    pub(crate) const UNKNOWN: Packed = Packed(0);

    #[inline]
    fn low(self) -> u64 {
        self.0 as u64
    }

    #[inline]
    fn high(self) -> u64 {
        (self.0 >> 64) as u64
    }

    #[inline]
    pub(crate) fn new(value: Value) -> Packed {
        let place = |base: Base, offset: i32| u64::from(base.0) | u64::from(offset as u32) << 32;
        let more = |kind: u64, more: i32| kind | u64::from(more as u32) << 32;
        let (low, high) = match value {
            Value::Unknown => (0, UNKNOWN),
            Value::Caller(which) => (which.into(), CALLER),
            Value::Stack { base, offset } => (place(base, offset), STACK),
            Value::Constant(number) => (number, CONSTANT),
            Value::TableWord(table) => (table, TABLE_WORD),
            Value::TableTarget { table, base } => (table, more(TABLE_TARGET, base)),
            Value::TablePointer(table) => (table, TABLE_POINTER),
            Value::Content { base, offset, plus } => (place(base, offset), more(CONTENT, plus)),
        };
        Packed(u128::from(low) | u128::from(high) << 64)
    }

    #[inline]
    pub(crate) fn value(self) -> Value {
        let (base, offset) = (Base(self.low() as u32), (self.low() >> 32) as i32);
        match self.high() & 7 {
            CALLER => Value::Caller(self.low() as u8),
            STACK => Value::Stack { base, offset },
            CONSTANT => Value::Constant(self.low()),
            TABLE_WORD => Value::TableWord(self.low()),
            TABLE_TARGET => Value::TableTarget { table: self.low(), base: (self.high() >> 32) as i32 },
            TABLE_POINTER => Value::TablePointer(self.low()),
            CONTENT => Value::Content { base, offset, plus: (self.high() >> 32) as i32 },
            _ => Value::Unknown,
        }
    }

    /// The base of an address on the stack.
    #[inline]
    pub(crate) fn base(self) -> Option<Base> {
        (self.high() == STACK).then_some(Base(self.low() as u32))
    }

    /// The caller's register whose value it is, or [`RETURN_ADDRESS`].
    #[inline]
    pub(crate) fn caller(self) -> Option<u8> {
        (self.high() == CALLER).then_some(self.low() as u8)
    }

    /// Whether a recipe may need it.
    #[inline]
    pub(crate) fn matters(self) -> bool {
        const THOSE: u64 = 1 << CALLER | 1 << STACK | 1 << CONTENT;
        THOSE >> (self.high() & 7) & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_values_are_the_same_values() {
        let base = Base::of_register(5);
        let values = [
            Value::Unknown,
            Value::Caller(0),
            Value::Caller(RETURN_ADDRESS),
            Value::cfa(-8),
            Value::Stack { base, offset: i32::MIN },
            Value::Constant(0),
            Value::Constant(u64::MAX),
            Value::TableWord(0x5000),
            Value::TableTarget { table: 0x5000, base: -1 },
            Value::TablePointer(0x5000),
            Value::Content { base, offset: 8, plus: 0 },
            Value::Content { base, offset: -8, plus: -1 },
        ];
        for (index, value) in values.into_iter().enumerate() {
            let packed = Packed::new(value);
            assert_eq!(packed.value(), value);
            assert_eq!(packed.base(), value.base());
            let is_caller = matches!(value, Value::Caller(_));
            assert_eq!(packed.caller().map(Value::Caller), is_caller.then_some(value));
            let matters = matches!(value, Value::Caller(_) | Value::Stack { .. } | Value::Content { .. });
            assert_eq!(packed.matters(), matters);
            for (other, &its) in values.iter().enumerate() {
                assert_eq!(packed == Packed::new(its), index == other);
            }
        }
    }
}
