//! Copies of a module's procedures that run in place of the originals: which can be made, and why others cannot.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_image::elf::Image;
use callpath_image::plt;
use callpath_x86::graph::{ModuleFlow, ProcedureGraph, merged};
use callpath_x86::liveness::{Convention, Liveness};
use callpath_x86::rewrite::{Plan, Refusal, Rewriter, Rewritten};
use rustc_hash::FxHashMap;

use crate::graphs::with_flow;
use crate::module::Module;

/// The alignment of a copy, bytes: that of procedures.
const ALIGNMENT: u64 = 16;

/// The copies of a module's procedures.
#[derive(Default)]
pub struct Copies {
    /// One behind the other, by ascending address of the copy and of its procedure.
    pub made: Vec<Made>,
    /// Procedures that cannot be copied.
    pub refused: Vec<Refused>,
    /// Where the first of them lies.
    pub start: LinkAddr,
    /// One past the last copy.
    pub end: LinkAddr,
}

/// A copy.
pub struct Made {
    /// The copy.
    pub copy: Rewritten,
    /// The length of the procedure's code, bytes.
    pub len_bytes: u64,
}

/// A procedure that cannot be copied.
pub struct Refused {
    /// Its first instruction.
    pub entry: LinkAddr,
    /// The length of its code, bytes.
    pub len_bytes: u64,
    /// Why.
    pub refusal: Refusal,
}

impl Copies {
    /// Lets calls lead to the copies of what they call, past the jump at its entry.
    pub fn link(&mut self) {
        let entered_at: FxHashMap<LinkAddr, LinkAddr> =
            self.made.iter().map(|made| (made.copy.entry, made.copy.entered_at)).collect();
        for Made { copy, .. } in &mut self.made {
            let linked = copy.direct_calls.iter().filter_map(|call| call.redirected(*entered_at.get(&call.target)?));
            copy.patches.extend(linked);
            copy.patches.sort_by_key(|patch| patch.at);
        }
    }

    /// The instruction at home whose copy, or what is inserted before it, is at an address.
    pub fn origin_of(&self, address: LinkAddr) -> Option<LinkAddr> {
        let after = self.made.partition_point(|made| made.copy.at <= address);
        self.made.get(after.checked_sub(1)?)?.copy.origin_of(address)
    }
}

/// An address behind all that the file maps, in pages: copies can be planned there where no process is.
pub fn behind(image: &Image) -> LinkAddr {
    const PAGE: u64 = 4096;
    let end = image.segments().iter().map(|segment| segment.vaddr.0.saturating_add(segment.mem_len)).max();
    LinkAddr(end.unwrap_or(0).saturating_add(PAGE).next_multiple_of(PAGE))
}

/// Copies each procedure of a module, stubs of the procedure linkage table apart, to `at` and behind. `plan`: what is
/// inserted into each.
pub fn copy_all(
    module: &Module,
    at: LinkAddr,
    mut plan: impl FnMut(&ModuleFlow<'_>, &ProcedureGraph) -> Plan,
) -> Copies {
    let stubs: Vec<Range<LinkAddr>> = plt::sections(module.image()).into_iter().map(|section| section.code).collect();
    with_flow(module, |flow, _| {
        let graphs: Vec<ProcedureGraph> = merged((0..flow.len()).map(|procedure| flow.graph(procedure)).collect());
        let liveness = Liveness::new(flow, &graphs, Convention::SystemV);
        let rewriter = Rewriter::new(flow, &graphs, &liveness);
        let mut made = Copies { start: at, end: at, ..Copies::default() };
        for (number, graph) in graphs.iter().enumerate() {
            if graph.blocks.is_empty() || stubs.iter().any(|stub| stub.contains(&graph.entry)) {
                continue;
            }
            let len_bytes = graph.blocks.iter().map(|block| block.code.end.0.saturating_sub(block.code.start.0)).sum();
            match rewriter.copy(number, made.end, &plan(flow, graph)) {
                Ok(copy) => {
                    let end = made.end.0.saturating_add(copy.code.len() as u64);
                    made.end = LinkAddr(end.next_multiple_of(ALIGNMENT));
                    made.made.push(Made { copy, len_bytes });
                }
                Err(refusal) => made.refused.push(Refused { entry: graph.entry, len_bytes, refusal }),
            }
        }
        made
    })
}
