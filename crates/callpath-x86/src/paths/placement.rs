//! What has to be inserted so that a procedure counts its paths: Ball and Larus 1996, section 3.3, and Ball 1994.

use super::numbering::{Arc, Numbering, Role};
use super::site::{PathOperation, Site};
use super::tree::{Edge, maximum_spanning_tree, sums};
use super::ways::Ways;

/// Where increments stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// On each way with a value other than 0, and the register is set wherever a path begins. For comparison.
    Simple,
    /// On ways that are not in a maximum spanning tree. The register is set as late as possible, and not at all where a
    /// path's number is known without it.
    Tree,
}

/// What is known of the register at a block's beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sum {
    /// Control has not been followed here yet.
    Unseen,
    /// The same on all ways here: the register need not hold it.
    Known(i64),
    /// In the register.
    Register,
}

/// Where the register is set as soon as a path begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Eager {
    at_entry: bool,
    behind_cuts: bool,
}

const EVERYWHERE: Eager = Eager { at_entry: true, behind_cuts: true };

impl Numbering {
    /// What has to be inserted into the procedure whose `ways` were numbered, by ascending site. `weights`: about how often control passes
    /// each way, by its number. They decide how often what is inserted is executed, and not what is counted.
    pub fn place(&self, ways: &Ways, weights: &[u64], placement: Placement) -> Vec<(Site, PathOperation)> {
        let increments: Vec<i64> = match placement {
            Placement::Simple => self.arcs.iter().map(|arc| arc.value as i64).collect(),
            Placement::Tree => return self.place_in_tree(ways, weights, weights).operations(self, ways),
        };
        Placed::new(self, &increments, EVERYWHERE).operations(self, ways)
    }

    /// The cheapest placement by `weights`, of those on ways outside of a maximum spanning tree by them or by other ones: a `guess` that was
    /// made without a profile.
    pub fn place_in_tree(&self, ways: &Ways, weights: &[u64], guess: &[u64]) -> Placed {
        let some = [(true, false), (false, true), (false, false), (true, true)];
        let some = some.map(|(at_entry, behind_cuts)| Eager { at_entry, behind_cuts });
        let mut trees = vec![self.increments(ways, weights)];
        if guess != weights {
            trees.push(self.increments(ways, guess));
        }
        let all = trees.iter().flat_map(|increments| some.map(|eager| Placed::new(self, increments, eager)));
        let costs = all.map(|placed| (placed.cost(self, ways, weights), placed));
        let cheapest = costs.min_by_key(|(cost, _)| *cost).map(|(_, placed)| placed);
        cheapest.unwrap_or_else(|| Placed { operations: Vec::new() })
    }

    /// An increment for each arc, most of them 0: along each path they add up to its number.
    fn increments(&self, ways: &Ways, weights: &[u64]) -> Vec<i64> {
        let edge = |arc: &Arc| {
            // Where a path begins or ends, there is an operation anyway, which takes the increment.
            let weight = match arc.role {
                Role::Way(way) => weights.get(way as usize).copied().unwrap_or(0).saturating_add(1),
                _ => 0,
            };
            Edge { from: arc.from, to: arc.to, weight }
        };
        let edges: Vec<Edge> = self.arcs.iter().map(edge).collect();
        let nodes = ways.len() + 1;
        let is_in_tree = maximum_spanning_tree(nodes, &edges);
        let values: Vec<i64> = self.arcs.iter().map(|arc| arc.value as i64).collect();
        let sums = sums(nodes, &edges, &is_in_tree, &values);
        let sum = |node: u32| sums[node as usize];
        let increment = |(edge, value): (&Edge, &i64)| value.wrapping_add(sum(edge.from)).wrapping_sub(sum(edge.to));
        edges.iter().zip(&values).map(increment).collect()
    }
}

/// What is inserted to count the paths.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// For each arc, what is inserted on it.
    operations: Vec<Option<PathOperation>>,
}

impl Placed {
    fn new(numbering: &Numbering, increments: &[i64], eager: Eager) -> Placed {
        let sums = sums_at_blocks(numbering, increments, eager);
        let outside = sums.len() as u32 - 1;
        let operation = |(arc, &increment): (&Arc, &i64)| match (sums[arc.from as usize], sums[arc.to as usize]) {
            (Sum::Known(sum), _) if arc.to == outside => Some(PathOperation::CountNumber(sum.wrapping_add(increment))),
            (_, _) if arc.to == outside => Some(PathOperation::Count(increment)),
            (_, Sum::Known(_)) => None,
            (Sum::Known(sum), _) => Some(PathOperation::Set(sum.wrapping_add(increment))),
            (_, _) => (increment != 0).then_some(PathOperation::Add(increment)),
        };
        Placed { operations: numbering.arcs.iter().zip(increments).map(operation).collect() }
    }

    /// How many increments one execution of a path takes, by its number: operations on the path register that do not count.
    pub fn increments_along(&self, numbering: &Numbering, number: u64) -> u64 {
        let is_increment = |operation: &Option<PathOperation>| {
            matches!(operation, Some(PathOperation::Set(_) | PathOperation::Add(_)))
        };
        let arcs = numbering.numbers_along(number).unwrap_or_default().into_iter();
        arcs.filter(|&arc| self.operations.get(arc as usize).is_some_and(is_increment)).count() as u64
    }

