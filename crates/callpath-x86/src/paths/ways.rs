//! The ways of control through a procedure, as instrumentation sees them: each with the site where it can be counted.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use callpath_format::address::LinkAddr;
use rustc_hash::{FxHashMap, FxHashSet};

use super::site::Site;
use crate::graph::{Block, EdgeKind, ModuleFlow, ProcedureGraph, Terminator};
use crate::instruction::Control;

/// The ways of control through a procedure. Blocks are numbered as in its graph.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ways {
    /// The block that the procedure is entered at.
    pub entry: u32,
    /// Where each block begins.
    pub starts: Vec<LinkAddr>,
    /// By ascending block that they come from, each pair of blocks once. Of blocks that control reaches.
    pub ways: Vec<Way>,
    /// Jumps through tables whose targets other jumps lead to as well.
    pub dispatches: Vec<Dispatch>,
    /// Where control comes from no block, by ascending block: landing pads, and blocks that unknown code may lead to.
    pub arrivals: Vec<Arrival>,
}

/// A way from one block to another, or out of the procedure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The block.
    pub from: u32,
    /// The block that it leads to. `None`: control leaves the procedure, or does not continue.
    pub to: Option<u32>,
    /// `None`: there is no instruction, so that control does not come here.
    pub site: Option<Site>,
}

/// Jumps through tables where control arrives at the same targets: where it came from cannot be told there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dispatch {
    /// Blocks that end with such a jump, each with the place before the jump.
    pub sources: Vec<(u32, Site)>,
    /// The blocks that they lead to, ascending. From one source all of them need not be reached.
    pub targets: Vec<u32>,
}

/// A block where control comes from no other block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// The block.
    pub block: u32,
    /// Whether the path before is cut short: an exception has ended a call, and control goes on here.
    pub cuts_short: bool,
}

impl Ways {
    /// The ways through a procedure of `flow`.
    pub fn new(flow: &ModuleFlow<'_>, graph: &ProcedureGraph) -> Ways {
        let starts: Vec<LinkAddr> = graph.blocks.iter().map(|block| block.code.start).collect();
        let entry = graph.roots.first().copied().unwrap_or(0);
        let mut reader = Reader { flow, graph, pads: BTreeMap::new(), jumps: FxHashMap::default(), ways: Vec::new() };
        for block in reached(graph) {
            reader.read(block);
        }
        let arrivals = reader.arrivals();
        let dispatches = reader.dispatches(entry, &arrivals);
        let mut ways = reader.ways;
        ways.sort_unstable_by_key(|way| (way.from, way.to.is_none(), way.to, way.site));
        ways.dedup();
        Ways { entry, starts, ways, dispatches, arrivals }
    }

    /// The number of blocks.
    pub fn len(&self) -> u32 {
        self.starts.len() as u32
    }

    /// Whether there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// The ways from a block, as a range of [`Ways::ways`].
    pub fn from(&self, block: u32) -> Range<usize> {
        let first = self.ways.partition_point(|way| way.from < block);
        let len = self.ways.get(first..).unwrap_or(&[]).partition_point(|way| way.from == block);
        first..first + len
    }

    /// Where a block begins.
    pub(super) fn start(&self, block: u32) -> LinkAddr {
        self.starts.get(block as usize).copied().unwrap_or(LinkAddr(0))
    }

    /// Where control arrives, by ascending block, each once: through tables, or from no block.
    pub(super) fn arrived_at(&self) -> Vec<Arrival> {
        let mut all = self.arrivals.clone();
        // Where a table leads to a landing pad, what was before cannot be told: it is not counted as cut short.
        let targets = self.dispatches.iter().flat_map(|dispatch| &dispatch.targets);
        all.extend(targets.map(|&block| Arrival { block, cuts_short: false }));
        all.sort_unstable_by_key(|arrival| (arrival.block, arrival.cuts_short));
        all.dedup_by_key(|arrival| arrival.block);
        // The procedure's entry is one place, whichever way control comes there from home.
        all.retain(|arrival| arrival.block != self.entry);
        all
    }
}

