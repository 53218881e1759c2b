//! The calls of a map's code as a graph, by callee and by caller. Between calls through pointers and what they may lead to stand places
//! for sets of arguments: a call leads to all places of sets that it passes a superset of.

use rustc_hash::FxHashMap;

use crate::map::{Called, Code, PathMap, Root};

/// A call, or a step to or from a set of arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    /// The place at its other end.
    pub(crate) to: u32,
    /// How far the stack grows, bytes.
    pub(crate) adds: i64,
    /// What it takes for granted.
    pub(crate) cost: u32,
}

/// A call that was not seen.
pub(crate) const CALL_COST: u32 = 1;
/// A call that a pointer says costs more than as many others as there is room for on a stack that is searched.
pub(crate) const POINTER_COST: u32 = 1 << 16;

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

/// The graph. Places are the map's procedures; then sets of arguments that are passed and taken; the same at a program's start; and what is active
/// at a program's start: procedures as others, which were entered by calls that name them, and no more than two of those.
#[derive(Debug)]
pub(crate) struct CallGraph {
    procedures: usize,
    /// By what is active at a program's start: its procedure.
    at_start: Vec<u32>,
    callers: Edges,
    callees: Edges,
    /// By place, from where control comes at no known height; [`CallGraph::ANYWHERE`]: from a file that is not known.
    variable: FxHashMap<u32, Vec<u32>>,
    /// The stack grows by multiples of so much, bytes.
    pub(crate) unit_bytes: i64,
}

/// Sets of arguments at a place.
#[derive(Clone, Copy)]
enum Sets {
    Passed = 0,
    Taken = 1,
    PassedAtStart = 2,
    TakenAtStart = 3,
}

impl Sets {
    const COUNT: usize = 4;
}

impl CallGraph {
    /// The caller in a file that is not known.
    pub(crate) const ANYWHERE: u32 = u32::MAX;

    /// Of a map.
    pub(crate) fn of(map: &PathMap) -> CallGraph {
        let procedures = map.procedures.len();
        let place_of = |sets: Sets, set: usize| (procedures + sets as usize * SETS + set) as u32;
        let set = |bits: u8| usize::from(bits) % SETS;
        // Caller, callee.
        let mut all: Vec<(u32, u32, i64, u32)> =
            map.calls.iter().map(|call| (call.caller, call.callee, call.height, CALL_COST)).collect();
        let through = map.code.pointer_calls.iter();
        all.extend(through.map(|call| (call.caller, place_of(Sets::Passed, set(call.passes)), call.height, CALL_COST)));
        // Clones call from frames of other sizes, too.
        let of_clones = |&(caller, callee, adds, cost): &(u32, u32, i64, u32)| {
            let sizes = map.cloned.sizes_of(caller).into_iter();
            sizes.map(move |larger| (caller, callee, adds.saturating_add(larger), cost))
        };
        let of_clones: Vec<(u32, u32, i64, u32)> = all.iter().flat_map(of_clones).collect();
        all.extend(of_clones);
        all.retain(|(_, _, adds, _)| *adds > 0);
        let unit_bytes = if all.iter().all(|(_, _, adds, _)| adds % WORD_BYTES == 0) { WORD_BYTES } else { 1 };
        let at_start = add_start(map, (procedures + Sets::COUNT * SETS) as u32, &mut all, place_of);
        for (passed, taken) in [(Sets::Passed, Sets::Taken), (Sets::PassedAtStart, Sets::TakenAtStart)] {
            for passes in 0..SETS {
                let takes = (0..SETS).filter(|takes| passes & takes == *takes);
                all.extend(takes.map(|takes| (place_of(passed, passes), place_of(taken, takes), 0, POINTER_COST)));
            }
        }
        all.extend(map.code.pointed.iter().map(|to| {
            let taken = if to.is_at_start { Sets::TakenAtStart } else { Sets::Taken };
            (place_of(taken, set(to.takes)), to.procedure, 0, 0)
        }));
        let places = procedures + Sets::COUNT * SETS + at_start.len();
        let by_callee: Vec<(u32, Edge)> =
            all.iter().map(|&(caller, callee, adds, cost)| (callee, Edge { to: caller, adds, cost })).collect();
        let by_caller: Vec<(u32, Edge)> =
            all.iter().map(|&(caller, callee, adds, cost)| (caller, Edge { to: callee, adds, cost })).collect();
        let (callers, callees) = (Edges::of(places, &by_callee), Edges::of(places, &by_caller));
        let mut variable: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for call in &map.code.variable {
            let to = match call.to {
                Called::Procedure(callee) => callee,
                Called::Pointer(passes) => place_of(Sets::Passed, set(passes)),
            };
            variable.entry(to).or_default().push(call.caller.unwrap_or(CallGraph::ANYWHERE));
        }
        CallGraph { procedures, at_start, callers, callees, variable, unit_bytes }
    }

