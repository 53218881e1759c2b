//! Builds a procedure's graph from its blocks.

use std::rc::Rc;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::code_map::NOWHERE;
use crate::graph::fragments::address_range;
use crate::graph::procedure::Procedure;
use crate::graph::resolution::Resolution;
use crate::graph::steps::StepKind;
use crate::graph::{Block, CallSite, EdgeKind, JumpTable, ProcedureGraph, Terminator};

/// Addresses of tables, and their targets.
type Cases<'a> = (&'a [u64], &'a [u32]);

impl Procedure<'_, '_> {
    /// Builds the graph from the blocks.
    pub(super) fn finish(mut self) -> ProcedureGraph {
        let raw = self.raw_blocks();
        let code_map = &self.flow.code.code_map;
        let index_of = |at: u32| raw.binary_search_by_key(&at, |block| block.start).ok().map(|index| index as u32);
        let mut graph = ProcedureGraph { entry: code_map.address(self.entry), ..ProcedureGraph::default() };
        let fragments = self.stretches.iter().filter_map(|stretch| self.flow.fragment(stretch.fragment_index));
        graph.fragments = fragments.map(|fragment| address_range(code_map, fragment)).collect();
        if let Some(first) = graph.fragments.iter().position(|fragment| fragment.start == graph.entry) {
            graph.fragments[..=first].rotate_right(1);
        }
        let mut targets = Vec::new();
        graph.blocks.reserve(raw.len());
        let base = raw.first().map_or((0, LinkAddr(0)), |block| (block.start, code_map.address(block.start)));
        // Positions between parts are one apart, addresses are more.
        let part_end = code_map.part(base.0).map_or(0, |part| part.end());
        let address = |at: u32| {
            if (base.0..=part_end).contains(&at) {
                LinkAddr(base.1.0 + u64::from(at - base.0))
            } else {
                code_map.address(at)
            }
        };
        // For tables with the same cases: the first block that jumps through them, and their number.
        let mut known: FxHashMap<Cases<'_>, (u32, u32)> = FxHashMap::default();
        let mut same: FxHashMap<*const Resolution, (u32, u32)> = FxHashMap::default();
        for (number, block) in (0u32..).zip(&raw) {
            targets.clear();
            let mut first_copy = None;
            let terminator = match self.table_of(block) {
                Some((step, resolution)) => {
                    let table = graph.tables.len() as u32;
                    let (cases, tables, end) = resolution.table();
                    let (first, like) = *same
                        .entry(Rc::as_ptr(resolution))
                        .or_insert_with(|| *known.entry((tables, cases)).or_insert((number, table)));
                    let (addresses, shared) = match graph.tables.get(like as usize) {
                        Some(like) => {
                            first_copy = Some(first);
                            (like.addresses.clone(), Arc::clone(&like.targets))
                        }
                        None => {
                            targets.extend(cases.iter().map(|&case| (case, EdgeKind::Table)));
                            let addresses = tables.iter().copied().map(LinkAddr);
                            (addresses.collect(), cases.iter().copied().map(address).collect())
                        }
                    };
                    graph.tables.push(JumpTable {
                        jump: address(self.steps[step].at),
                        addresses,
                        targets: shared,
                        end,
                        entries: resolution.entries(),
                    });
                    Terminator::Switch(table)
                }
                None => self.ending(block, &mut targets),
            };
            let edges = match first_copy.and_then(|first| graph.blocks.get_mut(first as usize)) {
                Some(first) => {
                    first.first_copy = first_copy;
                    first.edges.clone()
                }
                None => {
                    self.landings(block, &mut targets);
                    let first = graph.edges.len() as u32;
                    for &(target, kind) in &targets {
                        if let Some(to) = index_of(target) {
                            graph.edges.push(to);
                            graph.kinds.push(kind);
                        }
                    }
                    first..graph.edges.len() as u32
                }
            };
            let start = address(block.start);
            let code = start..LinkAddr(start.0 + u64::from(block.end - block.start));
            graph.blocks.push(Block { code, terminator, edges, first_copy });
        }
        for step in &self.steps {
            if step.is_call() && step.from != NOWHERE {
                graph.calls.push(CallSite {
                    code: address(step.at)..address(step.end),
                    target: Some(step.target).filter(|&target| target != NOWHERE).map(address),
                    returns: step.kind == StepKind::Call,
                });
            }
        }
        graph.calls.sort_unstable_by_key(|call| call.code.start);
        let entry = index_of(self.entry).into_iter();
        let roots: Vec<u32> = entry.chain(self.extra_roots.iter().filter_map(|&root| index_of(root))).collect();
        graph.roots = needed_roots(&graph, &roots);
        graph
    }
}

/// The roots that no earlier root leads to.
fn needed_roots(graph: &ProcedureGraph, roots: &[u32]) -> Vec<u32> {
    if roots.len() < 2 {
        return roots.to_vec();
    }
    let mut is_reached = vec![false; graph.blocks.len()];
    // For copied jumps: their first copies.
    let mut is_followed: FxHashSet<u32> = FxHashSet::default();
    let mut needed = Vec::new();
    let mut pending = Vec::new();
    for &root in roots {
        if is_reached[root as usize] {
            continue;
        }
        needed.push(root);
        pending.push(root);
        while let Some(block) = pending.pop() {
            if std::mem::replace(&mut is_reached[block as usize], true) {
                continue;
            }
            if graph.copied_jump(block).is_none_or(|first| is_followed.insert(first)) {
                pending.extend(graph.successors(block));
            }
        }
    }
    needed
}
