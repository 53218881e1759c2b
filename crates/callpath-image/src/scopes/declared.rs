//! Where the procedures of a unit are declared, those without code of their own, too.
//! It serves where a compiler recorded no inlined calls (Tallent et al. 2009, section 3.1).

use gimli::UnitOffset;

use super::unit::{NONE, Origin, UnitId, UnitScopes};

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
    /// The procedures that are declared here, with code of their own or without, and whether that is inside of another
    /// procedure. None where inlined calls are recorded, which name them.
    pub fn declared(&self) -> impl Iterator<Item = (Origin<'_>, bool)> {
        self.declarations.iter().filter_map(|declared| Some((self.origin(declared.origin)?, declared.is_nested)))
    }

    /// Other units of the file in which procedures are declared that have their code here, ascending: after link-time
    /// optimization. None where inlined calls are recorded.
    pub fn declared_elsewhere(&self) -> &[UnitId] {
        &self.elsewhere
    }
}

/// Sorted, each place once; a place that is nested and not is one that is not.
pub(super) fn tidy(mut declarations: Vec<(Declaration, UnitOffset)>) -> Vec<(Declaration, UnitOffset)> {
    declarations.retain(|(declared, _)| declared.file != NONE && declared.line != 0);
    declarations.sort_unstable();
    declarations.dedup_by_key(|(declared, _)| (declared.file, declared.line));
    declarations
}
