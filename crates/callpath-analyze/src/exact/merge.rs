//! Counts of several processes added up: by module, entry, and path.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use callpath_db::exact::ExactActivations;
use callpath_format::address::LinkAddr;
use callpath_format::frame::FrameKey;
use callpath_image::identity::ModuleIdentity;
use callpath_measurement::{CountedEdge, CountedEdges, CountedPath, ModuleRecord, PathCounts, ProcessFile};
use callpath_schema::{Bounds, PATH_METRICS, PathCategory, PathMetric, PathTime};
use rustc_hash::FxHashMap;

use super::Counted;
use super::flows::{CalledBy, CallerFrames, FrameCode, PathIndex};
use super::samples::{Sampled, is_our_own, sampled_of};

/// All processes together.
#[derive(Default)]
pub(super) struct Merged {
    pub(super) modules: Vec<MergedModule>,
    /// If paths were counted in contexts: what calls their procedures.
    pub(super) callers: Option<CallerFrames>,
    pub(super) cut_short: u64,
    pub(super) lost: u64,
    /// What was measured of paths.
    pub(super) metrics: Vec<PathMetric>,
    /// What could not be added, a sentence each.
    pub(super) notes: Vec<String>,
}

/// A module, of whichever processes had it.
pub(super) struct MergedModule {
    /// Where it was.
    pub(super) paths: Vec<PathBuf>,
    pub(super) identity: Option<ModuleIdentity>,
    pub(super) procedures: BTreeMap<LinkAddr, MergedProcedure>,
    pub(super) refused: BTreeSet<(LinkAddr, String)>,
    /// What samples of the processes say of its addresses.
    pub(super) sampled: Sampled,
}

#[derive(Default)]
pub(super) struct MergedProcedure {
    pub(super) possible: u64,
    pub(super) cuts: u32,
    pub(super) paths: BTreeMap<PathKey, MergedPath>,
    /// If edges were counted.
    pub(super) flow: Option<MergedFlow>,
    /// If paths were, and activations besides.
    pub(super) activations: Option<ExactActivations>,
}

/// How often a path was executed.
#[derive(Default)]
pub(super) struct MergedPath {
    pub(super) executions: u64,
    pub(super) times: [PathTime; PATH_METRICS],
    /// In each context that is known: by what called the procedure.
    pub(super) contexts: FxHashMap<CalledBy, u64>,
}

impl MergedProcedure {
    /// Whether it is known to have been executed.
    pub(super) fn is_executed(&self) -> bool {
        !self.paths.is_empty()
            || self.activations.is_some_and(|activations| activations.entries > 0)
            || self.flow.as_ref().is_some_and(|flow| !flow.blocks.is_empty())
    }
}

/// Edges of a procedure.
pub(super) struct MergedFlow {
    pub(super) entries: u64,
    pub(super) cut_short: Option<u64>,
    pub(super) blocks: BTreeMap<LinkAddr, Bounds>,
    pub(super) edges: BTreeMap<EdgeKey, Bounds>,
}

/// What makes an edge the same one in another process.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct EdgeKey {
    pub(super) from: LinkAddr,
    pub(super) to: Vec<LinkAddr>,
    pub(super) is_back: bool,
}

impl MergedFlow {
    /// Nothing was executed.
    fn new() -> MergedFlow {
        let (blocks, edges) = (BTreeMap::new(), BTreeMap::new());
        MergedFlow { entries: 0, cut_short: Some(0), blocks, edges }
    }

    fn add(&mut self, counted: &CountedEdges) {
        if counted.entries == 0 && counted.blocks.is_empty() && counted.edges.is_empty() {
            return;
        }
        let key = |edge: &CountedEdge| EdgeKey { from: edge.from, to: edge.to.clone(), is_back: edge.is_back };
        self.entries = self.entries.saturating_add(counted.entries);
        let [before, its] = [self.cut_short, counted.cut_short].map(|cut_short| cut_short.is_some());
        self.cut_short = self.cut_short.zip(counted.cut_short).and_then(|(one, two)| one.checked_add(two));
        add_all(&mut self.blocks, counted.blocks.iter().copied(), (before, its));
        add_all(&mut self.edges, counted.edges.iter().map(|edge| (key(edge), edge.executions)), (before, its));
    }
}

/// Adds counts of a process. What is not there was not executed, if that is known of all before and of this process.
fn add_all<K: Ord>(
    sums: &mut BTreeMap<K, Bounds>,
    more: impl Iterator<Item = (K, Bounds)>,
    (is_known_before, is_known): (bool, bool),
) {
    let absent = |is_known: bool| Bounds { least: 0, most: is_known.then_some(0) };
    let mut more: BTreeMap<K, Bounds> = more.collect();
    for (key, sum) in sums.iter_mut() {
        *sum = sum.plus(more.remove(key).unwrap_or(absent(is_known)));
    }
    sums.extend(more.into_iter().map(|(key, executions)| (key, executions.plus(absent(is_known_before)))));
}

