//! Decides by lines which machine loops are one loop of the source, and which one is
//! two, where machine code does not show it.
//!
//! Loops of the source that begin together have one header, and look like one loop with a `continue`. A loop of which
//! one iteration is partly its own (what a handler leaves out) looks like two.

use callpath_x86::graph::{ProcedureGraph, Terminator};
use callpath_x86::loops::{Bodies, LoopForest, LoopPart};

use super::code_ranges::{CodeRange, ProcedureLoops, Source};
use super::loop_location::is_jump_alone;
use super::scope_tree::{LoopPlacement, decides};
use super::{SourceLocation, steps};

/// A loop without a test of its own, that begins with another in it, and whose own code has lines only from between
/// those of the other, is the other: source loops do not overlap. Says so in the placements of both.
pub(super) fn find_same(of: ProcedureLoops<'_>, code_ranges_of: &[Vec<u32>], placements: &mut [LoopPlacement]) {
    let ProcedureLoops { graph, forest, source } = of;
    // Inner loops first.
    for (number, here) in forest.loops.iter().enumerate().rev() {
        let Some((parent, around)) = here.parent.and_then(|parent| Some((parent, forest.loops.get(parent as usize)?)))
        else {
            continue;
        };
        let (Some(inner), Some(outer)) = (placements.get(number), placements.get(parent as usize)) else { continue };
        let context = inner.context;
        let Some(location) = inner.location.filter(|_| inner.context == outer.context) else { continue };
        let is_only = around.end as usize == here.end as usize && parent as usize + 1 == number;
        let begins = *graph.successors(around.header) == [here.header];
        let is_tested = around.exits.iter().any(|exit| decides(graph, exit.0));
        if !is_only || !begins || is_tested {
            continue;
        }
        let its = code_ranges_of
            .get(number)
            .into_iter()
            .flatten()
            .filter_map(|&code_range| source.code_ranges.get(code_range as usize));
        let its = its
            .filter_map(|code_range| source.location_in(code_range, context))
            .filter(|other| other.file == location.file);
        let last = its.max().unwrap_or(location);
        let own = around.own_blocks.iter().flat_map(|&block| source.code_ranges_in(block));
        let own = own.filter_map(|code_range| source.location_in(code_range, context));
        let own: Vec<SourceLocation> = own.filter(|location| !source.is_opening(context, *location)).collect();
        if !own.is_empty() && own.iter().all(|own| own.file == location.file && *own > location && *own <= last) {
            placements[number].is_parent = true;
            placements[parent as usize].location = Some(location);
        }
    }
}

/// Blocks and edges that may be looked at to separate loops: for each block of a procedure, and at least. Loops that
/// are left when they are used up stay one.
const STEPS_FOR_BLOCK: usize = 64;
const LEAST_STEPS: usize = 1 << 18;

/// The same forest, with loops of the source that share one header separated where lines prove that they are two.
pub(super) fn told_apart(graph: &ProcedureGraph, forest: LoopForest, source: &Source) -> LoopForest {
    let several = (0u32..).zip(&forest.loops).filter(|(_, here)| here.back_edges.len() > 1);
    // Of the copies of a jump none is the way back of another loop than the others are.
    let is_copy = |latch: &u32| graph.copied_jump(*latch).is_some();
    let several = several.filter(|(_, here)| !here.back_edges.iter().any(is_copy));
    let mut bodies: Option<Bodies> = None;
    let inner = several.filter_map(|(number, _)| {
        let steps = LEAST_STEPS + STEPS_FOR_BLOCK * graph.blocks.len();
        let bodies = bodies.get_or_insert_with(|| Bodies::new(graph, steps));
        let of = ProcedureLoops { graph, forest: &forest, source };
        let inner = statement_again(of, number, bodies).or_else(|| jumped_again(of, number))?;
        Some((number, inner))
    });
    let inner: Vec<(u32, Vec<u32>)> = inner.collect();
    if inner.is_empty() { forest } else { forest.split(graph, &inner) }
}

