//! Why a procedure cannot be copied.

use std::fmt;

use callpath_format::address::LinkAddr;

/// A procedure that cannot be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The code that is the reason.
    pub at: LinkAddr,
    /// What it is.
    pub reason: Reason,
}

/// What keeps a procedure from being copied.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// There are no instructions.
    NoCode,
    /// An indirect jump could not be followed: it may lead anywhere in the procedure.
    UnresolvedJump,
    /// Another procedure has the same code.
    SharedCode,
    /// An instruction that cannot be moved: a jump of 16 bits, an address counted from the lower half of `rip`.
    Immovable,
    /// Code that signal handlers return to, which the kernel and unwinders know by its address and bytes.
    SignalReturn,
    /// Control enters an instruction in the middle, where a springboard or a call has to be.
    EnteredInside,
    /// No room for the springboard at the entry or at another place that is entered from outside.
    NoRoom,
    /// Inserted code needs a register, all are live, and there is no cell for a value to wait in.
    NoFreeRegister,
    /// Code is to be inserted on an edge that control passes through home, where another edge takes the same way.
    SharedEdge,
    /// Code is to be inserted at a place that the procedure does not have.
    NoSuchPlace,
    /// The copy is too far from the module: more than 2 GB.
    TooFar,
}

impl Reason {
    /// The reason in words.
    pub fn text(self) -> &'static str {
        match self {
            Reason::NoCode => "no code",
            Reason::UnresolvedJump => "indirect jump could not be followed",
            Reason::SharedCode => "shares code with another procedure",
            Reason::Immovable => "instruction depends on its address",
            Reason::SignalReturn => "signal handlers return to it",
            Reason::EnteredInside => "an instruction is entered in the middle",
            Reason::NoRoom => "no room for a jump",
            Reason::NoFreeRegister => "no free register",
            Reason::SharedEdge => "an edge cannot be told from another",
            Reason::NoSuchPlace => "no such place in the procedure",
            Reason::TooFar => "more than 2 GB from the copy",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:#x}", self.reason.text(), self.at.0)
    }
}

impl std::error::Error for Refusal {}
