//! Numbers of paths: Ball and Larus 1996, "Efficient path profiling"; Ammons, Ball and Larus 1997, section 2.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use rustc_hash::FxHashMap;

use super::acyclic::{Acyclic, acyclic};
use super::site::Site;
use super::ways::Ways;

/// The most paths that a procedure's numbers tell apart: 2^32. Where there are more, ways are cut.
pub const MAX_PATHS: u64 = 1 << 32;

/// Where a path begins and ends. A *back edge* is also a way that was cut, or a jump through a table that shares targets
/// with others; a path also begins at a *head* where control arrives from no known block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Category {
    /// From the procedure's entry to where control leaves it, or does not continue.
    EntryExit,
    /// From the procedure's entry to a back edge.
    EntryBack,
    /// From behind a back edge to another one, or the same again.
    HeadBack,
    /// From behind a back edge to where control leaves the procedure, or does not continue.
    HeadExit,
}

impl Category {
    /// The name that reports use.
    pub fn name(self) -> &'static str {
        match self {
            Category::EntryExit => "entry-exit",
            Category::EntryBack => "entry-back",
            Category::HeadBack => "head-back",
            Category::HeadExit => "head-exit",
        }
    }
}

/// A path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Path {
    /// Where it begins and ends.
    pub category: Category,
    /// Its blocks, in order.
    pub blocks: Vec<u32>,
    /// The way that it ends with, by its number. `None`: a jump through a table.
    pub last_way: Option<u32>,
}

impl Path {
    /// Where its blocks begin.
    pub fn addresses(&self, ways: &Ways) -> Vec<LinkAddr> {
        self.blocks.iter().map(|&block| ways.start(block)).collect()
    }
}

/// What an arc of the acyclic graph stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// The procedure's entry.
    Enter,
    /// The beginning of paths at a block, from wherever.
    Begin,
    /// A way that is not cut.
    Way(u32),
    /// A way that a path ends with.
    End(u32),
    /// A jump through a table that a path ends with: the dispatch, and its source.
    Jump(u32, u32),
}

/// An arc of the acyclic graph. The node behind the last block is the outside: ENTRY and EXIT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Arc {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) role: Role,
    /// Ball and Larus' Val: the sum of these along a path is its number.
    pub(super) value: u64,
}

/// The numbers of a procedure's paths, from 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Numbering {
    pub(super) acyclic: Acyclic,
    /// By ascending node, those of one by ascending value.
    pub(super) arcs: Vec<Arc>,
    /// For each node, its arcs.
    out: Vec<Range<u32>>,
    paths: u64,
}

impl Numbering {
    /// Numbers the paths. `weights`: about how often control passes each way, by its number: see
    /// [`weights`](super::weights()).
    pub fn new(ways: &Ways, weights: &[u64]) -> Numbering {
        Numbering::with_limit(ways, weights, MAX_PATHS)
    }

    /// As [`Numbering::new`], for at most `limit` paths. Each block where a path begins has at least one, and each way that
    /// is cut one more: with a limit below that, there are more.
    pub fn with_limit(ways: &Ways, weights: &[u64], limit: u64) -> Numbering {
        Numbering::numbered(ways, weights, limit, None)
    }

    /// As [`Numbering::with_limit`], but as many paths as possible of those that are executed often have numbers below `low`: `weights` say which
    /// ways are passed often, and in short loops there are few paths.
    pub fn with_low_numbers(ways: &Ways, weights: &[u64], limit: u64, low: u64) -> Numbering {
        Numbering::numbered(ways, weights, limit, Some(low))
    }

