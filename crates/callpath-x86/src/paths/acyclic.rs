//! Where paths begin and end, so that they are finite and few enough: back edges, and ways that are cut besides.

use rustc_hash::FxHashSet;

use super::ways::Ways;

/// Ways that are cut, and an order of blocks in which the others lead forward.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Acyclic {
    /// For each way: a path ends before it, and one begins behind it.
    pub(super) is_cut: Vec<bool>,
    /// The blocks that control reaches. The ways that are not cut lead from later ones to earlier ones.
    pub(super) postorder: Vec<u32>,
    /// Ways that are cut because there were too many paths.
    pub(super) cuts: u32,
    /// The number of paths without those cuts, or the largest number.
    pub(super) uncut_paths: u128,
}

/// Cuts the back edges of a depth-first search from the entry and wherever else control arrives. Then cuts more ways,
/// until there are at most `limit` paths.
///
/// A block from which too many paths lead on is cut off from those blocks behind it that contribute most: the segments
/// are as long as the limit allows, so that cuts are few. Where control passes no more often than at the entry, fewer
/// paths are too many, so that cuts are rather there than in loops.
pub(super) fn acyclic(ways: &Ways, weights: &[u64], limit: u64) -> Acyclic {
    let mut acyclic = search(ways);
    let back_edges = acyclic.is_cut.clone();
    acyclic.uncut_paths = acyclic.cut_at(ways, |_| u128::MAX, u128::MAX);
    let weight = |way: usize| weights.get(way).copied().unwrap_or(0);
    let passed = |block: u32| ways.from(block).map(weight).max().unwrap_or(0);
    let is_cold: Vec<bool> = (0..ways.len()).map(|block| passed(block) <= passed(ways.entry)).collect();
    let (mut paths, mut most) = (acyclic.uncut_paths, u128::from(limit));
    while paths > u128::from(limit) && most > 0 {
        acyclic.is_cut.clone_from(&back_edges);
        let few = most.isqrt();
        // Where it is cold, 2^24 of 2^32.
        let most_if_cold = few * few.isqrt();
        let most_from = |block: u32| if is_cold[block as usize] { most_if_cold } else { most };
        paths = acyclic.cut_at(ways, most_from, few);
        most /= 2;
    }
    let is_new = |&(before, now): &(&bool, &bool)| !before && *now;
    acyclic.cuts = back_edges.iter().zip(&acyclic.is_cut).filter(is_new).count() as u32;
    acyclic
}

/// Which ways are back edges, by number.
pub(super) fn back_edges(ways: &Ways) -> Vec<bool> {
    search(ways).is_cut
}

/// The back edges of a depth-first search.
fn search(ways: &Ways) -> Acyclic {
    #[derive(Clone, Copy, PartialEq)]
    enum Visit {
        Not,
        Open,
        Done,
    }
    let mut visits = vec![Visit::Not; ways.len() as usize];
    let (mut is_cut, mut postorder) = (vec![false; ways.ways.len()], Vec::new());
    let arrived_at = ways.arrived_at();
    let mut open: Vec<(u32, std::ops::Range<usize>)> = Vec::new();
    for root in std::iter::once(ways.entry).chain(arrived_at.iter().map(|arrival| arrival.block)) {
        match visits.get_mut(root as usize) {
            Some(visit) if *visit == Visit::Not => *visit = Visit::Open,
            _ => continue,
        }
        open.push((root, ways.from(root)));
        while let Some((block, rest)) = open.last_mut() {
            let Some(number) = rest.next() else {
                visits[*block as usize] = Visit::Done;
                postorder.push(*block);
                open.pop();
                continue;
            };
            let Some(to) = ways.ways[number].to else { continue };
            match visits[to as usize] {
                Visit::Not => {
                    visits[to as usize] = Visit::Open;
                    open.push((to, ways.from(to)));
                }
                Visit::Open => is_cut[number] = true,
                Visit::Done => {}
            }
        }
    }
    Acyclic { is_cut, postorder, cuts: 0, uncut_paths: 0 }
}

impl Acyclic {
    /// Cuts each block from which too many paths lead on off from those behind it from which more than `few` do. Returns
    /// the number of paths.
    fn cut_at(&mut self, ways: &Ways, most_from: impl Fn(u32) -> u128, few: u128) -> u128 {
        let mut jumps = vec![0u128; ways.len() as usize];
        let sources = ways.dispatches.iter().flat_map(|dispatch| &dispatch.sources);
        sources.for_each(|&(source, _)| jumps[source as usize] += 1);
        // For each block, the number of paths that lead on from it.
        let mut paths = vec![0u128; ways.len() as usize];
        for &block in &self.postorder {
            let range = ways.from(block);
            let along = |is_cut: &[bool], number: usize| match ways.ways[number].to {
                Some(to) if !is_cut[number] => paths[to as usize],
                _ => 1,
            };
            let sum = |is_cut: &[bool]| {
                range.clone().fold(jumps[block as usize], |sum, number| sum.saturating_add(along(is_cut, number)))
            };
            let mut on = sum(&self.is_cut);
            if on > most_from(block) {
                for number in range.clone() {
                    self.is_cut[number] |= along(&self.is_cut, number) > few;
                }
                on = sum(&self.is_cut);
            }
            paths[block as usize] = on;
        }
        let begins = self.begins(ways).into_iter().map(|block| paths[block as usize]);
        begins.fold(paths.get(ways.entry as usize).copied().unwrap_or(0), u128::saturating_add)
    }

    /// The blocks that paths begin at other than from the procedure's entry, ascending: behind ways that are cut, and where control
    /// arrives.
    pub(super) fn begins(&self, ways: &Ways) -> Vec<u32> {
        let cut = ways.ways.iter().zip(&self.is_cut).filter(|(_, is_cut)| **is_cut).filter_map(|(way, _)| way.to);
        let arrived_at = ways.arrived_at();
        let all: FxHashSet<u32> = cut.chain(arrived_at.iter().map(|arrival| arrival.block)).collect();
        let mut all: Vec<u32> = all.into_iter().collect();
        all.sort_unstable();
        all
    }
}
