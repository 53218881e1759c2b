//! Registers, and sets of them.

use iced_x86::Register as Iced;

/// A register as an operand names it: which one, and which part of it. [`Register::NONE`] is no register.
///
/// ```text
/// 0 to 15     general-purpose, 8 bytes, in the processor's order
/// 16 to 31    their lower 4 bytes; 32 to 47: 2 bytes; 48 to 63: 1 byte
/// 64 to 67    the second bytes of the first four: ah, ch, dh, bh
/// 96 to 127   vector registers of 16 bytes; 128 to 159: 32 bytes; 160 to 191: 64 bytes
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Register(u8);

const SECOND_BYTES: u8 = 64;
const RIP: u8 = 68;
const FLAT: u8 = 69;
const OTHER: u8 = 70;
const VECTORS: u8 = 96;
const VECTORS_END: u8 = 192;

/// Our number for each of iced's registers.
static OURS: [u8; 256] = {
    let mut ours = [OTHER; 256];
    // (first of iced's, first of ours, how many)
    const RANGES: [(usize, u8, usize); 11] = [
        (Iced::AL as usize, 48, 4),
        (Iced::AH as usize, SECOND_BYTES, 4),
        (Iced::SPL as usize, 52, 12),
        (Iced::AX as usize, 32, 16),
        (Iced::EAX as usize, 16, 16),
        (Iced::RAX as usize, 0, 16),
        (Iced::EIP as usize, RIP, 1),
        (Iced::RIP as usize, RIP, 1),
        (Iced::XMM0 as usize, VECTORS, 32),
        (Iced::YMM0 as usize, VECTORS + 32, 32),
        (Iced::ZMM0 as usize, VECTORS + 64, 32),
    ];
    let mut range = 0;
    while range < RANGES.len() {
        let (iced, first, count) = RANGES[range];
        let mut index = 0;
        while index < count {
            ours[iced + index] = first + index as u8;
            index += 1;
        }
        range += 1;
    }
    ours[Iced::None as usize] = Register::NONE.0;
    ours
};

impl Register {
    pub(crate) const NONE: Register = Register(255);
    pub(crate) const RSP: Register = Register(4);
    pub(crate) const RBP: Register = Register(5);
    pub(crate) const AL: Register = Register(48);
    /// Base of a memory operand: the next instruction's address.
    pub(crate) const RIP: Register = Register(RIP);
    /// Base of a memory operand that has none.
    pub(super) const FLAT: Register = Register(FLAT);

    #[inline]
    pub(super) fn of(iced: Iced) -> Register {
        Register(OURS[iced as usize & 255])
    }

    #[inline]
    pub(super) const fn encoded(self) -> u8 {
        self.0
    }

    #[inline]
    pub(super) fn decoded(encoded: u8) -> Register {
        Register(encoded)
    }

    /// The number, in the processor's order, of the general-purpose register that it is, or is a part of.
    #[inline]
    pub(crate) fn general(self) -> Option<usize> {
        match self.0 {
            ..SECOND_BYTES => Some(usize::from(self.0 & 15)),
            SECOND_BYTES..RIP => Some(usize::from(self.0 & 3)),
            _ => None,
        }
    }

    /// As `general`, only for registers of all eight bytes.
    #[inline]
    pub(crate) fn general64(self) -> Option<usize> {
        (self.0 < 16).then_some(usize::from(self.0))
    }

    /// The size of a general-purpose register's operand, bytes; 0 for others.
    #[inline]
    pub(crate) fn general_bytes(self) -> u8 {
        match self.0 {
            ..SECOND_BYTES => 8 >> (self.0 >> 4),
            SECOND_BYTES..RIP => 1,
            _ => 0,
        }
    }

    /// The whole register, as a set.
    #[inline]
    pub(super) fn set(self) -> RegisterSet {
        match self.0 {
            ..SECOND_BYTES => RegisterSet(1 << (self.0 & 15)),
            SECOND_BYTES..RIP => RegisterSet(1 << (self.0 & 3)),
            VECTORS..VECTORS_END => RegisterSet(1 << (RegisterSet::FIRST_VECTOR + u32::from(self.0 & 31))),
            _ => RegisterSet::EMPTY,
        }
    }

    /// Whether writing it replaces the whole register. (The upper parts of a vector register may remain.)
    #[inline]
    pub(super) fn is_replaced(self) -> bool {
        self.general_bytes() >= 4
    }
}

impl std::fmt::Debug for Register {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.general(), self.0) {
            (Some(number), _) => write!(f, "r{number}.{}", self.general_bytes()),
            (_, RIP) => f.write_str("rip"),
            (_, VECTORS..VECTORS_END) => write!(f, "v{}", self.0 & 31),
            (_, 255) => f.write_str("none"),
            _ => f.write_str("other"),
        }
    }
}

/// Whole registers: bits 0 to 15 general-purpose ones, 16 to 47 vector registers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct RegisterSet(pub(crate) u64);

impl RegisterSet {
    const FIRST_VECTOR: u32 = 16;
    pub(crate) const EMPTY: RegisterSet = RegisterSet(0);

    /// Numbers of the general-purpose registers, ascending.
    #[inline]
    pub(crate) fn general(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0 as u16;
        std::iter::from_fn(move || {
            let number = rest.trailing_zeros() as usize;
            rest &= rest.wrapping_sub(1);
            (number < 16).then_some(number)
        })
    }

    /// The general-purpose registers, a bit each.
    #[inline]
    pub(crate) fn general_bits(self) -> u16 {
        self.0 as u16
    }

    #[inline]
    pub(crate) fn has_general(self, number: usize) -> bool {
        self.0 >> (number & 15) & 1 != 0
    }

    #[inline]
    pub(crate) fn with(self, other: RegisterSet) -> RegisterSet {
        RegisterSet(self.0 | other.0)
    }

    #[inline]
    pub(crate) fn without(self, other: RegisterSet) -> RegisterSet {
        RegisterSet(self.0 & !other.0)
    }
}
