//! How precise a map is: how many paths share their identifier with how many others (section 8.4).

use std::collections::BTreeMap;

use crate::map::{Answer, PathMap, Weight};

/// By degree of ambiguity, how many paths have it; 1: no other path has the same identifier.
pub type Degrees = BTreeMap<u64, u64>;

/// How precise a map is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Precision {
    /// Identifiers.
    pub pairs: u64,
    /// Paths that have an identifier; one that has two counts twice.
    pub paths: Degrees,
    /// The same by calls of their innermost procedure.
    pub calls: Degrees,
    /// The same by samples.
    pub samples: Degrees,
    /// Of the paths that no other shares an identifier with, those that look-ups give as no more than likely ([`Answer::Likely`]), or as told by
    /// the code ([`Answer::ByCode`]): their number, and how often they were seen.
    pub likely: (u64, Weight),
    /// Paths that have no identifier.
    pub unidentified_paths: u64,
    /// What was seen of them.
    pub unidentified: Weight,
}

impl Precision {
    /// The share of precise paths, from 0 to 1, of those that have an identifier. `None`: there are none.
    pub fn share(degrees: &Degrees) -> Option<f64> {
        let all = degrees.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
        (all > 0).then(|| degrees.get(&1).copied().unwrap_or(0) as f64 / all as f64)
    }
}

impl PathMap {
    /// How precise the map is.
    pub fn precision(&self) -> Precision {
        let weights: rustc_hash::FxHashMap<(u32, i64), Weight> =
            self.heights.iter().map(|(node, height, weight)| ((*node, *height), *weight)).collect();
        let identified: rustc_hash::FxHashSet<u32> = self.heights.iter().map(|(node, ..)| *node).collect();
        let mut precision = Precision {
            pairs: self.len() as u64,
            unidentified_paths: (self.nodes.len() - identified.len()) as u64,
            unidentified: self.unidentified,
            ..Precision::default()
        };
        for (identifier, paths, meant) in self.meant_answers() {
            let degree = meant as u64;
            let is_likely = degree == 1 && !matches!(self.answer(identifier), Answer::Precise(_));
            for path in paths.iter().take(meant) {
                let weight = weights.get(&(*path, identifier.height)).copied().unwrap_or_default();
                if is_likely {
                    precision.likely = (precision.likely.0 + 1, precision.likely.1.plus(weight));
                }
                let counts = [
                    (&mut precision.paths, 1),
                    (&mut precision.calls, weight.calls),
                    (&mut precision.samples, weight.samples),
                ];
                for (degrees, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
                    let sum = degrees.entry(degree).or_default();
                    *sum = sum.saturating_add(count);
                }
            }
        }
        precision
    }
}
