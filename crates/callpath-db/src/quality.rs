//! The quality of a measurement: each sample taken is in exactly one class.

use std::collections::BTreeMap;

use callpath_schema::{ProbeAccount, calls_were_counted};

/// How the samples of a run, or of one process of it, were accounted for.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Quality {
    /// Samples taken.
    pub taken: u64,
    /// Of these: the walk ended at a frame known to be outermost.
    pub full: u64,
    /// Of these: the walk stopped early; stored under a root of its own.
    pub partial: u64,
    /// Of these: kept as registers and stack, still not unwindable.
    pub raw_kept: u64,
    /// Of these: dropped, by reason. A reason is a few words that complete "dropped: ".
    pub dropped: BTreeMap<String, u64>,
    /// How sure the steps from callee to caller are.
    pub links: Links,
    /// What the collector itself cost inside the program, in nanoseconds of CPU time.
    pub overhead_ns: u64,
    /// How long the handlers of the samples took.
    pub handlers: Handlers,
    /// Of probes, if there were any: of a whole run, not of its processes.
    pub probes: Option<ProbeAccount>,
    /// Of exact counts, if there are any: of a whole run as well.
    pub exact: Option<ExactQuality>,
    /// Of call paths that were inferred, if they were: of a whole run as well.
    pub inferred: Option<InferredQuality>,
}

/// The name that stands for calls that are not determined, in a path that was inferred.
pub const UNDETERMINED: &str = "[undetermined calls]";

/// The metric of samples whose path was inferred and is only likely.
pub const LIKELY_SAMPLES: &str = "likely-samples";

/// The metric of samples whose path no run of the map's has taken, and the code has alone.
pub const STATIC_SAMPLES: &str = "static-samples";

/// The metric of samples whose stack was walked whole where others were inferred.
pub const WALKED_SAMPLES: &str = "walked-samples";

/// What a map of call paths says of context identifiers that were sampled: pairs of a procedure and a height of the stack.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct InferredQuality {
    /// Distinct ones.
    pub pairs: InferredCounts,
    /// Samples of them.
    pub samples: InferredCounts,
    /// Calls of probed functions that were counted at them.
    pub calls: InferredCounts,
    /// Stacks were walked until the map told the rest.
    pub is_walked: bool,
    /// All stacks were walked, and the map was asked besides: paths that were walked whole are shown, whatever it says.
    pub shows_walked: bool,
    /// Samples whose stack was walked whole: the map was not needed.
    pub walked: u64,
}

/// So many have so many paths.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct InferredCounts {
    /// One path.
    pub precise: u64,
    /// One path was seen, or is nearest to what was, and the code has others: or calls of the last procedure could not be counted.
    pub likely: u64,
    /// One path, which no run has taken: the code has no other.
    pub by_code: u64,
    /// Several.
    pub ambiguous: u64,
    /// Of those, by the number of paths.
    pub degree: BTreeMap<u64, u64>,
    /// The height, or the procedure, is not known.
    pub undetermined: u64,
    /// No path that the map knows.
    pub missing: u64,
}

impl InferredCounts {
    /// All.
    pub fn all(&self) -> u64 {
        let all = [self.precise, self.likely, self.by_code, self.ambiguous, self.undetermined, self.missing];
        all.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }
}

/// How exact counts were made: what of a program they speak of, and what is missing.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ExactQuality {
    /// How many procedures were counted, with those that were not executed.
    pub counted: u64,
    /// Whether their paths or edges were; else their calls were, in the calling context tree.
    pub paths: bool,
    /// Whether both were: paths in the contexts of that tree.
    pub in_contexts: bool,
    /// Those that were not counted, and why: by name.
    pub refused: Vec<RefusedFunction>,
    /// Paths that were begun and not ended.
    pub cut_short: u64,
    /// Counts that are known to be missing.
    pub lost: u64,
}

/// A procedure that was not counted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RefusedFunction {
    /// Its name.
    pub function: String,
    /// The file of its module.
    pub module: String,
    /// Why not.
    pub reason: String,
}