    /// How many places there are.
    pub(crate) fn len(&self) -> usize {
        self.procedures + Sets::COUNT * SETS + self.at_start.len()
    }

    /// The procedure of a place, if it has one.
    pub(crate) fn procedure(&self, place: u32) -> Option<u32> {
        match (place as usize).checked_sub(self.procedures + Sets::COUNT * SETS) {
            Some(at) => self.at_start.get(at).copied(),
            None => Some(place).filter(|place| (*place as usize) < self.procedures),
        }
    }

    /// Whether contexts that were seen end in a place as in its procedure.
    pub(crate) fn is_anywhere(&self, place: u32) -> bool {
        (place as usize) < self.procedures
    }

    /// From where control comes to a place.
    pub(crate) fn callers(&self, place: u32) -> &[Edge] {
        self.callers.at(place)
    }

    /// Where control comes to at no known height, each with from where.
    pub(crate) fn variable_calls(&self) -> impl Iterator<Item = (&u32, &[u32])> {
        self.variable.iter().map(|(callee, callers)| (callee, callers.as_slice()))
    }

    /// Where it goes to.
    pub(crate) fn callees(&self, place: u32) -> &[Edge] {
        self.callees.at(place)
    }
}

const WORD_BYTES: i64 = 8;

/// Adds what is active at a program's start, from a place on, with its edges.
fn add_start(
    map: &PathMap,
    first: u32,
    all: &mut Vec<(u32, u32, i64, u32)>,
    place_of: impl Fn(Sets, usize) -> u32,
) -> Vec<u32> {
    /// What the program starts in; what it calls; what that calls.
    const LEVELS: usize = 3;
    if !map.code.pointed.iter().any(|to| to.is_at_start) {
        return Vec::new();
    }
    let is_main = |root: u32| map.roots.get(root as usize) == Some(&Root::Main);
    // The loader has a start of its own.
    let module = |procedure: u32| map.procedures.get(procedure as usize).map(|of| of.module);
    let starts_it = |procedure: u32| {
        let mut pointed = map.code.pointed.iter().filter(|to| to.is_at_start);
        pointed.any(|to| module(to.procedure) == module(procedure))
    };
    let outermost = map.nodes.iter().filter(|node| node.parent.is_none() && is_main(node.root));
    let mut level: Vec<u32> = outermost.map(|node| node.procedure).filter(|start| starts_it(*start)).collect();
    level.sort_unstable();
    level.dedup();
    let passed = place_of(Sets::Passed, 0)..place_of(Sets::Passed, SETS);
    let calls = all.len();
    let mut by_caller: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
    all.iter().enumerate().for_each(|(at, (caller, ..))| by_caller.entry(*caller).or_default().push(at));
    let mut places: FxHashMap<(usize, u32), u32> = FxHashMap::default();
    let mut at_start: Vec<u32> = Vec::new();
    // Those of the first level are entered as they are anywhere.
    let mut place = |depth: usize, procedure: u32| match depth {
        0 => procedure,
        _ => *places.entry((depth, procedure)).or_insert_with(|| {
            at_start.push(procedure);
            first + at_start.len() as u32 - 1
        }),
    };
    for depth in 0..LEVELS {
        let mut next = Vec::new();
        for caller in level {
            for at in by_caller.get(&caller).into_iter().flatten().filter(|at| **at < calls) {
                let (_, callee, adds, cost) = all[*at];
                if passed.contains(&callee) {
                    let set = (callee - passed.start) as usize;
                    let at = (place(depth, caller), place_of(Sets::PassedAtStart, set), adds, cost);
                    all.push(at);
                } else if depth + 1 < LEVELS {
                    let at = (place(depth, caller), place(depth + 1, callee), adds, cost);
                    all.push(at);
                    next.push(callee);
                }
            }
        }
        next.sort_unstable();
        next.dedup();
        level = next;
    }
    at_start
}