/// What makes a path the same one in another process: its number, and what that stands for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct PathKey {
    pub(super) number: u64,
    pub(super) category: PathCategory,
    pub(super) blocks: Vec<LinkAddr>,
}

impl PathKey {
    fn of(path: &CountedPath) -> PathKey {
        PathKey { number: path.number, category: path.category, blocks: path.blocks.clone() }
    }
}

/// A module is known by its identity, if it has one.
type ModuleKey = Result<ModuleIdentity, PathBuf>;

pub(super) fn merged(counted: Counted<'_>) -> Merged {
    let mut all = Merged::default();
    let mut index: FxHashMap<ModuleKey, usize> = FxHashMap::default();
    for (process, counts) in &counted.paths.processes {
        if let Some(process) = counted.measurement.processes.get(*process) {
            all.add(process, counts, &mut index);
            if let Some(column) = counted.column_of(process) {
                all.add_samples(process, column, &index);
            }
        }
    }
    all
}

/// What a module is known by.
fn key_of(record: &ModuleRecord) -> ModuleKey {
    record.identity.clone().ok_or_else(|| record.path.clone())
}

impl Merged {
    /// Adds how a process has measured. `false`: it has measured other metrics than those before.
    fn add_metrics(&mut self, metrics: &[PathMetric]) -> bool {
        if self.metrics.is_empty() {
            self.metrics = metrics.to_vec();
            return true;
        }
        let names = |metrics: &[PathMetric]| metrics.iter().map(|metric| metric.name.clone()).collect::<Vec<_>>();
        let is_same = metrics.is_empty() || names(&self.metrics) == names(metrics);
        for (sum, metric) in self.metrics.iter_mut().zip(metrics).filter(|_| is_same) {
            sum.account = sum.account.plus(metric.account);
        }
        is_same
    }

    fn add(&mut self, process: &ProcessFile, counts: &PathCounts, index: &mut FxHashMap<ModuleKey, usize>) {
        self.cut_short = self.cut_short.saturating_add(counts.cut_short);
        self.lost = self.lost.saturating_add(counts.lost);
        let is_same = self.add_metrics(&counts.metrics);
        if !is_same {
            self.notes.push(format!(
                "process {}: its path metrics differ from those of the earlier processes, and are left out",
                counts.pid
            ));
        }
        let mut place = |modules: &mut Vec<MergedModule>, number: u16| {
            let record = process.modules.get(usize::from(number))?;
            let at = *index.entry(key_of(record)).or_insert_with(|| {
                let identity = record.identity.clone();
                let (procedures, refused, sampled) = (BTreeMap::new(), BTreeSet::new(), Sampled::new());
                modules.push(MergedModule { paths: Vec::new(), identity, procedures, refused, sampled });
                modules.len() - 1
            });
            let module = &mut modules[at];
            if !module.paths.contains(&record.path) {
                module.paths.push(record.path.clone());
            }
            Some(at)
        };
        let mut unknown = BTreeSet::new();
        for counted in &counts.procedures {
            let Some(at) = place(&mut self.modules, counted.module.0) else {
                unknown.insert(counted.module.0);
                continue;
            };
            let sum = self.modules[at].procedures.entry(counted.entry).or_default();
            sum.possible = sum.possible.max(counted.possible);
            sum.cuts = sum.cuts.max(counted.cuts);
            for path in counted.paths.iter().filter(|path| path.executions > 0) {
                let sum = sum.paths.entry(PathKey::of(path)).or_default();
                sum.executions = sum.executions.saturating_add(path.executions);
                for (sum, time) in sum.times.iter_mut().zip(path.times).filter(|_| is_same) {
                    *sum = sum.plus(time);
                }
            }
        }
        for counted in &counts.edges {
            let Some(at) = place(&mut self.modules, counted.module.0) else {
                unknown.insert(counted.module.0);
                continue;
            };
            let sum = self.modules[at].procedures.entry(counted.entry).or_default();
            if sum.possible > 0 {
                let none = ExactActivations { entries: 0, cut_short: Some(0) };
                let ExactActivations { entries, cut_short } = sum.activations.unwrap_or(none);
                sum.activations = Some(ExactActivations {
                    entries: entries.saturating_add(counted.entries),
                    cut_short: cut_short.zip(counted.cut_short).and_then(|(one, two)| one.checked_add(two)),
                });
                continue;
            }
            sum.flow.get_or_insert_with(MergedFlow::new).add(counted);
        }
        for refused in &counts.refused {
            match place(&mut self.modules, refused.module.0) {
                Some(at) => drop(self.modules[at].refused.insert((refused.entry, refused.reason.clone()))),
                None => drop(unknown.insert(refused.module.0)),
            }
        }
        self.add_contexts(counts, |modules, key| {
            let number = key.module().0;
            if is_our_own(process, key) {
                return None;
            }
            Some(match place(modules, number) {
                Some(at) => FrameCode::In(at, LinkAddr(key.address())),
                None => FrameCode::Outside(key),
            })
        });
        let note =
            |module| format!("process {}: it counted in module {module}, which its file does not have", process.pid);
        self.notes.extend(unknown.into_iter().map(note));
    }

