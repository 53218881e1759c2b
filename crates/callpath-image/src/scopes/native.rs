//! What the line map alone tells of a procedure: which of its code was written there, and which came from elsewhere.
//! Knows nothing of inlined calls: this is the way where a compiler recorded none.
//!
//! Tallent et al. 2009, section 3.1: source procedures do not overlap unless one is nested in the other, so that one
//! ends before the next of its file begins; internal procedures of Fortran end the code of the one around them. Code of
//! another file or outside of these bounds is alien. What has no entry at all (a static procedure that was inlined at
//! every call) leaves a gap that hides alien code. Whether alien code nests cannot be known; it is flat.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use gimli::UnitOffset;

use super::unit::{FileId, LineRun, NONE, Origin, ScopeId, ScopeKind, UnitScopes};

/// By which way the structure of a piece of code is known, from the best to the poorest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Way {
    /// A procedure of a unit with records of inlined calls.
    InlinedCalls,
    /// A procedure or lines, and no inlined call recorded in the whole unit.
    LineMap,
    /// Only the symbol table names it.
    Symbols,
    /// Not even that.
    Nothing,
}

/// Where in the source a procedure's own code can stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NativeLines {
    /// The file that it is declared in.
    pub file: FileId,
    /// The line of its declaration.
    pub first: u32,
    /// The first line that is not its own any more; `None` if it may go on to the end of the file.
    pub end: Option<u32>,
}

impl NativeLines {
    /// Whether a line can be the procedure's own.
    pub fn holds(&self, file: Option<FileId>, line: u32) -> bool {
        file == Some(self.file) && line >= self.first && self.end.is_none_or(|end| line < end)
    }
}

/// A stretch of a procedure's code from one file, all of it native or all of it alien.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineGroup {
    /// The code.
    pub range: Range<LinkAddr>,
    /// The file that it stands in, if it is known.
    pub file: Option<FileId>,
    /// The smallest and the greatest line.
    pub lines: (u32, u32),
    /// It cannot have been written in the procedure.
    pub is_alien: bool,
}

/// A procedure's declaration: the place, and whether it is inside of another procedure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Declaration {
    pub(super) file: u32,
    pub(super) line: u32,
    pub(super) is_nested: bool,
    /// Known in units without inlined calls.
    pub(super) origin: u32,
}

impl UnitScopes {
    /// By which way the code at `addr` is known here; `None` if this unit says nothing of it.
    pub fn way_at(&self, addr: LinkAddr) -> Option<Way> {
        match (self.scope_at(addr), self.line_at(addr)) {
            (Some(_), _) if self.has_inlined_calls() => Some(Way::InlinedCalls),
            (Some(_), _) | (None, Some(_)) => Some(Way::LineMap),
            (None, None) => None,
        }
    }

    /// The procedures that are declared here, with code of their own or without, and whether that is inside of another
    /// procedure. None where inlined calls are recorded, which name them.
    pub fn declared(&self) -> impl Iterator<Item = (Origin<'_>, bool)> {
        self.declarations.iter().filter_map(|declared| Some((self.origin(declared.origin)?, declared.is_nested)))
    }

    /// Where the own code of a procedure can stand. `None` if its declaration is not known.
    pub fn native_lines(&self, procedure: ScopeId) -> Option<NativeLines> {
        let scope = self.scope(procedure)?;
        let (file, first) = (scope.origin?.file()?, scope.origin?.line());
        if first == 0 || scope.kind != ScopeKind::Procedure {
            return None;
        }
        let place = Declaration { file: file.0, line: first, is_nested: false, origin: NONE };
        let from =
            self.declarations.partition_point(|declared| (declared.file, declared.line) < (place.file, place.line));
        let here = self.declarations.get(from..)?;
        let same_file = || here.iter().take_while(|declared| declared.file == file.0);
        // What is nested ends at the next of any kind. What is not goes on behind its nested procedures, but in Fortran.
        let is_nested = same_file().take_while(|declared| declared.line == first).any(|declared| declared.is_nested);
        let ends_it =
            |declared: &&Declaration| declared.line > first && (is_nested || self.is_fortran() || !declared.is_nested);
        Some(NativeLines { file, first, end: same_file().find(ends_it).map(|declared| declared.line) })
    }

    /// The code of a procedure by its lines, in the order of its ranges: neighbours of one file, native or alien, are
    /// together. Code of which the compiler says that it has no line goes with what is before it. Where the declaration is
    /// not known nothing is alien.
    pub fn line_groups(&self, procedure: ScopeId) -> Vec<LineGroup> {
        let native = self.native_lines(procedure);
        let ranges = self.scope(procedure).map(|scope| scope.ranges).unwrap_or_default();
        let mut groups: Vec<LineGroup> = Vec::new();
        for run in ranges.iter().flat_map(|range| self.lines(range.clone())) {
            let is_alien = run.line != 0 && native.is_some_and(|native| !native.holds(run.file, run.line));
            match groups.last_mut().filter(|last| last.range.end == run.range.start) {
                Some(last) if run.line == 0 || (last.file, last.is_alien) == (run.file, is_alien) => last.take(&run),
                _ => groups.push(LineGroup { range: run.range, file: run.file, lines: (run.line, run.line), is_alien }),
            }
        }
        groups
    }
}

impl LineGroup {
    fn take(&mut self, run: &LineRun) {
        self.range.end = run.range.end;
        if run.line != 0 {
            let smallest = if self.lines.0 == 0 { run.line } else { self.lines.0.min(run.line) };
            self.lines = (smallest, self.lines.1.max(run.line));
        }
    }
}

/// Sorted, each place once; a place that is nested and not is one that is not.
pub(super) fn tidy(mut declarations: Vec<(Declaration, UnitOffset)>) -> Vec<(Declaration, UnitOffset)> {
    declarations.retain(|(declared, _)| declared.file != NONE && declared.line != 0);
    declarations.sort_unstable();
    declarations.dedup_by_key(|(declared, _)| (declared.file, declared.line));
    declarations
}
