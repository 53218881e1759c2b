//! Clones: further copies of procedures, each of which some calls alone lead to (Mytkowicz, Coughlin and Diwan 2009, section 5.3). Two
//! paths to a procedure that have the same height are told apart where one ends in a clone.
//!
//! ```text
//! chain    a procedure and its callers, the nearest first: a -> b -> c is (c; b, a)
//! clone    of c, for a chain: those of its calls lead there that b's clone for (b; a) makes
//! ```
//!
//! Which clone a call leads to depends on which copy makes it, so that each clone of a longer chain needs those of the shorter ones. Only
//! calls that name what they call lead to clones. Other calls, and what could not be cloned, lead to the procedure itself: a path
//! may end there, too, and in the clones that are called from there.

use callpath_format::frame::CloneNumber;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::map::PathMap;

/// So many callers decide, at most.
const MOST_CALLERS: usize = 6;
/// A path ends in so many clones at most, whatever a plan says that was not chosen here.
const MOST_PLACES: usize = 64;

/// Clones of a map's procedures.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Clones {
    /// By number less one: the procedure, an index in the map. `None`: the map does not know it.
    pub procedures: Vec<Option<u32>>,
    /// What leads to them, ascending.
    pub links: Vec<CloneLink>,
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
}

/// Clones of a map's procedures, to look up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cloned {
    /// By caller, its clone and procedure that is called.
    called: FxHashMap<(u32, CloneNumber, u32), CloneNumber>,
    /// By clone: its callers, and which clones of these.
    callers: FxHashMap<CloneNumber, Vec<(u32, CloneNumber)>>,
    /// By procedure, its clones.
    of_procedures: FxHashMap<u32, Vec<CloneNumber>>,
    /// Heights at which a node may be met if a clone is missing, or is not called.
    pub(crate) alternatives: FxHashSet<(u32, i64)>,
}

impl Cloned {
    fn of(clones: &Clones) -> Cloned {
        let mut cloned = Cloned::default();
        for (number, procedure) in (1..=u16::MAX).zip(&clones.procedures) {
            let Some(procedure) = procedure else { continue };
            cloned.of_procedures.entry(*procedure).or_default().push(CloneNumber(number));
        }
        for &CloneLink { caller, from, to } in &clones.links {
            let procedure = clones.procedures.get(usize::from(to.0).wrapping_sub(1)).copied().flatten();
            let Some(procedure) = procedure else { continue };
            cloned.called.insert((caller, from, procedure), to);
            cloned.callers.entry(to).or_default().push((caller, from));
        }
        cloned
    }

    /// The copies of a caller that may lead to a clone of what it calls, or, if that is none, to the procedure itself.
    pub(crate) fn callers(&self, callee: CloneNumber, caller: u32) -> impl Iterator<Item = CloneNumber> {
        let is_itself = callee == CloneNumber::NONE;
        let all = self.of_procedures.get(&caller).filter(|_| is_itself).into_iter().flatten().copied();
        let linked = self.callers.get(&callee).filter(|_| !is_itself).into_iter().flatten();
        let linked = linked.filter(move |(by, _)| *by == caller).map(|(_, from)| *from);
        is_itself.then_some(CloneNumber::NONE).into_iter().chain(all).chain(linked)
    }
}

impl PathMap {
    /// The map of the program with clones: each node is met in the clone that its callers lead to, and may be met in others.
    pub(crate) fn clone_procedures(&mut self, clones: &Clones) {
        let mut cloned = Cloned::of(clones);
        // By node: where it is meant to be, then where else it may be.
        let mut places: Vec<Vec<CloneNumber>> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let parent =
                node.parent.and_then(|parent| Some((self.nodes.get(parent as usize)?, places.get(parent as usize)?)));
            let mut own: Vec<CloneNumber> = Vec::new();
            if let Some((parent, from)) = parent {
                for from in from {
                    let to = cloned.called.get(&(parent.procedure, *from, node.procedure));
                    own.push(to.copied().unwrap_or(CloneNumber::NONE));
                }
            }
            own.push(CloneNumber::NONE);
            let mut seen = FxHashSet::default();
            own.retain(|place| seen.insert(*place));
            // Those of chosen clones are fewer.
            own.truncate(MOST_PLACES);
            places.push(own);
        }
        let heights = std::mem::take(&mut self.heights);
        for (node, height, weight) in heights {
            let mut meant = Some(weight);
            for place in places.get(node as usize).into_iter().flatten() {
                let Some(height) = place.height(height) else { continue };
                if meant.is_none() {
                    cloned.alternatives.insert((node, height));
                }
                self.heights.push((node, height, meant.take().unwrap_or_default()));
            }
        }
        self.heights.sort_unstable_by_key(|(node, height, _)| (*node, *height));
        self.cloned = cloned;
    }

    /// Chooses clones that tell the paths of the map apart that share an identifier, so many at most. `leads`: whether calls of a procedure
    /// (the first) may lead to a clone of another.
    pub fn choose_clones(&self, leads: impl Fn(u32, u32) -> bool, most: u16) -> Clones {
        let chains = Chains { map: self, leads: &leads };
        let wanted = chains.wanted(most);
        chains.numbered(wanted)
    }
}

