//! What was counted exactly, with names: paths of procedures as blocks with source lines, loops and calls. It reads the modules of
//! procedures that were executed.
//!
//! Data flow: [`MeasuredPaths`], a file for each process -> [`merge`]: added up over processes, by module -> [`code`]: the control flow
//! graph, structure and names of each procedure; [`samples`]: what was sampled in its blocks, divided among its paths; [`flows`]: the callers in
//! whose contexts paths were executed -> [`ExactCounts`]. Of calls: a profile's contexts -> [`contexts`]: which procedure each
//! frame is of -> `ContextTree`.

mod code;
mod contexts;
mod flows;
mod guide;
mod merge;
mod samples;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use callpath_db::exact::{ExactCounts, ExactProcedure, ExactQuality, ExactTiming, RefusedFunction};
use callpath_format::address::LinkAddr;
use callpath_image::identity::ModuleIdentity;
use callpath_measurement::{MeasuredPaths, Measurement, plain};
use callpath_tables::graphs::with_flow;
use callpath_tables::table_cache::TableCache;
use callpath_x86::graph::ProcedureGraph;
use code::ProcedureCode;
pub use contexts::context_tree;
use flows::NamedCallers;
pub use guide::guide;
use merge::{Merged, MergedModule, MergedProcedure, merged};
use samples::ByProcedure;
pub use samples::{Counted, sampled_metrics};

use crate::attribute::{AttributeOptions, Progress, name_at, run_of};
use crate::names::ModuleNames;
use crate::structure::cached_structure;

/// What was counted in a measurement, all its processes together.
pub fn exact_counts(counted: Counted<'_>, options: &AttributeOptions, progress: Progress<'_>) -> ExactCounts {
    let info = run_of(counted.measurement);
    let mut counts = ExactCounts { info, sampling: counted.sampling(), ..ExactCounts::default() };
    let all = merged(counted);
    for error in &counted.paths.unreadable {
        counts.notes.push(format!("failed to {}: what it counted is missing here", plain(error)));
    }
    counts.notes.extend(all.notes.iter().cloned());
    counts.quality = quality_of(&all);
    counts.timings = all.metrics.iter().map(ExactTiming::of).collect();
    let cache = TableCache::open(options.cache.clone());
    let mut calling = vec![BTreeSet::new(); all.modules.len()];
    for (module, address) in all.callers.iter().flat_map(|callers| callers.addresses()) {
        calling[module].insert(address);
    }
    let mut named = NamedCallers::default();
    for (done, (module, calling)) in all.modules.iter().zip(calling).enumerate() {
        progress(done, all.modules.len());
        let callers = add(module, &calling, (options, &cache), &mut counts);
        let file = called(&module.paths);
        callers.into_iter().for_each(|(address, name)| named.name((done, address), (name, &file)));
    }
    progress(all.modules.len(), all.modules.len());
    if let Some(callers) = &all.callers {
        // Both are in the order in which they were added.
        let of_all = counts.procedures.iter_mut().flat_map(|procedure| &mut procedure.paths);
        let merged = all.modules.iter().flat_map(executed).flat_map(|(_, procedure)| procedure.paths.values());
        for (path, merged) in of_all.zip(merged) {
            path.contexts = callers.contexts(&merged.contexts, &mut named);
        }
        counts.callers = Some(named.callers);
    }
    counts.sort();
    counts
}

fn quality_of(all: &Merged) -> ExactQuality {
    let in_contexts = all.callers.is_some();
    ExactQuality { cut_short: all.cut_short, lost: all.lost, in_contexts, ..ExactQuality::default() }
}

/// The procedures of a module that are known to have been executed.
fn executed(module: &MergedModule) -> impl Iterator<Item = (&LinkAddr, &MergedProcedure)> {
    module.procedures.iter().filter(|(_, procedure)| procedure.is_executed())
}

/// How what was counted in a measurement was counted, all its processes together. It reads the names of modules, and no code.
pub fn exact_quality(measurement: &Measurement, paths: &MeasuredPaths, options: &AttributeOptions) -> ExactQuality {
    let all = merged(Counted { measurement, paths, sampled: None });
    let mut quality = quality_of(&all);
    for module in &all.modules {
        add_quality(module, || open(&module.paths, module.identity.as_ref(), options), &mut quality);
    }
    quality.refused.sort();
    quality
}