impl RefusedFunction {
    /// Whether its calls were counted, and only its paths, or what the calls take, were not.
    pub fn has_calls(&self) -> bool {
        calls_were_counted(&self.reason)
    }
}

/// How long handlers took, one by one.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Handlers {
    /// The longest, in nanoseconds.
    pub longest_ns: u64,
    /// How many took less than 2, 4, 8, ... nanoseconds, but not less than the entry before. Bounds are rounded up: an
    /// entry may hold some that belong to the one before it.
    pub histogram: Vec<u64>,
}

impl Handlers {
    /// Adds `other`'s handlers to these.
    pub fn add(&mut self, other: &Handlers) {
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        if self.histogram.len() < other.histogram.len() {
            self.histogram.resize(other.histogram.len(), 0);
        }
        for (to, from) in self.histogram.iter_mut().zip(&other.histogram) {
            *to = to.saturating_add(*from);
        }
    }
}

/// Steps of the walk from a callee to its caller, by how well they were confirmed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Links {
    /// The return address follows a call that can reach the callee.
    pub valid: u64,
    /// It follows a call whose target is not known, or a tail call explains it.
    pub likely: u64,
    /// No call explains it.
    pub invalid: u64,
}

impl Quality {
    /// Adds `other`'s samples to these.
    pub fn add(&mut self, other: &Quality) {
        self.taken = self.taken.saturating_add(other.taken);
        self.full = self.full.saturating_add(other.full);
        self.partial = self.partial.saturating_add(other.partial);
        self.raw_kept = self.raw_kept.saturating_add(other.raw_kept);
        for (reason, &count) in &other.dropped {
            let total = self.dropped.entry(reason.clone()).or_insert(0);
            *total = total.saturating_add(count);
        }
        self.links.valid = self.links.valid.saturating_add(other.links.valid);
        self.links.likely = self.links.likely.saturating_add(other.links.likely);
        self.links.invalid = self.links.invalid.saturating_add(other.links.invalid);
        self.overhead_ns = self.overhead_ns.saturating_add(other.overhead_ns);
        self.handlers.add(&other.handlers);
        if let Some(probes) = &other.probes {
            self.probes.get_or_insert_default().add(probes);
        }
    }

    /// Whether what was taken are the calls that probes counted, and no samples.
    pub fn is_of_calls(&self) -> bool {
        self.probes.as_ref().is_some_and(|probes| probes.hits == self.taken)
    }

    /// Samples dropped for any reason.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// `full + partial + raw_kept + dropped`: what `taken` must be.
    pub fn accounted(&self) -> u64 {
        self.full.saturating_add(self.partial).saturating_add(self.raw_kept).saturating_add(self.dropped_total())
    }

    /// Whether every sample taken is in exactly one class.
    pub fn is_balanced(&self) -> bool {
        self.taken == self.accounted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_hold_after_adding() {
        let one = Quality {
            taken: 10,
            full: 7,
            partial: 1,
            handlers: Handlers { longest_ns: 3, histogram: vec![1, 1] },
            raw_kept: 0,
            dropped: BTreeMap::from([("no room".into(), 2)]),
            ..Quality::default()
        };
        let two = Quality {
            taken: 6,
            full: 3,
            raw_kept: 1,
            dropped: BTreeMap::from([("no room".into(), 1), ("torn".into(), 1)]),
            overhead_ns: 5,
            handlers: Handlers { longest_ns: 9, histogram: vec![0, 2, 1] },
            ..Quality::default()
        };
        let mut both = one.clone();
        both.add(&two);
        assert!(one.is_balanced() && two.is_balanced() && both.is_balanced());
        assert_eq!((both.taken, both.dropped_total(), both.dropped["no room"]), (16, 4, 3));
        assert_eq!(both.handlers, Handlers { longest_ns: 9, histogram: vec![1, 3, 1] });
        both.full -= 1;
        assert!(!both.is_balanced());
    }
}
