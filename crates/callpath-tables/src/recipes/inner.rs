//! Finds subroutines inside procedures of call frame information that it describes wrongly. It decodes no instructions:
//! it passes rows and bytes to the analysis.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::Cfa;
use callpath_format::register::Reg;
use callpath_image::cfi::{CallFrames, CfiSection, FrameRange};
use callpath_x86::inner_calls::{self, Input, Row};

/// The parts of call frame information to ignore.
#[derive(Debug, Default)]
pub(super) struct Inner {
    /// Where the subroutines begin.
    pub(super) entries: Vec<LinkAddr>,
    /// The procedures that contain them, sorted and disjoint.
    pub(super) within: Vec<Range<LinkAddr>>,
    /// Their code with wrong rows.
    pub(super) contradicted: Vec<Range<LinkAddr>>,
}

/// The subroutines in `code`, the bytes of instructions, that contradict `frames`. Only `.eh_frame` is checked.
pub(super) fn subroutines(code: &[(LinkAddr, &[u8])], frames: &CallFrames) -> Inner {
    let is_checked = |range: &&FrameRange| range.section != CfiSection::DebugFrame;
    let mut ranges: Vec<&FrameRange> = frames.ranges.iter().filter(is_checked).collect();
    ranges.sort_by_key(|range| range.code.start);
    let (mut rows, mut procedures) = (Vec::with_capacity(frames.rows.len()), Vec::with_capacity(ranges.len()));
    for (index, range) in ranges.iter().enumerate() {
        let next = ranges.get(index + 1).map_or(range.code.end, |next| next.code.start);
        let code = range.code.start..range.code.end.min(next);
        if code.is_empty() {
            continue;
        }
        let described = frames.rows_of(range).iter().take_while(|row| row.start < code.end);
        rows.extend(described.map(|row| {
            let disp = match frames.recipes.get(row.recipe as usize).map(|recipe| &recipe.cfa) {
                Some(Cfa::Register { reg: Reg::RSP, disp }) => Some(*disp),
                _ => None,
            };
            Row { start: row.start, disp }
        }));
        rows.push(Row { start: code.end, disp: None });
        procedures.push(code);
    }
    let mut inner = Inner::default();
    for found in inner_calls::subroutines(&Input { code, rows: &rows, procedures: &procedures }) {
        inner.entries.push(found.entry);
        inner.contradicted.extend(found.contradicted);
        if let Some(procedure) = procedures.get(found.procedure)
            && inner.within.last() != Some(procedure)
        {
            inner.within.push(procedure.clone());
        }
    }
    inner
}