/// Adds how procedures of a module were counted. Returns the module's names, if they were needed.
fn add_quality(
    module: &MergedModule,
    open: impl FnOnce() -> ModuleNames,
    quality: &mut ExactQuality,
) -> Option<ModuleNames> {
    quality.counted += module.procedures.len() as u64;
    quality.paths |= module.procedures.values().any(|procedure| procedure.possible > 0 || procedure.flow.is_some());
    let names = (!module.refused.is_empty()).then(open)?;
    quality.refused.extend(module.refused.iter().map(|(entry, reason)| RefusedFunction {
        function: names.procedure(*entry).name,
        module: called(&module.paths),
        reason: reason.clone(),
    }));
    Some(names)
}

/// The name of a module's file.
fn called(paths: &[PathBuf]) -> String {
    paths.first().and_then(|path| path.file_name()).unwrap_or_default().to_string_lossy().into_owned()
}

/// Adds what was counted in a module. Returns the procedures' names of its addresses that are `calling`.
fn add(
    module: &MergedModule,
    calling: &BTreeSet<LinkAddr>,
    (options, cache): (&AttributeOptions, &TableCache),
    counts: &mut ExactCounts,
) -> Vec<(LinkAddr, String)> {
    let open = || open(&module.paths, module.identity.as_ref(), options);
    let names = add_quality(module, open, &mut counts.quality);
    let entries: Vec<LinkAddr> = executed(module).map(|(entry, _)| *entry).collect();
    if entries.is_empty() && calling.is_empty() {
        return Vec::new();
    }
    let names = names.unwrap_or_else(open);
    let shown: Vec<(LinkAddr, LinkAddr)> = calling.iter().map(|address| (*address, names.shown_at(*address))).collect();
    let wanted: BTreeSet<LinkAddr> = entries.iter().copied().chain(shown.iter().map(|(_, shown)| *shown)).collect();
    let wanted: Vec<LinkAddr> = wanted.into_iter().collect();
    let source = names.structure_source();
    let structure = source.as_ref().map(|source| cached_structure(source, Some(&wanted), cache, &|_, _| {}));
    let structure = structure.unwrap_or_default();
    let graphs = source.filter(|_| !entries.is_empty()).map(|source| {
        with_flow(&source.module, |flow, _| {
            let graph = |entry: &LinkAddr| flow.procedure_at(*entry).map(|procedure| flow.graph(procedure));
            entries.iter().map(graph).collect::<Vec<Option<ProcedureGraph>>>()
        })
    });
    names.end_analysis();
    let mut graphs = graphs.unwrap_or_default().into_iter();
    let sampled = ByProcedure::new(&module.sampled, &structure);
    let (mut unknown_blocks, mut samples) = (0u64, 0u64);
    for (entry, counted) in executed(module) {
        let graph = graphs.next().flatten();
        let code = ProcedureCode { names: &names, graph: graph.as_ref(), structure: structure.procedure_at(*entry) };
        let mut procedure = ExactProcedure { module: called(&module.paths), ..code.procedure(*entry, counted) };
        samples = samples.saturating_add(sampled.divide(&mut procedure, graph.as_ref()));
        unknown_blocks += procedure.blocks.iter().filter(|block| block.code.is_empty()).count() as u64;
        counts.procedures.push(procedure);
    }
    if let Some(sampling) = &mut counts.sampling {
        sampling.samples = sampling.samples.saturating_add(samples);
    }
    let caller =
        |(address, shown): (LinkAddr, LinkAddr)| (address, name_at(&names, shown, structure.procedure_at(shown)).name);
    let callers = shown.into_iter().map(caller).collect();
    match (names.replacement(), names.is_usable()) {
        _ if entries.is_empty() => {}
        (Some(replaced), _) => counts.notes.push(replaced),
        (None, false) => counts.notes.push(format!(
            "{} cannot be read: paths through its procedures have no lines and no instructions here",
            names.path().display()
        )),
        (None, true) if unknown_blocks > 0 => counts.notes.push(format!(
            "{unknown_blocks} blocks of paths in {} are not where its code has blocks: their instructions are not counted; the \
             measurement is of another version of callpath",
            names.path().display()
        )),
        (None, true) => {}
    }
    callers
}

/// A module's names: of the first of its files that is there and of the build that ran.
pub(crate) fn open(paths: &[PathBuf], identity: Option<&ModuleIdentity>, options: &AttributeOptions) -> ModuleNames {
    let mut opened = paths.iter().map(|path| options.open(path, identity));
    let first = opened.next().unwrap_or_else(|| options.open(Path::new(""), identity));
    if first.is_usable() { first } else { opened.find(ModuleNames::is_usable).unwrap_or(first) }
}
