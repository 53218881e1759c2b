//! The calling context tree of a profile whose calls were counted: contexts of frames become contexts of procedures, with the call sites
//! that the procedures' code has.
//!
//! Calls were counted at the frame of a procedure's first instruction, below the frame of the call. That one's procedure, below the same
//! frame in turn, is the caller: so both frames are one context of a procedure.

use std::collections::BTreeSet;
use std::path::PathBuf;

use callpath_db::exact::{CalledFrom, ContextProcedure, ContextTree, NodeBytes};
use callpath_db::{ContextId, Profile};
use callpath_format::address::LinkAddr;
use callpath_format::shared::activation::ContextNode;
use callpath_image::identity::ModuleIdentity;
use callpath_measurement::{MeasuredPaths, Measurement};
use callpath_schema::MetricId;
use callpath_tables::graphs::with_flow;
use callpath_tables::table_cache::TableCache;
use callpath_x86::graph::{CallSite, ModuleFlow};
use rustc_hash::FxHashMap;

use super::flows::{ExecutedPaths, paths_by_context};
use super::{called, open};
use crate::attribute::{AttributeOptions, Progress, identity_of_file, name_at, page_without_file, run_of};
use crate::names::ModuleNames;
use crate::structure::{ModuleSource, ModuleStructure, cached_structure};

