//! What a measurement tells of how often code is executed, so that a later one places its counters where control passes seldom.

use callpath_format::address::LinkAddr;
use callpath_measurement::{MeasuredPaths, Measurement, ProcessFile};
use callpath_schema::PathCategory;
use callpath_tables::guide::{Guide, ProcedureFlow};

use super::merge::{MergedProcedure, merged};
use super::samples::{Counted, sampled_metrics};

/// What a measurement tells, all its processes together: counts of paths or edges, and samples.
pub fn guide(measurement: &Measurement, paths: &MeasuredPaths) -> Guide {
    let mut guide = Guide::default();
    guide.directory.clone_from(&measurement.directory);
    guide.program.clone_from(&measurement.session.program);
    // Where nothing is sampled, calls count as samples.
    let has_samples = sampled_metrics(measurement).next().is_some();
    for process in &measurement.processes {
        for module in &process.modules {
            if let Some(identity) = &module.identity {
                guide.module(identity, &module.path);
            }
        }
        if has_samples {
            add_samples(&mut guide, process);
        }
    }
    for module in merged(Counted { measurement, paths, sampled: None }).modules {
        let Some(identity) = &module.identity else { continue };
        for path in &module.paths {
            let executed = module.procedures.iter().filter(|(_, procedure)| procedure.is_executed());
            let flows = executed.map(|(entry, procedure)| (*entry, flow(procedure)));
            guide.module(identity, path).procedures.extend(flows);
        }
    }
    guide
}

/// Adds the samples of a process where they were taken: in the innermost frames.
fn add_samples(guide: &mut Guide, process: &ProcessFile) {
    for thread in &process.threads {
        for node in thread.tree.nodes().iter().filter(|node| node.samples > 0) {
            let module = process.modules.get(usize::from(node.key.module().0));
            let Some((identity, module)) = module.and_then(|module| Some((module.identity.as_ref()?, module))) else {
                continue;
            };
            let samples = &mut guide.module(identity, &module.path).samples;
            let count = samples.entry(LinkAddr(node.key.address())).or_default();
            *count = count.saturating_add(node.samples);
        }
    }
}

/// How often control passed the edges of a procedure. Where paths were counted, edges within them are known, and how often a path ended
/// with a block.
fn flow(procedure: &MergedProcedure) -> ProcedureFlow {
    let mut flow = ProcedureFlow::default();
    let add = |to: &mut u64, count: u64| *to = to.saturating_add(count);
    for (path, counted) in &procedure.paths {
        for (from, to) in path.blocks.iter().zip(path.blocks.iter().skip(1)) {
            add(flow.edges.entry((*from, Some(*to))).or_default(), counted.executions);
        }
        let leaves = matches!(path.category, PathCategory::EntryExit | PathCategory::HeadExit);
        if let Some(last) = path.blocks.last() {
            add(flow.ends.entry((*last, leaves)).or_default(), counted.executions);
        }
    }
    for (edge, executions) in procedure.flow.iter().flat_map(|counted| &counted.edges) {
        match edge.to.as_slice() {
            [] => add(flow.edges.entry((edge.from, None)).or_default(), executions.least),
            [to] => add(flow.edges.entry((edge.from, Some(*to))).or_default(), executions.least),
            // A jump through tables is no way.
            _ => {}
        }
    }
    flow
}
