//! Profiles of edges: counters on a few ways tell how often control passed all (Knuth 1973, 2.3.4.1; Ball and Larus 1994,
//! "Optimally profiling and tracing programs").

use std::collections::BTreeSet;

use super::numbering::Counts;
use super::site::Site;
use super::tree::{Edge, maximum_spanning_tree, solve};
use super::ways::Ways;

/// Which ways of a procedure have counters.
///
/// As many activations must leave each block as come to it: the counts are inexact where an exception or a `longjmp` ends an
/// activation between, or continues it at a landing pad, where a signal or an exit finds it there, and as long as it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EdgePlan {
    /// Blocks, dispatches, and the outside.
    nodes: u32,
    arcs: Vec<(Edge, Option<Site>)>,
    is_in_tree: Vec<bool>,
    /// The arcs that have counters.
    counted: Vec<u32>,
}

/// How often control passed the parts of a procedure.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EdgeCounts {
    /// Entries, blocks and ways.
    pub counts: Counts,
    /// For each of [`Ways::dispatches`], how often control arrived at each of its targets.
    pub arrived: Vec<Vec<u64>>,
    /// No count came out below 0: then activations were cut short, and blocks near to where they were are wrong.
    pub is_consistent: bool,
}

impl EdgePlan {
    /// Chooses the ways without counters: a maximum spanning tree by `weights`, which are as for
    /// [`Numbering::new`](super::Numbering::new).
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
            let calls = ways.from(ways.entry).map(weight).fold(0, u64::saturating_add);
            // Where a table leads to the entry, too, calls alone cannot be counted there.
            let is_target = ways.dispatches.iter().any(|dispatch| dispatch.targets.contains(&ways.entry));
            add((outside, ways.entry), calls, (!is_target).then_some(Site::Entry));
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
        for arrival in ways.arrivals.iter().filter(|arrival| !targets.contains(&arrival.block)) {
            add((outside, arrival.block), 0, Some(Site::Arrival(ways.start(arrival.block))));
        }
        let edges: Vec<Edge> = arcs.iter().map(|&(edge, _)| edge).collect();
        let is_in_tree = maximum_spanning_tree(nodes, &edges);
        let has_counter = |&number: &u32| !is_in_tree[number as usize] && arcs[number as usize].1.is_some();
        let counted = (0..arcs.len() as u32).filter(has_counter).collect();
        EdgePlan { nodes, arcs, is_in_tree, counted }
    }

    /// Where each counter counts: its number is its index here. No site has two.
    pub fn counters(&self) -> impl Iterator<Item = Site> + '_ {
        self.counted.iter().filter_map(|&arc| self.arcs.get(arc as usize)?.1)
    }

    /// All counts, from those of the counters. `ways`: those of the plan.
    pub fn solve(&self, ways: &Ways, counters: &[u64]) -> EdgeCounts {
        let mut all = vec![0i128; self.arcs.len()];
        for (&arc, &count) in self.counted.iter().zip(counters) {
            all[arc as usize] = count.into();
        }
        let edges: Vec<Edge> = self.arcs.iter().map(|&(edge, _)| edge).collect();
        solve(self.nodes, &edges, &self.is_in_tree, &mut all);
        let mut blocks = vec![0u64; self.nodes as usize];
        for (edge, &count) in edges.iter().zip(&all) {
            let block = &mut blocks[edge.to as usize];
            *block = block.saturating_add(plain(count));
        }
        blocks.truncate(ways.starts.len());
        let is_consistent = all.iter().all(|&count| count >= 0);
        let mut rest = all.into_iter().map(plain);
        let entries = rest.by_ref().take(usize::from(!ways.is_empty())).sum();
        let of_ways = rest.by_ref().take(ways.ways.len()).collect();
        let (mut dispatches, mut arrived) = (Vec::new(), Vec::new());
        for dispatch in &ways.dispatches {
            dispatches.push(rest.by_ref().take(dispatch.sources.len()).collect());
            arrived.push(rest.by_ref().take(dispatch.targets.len()).collect());
        }
        EdgeCounts { counts: Counts { entries, blocks, ways: of_ways, dispatches }, arrived, is_consistent }
    }
}

fn plain(count: i128) -> u64 {
    u64::try_from(count.max(0)).unwrap_or(u64::MAX)
}
