//! Where control may enter code other than along the edges of its own procedure's graph.

use callpath_format::address::LinkAddr;

use crate::code_map::NOWHERE;
use crate::graph::{ModuleFlow, ProcedureGraph, Terminator};

/// The addresses of a module that are entered from elsewhere.
pub(super) struct Entrances {
    /// Where jumps and calls of known code lead. Sorted, distinct.
    sure: Vec<u64>,
    /// What data, or bytes that may be code, seem to lead to, if it is code. Sorted, distinct.
    likely: Vec<u64>,
    /// Those of them of which only a single word in data tells, which may be a number or text. Sorted, distinct.
    by_chance: Vec<u64>,
    /// By procedure: code that another procedure's graph has, too.
    shared: Vec<Option<LinkAddr>>,
    /// Where the blocks of all procedures end and begin. Sorted.
    ends: Vec<(u64, u64)>,
}

impl Entrances {
    pub(super) fn new(flow: &ModuleFlow<'_>, graphs: &[ProcedureGraph]) -> Entrances {
        let mut blocks: Vec<(u64, u64, usize)> = Vec::new();
        let mut sure: Vec<u64> = Vec::new();
        for (number, graph) in graphs.iter().enumerate() {
            sure.push(graph.entry.0);
            let roots = graph.roots.iter().filter_map(|&root| graph.blocks.get(root as usize));
            sure.extend(roots.map(|root| root.code.start.0));
            sure.extend(graph.calls.iter().filter_map(|call| call.target).map(|target| target.0));
            sure.extend(graph.tables.iter().flat_map(|table| table.targets.iter()).map(|target| target.0));
            for block in &graph.blocks {
                blocks.push((block.code.start.0, block.code.end.0, number));
                let out = match block.terminator {
                    Terminator::TailCall(out) => out,
                    Terminator::BranchOut(out) | Terminator::SharedTail(out) => Some(out),
                    _ => None,
                };
                sure.extend(out.map(|out| out.0));
            }
        }
        let shared = shared(&mut blocks, graphs.len());
        sure.extend(flow.landing_pads.iter().map(|&(_, _, pad)| flow.code.code_map.address(pad).0));
        let mut likely: Vec<u64> = flow.reached().map(|reached| reached.0).collect();
        let mut from_unknown = from_unknown_code(flow, &blocks);
        from_unknown.sort_unstable();
        let mut by_chance: Vec<u64> = flow.reached_by_chance().map(|reached| reached.0).collect();
        likely.extend(&from_unknown);
        for addresses in [&mut sure, &mut likely, &mut by_chance] {
            addresses.sort_unstable();
            addresses.dedup();
        }
        by_chance.retain(|at| sure.binary_search(at).is_err() && from_unknown.binary_search(at).is_err());
        let mut ends: Vec<(u64, u64)> = blocks.iter().map(|&(start, end, _)| (end, start)).collect();
        ends.sort_unstable();
        Entrances { sure, likely, by_chance, shared, ends }
    }

    /// Where jumps and calls of known code lead, from `from` up to `to`, ascending.
    pub(super) fn sure_within(&self, from: u64, to: u64) -> &[u64] {
        within(&self.sure, from, to)
    }

    /// Where something seems to lead, from `from` up to `to`, ascending. It may be no code at all.
    pub(super) fn likely_within(&self, from: u64, to: u64) -> &[u64] {
        within(&self.likely, from, to)
    }

    /// Whether something leads to an address only if a single word in data is one, and not a number or text.
    pub(super) fn is_by_chance(&self, address: u64) -> bool {
        self.by_chance.binary_search(&address).is_ok()
    }

    /// The end and the start of the last block, of whichever procedure, that ends at an address or before.
    pub(super) fn block_before(&self, address: u64) -> Option<(u64, u64)> {
        let after = self.ends.partition_point(|&(end, _)| end <= address);
        self.ends.get(after.checked_sub(1)?).copied()
    }

    /// Code of a procedure that another procedure's graph has, too.
    pub(super) fn shared_code(&self, procedure: usize) -> Option<LinkAddr> {
        self.shared.get(procedure).copied().flatten()
    }
}

fn within(addresses: &[u64], from: u64, to: u64) -> &[u64] {
    let first = addresses.partition_point(|&address| address < from);
    let end = addresses.partition_point(|&address| address < to);
    addresses.get(first..end.max(first)).unwrap_or(&[])
}

/// For each procedure, code that is in another one's blocks. Sorts the blocks.
fn shared(blocks: &mut [(u64, u64, usize)], procedures: usize) -> Vec<Option<LinkAddr>> {
    blocks.sort_unstable();
    let mut shared = vec![None; procedures];
    // The block before that reaches farthest.
    let mut last: Option<(u64, usize)> = None;
    for &mut (start, end, owner) in blocks {
        match last {
            Some((until, other)) if start < until && other != owner => {
                for procedure in [owner, other] {
                    if let Some(shared) = shared.get_mut(procedure) {
                        shared.get_or_insert(LinkAddr(start));
                    }
                }
            }
            _ => {}
        }
        if last.is_none_or(|(until, _)| end > until) {
            last = Some((end, owner));
        }
    }
    shared
}

/// Targets of jumps and calls in code that no graph has. `blocks`: sorted.
fn from_unknown_code(flow: &ModuleFlow<'_>, blocks: &[(u64, u64, usize)]) -> Vec<u64> {
    let code_map = &flow.code.code_map;
    let mut block = 0;
    let mut until = 0;
    let mut found = Vec::new();
    for event in flow.code.sweep.events.iter().filter(|event| event.target != NOWHERE) {
        let at = code_map.address(event.at).0;
        while let Some(&(start, end, _)) = blocks.get(block)
            && start <= at
        {
            until = until.max(end);
            block += 1;
        }
        if at >= until {
            found.push(code_map.address(event.target).0);
        }
    }
    found
}
