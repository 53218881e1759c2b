//! A procedure's executed blocks: how long each is, its lines, the loop around it, and the calls in it.

use std::collections::BTreeSet;

use callpath_db::exact::{
    ExactBlock, ExactCall, ExactEdge, ExactFlow, ExactLoop, ExactPath, ExactPlace, ExactProcedure,
};
use callpath_format::address::LinkAddr;
use callpath_schema::Bounds;
use callpath_x86::graph::{Block, ProcedureGraph, Terminator};
use callpath_x86::listing::listing;
use rustc_hash::FxHashMap;

use super::merge::{EdgeKey, MergedPath, MergedProcedure, PathKey};
use crate::attribute::name_at;
use crate::names::ModuleNames;
use crate::structure::{ProcedureStructure, SourceLocation, StaticKind};

/// What a module's file says of a procedure; `None` where it is not there.
pub(super) struct ProcedureCode<'a> {
    pub(super) names: &'a ModuleNames,
    pub(super) graph: Option<&'a ProcedureGraph>,
    pub(super) structure: Option<&'a ProcedureStructure>,
}

impl ProcedureCode<'_> {
    /// The procedure that begins at `entry`.
    pub(super) fn procedure(&self, entry: LinkAddr, counted: &MergedProcedure) -> ExactProcedure {
        let of_paths = counted.paths.keys().flat_map(|path| path.blocks.iter().copied());
        let of_edges = counted.flow.iter().flat_map(|flow| {
            let edges =
                flow.edges.keys().flat_map(|edge| edge.to.iter().filter(|_| edge.to.len() == 1).chain([&edge.from]));
            flow.blocks.keys().chain(edges).copied()
        });
        let starts: BTreeSet<LinkAddr> = of_paths.chain(of_edges).collect();
        let starts: Vec<LinkAddr> = starts.into_iter().collect();
        let (loops, loop_of) = self.loops();
        // Each of them is there.
        let index = |start: &LinkAddr| starts.partition_point(|before| before < start) as u32;
        let path = |(key, merged): (&PathKey, &MergedPath)| ExactPath {
            number: key.number,
            category: key.category,
            blocks: key.blocks.iter().map(index).collect(),
            executions: merged.executions,
            // Their names are in other modules, too.
            contexts: Vec::new(),
            sampled: 0,
            times: merged.times.map(callpath_schema::PathTime::uninterrupted),
            interruptions: merged.times.map(callpath_schema::PathTime::interruptions),
        };
        let flow = counted.flow.as_ref().map(|flow| {
            let edge = |(key, executions): (&EdgeKey, &Bounds)| ExactEdge {
                from: index(&key.from),
                // A jump through a table may have come to some of its targets only.
                to: key.to.iter().filter(|to| starts.binary_search(to).is_ok()).map(index).collect(),
                is_back: key.is_back,
                executions: *executions,
            };
            let absent = Bounds { least: 0, most: flow.cut_short.map(|_| 0) };
            let executions = |start: &LinkAddr| flow.blocks.get(start).copied().unwrap_or(absent);
            ExactFlow {
                entries: flow.entries,
                cut_short: flow.cut_short,
                blocks: starts.iter().map(executions).collect(),
                edges: flow.edges.iter().map(edge).collect(),
            }
        });
        ExactProcedure {
            flow,
            activations: counted.activations,
            name: name_at(self.names, entry, self.structure).name,
            module: String::new(),
            place: self.structure.and_then(|structure| Some(place(structure, structure.location?))),
            address: entry.0,
            possible: counted.possible,
            cuts: counted.cuts,
            loops,
            blocks: starts.iter().map(|start| self.block(*start, &loop_of)).collect(),
            paths: counted.paths.iter().map(path).collect(),
            sampled_unexecuted: 0,
            sampled_outside: 0,
        }
    }

    /// The procedure's loops, and the index of each among them by its scope.
    fn loops(&self) -> (Vec<ExactLoop>, FxHashMap<u32, usize>) {
        let (mut loops, mut index): (Vec<ExactLoop>, _) = (Vec::new(), FxHashMap::default());
        let Some(structure) = self.structure else { return (loops, index) };
        for (number, scope) in (0u32..).zip(&structure.scopes) {
            if !matches!(scope.kind, StaticKind::Loop { .. }) {
                continue;
            }
            let place = scope.location.map(|location| place(structure, location));
            // Without a line each is known by its address.
            let before = loops.iter().filter(|before| place.is_some() && before.place == place).count();
            index.insert(number, loops.len());
            loops.push(ExactLoop { ordinal: before as u32 + 1, place, address: scope.address.0 });
        }
        (loops, index)
    }

    fn block(&self, start: LinkAddr, loop_of: &FxHashMap<u32, usize>) -> ExactBlock {
        let inside = self.structure.and_then(|structure| {
            let chain = structure.chain(structure.scoped_range_at(start)?.scope);
            chain.into_iter().rev().find_map(|scope| loop_of.get(&scope).copied())
        });
        let place = self.place_at(start);
        let found = self.graph.and_then(|graph| {
            let at = graph.blocks.binary_search_by_key(&start, |block| block.code.start).ok()?;
            Some((graph, at, &graph.blocks[at]))
        });
        let Some((graph, at, block)) = found else {
            return ExactBlock { code: start.0..start.0, place, inside, ..ExactBlock::default() };
        };
        let len_bytes = block.code.end.0.saturating_sub(start.0) as usize;
        let bytes = self.names.bytes(start, len_bytes).unwrap_or_default();
        let successor = |to: &u32| graph.blocks.get(*to as usize).map(|block| block.code.start.0);
        ExactBlock {
            code: start.0..block.code.end.0,
            instructions: listing(bytes, start).len() as u64,
            lines: self.lines(block, place.as_ref()),
            place,
            inside,
            calls: self.calls(graph, block),
            successors: graph.successors(at as u32).iter().filter_map(successor).collect(),
            // Samples are divided when all blocks are known.
            sampled: 0,
        }
    }

    fn place_at(&self, address: LinkAddr) -> Option<ExactPlace> {
        let structure = self.structure?;
        Some(place(structure, structure.scoped_range_at(address)?.location?))
    }

    /// The lines of a block in the order of its code, the first instruction's first.
    fn lines(&self, block: &Block, first: Option<&ExactPlace>) -> Vec<ExactPlace> {
        let mut lines: Vec<ExactPlace> = first.cloned().into_iter().collect();
        let Some(structure) = self.structure else { return lines };
        let ranges = &structure.scoped_ranges;
        let from = ranges.partition_point(|range| range.code.end <= block.code.start);
        for range in ranges.iter().skip(from).take_while(|range| range.code.start < block.code.end) {
            if let Some(line) = range.location.map(|location| place(structure, location))
                && lines.last() != Some(&line)
            {
                lines.push(line);
            }
        }
        lines
    }

    /// The calls of a block, and what it jumps to outside of the procedure.
    fn calls(&self, graph: &ProcedureGraph, block: &Block) -> Vec<ExactCall> {
        let named = |target: Option<LinkAddr>| target.map(|target| self.callee(target));
        let from = graph.calls.partition_point(|call| call.code.start < block.code.start);
        let inside = graph.calls.iter().skip(from).take_while(|call| call.code.start < block.code.end);
        let calls = inside.map(|call| ExactCall { name: named(call.target), place: self.place_at(call.code.start) });
        let last = || self.place_at(LinkAddr(block.code.end.0.wrapping_sub(1)));
        let jump = match block.terminator {
            Terminator::TailCall(target) => Some(ExactCall { name: named(target), place: last() }),
            Terminator::BranchOut(target) | Terminator::SharedTail(target) => {
                Some(ExactCall { name: named(Some(target)), place: last() })
            }
            _ => None,
        };
        calls.chain(jump).collect()
    }

    /// What is called, without saying that it is called through the linkage table.
    fn callee(&self, target: LinkAddr) -> String {
        let name = self.names.procedure(target).name;
        name.strip_suffix("@plt").map_or(name.clone(), str::to_owned)
    }
}

fn place(structure: &ProcedureStructure, location: SourceLocation) -> ExactPlace {
    ExactPlace { file: structure.file(location).to_owned(), line: location.line }
}
