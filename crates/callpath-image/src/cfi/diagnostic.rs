//! Diagnostics of call frame information: what can be odd in it, in words.

use std::fmt;

use callpath_format::address::LinkAddr;

/// A section of call frame information.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum CfiSection {
    /// `.eh_frame`
    EhFrame,
    /// `.debug_frame`
    DebugFrame,
    /// `.eh_frame_hdr`
    EhFrameHdr,
}

/// Something odd in call frame information, and what became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CfiDiagnostic {
    /// Where.
    pub section: CfiSection,
    /// Offset of the entry, or the row, in the section, bytes.
    pub offset: u64,
    /// What.
    pub trouble: CfiTrouble,
}

/// What can be odd in call frame information.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CfiTrouble {
    /// An entry's length leads out of the section: what follows is not read.
    Cut,
    /// An FDE or its CIE cannot be read.
    Entry(gimli::Error),
    /// An instruction at this address cannot be read or means nothing here: nothing is known from there on.
    Instruction(LinkAddr),
    /// Addresses that do not ascend: nothing is known from this one on.
    Address(LinkAddr),
    /// `DW_CFA_restore_state` without a state or too many remembered: nothing is known from this address on.
    States(LinkAddr),
    /// From this address on no recipe can hold the CFA's rule: the frame is unknown there.
    Cfa(LinkAddr),
    /// From this address on the return address has no rule, or none that a recipe can hold: nothing is known there.
    ReturnAddress(LinkAddr),
    /// A register, by its DWARF number, has a rule that no recipe can hold: it is taken for lost.
    Register(u16),
    /// Zeros where entries should be.
    Zeros,
    /// The sorted table of all entries cannot be used, for this reason.
    Table(&'static str),
    /// The sorted table has a row for this code, and no entry could be read that speaks of it.
    NoEntry(LinkAddr),
    /// The section asks for more work than its length can account for: what follows is not read.
    Work,
}

impl CfiDiagnostic {
    /// The bounds of procedures may be missing or wrong.
    pub fn is_of_bounds(&self) -> bool {
        match self.trouble {
            CfiTrouble::Cut
            | CfiTrouble::Entry(_)
            | CfiTrouble::Zeros
            | CfiTrouble::Table(_)
            | CfiTrouble::NoEntry(_)
            | CfiTrouble::Work => true,
            CfiTrouble::Instruction(_)
            | CfiTrouble::Address(_)
            | CfiTrouble::States(_)
            | CfiTrouble::Cfa(_)
            | CfiTrouble::ReturnAddress(_)
            | CfiTrouble::Register(_) => false,
        }
    }
}

impl fmt::Display for CfiSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CfiSection::EhFrame => ".eh_frame",
            CfiSection::DebugFrame => ".debug_frame",
            CfiSection::EhFrameHdr => ".eh_frame_hdr",
        })
    }
}

impl fmt::Display for CfiDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.section == CfiSection::EhFrameHdr { "row" } else { "entry" };
        write!(f, "{}, {what} at offset {:#x}: ", self.section, self.offset)?;
        match self.trouble {
            CfiTrouble::Cut => write!(f, "the entry reaches out of the section; the rest is not read"),
            CfiTrouble::Entry(error) => write!(f, "the entry cannot be read ({error})"),
            CfiTrouble::Instruction(at) => write!(f, "a meaningless instruction at {at}; no recipes from there on"),
            CfiTrouble::Address(at) => write!(f, "addresses do not ascend after {at}; no recipes from there on"),
            CfiTrouble::States(at) => write!(f, "states are not nested at {at}; no recipes from there on"),
            CfiTrouble::Cfa(at) => write!(f, "a CFA at {at} that no recipe can hold"),
            CfiTrouble::ReturnAddress(at) => write!(f, "a return address at {at} that no recipe can hold"),
            CfiTrouble::Register(column) => write!(f, "a rule of register {column} that no recipe can hold"),
            CfiTrouble::Zeros => write!(f, "zeros where entries should be"),
            CfiTrouble::Table(why) => write!(f, "the table of entries cannot be used: {why}"),
            CfiTrouble::NoEntry(at) => write!(f, "no entry that can be read speaks of the code at {at}"),
            CfiTrouble::Work => write!(f, "more work than the section's length accounts for; the rest is not read"),
        }
    }
}