    /// How often operations are executed, about. Those that share a site with another one count half.
    fn cost(&self, numbering: &Numbering, ways: &Ways, weights: &[u64]) -> u128 {
        let weight = |way: u32| u128::from(weights.get(way as usize).copied().unwrap_or(0));
        let mut entered: Vec<u128> = vec![0; ways.starts.len()];
        let mut begun = entered.clone();
        let mut passed = entered.clone();
        for (number, way) in (0u32..).zip(&ways.ways) {
            if let Some(left) = entered.get_mut(way.from as usize) {
                *left = left.saturating_add(weight(number));
            }
            if let Some(passed) = way.to.and_then(|to| passed.get_mut(to as usize)) {
                *passed = passed.saturating_add(weight(number));
            }
            let head = way.to.filter(|_| numbering.is_cut(number));
            if let Some(begun) = head.and_then(|to| begun.get_mut(to as usize)) {
                *begun = begun.saturating_add(weight(number));
            }
        }
        let at = |weights: &[u128], block: u32| weights.get(block as usize).copied().unwrap_or(0);
        let cost = |(arc, operation): (&Arc, &Option<PathOperation>)| match (arc.role, operation) {
            (_, None) => 0,
            (Role::Way(way), _) => weight(way).saturating_mul(2).saturating_add(1),
            (Role::Enter, _) => at(&entered, arc.to).saturating_sub(at(&begun, arc.to)).saturating_mul(2),
            (Role::Begin, _) => at(&begun, arc.to).max(1),
            (Role::Jump(..), Some(PathOperation::Count(_))) => at(&passed, arc.from).max(1),
            (Role::End(_) | Role::Jump(..), _) => 0,
        };
        numbering.arcs.iter().zip(&self.operations).map(cost).fold(0, u128::saturating_add)
    }

    /// By ascending site. Operations at one site are executed in this order.
    ///
    /// Between the end of one path and the beginning of the next one the order is `Count`, `Set`; at a landing pad it is
    /// `CutShort`, `Set`. No other site has more than one operation.
    pub fn operations(&self, numbering: &Numbering, ways: &Ways) -> Vec<(Site, PathOperation)> {
        let mut along: Vec<Option<PathOperation>> = vec![None; ways.ways.len()];
        let mut begins: Vec<Option<PathOperation>> = vec![None; ways.starts.len()];
        let mut placed: Vec<(Site, PathOperation)> = Vec::new();
        for (arc, &operation) in numbering.arcs.iter().zip(&self.operations) {
            let Some(operation) = operation else { continue };
            match arc.role {
                Role::Enter => placed.push((Site::Entry, operation)),
                Role::Begin => begins[arc.to as usize] = Some(operation),
                Role::Way(way) | Role::End(way) => along[way as usize] = Some(operation),
                Role::Jump(dispatch, source) => {
                    let sources = ways.dispatches.get(dispatch as usize).map(|dispatch| &dispatch.sources);
                    let source = sources.and_then(|sources| sources.get(source as usize));
                    placed.extend(source.map(|&(_, site)| (site, operation)));
                }
            }
        }
        for (number, way) in (0u32..).zip(&ways.ways) {
            let Some(site) = way.site else { continue };
            placed.extend(along[number as usize].map(|operation| (site, operation)));
            if let Some(to) = way.to.filter(|_| numbering.is_cut(number)) {
                placed.extend(begins[to as usize].map(|operation| (site, operation)));
            }
        }
        for arrival in ways.arrived_at() {
            let site = Site::Arrival(ways.start(arrival.block));
            placed.extend(arrival.cuts_short.then_some((site, PathOperation::CutShort)));
            placed.extend(begins[arrival.block as usize].map(|operation| (site, operation)));
        }
        // Stable: what stands at one site stays in order.
        placed.sort_by_key(|&(site, _)| site);
        placed
    }
}

/// What is known of the register at each node. The last one is the outside, where nothing has been added.
fn sums_at_blocks(numbering: &Numbering, increments: &[i64], eager: Eager) -> Vec<Sum> {
    let outside = numbering.outside();
    let mut sums = vec![Sum::Unseen; outside as usize + 1];
    sums[outside as usize] = Sum::Known(0);
    let blocks = numbering.acyclic.postorder.iter().rev().copied();
    for node in std::iter::once(outside).chain(blocks) {
        for (arc, increment) in numbering.arcs_of(node).iter().zip(numbering.of_arcs(node, increments)) {
            if arc.to == outside {
                continue;
            }
            let is_set = match arc.role {
                Role::Enter => eager.at_entry,
                Role::Begin => eager.behind_cuts,
                _ => false,
            };
            let new = match sums[node as usize] {
                Sum::Known(sum) if !is_set => Sum::Known(sum.wrapping_add(*increment)),
                _ => Sum::Register,
            };
            let sum = &mut sums[arc.to as usize];
            *sum = if *sum == Sum::Unseen || *sum == new { new } else { Sum::Register };
        }
    }
    sums
}