/// The tree of all processes and threads of a measurement together, which has these counts of paths. `None`: its profile has no counts of calls.
pub fn context_tree(
    (measurement, paths): (&Measurement, &MeasuredPaths),
    profile: &Profile,
    options: &AttributeOptions,
    progress: Progress<'_>,
) -> Option<ContextTree> {
    let calls = profile.metrics.iter().position(|metric| metric.id == Some(MetricId::CALLS))?;
    let slot = ContextNode::slot_at(2) - ContextNode::slot_at(1);
    let node_bytes = NodeBytes { node: ContextNode::LEN_BYTES as u64, slot: slot as u64 };
    let mut tree = ContextTree::new(run_of(measurement), node_bytes);
    let dropped = profile.quality.dropped.iter().map(|(reason, count)| format!("{count} {reason}"));
    let dropped: Vec<String> = dropped.collect();
    if !dropped.is_empty() {
        tree.notes.push(format!(
            "Calls, or samples beside them, were dropped, and contexts may be missing: {}.",
            dropped.join(", ")
        ));
    }
    let (frames, builds) = frames(profile, calls);
    let cache = TableCache::open(options.cache.clone());
    let mut code = Vec::with_capacity(builds.len());
    for (done, build) in builds.iter().enumerate() {
        progress(done, builds.len());
        code.push(build.read((options, &cache), &mut tree));
    }
    progress(builds.len(), builds.len());
    let contexts = enter(&frames, &code, &mut tree);
    if let Some(paths) = paths_by_context(measurement, paths) {
        tree.count_paths();
        let executed = |at: usize| paths.get(&frames[at].id);
        let by_context =
            contexts.iter().enumerate().filter_map(|(at, context)| Some((context.number, (at, executed(at)?))));
        let by_context: FxHashMap<u32, (usize, &ExecutedPaths<'_>)> = by_context.collect();
        let called: Vec<(u32, u64)> = tree.called_sites().collect();
        for (context, site) in called {
            let Some((at, executed)) = by_context.get(&context) else { continue };
            let sites = code[frames[*at].build].sites.get(&contexts[*at].procedure);
            let found = sites.and_then(|sites| sites.get(sites.binary_search_by_key(&site, |(site, _)| site.0).ok()?));
            if let Some((_, block)) = found {
                let leading = executed.iter().filter(|(_, blocks)| blocks.contains(block)).count();
                tree.say_paths_to(context, site, leading as u64);
            }
        }
    }
    Some(tree)
}

/// A frame that a counted context is at or below.
struct Frame {
    id: ContextId,
    /// The frame that called it: its place.
    caller: Option<usize>,
    build: usize,
    address: LinkAddr,
    calls: u64,
}

/// One build of a file of code.
struct Build {
    /// Where it was.
    paths: Vec<PathBuf>,
    identity: Option<ModuleIdentity>,
    /// Of all frames.
    addresses: BTreeSet<LinkAddr>,
    /// First instructions of procedures that were counted.
    entries: BTreeSet<LinkAddr>,
}

/// The frames that lead to counted contexts, callers first, and the builds that they are in.
fn frames(profile: &Profile, calls: usize) -> (Vec<Frame>, Vec<Build>) {
    let contexts: Vec<_> = profile.contexts.iter().map(|(context, values)| (context, values.get(calls))).collect();
    let index: FxHashMap<ContextId, usize> =
        contexts.iter().enumerate().map(|(at, (context, _))| (context.id, at)).collect();
    let caller = |at: usize| index.get(&contexts[at].0.parent).copied().filter(|caller| *caller < at);
    let mut leads: Vec<bool> = contexts.iter().map(|(_, calls)| *calls > 0).collect();
    for at in (0..contexts.len()).rev().filter(|at| caller(*at).is_some()) {
        if let Some(caller) = caller(at).filter(|_| leads[at]) {
            leads[caller] = true;
        }
    }
    let mut builds: Vec<Build> = Vec::new();
    let mut by_key: FxHashMap<Result<ModuleIdentity, PathBuf>, usize> = FxHashMap::default();
    let mut by_file: FxHashMap<u32, usize> = FxHashMap::default();
    let mut frames: Vec<Frame> = Vec::new();
    let mut places: Vec<Option<usize>> = vec![None; contexts.len()];
    for (at, (context, calls)) in contexts.iter().enumerate() {
        if !leads[at] || context.id == context.parent {
            continue;
        }
        let build = *by_file.entry(context.file).or_insert_with(|| {
            let file = profile.contexts.file(context.file).cloned().unwrap_or_default();
            let identity = identity_of_file(&file);
            let next = builds.len();
            let build = *by_key.entry(identity.clone().ok_or_else(|| file.path.clone())).or_insert(next);
            if build == next {
                let (addresses, entries) = (BTreeSet::new(), BTreeSet::new());
                builds.push(Build { paths: Vec::new(), identity, addresses, entries });
            }
            builds[build].paths.push(file.path);
            build
        });
        let address = LinkAddr(context.offset);
        builds[build].addresses.insert(address);
        if *calls > 0 {
            builds[build].entries.insert(address);
        }
        places[at] = Some(frames.len());
        let caller = caller(at).and_then(|caller| places[caller]);
        frames.push(Frame { id: context.id, caller, build, address, calls: *calls });
    }
    (frames, builds)
}

/// What is known of a build's code.
struct BuildCode {
    /// By address of a frame, its procedure's number in the tree.
    procedures: FxHashMap<LinkAddr, u32>,
    /// By the number of a counted procedure.
    sites: FxHashMap<u32, CallSites>,
}

/// Where the calls of a procedure are, as frames have their addresses, ascending; each with the beginning of its block.
type CallSites = Vec<(LinkAddr, LinkAddr)>;

/// What control flow says of a build's addresses.
#[derive(Default)]
struct Flow {
    /// By address, its procedure's first instruction.
    starts: FxHashMap<LinkAddr, LinkAddr>,
    /// By first instruction.
    sites: FxHashMap<LinkAddr, CallSites>,
}

impl Build {
    fn read(&self, (options, cache): (&AttributeOptions, &TableCache), tree: &mut ContextTree) -> BuildCode {
        let names = open(&self.paths, self.identity.as_ref(), options);
        let is_counted = !self.entries.is_empty();
        let source = names.structure_source();
        // Code that is not counted has names for nobody: where its procedures begin is all that is asked.
        let wanted = if is_counted { &self.entries } else { &self.addresses };
        let wanted: Vec<LinkAddr> = wanted.iter().copied().collect();
        let structure = source.as_ref().map(|source| cached_structure(source, Some(&wanted), cache, &|_, _| {}));
        let structure = structure.unwrap_or_default();
        let mut flow = source.filter(|_| is_counted).map(|source| self.flow(&source)).unwrap_or_default();
        names.end_analysis();
        if is_counted && !names.is_usable() {
            let why = names.replacement().unwrap_or_else(|| format!("{} cannot be read", names.path().display()));
            tree.notes.push(format!("{why}: the call sites of its procedures are not counted here"));
        }
        let (mut numbers, mut code) =
            (FxHashMap::default(), BuildCode { procedures: FxHashMap::default(), sites: FxHashMap::default() });
        for address in &self.addresses {
            let start = self.start(names.shown_at(*address), (&flow, &structure), &names);
            let number = *numbers.entry(start).or_insert_with(|| {
                let sites = flow.sites.remove(&start);
                let number = tree.enter_procedure(ContextProcedure {
                    name: name_at(&names, start, structure.procedure_at(start)).name,
                    module: called(&self.paths),
                    address: start.0,
                    sites: sites.as_ref().map(|sites| sites.len() as u32),
                });
                code.sites.extend(sites.map(|sites| (number, sites)));
                number
            });
            code.procedures.insert(*address, number);
        }
        code
    }

    fn is_no_file(&self) -> bool {
        self.paths.iter().all(|path| path.as_os_str().is_empty())
    }

    fn flow(&self, source: &ModuleSource) -> Flow {
        with_flow(&source.module, |flow: &ModuleFlow<'_>, _| {
            let start = |address: &LinkAddr| Some((*address, flow.entry(flow.procedure_at(*address)?)?));
            let sites = |entry: &LinkAddr| {
                let graph = flow.graph(flow.procedure_at(*entry)?);
                let site = |call: &CallSite| {
                    let behind = graph.blocks.partition_point(|block| block.code.start <= call.code.start);
                    let block = behind.checked_sub(1).and_then(|block| graph.blocks.get(block));
                    let start = block.map_or(call.code.start, |block| block.code.start);
                    (call.site(), start)
                };
                Some((*entry, graph.calls.iter().map(site).collect()))
            };
            Flow {
                starts: self.addresses.iter().filter_map(start).collect(),
                sites: self.entries.iter().filter_map(sites).collect(),
            }
        })
    }

    /// Where the procedure begins that holds an address. Without the code, only where counted procedures begin is known.
    fn start(&self, address: LinkAddr, (flow, structure): (&Flow, &ModuleStructure), names: &ModuleNames) -> LinkAddr {
        if self.entries.contains(&address) {
            return address;
        }
        let found = flow.starts.get(&address).copied();
        match found.or_else(|| structure.procedure_at(address).map(|procedure| procedure.entry)) {
            Some(start) => start,
            None if names.is_usable() => names.procedure(address).start,
            None if self.is_no_file() => LinkAddr(page_without_file(address.0)),
            None => self.entries.range(..address).next_back().copied().unwrap_or(address),
        }
    }
}

