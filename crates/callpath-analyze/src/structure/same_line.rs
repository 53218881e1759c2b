//! Which loops of one line are different loops of the source, by the columns of their code.
//!
//! A loop of the source is a piece of its text, and two that stand side by side do not overlap. What a compiler makes of one
//! (a rest, a peeled iteration, a loop for each case of a test) is made of the same text. So loops of one line are
//! different ones if the text that all their code was made of does not overlap, and one in all other cases.

use rustc_hash::FxHashMap;

use super::code_ranges::{CodeRange, ProcedureLoops, Source};
use super::{SourceLocation, steps};

/// A place in the text of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Position {
    line: u32,
    column: u32,
}

/// A piece of the text of a file, its ends included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Extent {
    first: Position,
    last: Position,
}

/// A loop with a line.
pub(super) struct Located {
    pub(super) number: u32,
    pub(super) location: SourceLocation,
    /// The innermost context around it, from which its line is seen.
    pub(super) context: u32,
    /// The line is that of some code in it, for its tests stand elsewhere.
    pub(super) is_guess: bool,
}

/// The lines with several loops of the source side by side.
#[derive(Debug, Default)]
pub(super) struct SameLines {
    /// For each such line, where each loop on it ends but the last, and where each begins with others of the line in it:
    /// ascending.
    ends: FxHashMap<SourceLocation, Vec<Position>>,
    /// For each loop on one that is not the only one beside it, its first column.
    columns: FxHashMap<u32, u32>,
}

impl SameLines {
    /// Finds them among a procedure's `loops`. `code_ranges_of`: the code in each, by its number.
    pub(super) fn of(of: ProcedureLoops<'_>, code_ranges_of: &[Vec<u32>], mut loops: Vec<Located>) -> SameLines {
        let mut found = SameLines::default();
        loops.sort_unstable_by_key(|here| (here.location, here.number));
        for loops in loops.chunk_by(|a, b| a.location == b.location) {
            let [Located { location, .. }, _, ..] = *loops else { continue };
            let mut ends = Vec::new();
            let mut is_several_within = false;
            // Inner ones first.
            for beside in by_depth(of, loops).into_iter().rev() {
                let extents = beside.iter().map(|here| {
                    let its = code_ranges_of.get(here.number as usize)?;
                    let is_dispatch = of.forest.loops.get(here.number as usize)?.is_dispatch;
                    extent(of.source, its, here).filter(|_| !is_dispatch)
                });
                // A loop whose text is unknown may be a copy of any other.
                let Some(extents) = extents.collect::<Option<Vec<Extent>>>() else { continue };
                let apart = apart(&extents);
                if is_several_within {
                    // What is before the first of those within is the outer one's.
                    ends.extend(apart.iter().map(|extent| extent.first));
                }
                ends.extend(apart.iter().map(|extent| extent.last));
                // What does not touch the line has it from elsewhere, perhaps from a loop that it is a copy of.
                let is_on_it = |extent: &Extent| (extent.first.line..=extent.last.line).contains(&location.line);
                if apart.len() < 2 || !apart.iter().all(is_on_it) {
                    continue;
                }
                is_several_within = true;
                for (here, extent) in beside.iter().zip(extents) {
                    let its = apart.partition_point(|apart| apart.last < extent.first);
                    // Only the first may begin before the line.
                    let first = apart.get(its).map(|apart| apart.first).filter(|first| first.line == location.line);
                    found.columns.insert(here.number, first.map_or(0, |first| first.column));
                }
            }
            if is_several_within {
                ends.sort_unstable();
                ends.dedup();
                ends.pop();
                found.ends.insert(location, ends);
            }
        }
        found
    }

    /// The first column of a loop, if others of the source are beside it on its line: equal for copies of one.
    pub(super) fn column(&self, number: u32) -> Option<u32> {
        self.columns.get(&number).copied()
    }

    /// In which part of its line a column is. Each loop of a line with several has one, from the end of the one
    /// before it, or where the test of the one around it begins, to its own end; what is behind all is in the last.
    pub(super) fn part(&self, location: SourceLocation, column: u32) -> u32 {
        let ends = self.ends.get(&location).filter(|_| column > 0).map_or(&[][..], |ends| ends);
        ends.partition_point(|end| *end < Position { line: location.line, column }) as u32
    }

