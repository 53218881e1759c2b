//! Clones: further copies of procedures, each of which some calls alone lead to (Mytkowicz, Coughlin and Diwan 2009, section 5.3). Two
//! paths to a procedure that have the same height are told apart where one ends in a clone, or where one leads through a clone whose frame has
//! another size than the procedure's: then whatever the clone calls has another height, through pointers, too.
//!
//! ```text
//! chain    a procedure and its callers, the nearest first: a -> b -> c is (c; b, a)
//! clone    of c, for a chain: those of its calls lead there that b's clone for (b; a) makes
//! ```
//!
//! Which clone a call leads to depends on which copy makes it, so that each clone of a longer chain needs those of the shorter ones. Only
//! calls that name what they call lead to clones. Other calls, and what could not be cloned, lead to the procedure itself: a path
//! may end there, too, and in the clones that are called from there.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use callpath_format::frame::CloneNumber;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::map::PathMap;

/// So many callers decide, at most.
const MOST_CALLERS: usize = 6;
/// So many procedures of a path may be cloned for it.
const MOST_LEVELS: usize = 64;
/// So many chains are thought of for a path, the nearest ones.
const MOST_CANDIDATES: usize = 16;
/// What a clone is worth that may tell paths apart by their heights, if one that is sure to do is worth 1.
const BY_HEIGHT: f64 = 0.7;
/// So many places of a path are followed, clones and heights.
const MOST_PLACES: usize = 64;

/// Clones of a map's procedures.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Clones {
    /// By number less one.
    pub procedures: Vec<ClonedProcedure>,
    /// What leads to them, ascending.
    pub links: Vec<CloneLink>,
}

/// A clone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClonedProcedure {
    /// Of which procedure, an index in the map. `None`: the map does not know it.
    pub procedure: Option<u32>,
    /// By how much its frame is larger than the program has it, bytes: as much as the procedure's, or more, or less.
    pub bytes: u32,
}

/// Calls of a procedure that lead to a clone of another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CloneLink {
    /// The procedure that calls.
    pub caller: u32,
    /// Which clone of it. [`CloneNumber::NONE`]: itself.
    pub from: CloneNumber,
    /// The clone that is called.
    pub to: CloneNumber,
    /// Whether the procedure is always met in this clone when that caller has called it: nothing else that the caller does may lead to it, such as
    /// a pointer or a tail call of what it calls, and neither leaves its copy for the procedure's own one.
    pub is_sure: bool,
}

/// Clones of a map's procedures, to look up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cloned {
    /// By caller, its clone and procedure that is called; and whether nothing but that clone is.
    called: FxHashMap<(u32, CloneNumber, u32), (CloneNumber, bool)>,
    /// By clone: its callers, and which clones of these.
    callers: FxHashMap<CloneNumber, Vec<(u32, CloneNumber)>>,
    /// By procedure, its clones.
    of_procedures: FxHashMap<u32, Vec<CloneNumber>>,
    /// By clone, how much larger its frame is than the procedure's, bytes, if it is another size.
    differing: FxHashMap<CloneNumber, i64>,
    /// Heights at which a node may be met if a clone is missing, or is not called.
    pub(crate) alternatives: FxHashSet<(u32, i64)>,
}

impl Cloned {
    /// `bytes`: by procedure, by how much its frame is larger than the program has it.
    fn of(clones: &Clones, bytes: &[u32]) -> Cloned {
        let mut cloned = Cloned::default();
        for (number, clone) in (1..=u16::MAX).map(CloneNumber).zip(&clones.procedures) {
            let Some(procedure) = clone.procedure else { continue };
            cloned.of_procedures.entry(procedure).or_default().push(number);
            let own = bytes.get(procedure as usize).copied().unwrap_or(0);
            if clone.bytes != own {
                cloned.differing.insert(number, i64::from(clone.bytes) - i64::from(own));
            }
        }
        for &CloneLink { caller, from, to, is_sure } in &clones.links {
            let clone = clones.procedures.get(usize::from(to.0).wrapping_sub(1));
            let Some(procedure) = clone.and_then(|clone| clone.procedure) else { continue };
            cloned.called.insert((caller, from, procedure), (to, is_sure));
            cloned.callers.entry(to).or_default().push((caller, from));
        }
        cloned
    }

