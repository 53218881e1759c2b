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
    /// Where control comes to the block at this address through a table, as to a landing pad, or from code that is not known;
    /// by whichever of several such ways.
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
    /// Of the activation ([`Plan::give_words`]), at this offset, bytes.
    OfActivation(u32),
}

impl Cell {
    /// Which word of an activation it is, by its offset, if it is one.
    pub(super) fn offset_in_activation(self) -> Option<u32> {
        match self {
            Cell::OfActivation(offset) => Some(offset),
            Cell::OfThread(_) | Cell::Shared(_) => None,
        }
    }
}

/// A path's number: the sum of both parts, modulo 2 to the power of 32.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PathNumber {
    /// Holds a number; `None`: 0.
    pub index: Option<Cell>,
    /// The rest.
    pub constant: i32,
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
    /// Adds 1 to a word of the activation's context ([`Plan::count_contexts`]): word number `index` plus `offset`, counted from
    /// where the context's words begin (`callpath_format::shared::flows`).
    CountInContext {
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
    /// Where a register has an address of a copy, it gets one of the module that the copy is of, by a table (`homes`) within
    /// 2 GB.
    ToHome {
        /// Its number.
        register: u8,
        /// Where the table is.
        homes: LinkAddr,
    },
    /// A path begins, whose time may be measured ([`Plan::measure_paths`]). `is_fresh`: control comes from outside of the procedure, so that none is
    /// being measured.
    BeginPath {
        /// See there.
        is_fresh: bool,
    },
    /// Counts a path in a hash table, or in a word if its number is low ([`Plan::count_hashed`]).
    CountHashed(PathNumber, Numbers),
    /// A path has been counted, and its time is added if it was measured.
    EndPath(PathNumber),
    /// Before a call: what is called is not measured.
    LeavePath,
    /// Behind a call.
    ResumePath,
    /// Overwrites every register and flag that is not live: a program must not notice.
    OverwriteDead,
}

/// Where the words of an activation are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Words {
    /// There are none.
    #[default]
    None,
    /// That is still to be chosen.
    ToGive { may_enlarge: bool },
    /// The first is this register, and there is no other.
    InRegister(u8),
    /// In the frame, which is larger.
    InFrame,
}

impl Operation {
    /// Whether it measures times of paths.
    fn is_of_times(&self) -> bool {
        self.cells().any(|cell| cell == BEGAN)
    }

    /// The cells that it works on.
    fn cells(&self) -> impl Iterator<Item = Cell> {
        let [first, second] = match *self {
            Operation::Add(cell, _) | Operation::Set(cell, _) => [Some(cell), None],
            Operation::Count { table, index, .. } => [Some(table), index],
            Operation::CountInContext { index, .. } => [Some(Cell::OfActivation(NODE_AT)), index],
            Operation::EndPath(path) => [Some(BEGAN), path.index],
            Operation::CountHashed(path, _) => [path.index, None],
            Operation::BeginPath { .. } | Operation::LeavePath | Operation::ResumePath => [Some(BEGAN), None],
            _ => [None, None],
        };
        first.into_iter().chain(second)
    }
}

/// What a procedure counts its contexts by (`callpath_format::shared::activation`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contexts {
    /// The procedure's number, which no other of the process has.
    pub number: u32,
    /// The run-time address of its first instruction.
    pub entry: u64,
    /// The routine that finds a context which the copy does not find.
    pub routine: LinkAddr,
    /// Where what copies read is (`callpath_format::shared::activation::CopiesWords`). Like the routine it may lie outside of the
    /// module but within 2 GB.
    pub words: LinkAddr,
    /// An activation may keep another node than the one that is found ([`callpath_format::shared::activation::ContextNode::kept`]).
    pub has_back_edges: bool,
    /// The procedure's module may go while the program runs, and other code come to lie there: no call may enter the copy by what a pointer to
    /// the procedure was.
    pub may_go: bool,
}

/// Where paths are counted if there are too many for a word each (`callpath_format::shared::hashed`). The routine may lie outside of the module but
/// within 2 GB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hashed {
    /// The routine that counts.
    pub routine: LinkAddr,
    /// Where a thread's word is that holds the address of its lane: the distance from its thread pointer.
    pub lane_word: i32,
    /// The procedure's number, which no other with such paths has.
    pub procedure: u32,
    /// The number of the first word of a lane that its cache is; any but 0 where paths are counted in contexts, which have caches.
    pub cache: u32,
    /// Lower numbers of paths than this have words of the lane, or of the context where paths are counted in contexts.
    pub low: u32,
    /// The number of the first of these.
    pub first_word: u32,
}

/// Which numbers paths may have that are counted at one place, by [`Hashed::low`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Numbers {
    /// Low ones alone.
    Low,
    /// Others alone.
    High,
    /// Any.
    Any,
}

