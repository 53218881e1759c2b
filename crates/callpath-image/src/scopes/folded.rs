//! Procedures that a linker has merged because their code is the same: chooses the one that names the code.
//!
//! Some linkers (gold) let the entries of all of them speak of the code that is left. Its lines are those of one, whose
//! procedure it is taken for; the others are nowhere.

use std::ops::Range;

use callpath_format::address::LinkAddr;

use super::unit::{OriginRecord, Row, STATEMENT, ScopeRecord};

/// For each scope, whether it has no code, being in a procedure that was folded away.
pub(super) fn folded(
    scopes: &[ScopeRecord],
    ranges: &[Range<LinkAddr>],
    origins: &[OriginRecord],
    rows: &[Row],
) -> Vec<bool> {
    let mut procedures: Vec<(LinkAddr, LinkAddr, usize)> = Vec::new();
    for (index, scope) in scopes.iter().enumerate().filter(|(_, scope)| !scope.is_inlined) {
        let end = scopes.get(index + 1).map_or(ranges.len(), |next| next.first_range as usize);
        if let Some([range]) = ranges.get(scope.first_range as usize..end) {
            procedures.push((range.start, range.end, index));
        }
    }
    let mut is_folded = vec![false; scopes.len()];
    procedures.sort_unstable();
    let same = procedures.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)).filter(|same| same.len() > 1);
    for alike in same {
        let start = alike[0].0;
        let row = rows.partition_point(|row| row.addr <= start.0).checked_sub(1).and_then(|index| rows.get(index));
        // The procedure that begins at the line, or was declared last before it.
        let declared = |&&(_, _, index): &&(LinkAddr, LinkAddr, usize)| {
            let (row, origin) = (row?, origins.get(scopes.get(index)?.origin as usize)?);
            let is_its = origin.decl_file == row.file & !STATEMENT && origin.decl_line <= row.line;
            is_its.then_some(origin.decl_line)
        };
        let kept = alike.iter().max_by_key(declared);
        alike.iter().filter(|&one| Some(one) != kept).for_each(|&(_, _, index)| is_folded[index] = true);
    }
    // Scopes stand behind those that they are in.
    for index in 0..scopes.len() {
        let parent = scopes.get(index).map_or(0, |scope| scope.parent as usize);
        is_folded[index] |=
            scopes[index].is_inlined && parent < index && is_folded.get(parent).copied().unwrap_or(false);
    }
    is_folded
}
