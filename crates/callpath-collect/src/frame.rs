//! A frame of a walk: its cursor, its key and its recipe.

use callpath_format::address::CodePoint;
use callpath_format::recipe::Packed;
use callpath_unwind::{Cursor, Located};

/// A frame of a walk, as long as the walk is there.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'w> {
    /// Where it is, and its registers.
    pub(crate) cursor: &'w Cursor,
    /// Its key and recipe.
    pub(crate) located: &'w Located,
    /// The walk began with it.
    pub(crate) is_innermost: bool,
}

impl Frame<'_> {
    /// What is to be known of it when its return address may be marked. One that a signal of the program's has
    /// interrupted may be about to jump to code that keeps its return address, as a stub of the linkage table does to
    /// `setjmp`; of the one that the sample itself has interrupted that is looked at (`may_leave` in `sentinel.rs`).
    #[inline]
    pub(crate) fn head(self) -> u16 {
        let is_interrupted = matches!(self.cursor.point, CodePoint::Exact(_)) && !self.is_innermost;
        self.located.recipe.head | if is_interrupted { Packed::PINNED } else { 0 }
    }
}
