//! Paths that the code has, and that no run needs to have taken (section 4.1 of the paper): found backwards from an identifier, pruned by
//! the height.
//!
//! ```text
//! paths(procedure, height) = those that were seen there, if there are any
//!                            else, of each call of the procedure: paths(caller, height - what the call adds)
//! ```
//!
//! All that a path depends on is a procedure and a height, so each of these is looked at once, however many paths lead through it: the paper's
//! search took one path after the other. Calls through pointers lead to any procedure whose address the code has.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use callpath_format::frame::CloneNumber;
use rustc_hash::FxHashMap;

use crate::call_graph::{CALL_COST, CallGraph};
use crate::map::{Identifier, PathMap, Root};

/// A path that the code has.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CodePath {
    /// The context that was seen, or that a program begins in, from which on the code tells: its node. `None`: the path begins
    /// a thread.
    pub from: Option<u32>,
    /// The procedures that are called from there on, the outermost first, up to the one that was asked for.
    pub calls: Vec<u32>,
}

/// The paths that the code has for an identifier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodePaths {
    /// How many there are: [`u64::MAX`] if more than 2^32.
    pub count: u64,
    /// Some of them, [`CodePaths::MOST`] at most, those first that take the least for granted.
    pub paths: Vec<CodePath>,
    /// The one with a single call that was not seen, which is not through a pointer: if there is one, and only one.
    pub nearest: Option<CodePath>,
    /// Whether there is no other either if contexts that were seen may have been entered in other ways, which the code has.
    pub is_only: bool,
}

impl CodePaths {
    /// So many paths are told.
    pub const MOST: usize = 64;
}

/// What a search has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Searched {
    /// The code has no path, as far as its files were read.
    Nothing,
    /// These.
    Found(CodePaths),
    /// It would take too long: nothing is known.
    TooMuch,
}

/// A place of the graph at a height.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State {
    place: u32,
    height: i64,
}

/// What leads to a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counted {
    /// How many paths; [`u32::MAX`]: or more.
    all: u32,
    /// What the cheapest one takes for granted; with no path, nothing.
    cost: u32,
    /// How many paths cost as little; [`u32::MAX`]: or more.
    cheapest: u32,
}

impl Counted {
    fn of_known(count: u32) -> Counted {
        Counted { all: count, cost: 0, cheapest: count }
    }

    /// With the paths of a caller, the call of which costs that much.
    fn add(&mut self, caller: Counted, cost: u32) {
        if caller.all == 0 {
            return;
        }
        let cost = caller.cost.saturating_add(cost);
        if self.all == 0 || cost < self.cost {
            (self.cost, self.cheapest) = (cost, caller.cheapest);
        } else if cost == self.cost {
            self.cheapest = self.cheapest.saturating_add(caller.cheapest);
        }
        self.all = self.all.saturating_add(caller.all);
    }
}

/// Searches a map's code.
pub struct Search<'m> {
    map: &'m PathMap,
    /// Made when the first search begins.
    graph: Option<Rc<CallGraph>>,
    roots: FxHashMap<(u32, Basis), OfRoot<'m>>,
    left: Left,
}

/// From where paths are sought. What is found from all that was seen is the only path if it is that from the starts, too.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Basis {
    /// From contexts that were seen: how these were entered is known.
    Seen,
    /// From where programs and threads begin, whatever was seen.
    Starts,
}

/// How much more may be kept.
#[derive(Clone, Copy, Debug)]
struct Left {
    states: usize,
    /// Places where states are looked up.
    places: usize,
}

impl<'m> Search<'m> {
    /// Of a map, with code or without.
    pub fn new(map: &'m PathMap) -> Search<'m> {
        /// Some 200 MB each.
        const MOST_STATES: usize = 16_000_000;
        const MOST_PLACES: usize = 50_000_000;
        Search::within(map, (MOST_STATES, MOST_PLACES))
    }

    pub(crate) fn within(map: &'m PathMap, (states, places): (usize, usize)) -> Search<'m> {
        Search { map, graph: None, roots: FxHashMap::default(), left: Left { states, places } }
    }

    pub(crate) fn map(&self) -> &'m PathMap {
        self.map
    }

    /// The paths that the code has for an identifier: from contexts that were seen, or from where programs and threads begin.
    pub fn find(&mut self, identifier: Identifier) -> Searched {
        let map = self.map;
        if map.code.modules.is_empty() {
            return Searched::Nothing;
        }
        let asked = State { place: identifier.procedure, height: identifier.height };
        let Some(counted) = self.count(Basis::Seen, identifier.root, asked) else { return Searched::TooMuch };
        if counted.all == 0 {
            return Searched::Nothing;
        }
        let is_only = counted.all == 1
            && !self.of_root(Basis::Starts, identifier.root).is_open(asked)
            && self.count(Basis::Starts, identifier.root, asked).is_some_and(|from_starts| from_starts.all == 1);
        let of_root = self.of_root(Basis::Seen, identifier.root);
        let is_told = |count: u32| count <= CodePaths::MOST as u32;
        let mut paths = of_root.paths(asked, true);
        // Longer ones were wrong in a third of the cases, and those through pointers in half of them.
        let is_near = paths.len() == 1 && is_told(counted.cheapest) && counted.cost == CALL_COST;
        let nearest = paths.first().filter(|_| is_near).cloned();
        let others: Vec<CodePath> =
            of_root.paths(asked, false).into_iter().filter(|path| !paths.contains(path)).collect();
        paths.extend(others);
        let count = match counted.all {
            all if is_told(all) => paths.len() as u64,
            u32::MAX => u64::MAX,
            all => all.into(),
        };
        paths.truncate(CodePaths::MOST);
        Searched::Found(CodePaths { count, paths, nearest, is_only })
    }

    fn of_root(&mut self, basis: Basis, root: u32) -> &mut OfRoot<'m> {
        let map = self.map;
        let graph = self.graph.get_or_insert_with(|| Rc::new(CallGraph::of(map)));
        self.roots.entry((root, basis)).or_insert_with(|| OfRoot::of(map, Rc::clone(graph), (root, basis)))
    }

