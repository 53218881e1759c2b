//! Where statements of the source begin in the code, those without code of their own, too.
//!
//! gcc, when it optimizes with full debug information, marks the beginning of each statement of C and C++
//! in the line map, also where no instruction is left of it (`-gstatement-frontiers`): several rows then
//! have one address. Other compilers do not.

use std::ops::Range;

use callpath_format::address::LinkAddr;

use super::unit::{END, FileId, Row, STATEMENT, UnitScopes, row_file};

/// The beginning of a statement, or of a part of one that a debugger stops at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun {
    /// What is executed from there on follows it.
    pub addr: LinkAddr,
    /// The file, if it is known.
    pub file: Option<FileId>,
    /// From 1.
    pub line: u32,
    /// From 1; 0 where the compiler does not say.
    pub column: u32,
    /// Other rows of the same address come behind it.
    pub is_bare: bool,
}

impl UnitScopes {
    /// Where statements begin in `range`: ascending, at one address in the compiler's order.
    pub fn begun(&self, range: Range<LinkAddr>) -> impl Iterator<Item = Begun> + '_ {
        let within = |rows: &[Row]| {
            let first = rows.partition_point(|row| row.addr < range.start.0);
            first..rows.partition_point(|row| row.addr < range.end.0).max(first)
        };
        let bare = self.bare.get(within(&self.bare)).unwrap_or_default();
        let rows = self.rows.get(within(&self.rows)).unwrap_or_default();
        let is_statement = |row: &&Row| row.file & STATEMENT != 0 && row.file & !STATEMENT != END && row.line != 0;
        let (mut bare, mut rows) = (bare.iter().peekable(), rows.iter().filter(is_statement).peekable());
        std::iter::from_fn(move || {
            let is_bare = match (bare.peek(), rows.peek()) {
                (Some(bare), Some(row)) => bare.addr <= row.addr,
                (bare, _) => bare.is_some(),
            };
            let row = if is_bare { bare.next() } else { rows.next() }?;
            Some(Begun { addr: LinkAddr(row.addr), file: row_file(row), line: row.line, column: row.column, is_bare })
        })
    }

    /// Compiled by a compiler of GCC's.
    pub fn is_by_gcc(&self) -> bool {
        self.is_gcc
    }
}