/// The back edges of the inner one, if a test is executed at each iteration of both loops, but its
/// statement begins anew on the way back of the outer one only: a condition that is looked at again without
/// its statement beginning again is a loop's.
fn statement_again(of: ProcedureLoops<'_>, number: u32, bodies: &mut Bodies) -> Option<Vec<u32>> {
    let ProcedureLoops { graph, forest, source } = of;
    let here = forest.loops.get(number as usize)?;
    let test_of = |block: u32| source.end_of(block).filter(|_| decides(graph, block))?.location;
    let ends = here.back_edges.iter().copied().chain([here.header]);
    let mut tests: Vec<SourceLocation> = ends.filter_map(test_of).collect();
    tests.sort_unstable();
    tests.dedup();
    let looks = here.back_edges.iter().map(|&latch| 1 + source.begins_in(latch).len()).sum();
    tests.into_iter().find_map(|test| {
        let column = source.first_column(test)?;
        let begins =
            |block: u32| source.begins_in(block).iter().any(|begin| (begin.location, begin.column) == (test, column));
        steps::take(1);
        bodies.spend(looks)?;
        steps::take(looks);
        let inner = parted(&here.back_edges, begins)?;
        let body = bodies.find(forest, LoopPart { number, back_edges: &inner }, begins)?;
        body.iter().any(|&block| test_of(block) == Some(test)).then_some(inner)
    })
}

/// Without optimization gcc enters `while` and `for` by a jump to the test below their body, on a
/// line of its own: one that goes back to the test enters the loop anew from the end of an outer one,
/// which it begins. `continue` has its own line.
fn jumped_again(of: ProcedureLoops<'_>, number: u32) -> Option<Vec<u32>> {
    let ProcedureLoops { graph, forest, source } = of;
    let here = forest.loops.get(number as usize)?;
    let (header, latches) = (here.header, &here.back_edges);
    let test = source.code_ranges_in(header).first()?.location?;
    if !source.is_plain_gcc || !decides(graph, header) {
        return None;
    }
    let block = |block: u32| graph.blocks.get(block as usize);
    let jumps = |latch: u32| {
        let end = source.end_of(latch);
        let is_jump = block(latch).is_some_and(|block| block.terminator == Terminator::Jump);
        is_jump && end.is_some_and(|end| end.location == Some(test) && is_jump_alone(end))
    };
    let start = block(header)?.code.start;
    let falls = |latch: &u32| block(*latch).is_some_and(|block| block.code.end == start);
    let inner = parted(latches, jumps)?;
    inner.iter().all(falls).then_some(inner)
}

/// Those of `latches` that are not of the outer loop, if there are some of both.
fn parted(latches: &[u32], is_outer: impl Fn(u32) -> bool) -> Option<Vec<u32>> {
    let (outer, inner): (Vec<u32>, Vec<u32>) = latches.iter().copied().partition(|&latch| is_outer(latch));
    (!outer.is_empty() && !inner.is_empty()).then_some(inner)
}

impl Source {
    /// The code of a block.
    pub(super) fn code_ranges_in(&self, block: u32) -> &[CodeRange] {
        let first = self.code_ranges.partition_point(|code_range| code_range.block < block);
        let end = self.code_ranges.partition_point(|code_range| code_range.block <= block);
        self.code_ranges.get(first..end).unwrap_or_default()
    }

    /// How much there is to look at in a block: lines, statements and edges, of which most blocks have some four.
    /// Copies of a jump have their edges in common.
    pub(super) fn weight(&self, graph: &ProcedureGraph, block: u32) -> usize {
        let edges = if graph.copied_jump(block).is_some() { 1 } else { graph.successors(block).len() };
        let all = self.code_ranges_in(block).len() + self.begins_in(block).len() + edges;
        (all / 4).max(1)
    }

    /// The code that ends a block.
    pub(super) fn end_of(&self, block: u32) -> Option<&CodeRange> {
        self.code_ranges_in(block).last()
    }
}