    /// Adds what samples say of code of modules in which something was counted.
    fn add_samples(&mut self, process: &ProcessFile, column: usize, index: &FxHashMap<ModuleKey, usize>) {
        for ((number, address), (value, samples)) in sampled_of(process, column) {
            let at = process.modules.get(usize::from(number)).and_then(|record| index.get(&key_of(record)));
            let Some(module) = at.and_then(|at| self.modules.get_mut(*at)) else { continue };
            let sum = module.sampled.entry(address).or_default();
            *sum = (sum.0.saturating_add(value), sum.1.saturating_add(samples));
        }
    }

    /// Adds what was counted in contexts; their paths are there. `code`: where a frame's code is; `None`: it is our own.
    fn add_contexts(
        &mut self,
        counts: &PathCounts,
        mut code: impl FnMut(&mut Vec<MergedModule>, FrameKey) -> Option<FrameCode>,
    ) {
        if counts.contexts.is_empty() {
            return;
        }
        let modules = &mut self.modules;
        let callers = self.callers.get_or_insert_default();
        let called_by = callers.add(&counts.contexts, |key| code(modules, key));
        let index = PathIndex::new(counts);
        let mut strangers = 0u64;
        for (context, caller) in counts.contexts.iter().zip(called_by).filter(|(context, _)| !context.paths.is_empty())
        {
            let Some(FrameCode::In(at, entry)) = code(modules, context.frame) else { continue };
            let procedure = modules.get_mut(at).and_then(|module| module.procedures.get_mut(&entry));
            let Some(procedure) = procedure else { continue };
            for found in index.of(context) {
                let sum = found.and_then(|(path, count)| Some((procedure.paths.get_mut(&PathKey::of(path))?, count)));
                let Some((sum, executions)) = sum else {
                    strangers += 1;
                    continue;
                };
                let in_context = sum.contexts.entry(caller).or_default();
                *in_context = in_context.saturating_add(executions);
            }
        }
        if strangers > 0 {
            self.notes.push(format!(
                "process {}: it counted paths in contexts that their procedures do not have: they are missing here ({strangers})",
                counts.pid
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use callpath_format::frame::ModuleIndex;

    use super::*;

    const A: LinkAddr = LinkAddr(0x10);
    const B: LinkAddr = LinkAddr(0x20);
    const C: LinkAddr = LinkAddr(0x30);

    fn counted(cut_short: Option<u64>, blocks: &[(LinkAddr, Bounds)]) -> CountedEdges {
        let (module, entry) = (ModuleIndex(0), A);
        CountedEdges { module, entry, entries: blocks.len() as u64, cut_short, blocks: blocks.to_vec(), edges: vec![] }
    }

    /// A fork's child does not know how often it executed what it does not name; its parent does.
    #[test]
    fn what_one_process_does_not_know_is_not_known_of_both() {
        let parent = counted(Some(2), &[(A, Bounds::exactly(5)), (C, Bounds::exactly(3))]);
        let child = counted(None, &[(A, Bounds { least: 1, most: None }), (B, Bounds::exactly(2))]);
        let idle = counted(None, &[]);
        for order in [[&parent, &child, &idle], [&idle, &child, &parent]] {
            let mut flow = MergedFlow::new();
            order.into_iter().for_each(|counted| flow.add(counted));
            let unknown = |least| Bounds { least, most: None };
            assert_eq!(flow.blocks, BTreeMap::from([(A, unknown(6)), (B, Bounds::exactly(2)), (C, unknown(3))]));
            assert_eq!((flow.entries, flow.cut_short), (4, None));
        }
        let mut flow = MergedFlow::new();
        [&parent, &idle, &parent].into_iter().for_each(|counted| flow.add(counted));
        assert_eq!(flow.blocks, BTreeMap::from([(A, Bounds::exactly(10)), (C, Bounds::exactly(6))]));
        assert_eq!(flow.cut_short, Some(4));
    }
}