/// What times of a procedure's paths are measured by (`callpath_format::shared::times`). The routines may lie outside of the module but
/// within 2 GB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// The routine that a measured path begins with.
    pub begin: LinkAddr,
    /// The one before a call.
    pub leave: LinkAddr,
    /// The one behind it.
    pub resume: LinkAddr,
    /// The one at its end.
    pub end: LinkAddr,
    /// Where a thread's word is that holds the address of its lane: the distance from its thread pointer.
    pub lane_word: i32,
    /// The number of the first of the procedure's words of a lane.
    pub word: u32,
    /// The procedure's number, which no other of the process has.
    pub number: u32,
    /// The routines are those that read one metric or two, of which an activation keeps a word each.
    pub is_general: bool,
}

impl Times {
    /// By how much a frame is larger, bytes.
    fn frame_bytes(&self) -> u32 {
        if self.is_general { 2 * TIMES_BYTES } else { TIMES_BYTES }
    }
}

/// The offset of an activation's word that holds the address of its context's node, bytes.
const NODE_AT: u32 = 8;
/// The word of an activation that says when the path began that is being measured, or how long it has taken until it called; 0: none is.
pub(super) const BEGAN: Cell = Cell::OfActivation(16);
/// The word that holds what that path weighs.
pub(super) const WEIGHT: Cell = Cell::OfActivation(24);
/// Of a second metric, the word that [`BEGAN`] is of the first; only with [`Times::is_general`].
pub(super) const SECOND: Cell = Cell::OfActivation(32);

/// How many operations count in turn where a block leads to itself ([`Plan::count_in_turn`]).
pub const TURNS: usize = 4;

/// What a frame is enlarged by, bytes: a multiple of the stack's alignment.
pub const FRAME_BYTES: u32 = 32;
/// By how much more where times of paths are measured.
const TIMES_BYTES: u32 = 16;

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
    words: Words,
    bias: Option<u64>,
    in_copy: BTreeSet<LinkAddr>,
    arguments: BTreeMap<LinkAddr, u32>,
    contexts: Option<Contexts>,
    keeps_node: bool,
    /// Calls in the copy are not marked: activations have no word that a mark could lead to.
    are_unmarked: bool,
    times: Option<Times>,
    hashed: Option<Hashed>,
    /// Of blocks that lead to themselves, by their starts: what counts in turn.
    turns: BTreeMap<LinkAddr, [Operation; TURNS]>,
    /// By how many bytes the frame is larger, though nothing is kept there.
    padding: u32,
}

impl Plan {
    /// Nothing yet. `spill`: a cell of the thread for the value of a register that has to be used while it is live.
    pub fn new(spill: Option<Cell>) -> Plan {
        Plan { spill, ..Plan::default() }
    }

    /// Counts each activation in its context, and marks the calls that the copy makes ([`Plan::call_in_copy`]), so that what is called
    /// finds its own. If it makes calls, or counts in its context ([`Operation::CountInContext`]), its activations keep their node, and need
    /// words ([`Plan::give_words`]): without them calls are not marked ([`super::UnmarkedCall`]).
    pub fn count_contexts(&mut self, contexts: Contexts, keeps_node: bool) {
        self.contexts = Some(contexts);
        self.keeps_node = keeps_node;
    }

    /// Makes the frame larger by so many bytes, a multiple of the stack's alignment, so that what the procedure calls has a higher stack
    /// (Mytkowicz, Coughlin and Diwan 2009, section 5.1). All calls have to be made in the copy ([`Plan::call_in_copy`]), and unwinders to know
    /// its frames. Not together with words ([`Plan::give_words`]).
    pub fn pad(&mut self, bytes: u32) {
        self.padding = bytes;
    }

    /// Says where [`Operation::CountHashed`] counts.
    pub fn count_hashed(&mut self, hashed: Hashed) {
        self.hashed = Some(hashed);
    }

    pub(super) fn hashed(&self) -> Option<Hashed> {
        self.hashed
    }

    /// Measures the times of paths, as operations say ([`Operation::BeginPath`]). Activations need words for it ([`Plan::give_words`]): if there are none,
    /// times are not measured.
    pub fn measure_paths(&mut self, times: Times) {
        self.times = Some(times);
    }

    /// What it measures the times of paths by, if it does.
    pub(super) fn times(&self) -> Option<Times> {
        self.times
    }

    fn without_times(&self) -> Plan {
        let mut plan = Plan { times: None, ..self.clone() };
        plan.insertions.values_mut().for_each(|operations| operations.retain(|operation| !operation.is_of_times()));
        plan.insertions.retain(|_, operations| !operations.is_empty());
        plan
    }

    /// What it counts contexts by, if it does.
    pub(super) fn contexts(&self) -> Option<Contexts> {
        self.contexts
    }

    /// The word of the activation that holds the address of its context's node, if it makes calls.
    pub(super) fn context_word(&self) -> Option<Cell> {
        let is_kept = self.contexts.is_some() && self.keeps_node && !self.are_unmarked;
        is_kept.then_some(Cell::OfActivation(NODE_AT))
    }

