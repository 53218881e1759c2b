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
    /// The program reads its code as data: the refusal names the instruction that does.
    ReadAsData,
    /// An instruction that cannot be moved: a jump of 16 bits, an address counted from the lower half of `rip`.
    Immovable,
    /// Code that signal handlers return to, which the kernel and unwinders know by its address and bytes.
    SignalReturn,
    /// A restartable sequence (rseq), or where the kernel goes on when it has interrupted one: it knows their addresses.
    Restartable,
    /// It chooses an implementation of another procedure, once, before anything can be put in.
    Resolver,
    /// It calls `vfork`, or is it: the child runs on its parent's stack.
    Vfork,
    /// It preserves registers that other procedures do not: liveness does not know that.
    KeepsRegisters,
    /// Unwinders ask it for the call frame information of an address: it is what tells them of copies.
    TellsOfCopies,
    /// It is the dynamic linker's.
    Loader,
    /// A stub of the procedure linkage table.
    LinkageStub,
    /// The address is inside of a procedure, whose first instruction the refusal names.
    NotAtEntry,
    /// Control enters an instruction in the middle, where a springboard or a call has to be.
    EnteredInside,
    /// No room for the springboard at the entry or at another place that is entered from outside.
    NoRoom,
    /// Inserted code needs a register, all are live, and there is no cell for a value to wait in.
    NoFreeRegister,
    /// Code is to be inserted on an edge that control passes through home, where another way leads to the same place.
    SharedEdge,
    /// Code is to be inserted at a place that the procedure does not have.
    NoSuchPlace,
    /// Its frame is to be enlarged, and this instruction uses it in a way that could not be followed.
    FrameUnknown,
    /// Its frame is to be enlarged, and a part of it has to run at home: a call whose callee looks at its caller, for
    /// example.
    RunsAtHome,
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
            Reason::ReadAsData => "its code is read as data",
            Reason::Immovable => "instruction depends on its address",
            Reason::SignalReturn => "signal handlers return to it",
            Reason::Restartable => "part of a restartable sequence",
            Reason::Resolver => "chooses an implementation before anything can be changed",
            Reason::Vfork => "vfork: the child runs on the parent's stack",
            Reason::KeepsRegisters => "preserves registers that procedures do not have to",
            Reason::TellsOfCopies => "tells unwinders of the copies, and is changed for that alone",
            Reason::Loader => "belongs to the dynamic linker",
            Reason::LinkageStub => "stub of the procedure linkage table",
            Reason::NotAtEntry => "inside of the procedure that begins",
            Reason::EnteredInside => "an instruction is entered in the middle",
            Reason::NoRoom => "no room for a jump",
            Reason::NoFreeRegister => "no free register",
            Reason::SharedEdge => {
                "control comes there in several ways, which its original code cannot tell apart, so that none of them can be counted"
            }
            Reason::NoSuchPlace => {
                "something is to be counted where the procedure has no instruction that control passes"
            }
            Reason::FrameUnknown => "its frame cannot be enlarged",
            Reason::RunsAtHome => "a part has to run in the original code",
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
