//! What samples beside exact counts say of each address of a program's code: of the innermost frame, whatever called it. Copies of procedures do not
//! matter here: samples in them have the addresses that their code comes from.

use std::collections::BTreeMap;

use callpath_db::exact::{ExactProcedure, ExactSampling};
use callpath_format::address::LinkAddr;
use callpath_format::frame::FrameKey;
use callpath_measurement::{FULL_ROOT, MeasuredPaths, Measurement, PARTIAL_ROOT, ProcessFile};
use callpath_schema::Metric;
use callpath_x86::graph::ProcedureGraph;
use rustc_hash::FxHashMap;

use crate::attribute::is_ours;
use crate::structure::ModuleStructure;

/// What was sampled, and how many samples that were.
pub(super) type Sum = (u64, u64);

/// What was sampled at each address.
pub(super) type Sampled = BTreeMap<LinkAddr, Sum>;

/// What was counted exactly in a measurement.
#[derive(Clone, Copy)]
pub struct Counted<'m> {
    /// The measurement.
    pub measurement: &'m Measurement,
    /// Its counts.
    pub paths: &'m MeasuredPaths,
    /// What of its samples is divided among paths: one of [`sampled_metrics`].
    pub sampled: Option<&'m Metric>,
}

/// What samples of a measurement measure.
pub fn sampled_metrics(measurement: &Measurement) -> impl Iterator<Item = &Metric> {
    measurement.session.metrics.iter().filter(|metric| metric.is_sampled())
}

impl Counted<'_> {
    /// The column that a process has of the metric. Ranks may have been recorded by different events each.
    pub(super) fn column_of(&self, process: &ProcessFile) -> Option<usize> {
        let sampled = self.sampled?;
        self.measurement.session_of(process).metrics.iter().position(|metric| metric == sampled)
    }

    /// What was sampled, before any of it is known to be in a procedure.
    pub(super) fn sampling(&self) -> Option<ExactSampling> {
        let metric = self.sampled?.clone();
        let of_process = |process: &ProcessFile| {
            let column = self.column_of(process)?;
            let totals = process.threads.iter().map(|thread| thread.tree.total(column));
            Some(totals.fold(0u64, u64::saturating_add))
        };
        let total = self.measurement.processes.iter().filter_map(of_process).fold(0, u64::saturating_add);
        Some(ExactSampling { metric, total, samples: 0 })
    }
}

/// Whether a frame is of code of our own, which does not belong to the program.
pub(super) fn is_our_own(process: &ProcessFile, key: FrameKey) -> bool {
    let module = process.modules.get(usize::from(key.module().0));
    let name = module.and_then(|module| module.path.file_name()).unwrap_or_default();
    key == FrameKey::PROBE || is_ours(&name.to_string_lossy())
}

/// What samples of a process say of its code, by the module's number and the address. What our own code costs is that of its caller, as in
/// other views.
pub(super) fn sampled_of(process: &ProcessFile, column: usize) -> BTreeMap<(u16, LinkAddr), Sum> {
    let mut sampled: BTreeMap<_, Sum> = BTreeMap::new();
    for tree in process.threads.iter().map(|thread| &thread.tree) {
        let nodes = tree.nodes();
        // For each node the frame that its cost belongs to. At the roots there is none.
        let mut frames: Vec<Option<FrameKey>> = vec![None; nodes.len().min(PARTIAL_ROOT as usize + 1)];
        for node in nodes.iter().skip(PARTIAL_ROOT as usize + 1) {
            let is_ours = node.key != FrameKey::PROBE && is_our_own(process, node.key);
            let above = frames.get(node.parent as usize).copied().flatten();
            frames.push(if is_ours { above } else { Some(node.key) });
        }
        for (at, (node, frame)) in (FULL_ROOT..).zip(nodes.iter().zip(frames)) {
            let value = tree.values(at).find(|(metric, _)| *metric == column).map(|(_, value)| value);
            let Some((key, value)) = frame.zip(value) else { continue };
            let sum = sampled.entry((key.module().0, LinkAddr(key.address()))).or_default();
            *sum = (sum.0.saturating_add(value), sum.1.saturating_add(node.samples));
        }
    }
    sampled
}

/// What was sampled in a module, by the procedure that each address is code of.
pub(super) struct ByProcedure(FxHashMap<LinkAddr, Vec<(u64, Sum)>>);

impl ByProcedure {
    pub(super) fn new(sampled: &Sampled, structure: &ModuleStructure) -> ByProcedure {
        let mut by_procedure: FxHashMap<LinkAddr, Vec<(u64, Sum)>> = FxHashMap::default();
        for (address, sum) in sampled {
            if let Some(procedure) = structure.procedure_at(*address) {
                by_procedure.entry(procedure.entry).or_default().push((address.0, *sum));
            }
        }
        ByProcedure(by_procedure)
    }

    /// Divides what is in a procedure among its paths. Returns how many samples that were.
    pub(super) fn divide(&self, procedure: &mut ExactProcedure, graph: Option<&ProcedureGraph>) -> u64 {
        let sampled = self.0.get(&LinkAddr(procedure.address)).map_or(&[][..], Vec::as_slice);
        let blocks = graph.map_or(&[][..], |graph| &graph.blocks);
        let code: Vec<_> = blocks.iter().map(|block| block.code.start.0..block.code.end.0).collect();
        let addresses: Vec<(u64, u64)> = sampled.iter().map(|(address, (value, _))| (*address, *value)).collect();
        procedure.divide_samples(&addresses, &code);
        sampled.iter().fold(0, |sum, (_, (_, samples))| sum.saturating_add(*samples))
    }
}
