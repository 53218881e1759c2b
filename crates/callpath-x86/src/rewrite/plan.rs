//! What is inserted into a procedure's copy: where, and what it does.

use std::collections::{BTreeMap, BTreeSet};

use callpath_format::address::LinkAddr;

/// Where code is inserted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// Where the procedure is entered by its first instruction from outside; not where a jump of its own leads there.
    Entry,
    /// Before an instruction, whichever way control comes there.
    Before(LinkAddr),
    /// Between the block that begins at the first address and the one at the second, both of the procedure's graph.
    /// The second may also be an address outside of it, where a jump at the end of the block, or the end itself, leaves
    /// it.
    Edge(LinkAddr, LinkAddr),
    /// Where control comes back from the call instruction at this address, and only then.
    AfterCall(LinkAddr),
    /// Where control comes to the block at this address through a table, or as to a landing pad; by whichever of several
    /// such ways.
    Arrival(LinkAddr),
}

/// A word of eight bytes that inserted code works on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cell {
    /// Of the thread: at this distance from its thread pointer (fs).
    OfThread(i32),
    /// One for all threads, at this address, which may lie outside of the module but within 2 GB. What two threads add
    /// at the same time may be lost.
    Shared(LinkAddr),
    /// Of the activation, at this offset in what its frame is enlarged by ([`Plan::enlarge`]): a multiple of 8.
    OfFrame(u32),
}

/// What inserted code does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Adds a constant to a cell.
    Add(Cell, i32),
    /// Sets a cell to a constant, extended with its sign.
    Set(Cell, i32),
    /// Adds 1 to a word of a table: word number `index` plus `offset`, all of it counted from where `table`, a cell, points at.
    Count {
        /// Holds the address of word 0.
        table: Cell,
        /// Holds a number of words; `None`: 0.
        index: Option<Cell>,
        /// A number of words.
        offset: i32,
    },
    /// Calls a routine at this address, which may lie outside of the module but within 2 GB. It has to preserve all
    /// registers and the direction flag; those of arithmetic are saved where they are live. rsp is of any alignment.
    Call(LinkAddr),
    /// The same, of a routine that preserves all flags, too.
    CallKeepingFlags(LinkAddr),
    /// Overwrites every register and flag that is not live: a program must not notice.
    OverwriteDead,
}

/// What a frame is enlarged by, bytes: a multiple of the stack's alignment.
pub const FRAME_BYTES: u32 = 32;

/// Where the value of rax is while inserted code runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rax {
    /// In rax.
    InPlace,
    /// In the word that rsp points at.
    OnStack,
    /// In the plan's spill cell.
    InCell,
}

/// All that is inserted into one procedure.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    insertions: BTreeMap<Place, Vec<Operation>>,
    spill: Option<Cell>,
    enlarged_by: u32,
    bias: Option<u64>,
    in_copy: BTreeSet<LinkAddr>,
}

impl Plan {
    /// Nothing yet. `spill`: a cell of the thread for the value of a register that has to be used while it is live.
    pub fn new(spill: Option<Cell>) -> Plan {
        Plan { insertions: BTreeMap::new(), spill, enlarged_by: 0, bias: None, in_copy: BTreeSet::new() }
    }

    /// Gives each activation two words of its own ([`Cell::OfFrame`], at 0 and 8), and two more for values that wait: its frame
    /// is enlarged. All calls have to be made in the copy ([`Plan::call_in_copy`]), and unwinders to know its frames.
    pub fn enlarge(&mut self) {
        self.enlarged_by = FRAME_BYTES;
    }

    /// By how many bytes the frame is enlarged.
    pub(super) fn enlarged_by(&self) -> u32 {
        self.enlarged_by
    }

    /// Lets the copy make calls itself that leave no room at home for what has to be inserted: it pushes the return
    /// address that they would push. `bias`: run-time address minus link-time address of the module. Not for processes
    /// with user shadow stacks: there the return would trap.
    pub fn let_copy_call(&mut self, bias: u64) {
        self.bias = Some(bias);
    }

    /// Run-time address minus link-time address, if the copy may make calls itself.
    pub(super) fn bias(&self) -> Option<u64> {
        self.bias
    }

    /// Lets the copy make a call like the original does: the return address is one of the copy. Unwinders have to know
    /// the copy, and the callee must not look where it was called from. Other calls are made at home.
    pub fn call_in_copy(&mut self, call: LinkAddr) {
        self.in_copy.insert(call);
    }

    /// Whether a call is made in the copy.
    pub(super) fn is_in_copy(&self, call: LinkAddr) -> bool {
        self.in_copy.contains(&call)
    }

    /// Where the value of a register waits, and that of a second one.
    pub(super) fn spills(&self) -> [Option<Cell>; 2] {
        match self.enlarged_by {
            0 => [self.spill, None],
            _ => [Some(Cell::OfFrame(FRAME_BYTES - 16)), Some(Cell::OfFrame(FRAME_BYTES - 8))],
        }
    }

    /// Inserts an operation behind what is inserted at that place already.
    pub fn insert(&mut self, place: Place, operation: Operation) {
        self.insertions.entry(place).or_default().push(operation);
    }

    /// What is inserted at a place.
    pub fn at(&self, place: Place) -> &[Operation] {
        self.insertions.get(&place).map_or(&[], Vec::as_slice)
    }

    /// Whether nothing is inserted.
    pub fn is_empty(&self) -> bool {
        self.insertions.is_empty() && self.enlarged_by == 0
    }

    /// The places, ascending.
    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.insertions.keys().copied()
    }
}