    fn numbered(ways: &Ways, weights: &[u64], limit: u64, low: Option<u64>) -> Numbering {
        let acyclic = acyclic(ways, weights, limit);
        let outside = ways.len();
        let mut jumps: Vec<Vec<Role>> = vec![Vec::new(); ways.starts.len()];
        for (number, dispatch) in (0u32..).zip(&ways.dispatches) {
            for (index, &(source, _)) in (0u32..).zip(&dispatch.sources) {
                jumps[source as usize].push(Role::Jump(number, index));
            }
        }
        let mut by_block: Vec<Vec<Arc>> = vec![Vec::new(); ways.starts.len() + 1];
        let mut paths = vec![1u64; ways.starts.len() + 1];
        for &block in &acyclic.postorder {
            let mut numbers: Vec<usize> = ways.from(block).collect();
            // Ways that are passed often have small values, most of all 0.
            numbers.sort_by_key(|&number| std::cmp::Reverse(weights.get(number).copied().unwrap_or(0)));
            let ends = jumps[block as usize].iter().map(|&role| (outside, role));
            let targets = numbers.into_iter().map(|number| match ways.ways[number].to {
                Some(to) if !acyclic.is_cut[number] => (to, Role::Way(number as u32)),
                _ => (outside, Role::End(number as u32)),
            });
            let mut targets: Vec<(u32, Role)> = targets.chain(ends).collect();
            if low.is_some() {
                let weight = |role: Role| match role {
                    Role::Way(way) | Role::End(way) => weights.get(way as usize).copied().unwrap_or(0).max(1),
                    _ => 1,
                };
                // The fewer paths for how often it is passed, the lower (Smith 1956).
                let product = |paths_of: &(u32, Role), weight_of: &(u32, Role)| {
                    u128::from(paths[paths_of.0 as usize]) * u128::from(weight(weight_of.1))
                };
                targets.sort_by_key(|target| paths[target.0 as usize]);
                targets.sort_by(|one, other| product(one, other).cmp(&product(other, one)));
            }
            (by_block[block as usize], paths[block as usize]) = valued(block, targets, &paths);
        }
        let enter = (!ways.is_empty()).then_some((ways.entry, Role::Enter));
        let begins = acyclic.begins(ways).into_iter().map(|block| (block, Role::Begin));
        let mut begins: Vec<(u32, Role)> = enter.into_iter().chain(begins).collect();
        if let Some(low) = low {
            order_of_begins(&mut begins, &paths, &passed_to_heads(ways, weights, &acyclic.is_cut), low);
        }
        let (begins, all) = valued(outside, begins, &paths);
        by_block[outside as usize] = begins;
        let (mut arcs, mut out) = (Vec::new(), Vec::new());
        for mut block in by_block {
            let first = arcs.len() as u32;
            arcs.append(&mut block);
            out.push(first..arcs.len() as u32);
        }
        Numbering { acyclic, arcs, out, paths: all }
    }

    /// For each way and jump through a table that paths end with, by its site: the least and the greatest number of one that does.
    pub fn ends(&self, ways: &Ways) -> FxHashMap<Site, (u64, u64)> {
        let outside = self.outside();
        let mut along: Vec<Option<(u64, u64)>> = vec![None; outside as usize + 1];
        along[outside as usize] = Some((0, 0));
        let mut ends: FxHashMap<Site, (u64, u64)> = FxHashMap::default();
        let join = |known: Option<(u64, u64)>, (least, most): (u64, u64)| {
            known.map_or((least, most), |known| (known.0.min(least), known.1.max(most)))
        };
        let blocks = self.acyclic.postorder.iter().rev().copied();
        for node in std::iter::once(outside).chain(blocks) {
            let Some((least, most)) = along[node as usize] else { continue };
            for arc in self.arcs_of(node) {
                let new = (least.saturating_add(arc.value), most.saturating_add(arc.value));
                if arc.to != outside {
                    along[arc.to as usize] = Some(join(along[arc.to as usize], new));
                    continue;
                }
                let dispatch = |number: u32| ways.dispatches.get(number as usize);
                let site = match arc.role {
                    Role::End(way) => ways.ways.get(way as usize).and_then(|way| way.site),
                    Role::Jump(number, source) => {
                        dispatch(number).and_then(|of| of.sources.get(source as usize)).map(|source| source.1)
                    }
                    _ => None,
                };
                if let Some(site) = site {
                    let joined = join(ends.get(&site).copied(), new);
                    ends.insert(site, joined);
                }
            }
        }
        ends
    }

    /// The number of paths.
    pub fn paths(&self) -> u64 {
        self.paths
    }

