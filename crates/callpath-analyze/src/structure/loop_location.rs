//! The source location of a loop: the line of its `for`, `while` or `do`, or what comes nearest to it.
//!
//! Tallent et al. 2009, section 3.3: the line of the test that ends it (the backward branch). Here also: gcc marks
//! where statements begin that have no code of their own, so that `do` and `for (;;)` are found; what begins anew at
//! each iteration is in the loop, and the line of its test is not the loop's. Without such marks, a loop that is
//! entered at other code than its test's, and has no code of that line before it, begins with that other code: `do ...
//! while`, or an endless loop with a break.

use std::cell::OnceCell;

use callpath_x86::loops::dominators::Dominators;
use rustc_hash::{FxHashMap, FxHashSet};

use super::code_ranges::{Begin, CodeRange, ProcedureLoops};
use super::scope_tree::{Looped, decides};
use super::{SourceLocation, steps};

/// How many blocks before a loop are looked at for code of its test's line: it is right before the loop.
const BLOCKS_BEFORE: usize = 64;

/// The source location of a loop.
pub(super) struct LoopLocation {
    pub(super) location: Option<SourceLocation>,
    /// The line is that of some code in it, for its tests stand elsewhere.
    pub(super) is_guess: bool,
    /// The first line of the tests that end it, or of what leaves it.
    pub(super) tested: Option<SourceLocation>,
    /// The compiler marked the statement.
    pub(super) is_marked: bool,
}

/// A line of a loop, as seen from a context.
#[derive(Clone, Copy)]
struct Seen {
    context: u32,
    /// The first line of the loop's own code.
    own: Option<SourceLocation>,
    location: SourceLocation,
}