/// The blocks that control reaches, the entry first.
fn reached(graph: &ProcedureGraph) -> Vec<u32> {
    let mut is_reached = vec![false; graph.blocks.len()];
    let mut is_followed: FxHashSet<u32> = FxHashSet::default();
    let mut found = Vec::new();
    let mut pending: Vec<u32> = graph.roots.iter().rev().copied().collect();
    while let Some(block) = pending.pop() {
        match is_reached.get_mut(block as usize) {
            Some(is_reached) if !*is_reached => *is_reached = true,
            _ => continue,
        }
        found.push(block);
        if graph.copied_jump(block).is_none_or(|first| is_followed.insert(first)) {
            pending.extend(graph.successors(block));
        }
    }
    found
}

/// Jumps through the same tables.
#[derive(Default)]
struct Jumps {
    sources: Vec<(u32, Site)>,
    targets: BTreeSet<u32>,
    /// A case leads to no block of the procedure.
    leads_out: bool,
}

/// Reads the ways from each block.
struct Reader<'r, 'a> {
    flow: &'r ModuleFlow<'a>,
    graph: &'r ProcedureGraph,
    /// Whether a call that may return leads to each landing pad.
    pads: BTreeMap<u32, bool>,
    /// By the first block that ends with each of them.
    jumps: FxHashMap<u32, Jumps>,
    ways: Vec<Way>,
}

impl Reader<'_, '_> {
    fn read(&mut self, number: u32) {
        let Some(block) = self.graph.blocks.get(number as usize) else { return };
        let mut next = BTreeSet::new();
        let mut cases = BTreeSet::new();
        for (to, kind) in self.graph.edges_of(number) {
            match kind {
                EdgeKind::LandingPad => {
                    let returns = self.calls_return(block);
                    let before = self.pads.entry(to).or_default();
                    *before |= returns;
                }
                EdgeKind::Table => drop(cases.insert(to)),
                _ => drop(next.insert(to)),
            }
        }
        let instructions = self.flow.instructions(&block.code);
        if let Terminator::Switch(table) = block.terminator
            && let Some((at, _)) = instructions.last()
        {
            let jumps = self.jumps.entry(self.graph.copied_jump(number).unwrap_or(number)).or_default();
            jumps.sources.push((number, Site::Before(*at)));
            let known = self.graph.tables.get(table as usize).map_or(0, |table| table.targets.len());
            jumps.leads_out |= cases.len() < known || cases.is_empty();
            jumps.targets.extend(cases);
            return;
        }
        let start = |to: u32| self.graph.blocks.get(to as usize).map_or(LinkAddr(0), |block| block.code.start);
        let mut out: BTreeSet<Site> = BTreeSet::new();
        let mut has_place = true;
        match instructions.last() {
            Some((at, last)) => {
                let end = LinkAddr(at.0.wrapping_add(last.len().into()));
                if last.control() == Control::Branch && end == block.code.end {
                    let both = [LinkAddr(last.target(end.0)), end];
                    let leaves = |side: &LinkAddr| !next.iter().any(|&to| start(to) == *side);
                    out.extend(both.into_iter().filter(leaves).map(|side| Site::Edge(block.code.start, side)));
                } else if next.is_empty() {
                    let falls = matches!(block.terminator, Terminator::TailCall(_) | Terminator::RunsOut);
                    let falls = falls && last.control() == Control::Next;
                    // Behind a call there is no place: before it, then.
                    let place = if falls { Site::Edge(block.code.start, end) } else { Site::Before(*at) };
                    out.insert(place);
                }
            }
            None => has_place = !next.is_empty(),
        }
        let way = |to, site| Way { from: number, to, site };
        let edge = |to| Site::Edge(block.code.start, start(to));
        self.ways.extend(next.iter().map(|&to| way(Some(to), Some(edge(to)))));
        self.ways.extend(out.into_iter().map(|site| way(None, Some(site))));
        if !has_place {
            self.ways.push(way(None, None));
        }
    }

