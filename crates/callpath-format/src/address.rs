//! Kinds of addresses as types, so that one is never taken for another.

use core::fmt;

/// An address in a running process, where its loader put things.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct RunAddr(pub u64);

/// An address as the linker wrote it (ELF `p_vaddr`, `st_value`): `run = link + bias`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct LinkAddr(pub u64);

impl RunAddr {
    /// The link-time address of this place in a module loaded at `bias`, modulo 2^64.
    pub fn to_link(self, bias: u64) -> LinkAddr {
        LinkAddr(self.0.wrapping_sub(bias))
    }
}

/// A frame's location in the code.
///
/// A return address names the instruction *after* the call, which may belong to another procedure (after a call that
/// does not return). To find the code that a frame belongs to, use [`CodePoint::lookup`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CodePoint {
    /// The next instruction to execute: the innermost frame, and a frame that a signal interrupted.
    Exact(RunAddr),
    /// The address that a call will return to.
    Return(RunAddr),
}

impl CodePoint {
    /// The address to look up: of a return address, the last byte of the call before it. No instruction begins there,
    /// so an exact point and a call site never share a look-up address.
    pub fn lookup(self) -> RunAddr {
        match self {
            CodePoint::Exact(pc) => pc,
            CodePoint::Return(ra) => RunAddr(ra.0.wrapping_sub(1)),
        }
    }

    /// The program counter itself.
    pub fn pc(self) -> RunAddr {
        match self {
            CodePoint::Exact(pc) | CodePoint::Return(pc) => pc,
        }
    }

    /// Whether it is the address of a call that has not returned.
    pub fn is_return(self) -> bool {
        matches!(self, CodePoint::Return(_))
    }
}

macro_rules! hex_debug {
    ($($t:ident),*) => {$(
        impl fmt::Debug for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($t), "({:#x})"), self.0)
            }
        }
        impl fmt::Display for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
        impl fmt::LowerHex for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    )*};
}
hex_debug!(RunAddr, LinkAddr);