impl Looped<'_> {
    /// Its source location, as seen from a context.
    pub(super) fn loop_location(&self, context: u32, dominators: Option<&Dominators>) -> LoopLocation {
        // Only what decides may stand on the line on which the procedure is opened.
        let is_own = |code_range: &&CodeRange| self.is_own(code_range, context);
        let is_test = |code_range: &&CodeRange| {
            let is_opening = |location| self.of.source.is_opening(context, location);
            self.deciding.binary_search(&code_range.block).is_ok()
                || !self.of.source.location_in(code_range, context).is_some_and(is_opening)
        };
        let tested = self.location_of(self.tests.iter().copied().filter(is_test), context);
        if let Some(tested) = tested.filter(|_| self.is_dispatch) {
            // The jump has no statement around it that each of its copies would begin.
            return LoopLocation { location: Some(tested), is_guess: false, tested: Some(tested), is_marked: false };
        }
        let own = OnceCell::new();
        let own = || *own.get_or_init(|| self.location_of(self.code_ranges.iter().copied().filter(is_own), context));
        let entered = || {
            let first = self.code_ranges.iter().copied().filter(|code_range| code_range.block == self.header);
            self.location_of(first.filter(is_own), context)
        };
        // If control enters elsewhere, too, the first code is unknown.
        let entered = || entered().filter(|_| !self.is_irreducible);
        let marked = match tested {
            Some(tested) if !self.deciding.is_empty() || self.is_irreducible => {
                self.around_test(Seen { context, own: own(), location: tested })
            }
            Some(tested) if entered().or_else(own).is_none_or(|first| tested < first) => {
                self.around_test(Seen { context, own: own(), location: tested })
            }
            _ => None,
        };
        let first = match tested {
            Some(tested) if !self.deciding.is_empty() => {
                let first = entered().filter(|first| first.file == tested.file && first.line < tested.line);
                first.filter(|_| !self.is_before(context, dominators, tested))
            }
            Some(_) if self.is_irreducible => None,
            Some(tested) => entered().or_else(own).filter(|first| *first <= tested),
            None => entered().or_else(own),
        };
        let marked = marked.or_else(|| self.around(Seen { context, own: own(), location: first? }));
        let location = marked.or(first);
        let location =
            location.or(tested).or_else(own).or_else(|| self.location_of(self.code_ranges.iter().copied(), context));
        LoopLocation { location, is_guess: tested.is_none() && location.is_some(), tested, is_marked: marked.is_some() }
    }

    /// The line of the code is one of the loop's own: not one on which the procedure is opened, whose code moves
    /// parameters, nor one before that, of a macro.
    fn is_own(&self, code_range: &CodeRange, context: u32) -> bool {
        let location = self.of.source.location_in(code_range, context);
        let is_body =
            |location| !self.of.source.is_opening(context, location) && self.of.source.opens_before(context, location);
        !code_range.is_inherited && location.is_some_and(is_body)
    }

    /// The first line of `code_ranges` as seen from the context that it is in, which may have inlined them.
    fn location_of<'a>(
        &self,
        code_ranges: impl Iterator<Item = &'a CodeRange>,
        context: u32,
    ) -> Option<SourceLocation> {
        let locations: Vec<SourceLocation> =
            code_ranges.filter_map(|code_range| self.of.source.location_in(code_range, context)).collect();
        // A loop stands in one file: that of most.
        let file = most_frequent(locations.iter().map(|location| location.file))?;
        locations.into_iter().filter(|location| location.file == file).min()
    }

    /// A test of the line comes before the loop, whichever way control takes: it is
    /// made once there, and then at the loop's end.
    fn is_before(&self, context: u32, dominators: Option<&Dominators>, location: SourceLocation) -> bool {
        let ProcedureLoops { graph, forest, source } = self.of;
        let is_outside =
            |block: &u32| !forest.contains(self.number, forest.innermost.get(*block as usize).copied().flatten());
        let above = |&block: &u32| dominators.and_then(|dominators| dominators.immediate(block));
        let before = std::iter::successors(above(&self.header), above).filter(is_outside).take(BLOCKS_BEFORE);
        let mut tests = before.filter(|&block| decides(graph, block)).filter_map(|block| source.end_of(block));
        tests.any(|code_range| source.location_in(code_range, context) == Some(location))
    }

    /// The statement in which the one of a line begins: both begin at the loop's first instruction. Which of them begin
    /// before the loop is unknown: the outermost that begins again in it counts, else the innermost. That may be `try`,
    /// if the loop handles exceptions: then the outermost.
    fn around(&self, seen: Seen) -> Option<SourceLocation> {
        let begins = self.of.source.begins_in(self.header);
        let start = begins.first().map(|begin| begin.addr)?;
        let around = begins.get(..begins.partition_point(|begin| begin.addr <= start))?;
        let around = self.outer(around, seen);
        if around.is_empty() {
            return None;
        }
        let mut blocks: Vec<u32> = self.code_ranges.iter().map(|code_range| code_range.block).collect();
        blocks.dedup();
        let begins = blocks.iter().flat_map(|&block| self.of.source.begins_in(block)).inspect(|_| steps::take(1));
        let again: FxHashSet<SourceLocation> =
            begins.filter(|begin| begin.addr != start).map(|begin| begin.location).collect();
        let again = |outer: &&SourceLocation| again.contains(*outer);
        let nearest = if self.handles { around.last() } else { around.first() };
        around.iter().rev().find(again).or(nearest).copied()
    }

    /// If the statement of the loop's test begins anew at each iteration, the loop
    /// is not it, but what begins just before it.
    fn around_test(&self, test: Seen) -> Option<SourceLocation> {
        let of_header = self.around(test);
        self.latches.iter().find_map(|&latch| {
            let begins = self.of.source.begins_in(latch);
            let after = match (latch == self.header, begins.first()) {
                (true, Some(first)) => begins.partition_point(|begin| begin.addr <= first.addr),
                _ => 0,
            };
            let begins = begins.get(after..).unwrap_or_default();
            let is_again = |around: &SourceLocation| begins.iter().any(|begin| begin.location == *around);
            self.outer(begins, test).last().copied().or_else(|| of_header.filter(is_again))
        })
    }

    /// Of a run of beginnings, those further and further left and above before the
    /// statement of a line begins, from inside out.
    fn outer(&self, begins: &[Begin], seen: Seen) -> Vec<SourceLocation> {
        let Seen { context, own, location } = seen;
        let mut found = Vec::new();
        let Some(mut column) = self.of.source.first_column(location) else { return found };
        steps::take(begins.len());
        let mut inner = location;
        // What is around the loop begins before all that is in it.
        let first = own.unwrap_or(location);
        let at = begins.iter().position(|begin| (begin.location, begin.column) == (location, column)).unwrap_or(0);
        for begin in begins.get(..at).into_iter().flatten().rev() {
            let is_around =
                begin.column < column && begin.location.file == inner.file && begin.location.line < inner.line;
            let is_inside = !self.of.source.is_opening(context, begin.location)
                && self.of.source.opens_before(context, begin.location);
            if is_around && is_inside && begin.location <= first && begin.column > 0 {
                (column, inner) = (begin.column, begin.location);
                found.push(inner);
            }
        }
        found
    }
}

/// It is as long as a jump to one place, so that it is one: the line map has a line for it alone.
pub(super) fn is_jump_alone(code_range: &CodeRange) -> bool {
    matches!(code_range.code.end.0.wrapping_sub(code_range.code.start.0), 2 | 5)
}

fn most_frequent(files: impl Iterator<Item = u32>) -> Option<u32> {
    let mut counts: FxHashMap<u32, usize> = FxHashMap::default();
    for file in files {
        *counts.entry(file).or_default() += 1;
    }
    counts.into_iter().max_by_key(|&(file, count)| (count, std::cmp::Reverse(file))).map(|(file, _)| file)
}
