//! Profiles of edges: counters on a few ways tell how often control passed all (Knuth 1973, 2.3.4.1; Ball and Larus 1994,
//! "Optimally profiling and tracing programs").

use std::collections::BTreeSet;

use super::acyclic::back_edges;
use super::site::Site;
use super::tree::{Edge, Solved, maximum_spanning_tree, solve};
use super::ways::Ways;

/// Which ways of a procedure have counters.
///
/// As many activations leave each block as come to it, but where an exception or a `longjmp` ends one, or an exit, and where one still is. All
/// ways into the procedure and out of it have counters: what came and did not leave was cut short somewhere, and what has no counter is
/// known within these bounds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EdgePlan {
    /// Blocks, dispatches, and the outside.
    nodes: u32,
    arcs: Vec<(Edge, Option<Site>)>,
    is_in_tree: Vec<bool>,
    /// The arcs that have counters.
    counted: Vec<u32>,
    /// By way: it leads back.
    is_back: Vec<bool>,
    /// Where control comes from outside is counted apart from where it comes by itself.
    is_apart: bool,
}

/// How often, at least and at most; `None`: that is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EdgeBounds {
    /// At least so often.
    pub least: u64,
    /// At most so often.
    pub most: Option<u64>,
}

/// How often control passed the parts of a procedure.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EdgeCounts {
    /// Calls of the procedure; jumps through its own tables to its entry are among them.
    pub entries: u64,
    /// Activations that came and did not leave. `None`: that is not known, and nothing but what was counted is.
    pub cut_short: Option<u64>,
    /// By number of the block.
    pub blocks: Vec<EdgeBounds>,
    /// By number of the way.
    pub ways: Vec<EdgeBounds>,
    /// For each of [`Ways::dispatches`], how often each of its sources jumped.
    pub dispatches: Vec<Vec<EdgeBounds>>,
    /// For each of [`Ways::dispatches`], how often control arrived at each of its targets.
    pub arrived: Vec<Vec<EdgeBounds>>,
}

impl EdgePlan {
    /// Chooses the ways without counters: a maximum spanning tree by `weights`, which are as for
    /// [`Numbering::new`](super::Numbering::new), of blocks alone.
    pub fn new(ways: &Ways, weights: &[u64]) -> EdgePlan {
        let dispatches = ways.dispatches.len() as u32;
        let (nodes, outside) = (ways.len() + dispatches + 1, ways.len() + dispatches);
        let weight = |way: usize| weights.get(way).copied().unwrap_or(0);
        // The entry, then all ways by number, dispatches, other arrivals.
        let mut arcs: Vec<(Edge, Option<Site>)> = Vec::new();
        let mut add = |(from, to), weight: u64, site: Option<Site>| {
            // What has no site cannot have a counter.
            let weight = if site.is_some() { weight.min(u64::MAX - 1) } else { u64::MAX };
            arcs.push((Edge { from, to, weight }, site));
        };
        if !ways.is_empty() {
            add((outside, ways.entry), 0, Some(Site::Entry));
        }
        for (number, way) in ways.ways.iter().enumerate() {
            add((way.from, way.to.unwrap_or(outside)), weight(number), way.site);
        }
        let mut targets = BTreeSet::new();
        for (hub, dispatch) in (ways.len()..).zip(&ways.dispatches) {
            dispatch.sources.iter().for_each(|&(source, site)| add((source, hub), 1, Some(site)));
            for &target in &dispatch.targets {
                targets.insert(target);
                let site = (target != ways.entry).then_some(Site::Arrival(ways.start(target)));
                add((hub, target), 1, site);
            }
        }
        let is_target = |block: u32| targets.contains(&block);
        for arrival in ways.arrivals.iter().filter(|arrival| !is_target(arrival.block)) {
            add((outside, arrival.block), 0, Some(Site::Arrival(ways.start(arrival.block))));
        }
        let is_apart = !is_target(ways.entry) && !ways.arrivals.iter().any(|arrival| is_target(arrival.block));
        let inside = |&(edge, _): &(Edge, Option<Site>)| {
            let leads_outside = edge.from == outside || edge.to == outside;
            // A loop is in no tree.
            if leads_outside { Edge { from: outside, to: outside, weight: 0 } } else { edge }
        };
        let is_in_tree = maximum_spanning_tree(nodes, &arcs.iter().map(inside).collect::<Vec<Edge>>());
        let has_counter = |&number: &u32| !is_in_tree[number as usize] && arcs[number as usize].1.is_some();
        let counted = (0..arcs.len() as u32).filter(has_counter).collect();
        EdgePlan { nodes, arcs, is_in_tree, counted, is_back: back_edges(ways), is_apart }
    }

