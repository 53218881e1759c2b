//! Where procedures begin and end, as the frame description entries say: the only bounds that a stripped file has.
//! Knows nothing of the rules inside an entry.
//!
//! The linker's sorted table in `.eh_frame_hdr` is searched where it lies: cc1plus has 60,000 entries, of which a
//! profile touches a few thousand. Only where there is no such table, `.eh_frame` is read once from end to end.

use std::ops::Range;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use gimli::{BaseAddresses, CieOrFde, LittleEndian, UnwindSection};

use crate::bytes::Bytes;
use crate::elf::{EhFrame, Image};

/// The encoding of every table that a linker writes: `DW_EH_PE_datarel | DW_EH_PE_sdata4`.
const TABLE_ENCODING: u8 = 0x3b;
const ENTRY_LEN: u64 = 8;

/// The bounds of an image's frame description entries.
pub(crate) struct FdeBounds {
    image: Arc<Image>,
    source: Source,
}

enum Source {
    /// The table in place: its offset in `.eh_frame_hdr` and its number of entries.
    Table { offset: u64, count: u64 },
    /// Sorted by start.
    Scanned(Vec<Range<LinkAddr>>),
}

impl FdeBounds {
    pub(crate) fn new(image: Arc<Image>) -> FdeBounds {
        let source = match image.eh_frame() {
            None => Source::Scanned(Vec::new()),
            Some(eh_frame) => match table_bounds(&eh_frame) {
                Some((offset, count)) => Source::Table { offset, count },
                None => Source::Scanned(scan(&eh_frame)),
            },
        };
        FdeBounds { image, source }
    }

    /// The entry that covers `addr`, else the gap between entries in which it lies: `Err` of a range whose bounds are
    /// 0 and the highest address where there is no entry on that side.
    pub(crate) fn around(&self, addr: LinkAddr) -> Result<Range<LinkAddr>, Range<LinkAddr>> {
        let after = self.count_up_to(addr);
        let before = after.checked_sub(1).and_then(|index| self.entry(index));
        if let Some(entry) = before.clone().filter(|entry| entry.contains(&addr)) {
            return Ok(entry);
        }
        let gap_start = before.map_or(LinkAddr(0), |entry| entry.end.min(addr));
        Err(gap_start..self.start(after).unwrap_or(LinkAddr(u64::MAX)))
    }

    /// Where the first entry after `addr` begins.
    pub(crate) fn next_start(&self, addr: LinkAddr) -> Option<LinkAddr> {
        self.start(self.count_up_to(addr))
    }

    /// The number of entries that begin at or before `addr`.
    fn count_up_to(&self, addr: LinkAddr) -> u64 {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.start(middle).is_some_and(|start| start <= addr) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn count(&self) -> u64 {
        match &self.source {
            Source::Table { count, .. } => *count,
            Source::Scanned(entries) => entries.len() as u64,
        }
    }

    fn start(&self, index: u64) -> Option<LinkAddr> {
        match &self.source {
            Source::Table { .. } => Some(self.table_row(index)?.0),
            Source::Scanned(entries) => Some(entries.get(index as usize)?.start),
        }
    }

    fn entry(&self, index: u64) -> Option<Range<LinkAddr>> {
        match &self.source {
            Source::Scanned(entries) => entries.get(index as usize).cloned(),
            Source::Table { .. } => {
                let (start, entry) = self.table_row(index)?;
                let eh_frame = self.image.eh_frame()?;
                let offset = usize::try_from(entry.0.checked_sub(eh_frame.addr.0)?).ok()?;
                let section = section(&eh_frame);
                let fde = section.fde_from_offset(&bases(&eh_frame), offset.into(), gimli::EhFrame::cie_from_offset);
                // An entry that cannot be read or says something else than the table bounds nothing.
                let fde = fde.ok().filter(|fde| fde.initial_address() == start.0)?;
                Some(start..LinkAddr(start.0.checked_add(fde.len())?))
            }
        }
    }

    /// A row of the table: where the code begins and where its entry lies.
    fn table_row(&self, index: u64) -> Option<(LinkAddr, LinkAddr)> {
        let Source::Table { offset, count } = self.source else { return None };
        if index >= count {
            return None;
        }
        let hdr = self.image.eh_frame()?.hdr?;
        let row = hdr.data.slice(offset + index * ENTRY_LEN, ENTRY_LEN)?;
        let relative = |at| Some(LinkAddr(hdr.addr.0.wrapping_add_signed((row.u32_at(at)? as i32).into())));
        Some((relative(0)?, relative(4)?))
    }
}

/// Offset and number of entries of a table that can be searched in place.
fn table_bounds(eh_frame: &EhFrame<'_>) -> Option<(u64, u64)> {
    let hdr = eh_frame.hdr?.data;
    let [1, pointer_encoding, 3, TABLE_ENCODING] = *hdr.get(..4)? else { return None };
    let pointer_len = match pointer_encoding & 0x0f {
        0x03 | 0x0b => 4,
        0x00 | 0x04 | 0x0c => 8,
        _ => return None,
    };
    let count = hdr.u32_at(4 + pointer_len)?.into();
    let offset = 8 + pointer_len;
    let room = (hdr.len() as u64).checked_sub(offset)? / ENTRY_LEN;
    (count > 0 && count <= room).then_some((offset, count))
}

fn section<'a>(eh_frame: &EhFrame<'a>) -> gimli::EhFrame<gimli::EndianSlice<'a, LittleEndian>> {
    let mut section = gimli::EhFrame::new(eh_frame.data, LittleEndian);
    section.set_address_size(8);
    section
}

fn bases(eh_frame: &EhFrame<'_>) -> BaseAddresses {
    let bases = BaseAddresses::default().set_eh_frame(eh_frame.addr.0);
    match eh_frame.hdr {
        Some(hdr) => bases.set_eh_frame_hdr(hdr.addr.0),
        None => bases,
    }
}

/// All entries' bounds, sorted, up to the first that cannot be read: nothing says where the next one would begin.
fn scan(eh_frame: &EhFrame<'_>) -> Vec<Range<LinkAddr>> {
    let (section, bases) = (section(eh_frame), bases(eh_frame));
    let mut entries = section.entries(&bases);
    let mut found = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(fde) = partial.parse(gimli::EhFrame::cie_from_offset) else { continue };
        if let Some(end) = fde.initial_address().checked_add(fde.len()) {
            found.push(LinkAddr(fde.initial_address())..LinkAddr(end));
        }
    }
    found.sort_by_key(|range| (range.start, range.end));
    found
}
