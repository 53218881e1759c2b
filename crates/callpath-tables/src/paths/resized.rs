//! What inference of call paths changes in a module's frames.

use callpath_format::address::LinkAddr;
use callpath_format::frame::CloneNumber;
use rustc_hash::FxHashMap;

use crate::copies::{CloneCaller, WantedClone};

/// What tells call paths apart that have the same height (Mytkowicz, Coughlin and Diwan 2009, section 5).
#[derive(Clone, Debug, Default)]
pub struct Resized {
    /// By first instruction, the procedures that run as copies: by how many bytes their frames are larger.
    pub paddings: FxHashMap<LinkAddr, u32>,
    /// Clones of these, which these and clones call, of this module or of others.
    pub clones: Vec<WantedClone>,
    /// The module's number in `outward` of others, if it has one.
    pub module: Option<u32>,
    /// Calls of these and of the clones that lead to clones of other modules' procedures.
    pub outward: Vec<Outward>,
}

/// A call of another module's clone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outward {
    /// Whose call it is.
    pub caller: CloneCaller,
    /// The other module's [`Resized::module`], and the first instruction there of the procedure that is cloned.
    pub callee: (u32, LinkAddr),
    /// The clone.
    pub clone: CloneNumber,
}