    /// The copies of a caller that may lead to a clone of what it calls, or, if that is none, to the procedure itself. `callee`: both.
    pub(crate) fn callers(&self, callee: (u32, CloneNumber), caller: u32) -> impl Iterator<Item = CloneNumber> {
        let (procedure, callee) = callee;
        let is_itself = callee == CloneNumber::NONE;
        let all = self.of_procedures.get(&caller).filter(|_| is_itself).into_iter().flatten().copied();
        let linked = self.callers.get(&callee).filter(|_| !is_itself).into_iter().flatten();
        let linked = linked.filter(move |(by, _)| *by == caller).map(|(_, from)| *from);
        let leads_to_clone = move |from: &CloneNumber| {
            let called = self.called.get(&(caller, *from, procedure));
            is_itself && called.is_some_and(|(_, is_sure)| *is_sure)
        };
        let all = is_itself.then_some(CloneNumber::NONE).into_iter().chain(all).chain(linked);
        all.filter(move |from| !leads_to_clone(from))
    }

    /// By how much the frame of a copy is larger than that of the procedure's own one, bytes.
    pub(crate) fn larger_by(&self, copy: CloneNumber) -> i64 {
        self.differing.get(&copy).copied().unwrap_or(0)
    }

    /// By how much frames of a procedure's clones are larger than its own one, where they are, bytes: each number once.
    pub(crate) fn sizes_of(&self, procedure: u32) -> Vec<i64> {
        let clones = self.of_procedures.get(&procedure).into_iter().flatten();
        let mut sizes: Vec<i64> = clones.filter_map(|clone| self.differing.get(clone)).copied().collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

impl PathMap {
    /// The map of the program with clones: each node is met in the clone that its callers lead to, and, where calls are not sure to lead there
    /// ([`CloneLink::is_sure`]), may be met in the procedure itself and in what that leads to. `bytes`: by procedure, by
    /// how much its frame is larger; heights are those of frames that are.
    pub(crate) fn clone_procedures(&mut self, clones: &Clones, bytes: &[u32]) {
        let mut cloned = Cloned::of(clones, bytes);
        // By node: where it is meant to be, then where else it may be; and how much higher its stack is for the clones that are above it.
        let mut places: Vec<Vec<(CloneNumber, i64)>> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let parent =
                node.parent.and_then(|parent| Some((self.nodes.get(parent as usize)?, places.get(parent as usize)?)));
            let mut own: Vec<(CloneNumber, i64)> = Vec::new();
            if let Some((parent, from)) = parent {
                let mut itself = Vec::new();
                for (from, above) in from {
                    let to = cloned.called.get(&(parent.procedure, *from, node.procedure));
                    let (to, is_sure) = to.copied().unwrap_or((CloneNumber::NONE, true));
                    let above = above.saturating_add(cloned.larger_by(*from));
                    own.push((to, above));
                    itself.extend((!is_sure).then_some((CloneNumber::NONE, above)));
                }
                own.extend(itself);
            } else {
                own.push((CloneNumber::NONE, 0));
            }
            let mut seen = FxHashSet::default();
            own.retain(|place| seen.insert(*place));
            // Then it is not known where it may be: it is at no known height, nor is what it calls.
            if own.len() > MOST_PLACES {
                own.clear();
            }
            places.push(own);
        }
        let heights = std::mem::take(&mut self.heights);
        let mut is_meant: FxHashSet<(u32, i64)> = FxHashSet::default();
        for (node, height, weight) in heights {
            let mut meant = Some(weight);
            for (place, above) in places.get(node as usize).into_iter().flatten() {
                let Some(height) = place.height(height.saturating_add(*above)) else { continue };
                if meant.is_none() {
                    cloned.alternatives.insert((node, height));
                } else {
                    is_meant.insert((node, height));
                }
                self.heights.push((node, height, meant.take().unwrap_or_default()));
            }
        }
        cloned.alternatives.retain(|place| !is_meant.contains(place));
        self.heights.sort_unstable_by_key(|(node, height, _)| (*node, *height));
        self.heights.dedup_by(|next, before| {
            let is_same = (next.0, next.1) == (before.0, before.1);
            if is_same {
                before.2 = before.2.plus(next.2);
            }
            is_same
        });
        self.cloned = cloned;
    }
}

/// What may be cloned.
#[derive(Clone, Copy)]
pub struct Cloning<'a> {
    /// Whether calls of a procedure (the first) may lead to a clone of another.
    pub leads: &'a dyn Fn(u32, u32) -> bool,
    /// Whether nothing else that the first does leads to the other: [`CloneLink::is_sure`].
    pub is_sure: &'a dyn Fn(u32, u32) -> bool,
    /// Whether the frames of a procedure's clones may have another size than its own: control never comes from them to its own copy.
    pub may_differ: &'a dyn Fn(u32) -> bool,
    /// How many clones there may be.
    pub most: u16,
}