    /// The part in which code begins.
    #[inline]
    pub(super) fn part_of(&self, code_range: &CodeRange) -> u32 {
        if self.ends.is_empty() {
            return 0;
        }
        code_range.location.map_or(0, |location| self.part(location, code_range.columns.first))
    }
}

/// Those of `loops`, ascending, that are in as many others of them.
fn by_depth<'l>(of: ProcedureLoops<'_>, loops: &'l [Located]) -> Vec<Vec<&'l Located>> {
    let mut by_depth: Vec<Vec<&Located>> = Vec::new();
    // Where those around the next one end.
    let mut around: Vec<u32> = Vec::new();
    for here in loops {
        let number = here.number;
        while around.last().is_some_and(|end| *end <= number) {
            around.pop();
        }
        if by_depth.len() == around.len() {
            by_depth.push(Vec::new());
        }
        by_depth[around.len()].push(here);
        around.push(of.forest.loops.get(number as usize).map_or(number, |its| its.end));
    }
    by_depth
}

/// The text that a loop's code was made of, in its file and as seen from its context. Nothing if its line is that of
/// some code in it, or the compiler does not say.
fn extent(source: &Source, code_ranges: &[u32], here: &Located) -> Option<Extent> {
    let file = Some(here.location.file).filter(|_| !here.is_guess)?;
    steps::take(code_ranges.len());
    let its = code_ranges.iter().filter_map(|&code_range| source.code_ranges.get(code_range as usize));
    let pieces = its.filter_map(|code_range| {
        let location = source.location_in(code_range, here.context).filter(|location| location.file == file)?;
        let columns = source.columns_in(code_range, here.context);
        let at = |column: u32| Position { line: location.line, column };
        (columns.first > 0).then(|| Extent { first: at(columns.first), last: at(columns.last) })
    });
    pieces.reduce(Extent::with)
}

impl Extent {
    /// Both, and what is between them.
    fn with(self, other: Extent) -> Extent {
        Extent { first: self.first.min(other.first), last: self.last.max(other.last) }
    }
}

/// The extents, ascending, those that overlap as one.
fn apart(extents: &[Extent]) -> Vec<Extent> {
    let mut sorted = extents.to_vec();
    sorted.sort_unstable();
    let mut apart: Vec<Extent> = Vec::new();
    for extent in sorted {
        match apart.last_mut().filter(|last| extent.first <= last.last) {
            Some(last) => *last = last.with(extent),
            None => apart.push(extent),
        }
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: u32, column: u32) -> Position {
        Position { line, column }
    }

    fn extent((line, first): (u32, u32), (end, last): (u32, u32)) -> Extent {
        Extent { first: at(line, first), last: at(end, last) }
    }

    /// Whatever the order: copies of one loop need not have the same text, only some that is between each other's ends.
    #[test]
    fn what_overlaps_is_one() {
        let (first, rest) = (extent((4, 24), (4, 38)), extent((4, 31), (4, 40)));
        let (second, further) = (extent((4, 61), (6, 9)), extent((5, 2), (5, 8)));
        let found = apart(&[further, second, rest, first]);
        assert_eq!(found, [extent((4, 24), (4, 40)), extent((4, 61), (6, 9))]);
        assert_eq!(apart(&[extent((4, 24), (4, 38)), extent((4, 38), (4, 40))]).len(), 1);
        assert_eq!(apart(&[]), []);
    }

    /// What is before a loop, its `for` and what it begins with, is in its part; no column is in none but the first.
    #[test]
    fn a_line_has_a_part_for_each_loop() {
        let location = SourceLocation { file: 0, line: 4 };
        let ends = FxHashMap::from_iter([(location, vec![at(4, 38), at(4, 70)])]);
        let lines = SameLines { ends, columns: FxHashMap::default() };
        let parts = |columns: &[u32]| columns.iter().map(|&column| lines.part(location, column)).collect::<Vec<_>>();
        assert_eq!(parts(&[5, 38, 39, 70, 71, 900, 0]), [0, 0, 1, 1, 2, 2, 0]);
        assert_eq!(lines.part(SourceLocation { line: 5, ..location }, 60), 0);
    }
}