    /// The number of ways that are cut because there would be too many paths.
    pub fn cuts(&self) -> u32 {
        self.acyclic.cuts
    }

    /// The number of paths without these cuts, or the largest number.
    pub fn uncut_paths(&self) -> u128 {
        self.acyclic.uncut_paths
    }

    /// Whether a way is cut, by its number: a path ends before it, and one begins behind it. Those of back edges, too.
    pub fn is_cut(&self, way: u32) -> bool {
        self.acyclic.is_cut.get(way as usize).copied().unwrap_or(false)
    }

    /// Where paths begin: each site, and whether control comes there from outside of the procedure's code, as it does to the entry. What
    /// operations stand there come first ([`Placed::operations`](super::Placed::operations)).
    pub fn begins(&self, ways: &Ways) -> Vec<(Site, bool)> {
        if ways.is_empty() {
            return Vec::new();
        }
        let heads = (0u32..).zip(&ways.ways).filter(|(number, way)| self.is_cut(*number) && way.to.is_some());
        let heads = heads.filter_map(|(_, way)| Some((way.site?, false)));
        let arrivals = ways.arrived_at().into_iter().map(|arrival| (Site::Arrival(ways.start(arrival.block)), true));
        let mut all: Vec<(Site, bool)> = std::iter::once((Site::Entry, true)).chain(heads).chain(arrivals).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The node behind the last block.
    pub(super) fn outside(&self) -> u32 {
        self.out.len() as u32 - 1
    }

    /// The arcs from a node.
    pub(super) fn arcs_of(&self, node: u32) -> &[Arc] {
        self.of_arcs(node, &self.arcs)
    }

    /// What there is for each of a node's arcs, of what there is for all.
    pub(super) fn of_arcs<'t, T>(&self, node: u32, all: &'t [T]) -> &'t [T] {
        let range = self.out.get(node as usize).cloned().unwrap_or_default();
        all.get(range.start as usize..range.end as usize).unwrap_or(&[])
    }

    /// The arcs of a path, from the outside to the outside. `None`: there is no path with this number.
    fn arcs_along(&self, number: u64) -> Option<Vec<Arc>> {
        self.numbers_along(number)?.into_iter().map(|arc| self.arcs.get(arc as usize).copied()).collect()
    }

    /// The same by their numbers.
    pub(super) fn numbers_along(&self, number: u64) -> Option<Vec<u32>> {
        let outside = self.outside();
        let mut rest = (number < self.paths).then_some(number)?;
        let (mut node, mut along) = (outside, Vec::new());
        loop {
            let arcs = self.arcs_of(node);
            let index = arcs.partition_point(|arc| arc.value <= rest).checked_sub(1)?;
            let arc = arcs.get(index)?;
            rest -= arc.value;
            along.push(self.out.get(node as usize)?.start + index as u32);
            node = arc.to;
            if node == outside {
                return Some(along);
            }
        }
    }

    /// The path with a number. `None`: there is none.
    pub fn decode(&self, ways: &Ways, number: u64) -> Option<Path> {
        let arcs = self.arcs_along(number)?;
        let (first, last) = (arcs.first()?, arcs.last()?);
        let last_way = match last.role {
            Role::End(way) => Some(way),
            _ => None,
        };
        let leaves = last_way.and_then(|way| ways.ways.get(way as usize)).is_some_and(|way| way.to.is_none());
        let category = match (first.role == Role::Enter, leaves) {
            (true, true) => Category::EntryExit,
            (true, false) => Category::EntryBack,
            (false, false) => Category::HeadBack,
            (false, true) => Category::HeadExit,
        };
        Some(Path { category, blocks: arcs.iter().skip(1).map(|arc| arc.from).collect(), last_way })
    }

    /// The number of a path. `None`: it is not one of the procedure's.
    pub fn encode(&self, path: &Path) -> Option<u64> {
        let outside = self.outside();
        let is_entry = matches!(path.category, Category::EntryExit | Category::EntryBack);
        let mut sum = 0;
        let mut node = outside;
        let nodes = path.blocks.iter().copied().chain([outside]);
        for to in nodes {
            let fits = |arc: &&Arc| {
                arc.to == to
                    && match arc.role {
                        Role::Enter => is_entry,
                        Role::Begin => !is_entry,
                        Role::Way(_) => true,
                        Role::End(way) => path.last_way == Some(way),
                        Role::Jump(..) => path.last_way.is_none(),
                    }
            };
            sum += self.arcs_of(node).iter().find(fits)?.value;
            node = to;
        }
        Some(sum)
    }

    /// How often control passed blocks and ways, from how often it took each path: `(number, count)`. Numbers that are
    /// none are left out. Where a path was cut short, what it passed before is missing.
    pub fn counts(&self, ways: &Ways, taken: impl IntoIterator<Item = (u64, u64)>) -> Counts {
        let zeros = |len: usize| vec![0u64; len];
        let dispatches = ways.dispatches.iter().map(|dispatch| zeros(dispatch.sources.len())).collect();
        let (blocks, ways) = (zeros(ways.starts.len()), zeros(ways.ways.len()));
        let mut counts = Counts { entries: 0, blocks, ways, dispatches };
        let add = |to: Option<&mut u64>, count: u64| to.into_iter().for_each(|to| *to = to.saturating_add(count));
        for (number, count) in taken {
            for arc in self.arcs_along(number).unwrap_or_default() {
                add(counts.blocks.get_mut(arc.from as usize), count);
                match arc.role {
                    Role::Enter => add(Some(&mut counts.entries), count),
                    Role::Begin => {}
                    Role::Way(way) | Role::End(way) => add(counts.ways.get_mut(way as usize), count),
                    Role::Jump(number, source) => {
                        let sources = counts.dispatches.get_mut(number as usize);
                        add(sources.and_then(|sources| sources.get_mut(source as usize)), count);
                    }
                }
            }
        }
        counts
    }
}

