//! Procedure bounds: where each procedure begins and which code belongs to it.

use std::ops::Range;

use callpath_format::address::LinkAddr;

/// A procedure found in code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Procedure {
    /// From its first instruction to the end of its code, which has no gaps but padding.
    pub code: Range<LinkAddr>,
}
