//! What an earlier measurement tells of how often code is executed: weights of the ways through procedures, so that what counts stands
//! where control passes seldom (Ball and Larus 1996, section 3.3).
//!
//! Modules are known by their identity, code by its link-time addresses. A procedure that was counted has its counts, another one its
//! samples, if it has some.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::{Path, PathBuf};

use callpath_format::address::LinkAddr;
use callpath_image::identity::ModuleIdentity;
use callpath_x86::graph::{ModuleFlow, ProcedureGraph};
use callpath_x86::paths::{Ways, sampled_blocks, weights_by_samples};
use rustc_hash::{FxHashMap, FxHashSet};

/// A count weighs as much more than a guess, where ways were passed equally often.
const OF_A_COUNT: u64 = 1 << 16;

/// What a measurement tells of modules.
#[derive(Debug, Default)]
pub struct Guide {
    /// Where it is.
    pub directory: PathBuf,
    /// The program that it measured.
    pub program: PathBuf,
    modules: FxHashMap<ModuleIdentity, ModuleGuide>,
    /// The names of their files.
    files: FxHashSet<OsString>,
}

/// What it tells of a module.
#[derive(Debug, Default)]
pub struct ModuleGuide {
    /// By the first instruction of procedures that were executed: what was counted exactly.
    pub procedures: FxHashMap<LinkAddr, ProcedureFlow>,
    /// Samples at instructions.
    pub samples: BTreeMap<LinkAddr, u64>,
}

/// How often control passed the edges of a procedure.
#[derive(Debug, Default)]
pub struct ProcedureFlow {
    /// By the block that it came from and the one that it came to, or out of the procedure: where both are known.
    pub edges: FxHashMap<(LinkAddr, Option<LinkAddr>), u64>,
    /// By block: paths that ended there, where control left the procedure (`true`), and those that ended before a back edge.
    pub ends: FxHashMap<(LinkAddr, bool), u64>,
}

/// What is known of a module that runs.
#[derive(Clone, Copy, Debug)]
pub enum Guided<'g> {
    /// This.
    By(&'g ModuleGuide),
    /// Another file of its name was measured.
    OtherBuild,
    /// It was not measured.
    Unknown,
}

impl Guide {
    /// What is told of a module. More is added there; its file is at `path`.
    pub fn module(&mut self, identity: &ModuleIdentity, path: &Path) -> &mut ModuleGuide {
        self.files.extend(path.file_name().map(OsStr::to_owned));
        self.modules.entry(identity.clone()).or_default()
    }

    /// Whether it tells of any code.
    pub fn tells_anything(&self) -> bool {
        self.modules.values().any(|module| !module.procedures.is_empty() || !module.samples.is_empty())
    }

    /// What is known of the module of a file.
    pub fn of(&self, identity: &ModuleIdentity, path: &Path) -> Guided<'_> {
        match self.modules.get(identity) {
            Some(module) => Guided::By(module),
            None if path.file_name().is_some_and(|name| self.files.contains(name)) => Guided::OtherBuild,
            None => Guided::Unknown,
        }
    }
}

impl ModuleGuide {
    /// Weights of a procedure's ways, by number. `guess`: those without a guide. `is_cut`: whether paths end before a way. `None`: nothing is known.
    pub fn weights(
        &self,
        (flow, graph): (&ModuleFlow<'_>, &ProcedureGraph),
        (ways, guess): (&Ways, &[u64]),
        is_cut: impl Fn(u32) -> bool,
    ) -> Option<Vec<u64>> {
        match self.procedures.get(&graph.entry) {
            Some(counted) => Some(counted.weights(ways, guess, is_cut)),
            None => {
                let samples = |code: &Range<LinkAddr>| self.samples.range(code.clone()).map(|(_, count)| count).sum();
                weights_by_samples(ways, guess, &sampled_blocks(flow, graph, samples))
            }
        }
    }
}

impl ProcedureFlow {
    fn weights(&self, ways: &Ways, guess: &[u64], is_cut: impl Fn(u32) -> bool) -> Vec<u64> {
        let start = |block: u32| ways.starts.get(block as usize).copied().unwrap_or(LinkAddr(0));
        // The ways that a path may have ended with.
        let ends_with = |number: usize, leaves: bool| match ways.ways[number].to {
            Some(_) => !leaves && is_cut(number as u32),
            None => leaves,
        };
        let weight = |number: usize| {
            let way = &ways.ways[number];
            let passed = self.edges.get(&(start(way.from), way.to.map(start))).copied().unwrap_or(0);
            let leaves = way.to.is_none();
            let ended = self.ends.get(&(start(way.from), leaves)).filter(|_| ends_with(number, leaves));
            // Which of several it was, is not known.
            let alike = ways.from(way.from).filter(|&other| ends_with(other, leaves)).count() as u64;
            let count = passed.saturating_add(ended.map_or(0, |count| count / alike.max(1)));
            let guess = guess.get(number).copied().unwrap_or(0);
            count.saturating_mul(OF_A_COUNT).saturating_add(guess.checked_ilog2().unwrap_or(0).into())
        };
        (0..ways.ways.len()).map(weight).collect()
    }
}

#[cfg(test)]
mod tests {
    use callpath_x86::paths::Way;

    use super::*;

    const STARTS: [LinkAddr; 3] = [LinkAddr(0x10), LinkAddr(0x20), LinkAddr(0x30)];

    /// 0 -> 1 or 2; 1 -> back to 0, to 1 or 2; 2 -> out by two ways.
    fn ways() -> Ways {
        let ways = [(0, Some(1)), (0, Some(2)), (1, Some(0)), (1, Some(1)), (1, Some(2)), (2, None), (2, None)];
        let ways = ways.map(|(from, to)| Way { from, to, site: None });
        Ways { starts: STARTS.to_vec(), ways: ways.to_vec(), ..Ways::default() }
    }

    #[test]
    fn ends_of_paths_are_of_the_ways_that_they_may_have_taken() {
        let [zero, one, two] = STARTS;
        let edges = FxHashMap::from_iter([((zero, Some(one)), 70), ((zero, Some(two)), 30), ((one, Some(two)), 5)]);
        let ends = FxHashMap::from_iter([((one, false), 60), ((two, true), 40)]);
        let guess = [1 << 10, 1 << 13, 1, 1, 1, 0, 1];
        let weights = ProcedureFlow { edges, ends }.weights(&ways(), &guess, |way| way == 2 || way == 3);
        let counts = weights.iter().map(|weight| weight / OF_A_COUNT).collect::<Vec<u64>>();
        assert_eq!(counts, [70, 30, 30, 30, 5, 20, 20]);
        // Where counts are equal, the guess decides.
        assert_eq!(weights[0] % OF_A_COUNT, 10);
        assert_eq!(ProcedureFlow::default().weights(&ways(), &guess, |_| false), [10, 13, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_module_is_known_by_its_identity() {
        let mut guide = Guide::default();
        let [measured, other] = [1, 2].map(ModuleIdentity::Content);
        guide.module(&measured, Path::new("/lib/a.so"));
        assert!(!guide.tells_anything());
        guide.module(&measured, Path::new("/lib/a.so")).samples.insert(LinkAddr(1), 1);
        assert!(guide.tells_anything());
        assert!(
            matches!(guide.of(&measured, Path::new("/elsewhere/b.so")), Guided::By(module) if module.samples.len() == 1)
        );
        assert!(matches!(guide.of(&other, Path::new("/elsewhere/a.so")), Guided::OtherBuild));
        assert!(matches!(guide.of(&other, Path::new("/lib/c.so")), Guided::Unknown));
    }
}