    fn count(&mut self, basis: Basis, root: u32, asked: State) -> Option<Counted> {
        let mut left = self.left;
        let counted = self.of_root(basis, root).count(asked, &mut left);
        self.left = left;
        counted
    }
}

/// What is known of a stack.
struct OfRoot<'m> {
    map: &'m PathMap,
    graph: Rc<CallGraph>,
    root: u32,
    basis: Basis,
    /// By place: how high the stack is at least; [`OfRoot::NEVER`]: control does not come there.
    least: Vec<i64>,
    /// The same of paths through calls at no known height.
    open_from: Vec<i64>,
    /// By place, then by how much higher than that, in units: where in `counts` the state is, plus 1; 0: not counted.
    index: Vec<Vec<u32>>,
    counts: Vec<Counted>,
}

impl<'m> OfRoot<'m> {
    const NEVER: i64 = i64::MAX;

    fn of(map: &'m PathMap, graph: Rc<CallGraph>, (root, basis): (u32, Basis)) -> OfRoot<'m> {
        let nodes = map.heights.iter().filter_map(|(node, height, _)| {
            let of = map.nodes.get(*node as usize)?;
            // What was met in clones may also be met in the procedures themselves.
            let is_itself = CloneNumber::of_height(*height).0 == CloneNumber::NONE;
            (of.root == root && is_itself).then_some(Reverse((*height, of.procedure)))
        });
        let mut open: BinaryHeap<Reverse<(i64, u32)>> = nodes.collect();
        if let Some(Root::Thread(start)) = map.roots.get(root as usize) {
            open.push(Reverse((0, *start)));
        }
        let never = vec![OfRoot::NEVER; graph.len()];
        let least = spread(&graph, open, never.clone());
        // What a caller has on the stack is its return address at least.
        const LEAST_BYTES: i64 = 8;
        let (mut open_from, mut is_changed) = (never, true);
        while std::mem::take(&mut is_changed) {
            let mut open: BinaryHeap<Reverse<(i64, u32)>> = BinaryHeap::new();
            for (callee, callers) in graph.variable_calls() {
                let from = callers.iter().map(|caller| match *caller {
                    CallGraph::ANYWHERE => 0,
                    caller => least[caller as usize].min(open_from[caller as usize]),
                });
                let from = from.min().unwrap_or(OfRoot::NEVER).saturating_add(LEAST_BYTES);
                if from < open_from[*callee as usize] {
                    open.push(Reverse((from, *callee)));
                    is_changed = true;
                }
            }
            open_from = spread(&graph, open, open_from);
        }
        let index = vec![Vec::new(); graph.len()];
        OfRoot { map, graph, root, basis, least, open_from, index, counts: Vec::new() }
    }

    /// Where a state is in the index. `None`: control does not come there.
    fn at(&self, state: State) -> Option<usize> {
        let least = *self.least.get(state.place as usize)?;
        let above = state.height.checked_sub(least).filter(|above| *above >= 0)?;
        (above % self.graph.unit_bytes == 0).then_some((above / self.graph.unit_bytes) as usize)
    }

    /// What leads to a state, if that was counted.
    fn known_count(&self, state: State) -> Option<Counted> {
        let Some(at) = self.at(state) else { return Some(Counted::default()) };
        let index = *self.index.get(state.place as usize)?.get(at)?;
        self.counts.get((index as usize).checked_sub(1)?).copied()
    }

    fn keep(&mut self, state: State, counted: Counted, left: &mut Left) -> Option<()> {
        let (Some(at), Some(index)) = (self.at(state), self.index.get_mut(state.place as usize)) else {
            return Some(());
        };
        if at >= index.len() {
            // Room for the next ones, too.
            let len = at.checked_add(at / 2)?.checked_add(8)?;
            left.places = left.places.checked_sub(len - index.len())?;
            index.resize(len, 0);
        }
        left.states = left.states.checked_sub(1)?;
        self.counts.push(counted);
        index[at] = self.counts.len() as u32;
        Some(())
    }

    /// What leads to a state. `None`: more than may be looked at.
    fn count(&mut self, asked: State, left: &mut Left) -> Option<Counted> {
        let mut open = vec![asked];
        while let Some(&state) = open.last() {
            if self.known_count(state).is_some() {
                open.pop();
                continue;
            }
            if open.len() > left.states {
                return None;
            }
            let known = open.len();
            let mut sum = Counted::of_known(self.ends(state));
            if sum.all == 0 {
                for (cost, caller) in self.callers(state) {
                    match self.known_count(caller) {
                        Some(counted) => sum.add(counted, cost),
                        None => open.push(caller),
                    }
                }
            }
            if open.len() == known {
                self.keep(state, sum, left)?;
                open.pop();
            }
        }
        self.known_count(asked)
    }

    /// Whether a call at no known height may lead to a state, whatever is between.
    fn is_open(&self, state: State) -> bool {
        self.open_from.get(state.place as usize).is_some_and(|from| *from <= state.height)
    }

    /// How many paths are known to end in a state, without a search.
    fn ends(&self, state: State) -> u32 {
        let begins = usize::from(self.begins_thread(state));
        self.seen(state).len().max(begins) as u32
    }

    fn seen(&self, state: State) -> &'m [u32] {
        if !self.graph.is_anywhere(state.place) {
            return &[];
        }
        let seen = self.map.seen_paths(Identifier { root: self.root, procedure: state.place, height: state.height });
        let begins = |node: &u32| self.map.nodes.get(*node as usize).is_some_and(|node| node.parent.is_none());
        if self.basis == Basis::Seen || seen.iter().all(begins) { seen } else { &[] }
    }

