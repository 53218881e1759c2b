//! The linker's sorted table of `.eh_frame`'s entries, held against what was read of them.

use callpath_format::address::LinkAddr;
use rustc_hash::FxHashSet;

use super::{CallFrames, CfiDiagnostic, CfiSection, CfiTrouble};
use crate::eh_frame::FrameTable;
use crate::elf::{EhFrame, Image};

/// A row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexRow {
    /// Where the code begins.
    pub start: LinkAddr,
    /// The offset of its entry in `.eh_frame`, bytes; behind its end if the table leads out of it.
    pub entry: u64,
    /// The offset of the row in `.eh_frame_hdr`, bytes.
    pub offset: u64,
}

/// The rows of an image's table, and what is wrong with it.
pub(super) fn rows(image: &Image) -> (Vec<IndexRow>, Option<CfiDiagnostic>) {
    let Some(eh_frame) = image.eh_frame() else { return (Vec::new(), unreadable(image)) };
    match eh_frame.table() {
        Ok(Some(table)) => (rows_of(&table, &eh_frame), None),
        Ok(None) => (Vec::new(), None),
        Err(fault) => {
            let trouble = CfiTrouble::Table(fault.why);
            (Vec::new(), Some(CfiDiagnostic { section: CfiSection::EhFrameHdr, offset: fault.offset, trouble }))
        }
    }
}

/// Without section headers only `.eh_frame_hdr` leads to `.eh_frame`.
fn unreadable(image: &Image) -> Option<CfiDiagnostic> {
    let trouble = CfiTrouble::Table("it does not lead to .eh_frame");
    image.has_eh_frame_hdr().then_some(CfiDiagnostic { section: CfiSection::EhFrameHdr, offset: 0, trouble })
}

fn rows_of(table: &FrameTable, eh_frame: &EhFrame<'_>) -> Vec<IndexRow> {
    let row = |index| {
        let (start, entry) = table.row(eh_frame.hdr?, index)?;
        Some(IndexRow { start, entry: entry.0.wrapping_sub(eh_frame.addr.0), offset: table.offset_of(index) })
    };
    (0..table.count()).filter_map(row).collect()
}

/// Tells of code that has a row and no entry, and keeps where it begins.
pub(super) fn check(frames: &mut CallFrames, rows: &[IndexRow], is_code: impl Fn(LinkAddr) -> bool) {
    let read: FxHashSet<LinkAddr> = frames.ranges.iter().map(|range| range.code.start).collect();
    let missing = rows.iter().filter(|row| is_code(row.start) && !read.contains(&row.start));
    for row in missing {
        if frames.without_entry.is_empty() {
            let trouble = CfiTrouble::NoEntry(row.start);
            frames.diagnostics.push(CfiDiagnostic { section: CfiSection::EhFrameHdr, offset: row.offset, trouble });
        }
        frames.without_entry.push(row.start);
    }
}