/// The context of a procedure that a frame stands for.
struct Entered {
    /// Its number in the tree.
    number: u32,
    /// The procedure's.
    procedure: u32,
}

/// Adds the contexts of procedures that frames stand for. Gives that of each.
fn enter(frames: &[Frame], code: &[BuildCode], tree: &mut ContextTree) -> Vec<Entered> {
    let mut contexts: Vec<Entered> = Vec::with_capacity(frames.len());
    // Each by the frame that called it, and its procedure.
    let mut index: FxHashMap<(Option<usize>, u32), u32> = FxHashMap::default();
    for frame in frames {
        // All addresses of frames are there.
        let procedure = code[frame.build].procedures.get(&frame.address).copied().unwrap_or(u32::MAX);
        let number = *index.entry((frame.caller, procedure)).or_insert_with(|| {
            let from = frame.caller.map(|caller| {
                let its = &frames[caller];
                let sites = code[its.build].sites.get(&contexts[caller].procedure);
                // A frame that a signal has interrupted is at no call.
                let is_site = |sites: &CallSites| sites.binary_search_by_key(&its.address, |(site, _)| *site).is_ok();
                let site = sites.is_none_or(is_site).then_some(its.address.0);
                CalledFrom { caller: contexts[caller].number, site }
            });
            tree.enter(procedure, from)
        });
        contexts.push(Entered { number, procedure });
        tree.add_calls(number, frame.calls);
    }
    contexts
}
