//! How high the stack is in what a call calls: by call frame information where it says so, else by the code.

use callpath_format::address::LinkAddr;
use callpath_format::recipe::Cfa;
use callpath_format::register::Reg;
use callpath_image::cfi::CallFrames;
use callpath_x86::graph::{Begins, CallSite, ModuleFlow, ProcedureGraph};
use rustc_hash::FxHashMap;

use crate::module::Module;

/// A call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallHeight {
    /// Where frames that are at it have their address.
    pub site: LinkAddr,
    /// Where the procedure begins that it calls, if the instruction names it.
    pub callee: Option<LinkAddr>,
    /// How far the caller's CFA is above the callee's, bytes; `None`: it is not as far each time.
    pub height: Option<i64>,
}

/// The calls of procedures, by where those begin, as far as it is known how control comes to the calls. `procedures`: their numbers.
pub fn call_heights(
    module: &Module,
    flow: &ModuleFlow<'_>,
    procedures: &[usize],
) -> FxHashMap<LinkAddr, Vec<CallHeight>> {
    let heights = CallHeights::of(module, flow);
    let begins_at = |target: &LinkAddr| flow.procedure_at(*target).and_then(|at| flow.entry(at)) == Some(*target);
    let of_procedure = |&procedure: &usize| {
        let graph = flow.graph(procedure);
        let calls = heights.of_calls(procedure, &graph).into_iter();
        let calls =
            calls.map(|(call, height)| CallHeight { site: call.site(), callee: call.target.filter(begins_at), height });
        (graph.entry, calls.collect())
    };
    procedures.iter().map(of_procedure).collect()
}

/// Tells the heights of a module's calls.
pub(crate) struct CallHeights<'f, 'a> {
    flow: &'f ModuleFlow<'a>,
    frames: ByFrames<'f>,
    /// The procedure that the kernel or the loader starts.
    starts: Option<usize>,
}

impl<'f, 'a> CallHeights<'f, 'a> {
    pub(crate) fn of(module: &'f Module, flow: &'f ModuleFlow<'a>) -> CallHeights<'f, 'a> {
        let frames = ByFrames::of(module.file().call_frames());
        CallHeights { flow, frames, starts: flow.procedure_at(module.image().entry()) }
    }

    /// The calls of a procedure, as far as it is known how control comes to them, each with how far the caller's CFA is above the
    /// callee's, bytes; `None`: it is not as far each time.
    pub(crate) fn of_calls<'g>(&self, procedure: usize, graph: &'g ProcedureGraph) -> Vec<(&'g CallSite, Option<i64>)> {
        let begins = if self.starts == Some(procedure) { Begins::Program } else { Begins::Called };
        let by_code = self.flow.call_heights(graph, begins);
        let height = |call: &'g CallSite| {
            let site = call.site();
            // The callee's CFA is rsp at the call.
            let height = self.frames.cfa_above_rsp(site).map(Some).or_else(|| by_code.get(&site).copied())?;
            Some((call, height))
        };
        graph.calls.iter().filter_map(height).collect()
    }
}

/// Call frame information, by address.
struct ByFrames<'f> {
    frames: &'f CallFrames,
    /// Indices of its ranges, by ascending start.
    order: Vec<u32>,
}

impl<'f> ByFrames<'f> {
    fn of(frames: &'f CallFrames) -> ByFrames<'f> {
        let mut order: Vec<u32> = (0..frames.ranges.len() as u32).collect();
        order.sort_by_key(|&index| frames.ranges[index as usize].code.start);
        ByFrames { frames, order }
    }

    /// How far the CFA is above rsp, where the information says that of an address, bytes.
    fn cfa_above_rsp(&self, at: LinkAddr) -> Option<i64> {
        let range = |index: &u32| &self.frames.ranges[*index as usize];
        let behind = self.order.partition_point(|index| range(index).code.start <= at);
        let found = range(self.order.get(behind.checked_sub(1)?)?);
        let rows = self.frames.rows_of(found);
        let row = rows.get(rows.partition_point(|row| row.start <= at).checked_sub(1)?);
        match self.frames.recipes.get(row.filter(|_| found.code.contains(&at))?.recipe as usize)?.cfa {
            Cfa::Register { reg: Reg::RSP, disp } => Some(disp.into()),
            _ => None,
        }
    }
}