    /// Whether activations have no word for a node, but are to be noted, if there are calls.
    pub(super) fn notes_activations(&self) -> bool {
        self.contexts.is_some() && self.are_unmarked
    }

    /// Gives each activation two words of its own ([`Cell::OfActivation`]), if what is inserted uses them. The first one is a
    /// register where there are no calls and one is free all along; else the frame is enlarged by words, if `may_enlarge`. All
    /// calls have to be made in the copy then ([`Plan::call_in_copy`]), and unwinders to know its frames.
    pub fn give_words(&mut self, may_enlarge: bool) {
        self.words = Words::ToGive { may_enlarge };
    }

    /// The plans of which the first one that can be carried out is meant: the words have their places there. `register`: one
    /// that is free all along.
    pub(super) fn choices(&self, register: Option<u8>) -> Vec<Plan> {
        let Words::ToGive { may_enlarge } = self.words else { return vec![self.clone()] };
        let with = |words: Words| Plan { words, ..self.clone() };
        if self.times.is_some() {
            let timed = may_enlarge.then(|| with(Words::InFrame));
            return timed.into_iter().chain(self.without_times().choices(register)).collect();
        }
        let uses = |offset: Option<u32>| {
            let is_it =
                |cell: &Cell| matches!(cell, Cell::OfActivation(at) if offset.is_none_or(|offset| *at == offset));
            let inserted = self.insertions.values().flatten().flat_map(Operation::cells);
            inserted.chain(self.context_word()).any(|cell| is_it(&cell))
        };
        let mut choices = Vec::new();
        if !uses(None) {
            choices.push(with(Words::None));
        } else if !uses(Some(NODE_AT)) {
            // What counts in turn may need a register more.
            let in_register = register.map(|register| with(Words::InRegister(register)));
            let without = in_register.iter().filter(|plan| !plan.turns.is_empty());
            let without: Vec<Plan> = without.map(|plan| Plan { turns: BTreeMap::new(), ..plan.clone() }).collect();
            choices.extend(in_register.into_iter().chain(without));
        }
        if may_enlarge {
            choices.push(with(Words::InFrame));
        }
        if self.context_word().is_some() {
            choices.extend(Plan { are_unmarked: true, ..self.clone() }.choices(register));
        }
        choices
    }

    /// By how many bytes the frame is enlarged.
    pub(super) fn enlarged_by(&self) -> u32 {
        match (self.words, self.times) {
            (Words::InFrame, Some(times)) => FRAME_BYTES + times.frame_bytes(),
            (Words::InFrame, None) => FRAME_BYTES,
            _ => self.padding,
        }
    }

    /// The register that the first word of the activation is.
    pub(super) fn register(&self) -> Option<u8> {
        match self.words {
            Words::InRegister(register) => Some(register),
            _ => None,
        }
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

    /// Says that a landing pad which an exception leaves a call for is entered with rsp so many bytes higher: what was pushed for the call
    /// (`DW_CFA_GNU_args_size`) is gone there.
    pub fn pops_arguments(&mut self, call: LinkAddr, bytes: u32) {
        if bytes > 0 {
            self.arguments.insert(call, bytes);
        }
    }

    /// By call: see there.
    pub(super) fn arguments(&self) -> &BTreeMap<LinkAddr, u32> {
        &self.arguments
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
        match self.words {
            Words::InFrame => {
                let end = self.enlarged_by();
                [Some(Cell::OfActivation(end - 16)), Some(Cell::OfActivation(end - 8))]
            }
            _ => [self.spill, None],
        }
    }

    /// Inserts an operation behind what is inserted at that place already.
    pub fn insert(&mut self, place: Place, operation: Operation) {
        self.insertions.entry(place).or_default().push(operation);
    }

    /// Where the block that begins at an address leads to itself, each execution that directly follows another one is counted by the next of these
    /// operations in turn, in place of what is inserted at that edge: a word that every execution of a short loop adds to delays each by what it
    /// takes to store and load it. They have to count the same, of the same register and cells; what is inserted at the edge has to leave these as
    /// if it had been executed once. If the block is not short, or something is inserted in it, nothing is counted in turn.
    pub fn count_in_turn(&mut self, block: LinkAddr, turns: [Operation; TURNS]) {
        self.turns.insert(block, turns);
    }

    /// What is counted in turn where a block leads to itself.
    pub(super) fn turns(&self, block: LinkAddr) -> Option<&[Operation; TURNS]> {
        self.turns.get(&block)
    }

    /// What is inserted at a place.
    pub fn at(&self, place: Place) -> &[Operation] {
        self.insertions.get(&place).map_or(&[], Vec::as_slice)
    }

    /// Whether nothing is inserted.
    pub fn is_empty(&self) -> bool {
        self.insertions.is_empty() && self.contexts.is_none() && self.enlarged_by() == 0
    }

    /// The places, ascending.
    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.insertions.keys().copied()
    }
}