/// A procedure and its callers, the nearest first.
type Chain = (u32, Vec<u32>);

struct Chains<'a> {
    map: &'a PathMap,
    /// Whether calls of a procedure may lead to a clone of another: caller, then callee.
    leads: &'a dyn Fn(u32, u32) -> bool,
}

impl Chains<'_> {
    /// The chain that a node ends, as far as calls lead to clones.
    fn of(&self, node: u32) -> Option<Chain> {
        let procedure = self.map.nodes.get(node as usize)?.procedure;
        let (mut callers, mut at, mut callee) = (Vec::new(), node, procedure);
        while callers.len() < MOST_CALLERS
            && let Some(parent) = self.map.nodes.get(at as usize).and_then(|node| node.parent)
            && let Some(caller) = self.map.nodes.get(parent as usize).map(|node| node.procedure)
            && (self.leads)(caller, callee)
        {
            callers.push(caller);
            (at, callee) = (parent, caller);
        }
        Some((procedure, callers))
    }

    /// The chains for which there are to be clones: with each, the chains of its callers.
    fn wanted(&self, most: u16) -> FxHashSet<Chain> {
        let weights: FxHashMap<(u32, i64), u64> =
            self.map.heights.iter().map(|(node, height, weight)| ((*node, *height), weight.calls)).collect();
        let calls = weights.values().fold(0u64, |sum, calls| sum.saturating_add(*calls)).max(1) as f64;
        // As in the search for paddings, half of all worth is spread evenly over the paths, half by how often each was seen.
        let of_path = 1.0 / weights.len().max(1) as f64;
        let mut worth: FxHashMap<Chain, f64> = FxHashMap::default();
        for (identifier, paths) in self.map.answers().filter(|(_, paths)| paths.len() > 1) {
            let chains: Vec<(u32, Chain)> = paths.iter().filter_map(|node| Some((*node, self.of(*node)?))).collect();
            let mut shared: FxHashMap<&[u32], u32> = FxHashMap::default();
            for (_, (_, callers)) in &chains {
                (1..=callers.len()).for_each(|len| *shared.entry(&callers[..len]).or_default() += 1);
            }
            for (node, (procedure, callers)) in &chains {
                let Some(len) = (1..=callers.len()).find(|len| shared.get(&callers[..*len]) == Some(&1)) else {
                    continue;
                };
                let of_calls = weights.get(&(*node, identifier.height)).copied().unwrap_or(0) as f64 / calls;
                *worth.entry((*procedure, callers[..len].to_vec())).or_default() += of_path + of_calls;
            }
        }
        let mut by_worth: Vec<(Chain, f64)> = worth.into_iter().collect();
        let of_one = |(chain, worth): &(Chain, f64)| worth / chain.1.len() as f64;
        by_worth.sort_unstable_by(|one, two| of_one(two).total_cmp(&of_one(one)).then_with(|| one.0.cmp(&two.0)));
        let mut wanted = FxHashSet::default();
        for (chain, _) in by_worth {
            let needed: Vec<Chain> = with_callers(chain).filter(|chain| !wanted.contains(chain)).collect();
            if wanted.len() + needed.len() <= usize::from(most) {
                wanted.extend(needed);
            }
        }
        wanted
    }

    /// Clones for these chains, and the calls that lead to them.
    fn numbered(&self, wanted: FxHashSet<Chain>) -> Clones {
        let mut wanted: Vec<Chain> = wanted.into_iter().collect();
        wanted.sort_unstable_by_key(|(procedure, callers)| (callers.len(), *procedure, callers.clone()));
        let procedures = wanted.iter().map(|(procedure, _)| Some(*procedure)).collect();
        let numbers: FxHashMap<Chain, CloneNumber> = wanted.into_iter().zip((1..=u16::MAX).map(CloneNumber)).collect();
        let place = |node: u32| {
            let (procedure, callers) = self.of(node)?;
            let longest = (1..=callers.len()).rev().find_map(|len| numbers.get(&(procedure, callers[..len].to_vec())));
            Some((procedure, longest.copied().unwrap_or(CloneNumber::NONE)))
        };
        let places: Vec<Option<(u32, CloneNumber)>> = (0..self.map.nodes.len() as u32).map(place).collect();
        let mut links: FxHashSet<CloneLink> = FxHashSet::default();
        for (node, own) in self.map.nodes.iter().zip(&places) {
            let parent = node.parent.and_then(|parent| *places.get(parent as usize)?);
            if let (Some((caller, from)), Some((_, to @ CloneNumber(1..)))) = (parent, *own) {
                links.insert(CloneLink { caller, from, to });
            }
        }
        let mut links: Vec<CloneLink> = links.into_iter().collect();
        links.sort_unstable();
        Clones { procedures, links }
    }
}

/// A chain and those of its callers.
fn with_callers((procedure, callers): Chain) -> impl Iterator<Item = Chain> {
    let of = move |from: usize| {
        let of = from.checked_sub(1).map_or(Some(&procedure), |before| callers.get(before)).copied()?;
        Some((of, callers.get(from..)?.to_vec())).filter(|(_, callers)| !callers.is_empty())
    };
    (0..MOST_CALLERS).map_while(of)
}