/// By which clones paths may be told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// Those that they end in.
    Place,
    /// These, and those that they lead through, whose frames are to have another size.
    PlaceOrHeight,
}

/// A procedure and its callers, the nearest first.
type Chain = Vec<u32>;

/// Clones that are chosen for a map's paths.
pub(crate) struct Chosen<'a> {
    map: &'a PathMap,
    cloning: Cloning<'a>,
    /// By chain, how large the frame of its clone is, as [`ClonedProcedure::bytes`]: with each, the chains of its callers.
    chains: FxHashMap<Chain, u32>,
}

/// Paths that a chain would tell apart, by number, each with what that is worth.
#[derive(Default)]
struct Gain {
    paths: Vec<(u32, f64)>,
}

impl<'a> Chosen<'a> {
    /// None yet.
    pub(crate) fn new(map: &'a PathMap, cloning: Cloning<'a>) -> Chosen<'a> {
        Chosen { map, cloning, chains: FxHashMap::default() }
    }

    /// Whether the frames of a procedure's clones may have another size than its own.
    pub(crate) fn may_differ(&self, procedure: u32) -> bool {
        (self.cloning.may_differ)(procedure)
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.chains.len()
    }

    /// The procedures of a path, the innermost first, so many at most.
    fn procedures(&self, node: u32, most: usize) -> Vec<u32> {
        let procedure = |node: u32| self.map.nodes.get(node as usize).map(|node| node.procedure);
        self.map.path(node).map_while(procedure).take(most).collect()
    }

    /// How many callers of a procedure on a path decide which clone it is: as far as calls lead to clones.
    fn callers(&self, path: &[u32]) -> usize {
        path.windows(2).take(MOST_CALLERS).take_while(|call| (self.cloning.leads)(call[1], call[0])).count()
    }

    /// Chooses more of them. `resized`: the map with the paddings and clones so far; those of its paths are told apart that share an identifier.
    /// `bytes`: by procedure, by how much its frame is larger.
    pub(crate) fn add(&mut self, resized: &PathMap, by: By, bytes: &[u32]) {
        let gains = self.gains(resized, by);
        let mut is_told: FxHashSet<u32> = FxHashSet::default();
        let worth = |gain: &Gain, chain: &Chain, chosen: &Chosen<'_>, is_told: &FxHashSet<u32>| {
            let paths = gain.paths.iter().filter(|(path, _)| !is_told.contains(path));
            let new = with_callers(chain).filter(|chain| !chosen.chains.contains_key(*chain)).count();
            (paths.map(|(_, worth)| worth).sum::<f64>() / new.max(1) as f64, new)
        };
        // What is worth most comes first: worths only sink as others are chosen, or rise where callers' clones are.
        let mut open: BinaryHeap<Candidate> = gains
            .iter()
            .map(|(chain, gain)| Candidate { worth: worth(gain, chain, self, &is_told).0, chain: chain.clone() })
            .collect();
        while let Some(Candidate { worth: before, chain }) = open.pop() {
            let Some(gain) = gains.get(&chain) else { continue };
            let (now, new) = worth(gain, &chain, self, &is_told);
            if now <= 0.0 {
                continue;
            }
            if now < before {
                open.push(Candidate { worth: now, chain });
                continue;
            }
            if self.chains.len() + new > usize::from(self.cloning.most) {
                continue;
            }
            is_told.extend(gain.paths.iter().map(|(path, _)| *path));
            for chain in with_callers(&chain) {
                if !self.chains.contains_key(chain) {
                    // What was led to a clone for fewer callers has its frame.
                    let own = chain.first().and_then(|procedure| bytes.get(*procedure as usize)).copied().unwrap_or(0);
                    let bytes = self.longest(chain).map_or(own, |(_, bytes)| bytes);
                    self.chains.insert(chain.to_vec(), bytes);
                }
            }
        }
    }

    /// The chosen chain with the most callers that a path ends with.
    fn longest(&self, path: &[u32]) -> Option<(usize, u32)> {
        let longest = path.len().min(MOST_CALLERS + 1);
        (2..=longest).rev().find_map(|len| Some((len, *self.chains.get(path.get(..len)?)?)))
    }

    /// By chain, the paths that a clone for it would tell from all others with their identifiers.
    fn gains(&self, resized: &PathMap, by: By) -> FxHashMap<Chain, Gain> {
        let weights: FxHashMap<(u32, i64), u64> =
            resized.heights.iter().map(|(node, height, weight)| ((*node, *height), weight.calls)).collect();
        let calls = weights.values().fold(0u64, |sum, calls| sum.saturating_add(*calls)).max(1) as f64;
        // As in the search for paddings, half of all worth is spread evenly over the paths, half by how often each was seen.
        let of_path = 1.0 / weights.len().max(1) as f64;
        let mut gains: FxHashMap<Chain, Gain> = FxHashMap::default();
        let mut number = 0;
        for (identifier, nodes, meant) in resized.meant_answers().filter(|(.., meant)| *meant > 1) {
            let paths: Vec<(u32, Vec<u32>)> = nodes
                .iter()
                .take(meant)
                .map(|node| (*node, self.procedures(*node, MOST_LEVELS + MOST_CALLERS)))
                .collect();
            let levels = |path: &[u32]| match by {
                By::Place => 1,
                By::PlaceOrHeight => path.len().min(MOST_LEVELS),
            };
            // How many paths have a chain at their ends, and how many have it anywhere.
            let mut shared: FxHashMap<(bool, &[u32]), (u32, u32)> = FxHashMap::default();
            for ((_, path), at) in paths.iter().zip(1..) {
                for level in 0..levels(path) {
                    let callers = self.callers(&path[level..]);
                    for len in 1..=callers {
                        let chain = &path[level..=level + len];
                        for is_end in [true, false].into_iter().filter(|is_end| level == 0 || !is_end) {
                            let (count, last) = shared.entry((is_end, chain)).or_default();
                            if std::mem::replace(last, at) != at {
                                *count += 1;
                            }
                        }
                    }
                }
            }
            for (node, path) in &paths {
                let of_calls = weights.get(&(*node, identifier.height)).copied().unwrap_or(0) as f64 / calls;
                let mut found = 0;
                for level in 0..levels(path) {
                    let is_end = level == 0;
                    if found > MOST_CANDIDATES || !is_end && !(self.cloning.may_differ)(path[level]) {
                        continue;
                    }
                    let callers = self.callers(&path[level..]);
                    let chains = (1..=callers).map(|len| &path[level..=level + len]);
                    let alone =
                        chains.into_iter().find(|chain| shared.get(&(is_end, *chain)).is_some_and(|of| of.0 == 1));
                    // One that is there already has not told it apart.
                    if let Some(chain) = alone.filter(|chain| !self.chains.contains_key(*chain)) {
                        found += 1;
                        // An identifier of its own is not sure to be found by height.
                        let part = if is_end { 1.0 } else { BY_HEIGHT };
                        let gain = gains.entry(chain.to_vec()).or_default();
                        gain.paths.push((number, part * (of_path + of_calls)));
                    }
                }
                number += 1;
            }
        }
        gains
    }

    /// By node, the number of its clone.
    pub(crate) fn places(&self) -> Vec<CloneNumber> {
        let numbers = self.numbers();
        let place = |node: u32| {
            let path = self.procedures(node, MOST_CALLERS + 1);
            let chain = self.longest(path.get(..=self.callers(&path)).unwrap_or(&[]));
            chain.and_then(|(len, _)| numbers.get(path.get(..len)?)).copied().unwrap_or(CloneNumber::NONE)
        };
        (0..self.map.nodes.len() as u32).map(place).collect()
    }

    /// The chains, those with few callers first.
    fn in_order(&self) -> Vec<(&Chain, u32)> {
        let mut chains: Vec<(&Chain, u32)> = self.chains.iter().map(|(chain, bytes)| (chain, *bytes)).collect();
        chains.sort_unstable_by_key(|(chain, _)| (chain.len(), *chain));
        chains
    }

    fn numbers(&self) -> FxHashMap<&[u32], CloneNumber> {
        self.in_order().into_iter().map(|(chain, _)| chain.as_slice()).zip((1..=u16::MAX).map(CloneNumber)).collect()
    }

    /// The sizes of their frames, by number less one.
    pub(crate) fn set_bytes(&mut self, bytes: &[u32]) {
        let chains: Vec<Chain> = self.in_order().into_iter().map(|(chain, _)| chain.clone()).collect();
        self.chains.extend(chains.into_iter().zip(bytes.iter().copied()));
    }

    /// These clones, and the calls that lead to them.
    pub(crate) fn clones(&self) -> Clones {
        let procedures = self
            .in_order()
            .into_iter()
            .map(|(chain, bytes)| ClonedProcedure { procedure: chain.first().copied(), bytes })
            .collect();
        let places = self.places();
        let mut links: FxHashSet<CloneLink> = FxHashSet::default();
        for (node, to) in self.map.nodes.iter().zip(&places).filter(|(_, to)| **to != CloneNumber::NONE) {
            let parent = node.parent.and_then(|parent| {
                Some((self.map.nodes.get(parent as usize)?.procedure, *places.get(parent as usize)?))
            });
            links.extend(parent.map(|(caller, from)| {
                // A caught exception goes on in the procedure's own copy: it leaves the clone, and calls from elsewhere.
                let stays = (from == CloneNumber::NONE || (self.cloning.may_differ)(caller))
                    && (self.cloning.may_differ)(node.procedure);
                CloneLink { caller, from, to: *to, is_sure: stays && (self.cloning.is_sure)(caller, node.procedure) }
            }));
        }
        let mut links: Vec<CloneLink> = links.into_iter().collect();
        links.sort_unstable();
        Clones { procedures, links }
    }
}

/// A chain that may get a clone.
struct Candidate {
    worth: f64,
    chain: Chain,
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Candidate) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Candidate {}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Candidate {
    fn cmp(&self, other: &Candidate) -> Ordering {
        self.worth.total_cmp(&other.worth).then_with(|| other.chain.cmp(&self.chain))
    }
}

/// A chain and those of its callers.
fn with_callers(chain: &[u32]) -> impl Iterator<Item = &[u32]> {
    (0..chain.len().saturating_sub(1)).filter_map(|from| chain.get(from..))
}
