//! Procedure bounds: where each procedure begins and which code belongs to it.

use std::ops::Range;

use callpath_format::address::LinkAddr;

/// A procedure as its code shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Procedure {
    /// Its first instruction, and up to where its code reaches without a gap but padding.
    pub code: Range<LinkAddr>,
}