/// Orders the blocks where paths begin so that many paths which are executed often have numbers below `low`. `passed`: about how often paths begin
/// there.
fn order_of_begins(begins: &mut [(u32, Role)], paths: &[u64], passed: &[u64], low: u64) {
    let paths_of = |to: u32| paths.get(to as usize).copied().unwrap_or(0);
    begins.sort_by_key(|(to, _)| paths_of(*to));
    let mut sum = 0u64;
    let few = begins.iter().take_while(|(to, _)| {
        sum = sum.saturating_add(paths_of(*to));
        sum <= low / 2
    });
    let few = few.count();
    let passed_at = |to: u32| passed.get(to as usize).copied().unwrap_or(0);
    // Half of the low numbers are left for some of those of a block where many begin.
    begins[few..].sort_by_key(|(to, _)| std::cmp::Reverse(passed_at(*to)));
}

/// For each block, about how often paths begin there behind ways that are cut.
fn passed_to_heads(ways: &Ways, weights: &[u64], is_cut: &[bool]) -> Vec<u64> {
    let mut passed = vec![0u64; ways.starts.len()];
    for ((way, is_cut), weight) in ways.ways.iter().zip(is_cut).zip(weights) {
        if let Some(sum) = way.to.filter(|_| *is_cut).and_then(|to| passed.get_mut(to as usize)) {
            *sum = sum.saturating_add(*weight);
        }
    }
    passed
}

/// Gives each arc from a node the number of paths along those before it. Returns also the number along all.
fn valued(from: u32, targets: Vec<(u32, Role)>, paths: &[u64]) -> (Vec<Arc>, u64) {
    let mut sum = 0u64;
    let arcs = targets.into_iter().map(|(to, role)| {
        let value = sum;
        sum = sum.saturating_add(paths[to as usize]);
        Arc { from, to, role, value }
    });
    (arcs.collect(), sum)
}

/// How often control passed the parts of a procedure.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Calls of the procedure.
    pub entries: u64,
    /// By number of the block.
    pub blocks: Vec<u64>,
    /// By number of the way.
    pub ways: Vec<u64>,
    /// For each of [`Ways::dispatches`], how often each of its sources jumped; to which target is not known.
    pub dispatches: Vec<Vec<u64>>,
}
