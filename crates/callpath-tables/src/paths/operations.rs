//! What is inserted for operations on the register of a path, and for the times of paths and activations.

use std::collections::BTreeSet;

use callpath_x86::graph::ProcedureGraph;
use callpath_x86::paths::{EdgePlan, PathOperation, Site, Way, Ways, weights};
use callpath_x86::rewrite::{Cell, Numbers, Operation, PathNumber, Place, Plan};

use super::{CUT_SHORT, FIRST_OF_CONTEXT};

/// Where a procedure's counters are.
#[derive(Clone, Copy)]
pub(super) enum CounterPlace {
    /// In a thread's lane, whose address is in a word of the thread: from this one on.
    OfLane { lane_word: i32, first: i64 },
    /// In each context.
    OfContext,
}

/// What counts.
#[derive(Clone, Copy)]
pub(super) struct Counter {
    /// Paths that were not ended have a word there, and others if they are not in a hash table.
    pub(super) place: CounterPlace,
    /// If others are in a hash table, but for low numbers: which they are.
    pub(super) hashed: Option<Numbers>,
}

impl Counter {
    /// What adds 1 to the one that counts a path, by its number: `index`, a cell, plus a constant. `None`: that is too large.
    pub(super) fn count(self, index: Option<Cell>, constant: i64) -> Option<Operation> {
        if let Some(numbers) = self.hashed {
            return Some(Operation::CountHashed(PathNumber { index, constant: constant as i32 }, numbers));
        }
        match self.place {
            CounterPlace::OfLane { lane_word, first } => {
                let offset = i32::try_from(first.checked_add(constant)?).ok()?;
                Some(Operation::Count { table: Cell::OfThread(lane_word), index, offset })
            }
            CounterPlace::OfContext => {
                let offset = i32::try_from(i64::from(FIRST_OF_CONTEXT).checked_add(constant)?).ok()?;
                Some(Operation::CountInContext { index, offset })
            }
        }
    }

    fn cut_short(self) -> Operation {
        match self.place {
            CounterPlace::OfLane { lane_word, .. } => {
                Operation::Count { table: Cell::OfThread(lane_word), index: None, offset: CUT_SHORT as i32 }
            }
            CounterPlace::OfContext => Operation::CountInContext { index: None, offset: CUT_SHORT as i32 },
        }
    }

    /// A number as an operand; in a hash table numbers count modulo 2 to the power of 32.
    fn number(self, constant: i64) -> Option<i32> {
        if self.hashed.is_some() { Some(constant as i32) } else { i32::try_from(constant).ok() }
    }
}

/// What measures where a path is counted. `None`: the operation counts none.
pub(super) fn path_end(operation: PathOperation) -> Option<Operation> {
    let end = |index, constant| Some(Operation::EndPath(PathNumber { index, constant }));
    match operation {
        PathOperation::Count(constant) => end(Some(Cell::OfActivation(0)), constant as i32),
        PathOperation::CountNumber(number) => end(None, number as i32),
        _ => None,
    }
}

/// Inserts what measures an activation, in stretches: from its entry, and from behind each call, to the next call, or to where it is left. Some activations last
/// as long as the program; of each stretch it is chosen anew whether it is measured. `at_back_edges`: a stretch ends there, too.
pub(super) fn measure_activation(plan: &mut Plan, graph: &ProcedureGraph, (ways, at_back_edges): (&Ways, bool)) {
    const END: Operation = Operation::EndPath(PathNumber { index: None, constant: 0 });
    let exits = ways.ways.iter().filter(|way| way.to.is_none()).filter_map(|way| way.site);
    for site in exits {
        plan.insert(place(site), END);
    }
    if at_back_edges {
        let edges = EdgePlan::new(ways, &weights(graph, ways));
        let is_back = |(number, way): &(u32, &Way)| way.to.is_some() && edges.is_back(*number);
        let back = (0u32..).zip(&ways.ways).filter(is_back).filter_map(|(_, way)| way.site);
        // Several ways may pass one place.
        for site in back.collect::<BTreeSet<_>>() {
            plan.insert(place(site), END);
            plan.insert(place(site), Operation::BeginPath { is_fresh: false });
        }
    }
    plan.insert(Place::Entry, Operation::BeginPath { is_fresh: true });
    for arrival in ways.arrivals.iter().filter(|arrival| arrival.cuts_short) {
        let start = ways.starts.get(arrival.block as usize).copied().unwrap_or(graph.entry);
        plan.insert(Place::Arrival(start), Operation::BeginPath { is_fresh: true });
    }
    for call in &graph.calls {
        plan.insert(Place::Before(call.code.start), END);
        if call.returns {
            plan.insert(Place::AfterCall(call.code.start), Operation::BeginPath { is_fresh: false });
        }
    }
}

/// Inserts what measures times besides: behind what counts.
pub(super) fn measure_times(plan: &mut Plan, graph: &ProcedureGraph, begins: Vec<(Site, bool)>) {
    for (site, is_fresh) in begins {
        plan.insert(place(site), Operation::BeginPath { is_fresh });
    }
    for call in &graph.calls {
        plan.insert(Place::Before(call.code.start), Operation::LeavePath);
        if call.returns {
            plan.insert(Place::AfterCall(call.code.start), Operation::ResumePath);
        }
    }
}

/// What is inserted for an operation on the path register, which is a word of the activation's frame. `None`: a number is too
/// large.
pub(super) fn inserted(operation: PathOperation, counter: Counter) -> Option<Operation> {
    let register = Cell::OfActivation(0);
    Some(match operation {
        PathOperation::Set(constant) => Operation::Set(register, counter.number(constant)?),
        PathOperation::Add(constant) => Operation::Add(register, counter.number(constant)?),
        PathOperation::Count(constant) => counter.count(Some(register), constant)?,
        PathOperation::CountNumber(constant) => counter.count(None, constant)?,
        PathOperation::CutShort => counter.cut_short(),
    })
}

/// Where an operation is inserted.
pub(super) fn place(site: Site) -> Place {
    match site {
        Site::Entry => Place::Entry,
        Site::Before(at) => Place::Before(at),
        Site::Edge(from, to) => Place::Edge(from, to),
        Site::Arrival(at) => Place::Arrival(at),
    }
}
