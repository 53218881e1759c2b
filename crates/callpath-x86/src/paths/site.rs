//! Where instrumentation of paths and edges stands, and what it does there.

use callpath_format::address::LinkAddr;

/// Where instrumentation is inserted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Site {
    /// Where the procedure is entered by its first instruction from outside; not where a jump of its own leads there.
    Entry,
    /// Before an instruction, whichever way control comes there.
    Before(LinkAddr),
    /// Between the block that begins at the first address and the one at the second; or an address outside of the
    /// procedure, where the block leaves it. Not where an edge leads through a table.
    Edge(LinkAddr, LinkAddr),
    /// Where control comes to the block at this address through a table, as a landing pad, or from code that is not
    /// known.
    Arrival(LinkAddr),
}

/// What the instrumentation of paths does. `r` is the path register of the activation. Numbers of paths are below
/// [`MAX_PATHS`](super::MAX_PATHS), so arithmetic modulo 2^32 is enough, though constants may be larger or negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PathOperation {
    /// `r = constant`.
    Set(i64),
    /// `r += constant`.
    Add(i64),
    /// Counts the path with the number `r + constant`. `r` is not used any more until it is set.
    Count(i64),
    /// Counts the path with this number. `r` may hold anything.
    CountNumber(i64),
    /// Counts one path that was cut short. `r` may hold anything.
    CutShort,
}