    fn begins_thread(&self, state: State) -> bool {
        state.height == 0 && self.map.roots.get(self.root as usize) == Some(&Root::Thread(state.place))
    }

    /// From where a state is entered, with what that takes for granted.
    fn callers(&self, state: State) -> impl Iterator<Item = (u32, State)> + '_ {
        self.graph.callers(state.place).iter().filter_map(move |edge| {
            let caller = State { place: edge.to, height: state.height.checked_sub(edge.adds)? };
            self.at(caller).map(|_| (edge.cost, caller))
        })
    }

    /// Paths of a state that was counted: the first ones, of the least cost alone or of any.
    fn paths(&self, asked: State, is_cheapest: bool) -> Vec<CodePath> {
        let mut found = Vec::new();
        // Each with what is called from there on, the innermost first.
        let mut open: Vec<(State, Vec<u32>)> = vec![(asked, Vec::new())];
        while let Some((state, mut below)) = open.pop() {
            if found.len() >= CodePaths::MOST {
                break;
            }
            let known = self.known(state, &mut below);
            if !known.is_empty() {
                found.extend(known);
                continue;
            }
            let least = self.known_count(state).map(|counted| counted.cost);
            let leads = |(cost, caller): &(u32, State)| {
                let counted = self.known_count(*caller).filter(|counted| counted.all > 0);
                counted.is_some_and(|counted| !is_cheapest || Some(counted.cost.saturating_add(*cost)) == least)
            };
            open.extend(self.callers(state).filter(leads).map(|(_, caller)| (caller, below.clone())));
        }
        found.truncate(CodePaths::MOST);
        found.sort_unstable();
        // The same procedures at calls that add otherwise are one path.
        found.dedup();
        found
    }

    /// The paths that end in a state without a search; `below` has what is called there, then, the innermost first, and has the state's own
    /// procedure behind that if there are none.
    fn known(&self, state: State, below: &mut Vec<u32>) -> Vec<CodePath> {
        let outermost_first = |below: &[u32]| below.iter().rev().copied().collect();
        let seen = self.seen(state);
        if !seen.is_empty() {
            return seen.iter().map(|node| CodePath { from: Some(*node), calls: outermost_first(below) }).collect();
        }
        below.extend(self.graph.procedure(state.place));
        if self.begins_thread(state) {
            return vec![CodePath { from: None, calls: outermost_first(below) }];
        }
        Vec::new()
    }
}

/// How high the stack is at least in each place, from some on; `least` has what is known.
fn spread(graph: &CallGraph, mut open: BinaryHeap<Reverse<(i64, u32)>>, mut least: Vec<i64>) -> Vec<i64> {
    while let Some(Reverse((height, place))) = open.pop() {
        match least.get_mut(place as usize) {
            Some(least) if *least > height => *least = height,
            _ => continue,
        }
        open.extend(graph.callees(place).iter().map(|edge| Reverse((height.saturating_add(edge.adds), edge.to))));
    }
    least
}
