//! The calls of a map's code as a graph, by callee and by caller. Between calls through pointers and what they may lead to stand places
//! for sets of arguments: a call leads to all places of sets that it passes a superset of.

use crate::map::{Code, PathMap};

/// A call, or a step to or from a set of arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    /// The place at its other end.
    pub(crate) to: u32,
    /// How far the stack grows, bytes.
    pub(crate) adds: i64,
    /// What it takes for granted.
    pub(crate) cost: u64,
}

/// A call that a pointer says costs more than any number of others.
pub(crate) const POINTER_COST: u64 = 1 << 32;

const SETS: usize = 1 << Code::REGISTERS;

/// Edges by the place that they hang on.
#[derive(Debug)]
struct Edges {
    /// For each place: the first of its edges. One more: the end.
    firsts: Vec<u32>,
    edges: Vec<Edge>,
}

impl Edges {
    /// `all`: each with the place that it hangs on.
    fn of(places: usize, all: &[(u32, Edge)]) -> Edges {
        let mut firsts = vec![0u32; places + 1];
        for (at, _) in all {
            firsts[*at as usize + 1] += 1;
        }
        for at in 0..places {
            firsts[at + 1] += firsts[at];
        }
        let mut next = firsts.clone();
        let mut edges = vec![Edge { to: 0, adds: 0, cost: 0 }; all.len()];
        for (at, edge) in all {
            let place = &mut next[*at as usize];
            edges[*place as usize] = *edge;
            *place += 1;
        }
        Edges { firsts, edges }
    }

    fn at(&self, place: u32) -> &[Edge] {
        let end = |index: usize| self.firsts.get(index).map(|first| *first as usize);
        let range = end(place as usize).zip(end(place as usize + 1));
        range.and_then(|(first, end)| self.edges.get(first..end)).unwrap_or(&[])
    }
}

/// The graph. Places are the map's procedures, then sets of arguments.
#[derive(Debug)]
pub(crate) struct CallGraph {
    procedures: usize,
    callers: Edges,
    callees: Edges,
    /// The stack grows by multiples of so much, bytes.
    pub(crate) unit_bytes: i64,
}

impl CallGraph {
    /// Of a map. `of_call`: what a call takes for granted.
    pub(crate) fn of(map: &PathMap, of_call: u64) -> CallGraph {
        let procedures = map.procedures.len();
        let passing = |set: usize| (procedures + set) as u32;
        let taking = |set: usize| (procedures + SETS + set) as u32;
        let set = |bits: u8| usize::from(bits) % SETS;
        // Caller, callee.
        let mut all: Vec<(u32, u32, i64, u64)> =
            map.calls.iter().map(|call| (call.caller, call.callee, call.height, of_call)).collect();
        let through = map.code.pointer_calls.iter();
        all.extend(through.map(|call| (call.caller, passing(set(call.passes)), call.height, of_call)));
        all.retain(|(_, _, adds, _)| *adds > 0);
        let unit_bytes = if all.iter().all(|(_, _, adds, _)| adds % WORD_BYTES == 0) { WORD_BYTES } else { 1 };
        for passes in 0..SETS {
            let taken = (0..SETS).filter(|takes| passes & takes == *takes);
            all.extend(taken.map(|takes| (passing(passes), taking(takes), 0, POINTER_COST)));
        }
        all.extend(map.code.pointed.iter().map(|to| (taking(set(to.takes)), to.procedure, 0, 0)));
        let places = procedures + 2 * SETS;
        let by_callee: Vec<(u32, Edge)> =
            all.iter().map(|&(caller, callee, adds, cost)| (callee, Edge { to: caller, adds, cost })).collect();
        let by_caller: Vec<(u32, Edge)> =
            all.iter().map(|&(caller, callee, adds, cost)| (caller, Edge { to: callee, adds, cost })).collect();
        let (callers, callees) = (Edges::of(places, &by_callee), Edges::of(places, &by_caller));
        CallGraph { procedures, callers, callees, unit_bytes }
    }

    /// How many places there are.
    pub(crate) fn len(&self) -> usize {
        self.procedures + 2 * SETS
    }

    /// Whether a place is a procedure.
    pub(crate) fn is_procedure(&self, place: u32) -> bool {
        (place as usize) < self.procedures
    }

    /// From where control comes to a place.
    pub(crate) fn callers(&self, place: u32) -> &[Edge] {
        self.callers.at(place)
    }

    /// Where it goes to.
    pub(crate) fn callees(&self, place: u32) -> &[Edge] {
        self.callees.at(place)
    }
}

const WORD_BYTES: i64 = 8;
