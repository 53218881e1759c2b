//! What is known of a register's or a stack slot's value.
//! Knows nothing of instructions.

/// What addresses on the stack are counted from.
///
/// The base of a frame is its CFA. Where an instruction makes an address whose distance from the CFA nobody knows
/// (`and rsp, -64`), that address is a base of its own, named by the place of the instruction: it means the value that
/// was made there last.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Base(pub(crate) u32);

impl Base {
    pub(crate) const CFA: Base = Base(0);
    const MERGE: u32 = 1 << 31;
    /// No position is so high.
    const OF_REGISTER: u32 = u32::MAX - 15;

    /// Made by the instruction at this position.
    pub(crate) fn made_at(at: u32) -> Base {
        Base((at & !Base::MERGE) + 1)
    }

    /// Different values came together at this position.
    pub(crate) fn merged_at(at: u32) -> Base {
        Base(((at & !Base::MERGE) + 1) | Base::MERGE)
    }

    /// A register's value where an analysis begins that knows nothing.
    pub(crate) fn of_register(register: usize) -> Base {
        Base(Base::OF_REGISTER + (register as u32 & 15))
    }

    /// The register of [`Base::of_register`].
    pub(crate) fn register(self) -> Option<usize> {
        self.0.checked_sub(Base::OF_REGISTER).map(|register| register as usize)
    }
}

/// The return address, as a value that the caller gave: behind the registers 0 to 15.
pub(crate) const RETURN_ADDRESS: u8 = 16;

/// A value of 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Value {
    /// Anything.
    #[default]
    Unknown,
    /// What this register (in the processor's order, or [`RETURN_ADDRESS`]) held when the procedure was called.
    Caller(u8),
    /// `base + offset`, on the stack.
    Stack {
        base: Base,
        /// Bytes.
        offset: i32,
    },
    /// This number: an address of code or data, a frame's size.
    Constant(u64),
    /// A word of four bytes from the table at this address.
    TableWord(u64),
    /// An address plus such a word: a jump's target.
    TableTarget {
        /// The table.
        table: u64,
        /// What the words are added to, less the table's address: bytes.
        base: i32,
    },
    /// An address of eight bytes from the table at this address: a jump's target.
    TablePointer(u64),
    /// What eight bytes on the stack held where an analysis began that knew nothing, plus so many bytes.
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