    /// Where each counter counts: its number is its index here. No site has two.
    pub fn counters(&self) -> impl Iterator<Item = Site> + '_ {
        self.counted.iter().filter_map(|&arc| self.arcs.get(arc as usize)?.1)
    }

    /// Whether a way leads back into a loop, by its number.
    pub fn is_back(&self, way: u32) -> bool {
        self.is_back.get(way as usize).copied().unwrap_or(false)
    }

    /// How often its counters count, if control passes the procedure's parts as often as `counts` say: those that can be told, without
    /// where control comes to no known block.
    pub fn executed(&self, ways: &Ways, counts: &EdgeCounts) -> u64 {
        let entries = EdgeBounds { least: counts.entries, most: None };
        let of_dispatches = ways.dispatches.iter().zip(counts.dispatches.iter().zip(&counts.arrived));
        let of_dispatches = of_dispatches.flat_map(|(_, (jumps, arrived))| jumps.iter().chain(arrived));
        // In the order of the arcs.
        let all: Vec<u64> = (!ways.is_empty())
            .then_some(&entries)
            .into_iter()
            .chain(&counts.ways)
            .chain(of_dispatches)
            .map(|bounds| bounds.least)
            .collect();
        let counted = self.counted.iter().filter_map(|&arc| all.get(arc as usize));
        counted.fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// All counts, from those of the counters. `ways`: those of the plan. `is_whole`: activations began where these counters count, and
    /// calls return once. If not, or if more left than came, nothing is known of ways without counters.
    pub fn solve(&self, ways: &Ways, counters: &[u64], is_whole: bool) -> EdgeCounts {
        let mut counts = vec![0i128; self.arcs.len()];
        for (&arc, &count) in self.counted.iter().zip(counters) {
            counts[arc as usize] = count.into();
        }
        let edges: Vec<Edge> = self.arcs.iter().map(|&(edge, _)| edge).collect();
        let solved = solve(self.nodes, &edges, &self.is_in_tree, &counts).filter(|_| is_whole && self.is_apart);
        let cut_short = solved.as_ref().map(|solved| plain(solved.lost));
        let all: Vec<EdgeBounds> = match solved {
            Some(Solved { bounds, .. }) => bounds
                .into_iter()
                .map(|(least, most)| EdgeBounds { least: plain(least), most: Some(plain(most)) })
                .collect(),
            None => {
                let bounds = |(&count, &is_in_tree): (&i128, &bool)| EdgeBounds {
                    least: plain(count),
                    most: (!is_in_tree).then(|| plain(count)),
                };
                counts.iter().zip(&self.is_in_tree).map(bounds).collect()
            }
        };
        let blocks = self.blocks(ways, &edges, (&all, cut_short));
        let mut rest = all.into_iter();
        let entries = if ways.is_empty() { 0 } else { rest.next().unwrap_or_default().least };
        let of_ways = rest.by_ref().take(ways.ways.len()).collect();
        let (mut dispatches, mut arrived) = (Vec::new(), Vec::new());
        for dispatch in &ways.dispatches {
            dispatches.push(rest.by_ref().take(dispatch.sources.len()).collect());
            arrived.push(rest.by_ref().take(dispatch.targets.len()).collect());
        }
        EdgeCounts { entries, cut_short, blocks, ways: of_ways, dispatches, arrived }
    }

    /// How often each block was executed: as often as control came, and at least as often as it left. Of a block that it came to less often
    /// than it left, since a call in it returned twice or it went on there in a fork, only the first is known.
    fn blocks(&self, ways: &Ways, edges: &[Edge], (all, cut_short): (&[EdgeBounds], Option<u64>)) -> Vec<EdgeBounds> {
        let mut came = vec![EdgeBounds { least: 0, most: Some(0) }; self.nodes as usize];
        let mut left = vec![EdgeBounds { least: 0, most: cut_short }; self.nodes as usize];
        let plus = |sum: &mut EdgeBounds, more: &EdgeBounds| {
            sum.least = sum.least.saturating_add(more.least);
            sum.most = sum.most.zip(more.most).and_then(|(sum, more)| sum.checked_add(more));
        };
        for ((edge, bounds), (_, site)) in edges.iter().zip(all).zip(&self.arcs) {
            plus(&mut left[edge.from as usize], bounds);
            // A jump of its own to its entry is counted there.
            if site.is_some() || edge.to != ways.entry {
                plus(&mut came[edge.to as usize], bounds);
            }
        }
        let least_of = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        let both = |(came, left): (EdgeBounds, EdgeBounds)| EdgeBounds {
            least: came.least.max(left.least.min(came.most.unwrap_or(u64::MAX))),
            most: least_of(came.most, left.most),
        };
        came.into_iter().zip(left).take(ways.starts.len()).map(both).collect()
    }
}

fn plain(count: i128) -> u64 {
    u64::try_from(count.max(0)).unwrap_or(u64::MAX)
}