    /// Whether a call of a block may return.
    fn calls_return(&self, block: &Block) -> bool {
        let calls = &self.graph.calls;
        let first = calls.partition_point(|call| call.code.start < block.code.start);
        let calls = calls.get(first..).unwrap_or(&[]).iter();
        calls.take_while(|call| call.code.start < block.code.end).any(|call| call.returns)
    }

    fn arrivals(&self) -> Vec<Arrival> {
        let roots = self.graph.roots.iter().skip(1).filter(|root| !self.pads.contains_key(root));
        let roots = roots.map(|&block| Arrival { block, cuts_short: false });
        // Behind a call that does not return no path is left: it was counted before.
        let pads = self.pads.iter().map(|(&block, &cuts_short)| Arrival { block, cuts_short });
        let mut all: Vec<Arrival> = roots.chain(pads).collect();
        all.sort_unstable_by_key(|arrival| arrival.block);
        all.dedup_by_key(|arrival| arrival.block);
        all
    }

    /// Turns each jump through tables into ways to its targets, if control arrives there in no other way that passes
    /// home. Joins the others where they share targets.
    fn dispatches(&mut self, entry: u32, arrivals: &[Arrival]) -> Vec<Dispatch> {
        let mut jumps: Vec<Jumps> = std::mem::take(&mut self.jumps).into_values().collect();
        jumps.iter_mut().for_each(|jumps| jumps.sources.sort_unstable());
        jumps.sort_unstable_by(|a, b| a.sources.cmp(&b.sources));
        let mut arriving: FxHashMap<u32, u32> = arrivals.iter().map(|arrival| (arrival.block, 1)).collect();
        *arriving.entry(entry).or_default() += 1;
        for &target in jumps.iter().flat_map(|jumps| &jumps.targets) {
            *arriving.entry(target).or_default() += 1;
        }
        let is_alone = |target: &u32| arriving.get(target) == Some(&1);
        let mut dispatches: Vec<Dispatch> = Vec::new();
        for jumps in jumps {
            if let [(from, _)] = jumps.sources[..]
                && !jumps.leads_out
                && jumps.targets.iter().all(is_alone)
            {
                let start = |to: u32| self.graph.blocks.get(to as usize).map_or(LinkAddr(0), |block| block.code.start);
                let way = |&to| Way { from, to: Some(to), site: Some(Site::Arrival(start(to))) };
                self.ways.extend(jumps.targets.iter().map(way));
            } else {
                let targets = jumps.targets.into_iter().collect();
                dispatches.push(Dispatch { sources: jumps.sources, targets });
            }
        }
        joined(dispatches, self.graph.blocks.len())
    }
}

/// Joins dispatches that share targets.
fn joined(dispatches: Vec<Dispatch>, blocks: usize) -> Vec<Dispatch> {
    let mut sets = super::tree::Sets::new(blocks + dispatches.len());
    for (number, dispatch) in dispatches.iter().enumerate() {
        for &target in &dispatch.targets {
            sets.join((blocks + number) as u32, target);
        }
    }
    let mut by_set: BTreeMap<u32, Dispatch> = BTreeMap::new();
    for (number, dispatch) in dispatches.into_iter().enumerate() {
        let joined = by_set.entry(sets.find((blocks + number) as u32)).or_default();
        joined.sources.extend(dispatch.sources);
        joined.targets.extend(dispatch.targets);
    }
    let mut all: Vec<Dispatch> = by_set.into_values().collect();
    for dispatch in &mut all {
        dispatch.sources.sort_unstable();
        dispatch.targets.sort_unstable();
        dispatch.targets.dedup();
    }
    all
}
