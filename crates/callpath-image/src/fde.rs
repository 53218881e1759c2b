//! Where procedures begin and end, as the frame description entries say: the only bounds that a stripped file has.
//!
//! The linker's sorted table in `.eh_frame_hdr` is searched where it lies: cc1plus has 60,000 entries, of which a
//! profile touches a few thousand. Only where there is no such table, `.eh_frame` is read once from end to end.

use std::ops::Range;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use gimli::{BaseAddresses, CieOrFde, LittleEndian, UnwindSection};

use crate::eh_frame::FrameTable;
use crate::elf::{EhFrame, Image};

/// The bounds of an image's frame description entries.
pub(crate) struct FdeBounds {
    image: Arc<Image>,
    source: Source,
}

enum Source {
    /// In place.
    Table(FrameTable),
    /// Sorted by start.
    Scanned(Vec<Range<LinkAddr>>),
}

impl FdeBounds {
    pub(crate) fn new(image: Arc<Image>) -> FdeBounds {
        let source = match image.eh_frame() {
            None => Source::Scanned(Vec::new()),
            Some(eh_frame) => match eh_frame.table() {
                Ok(Some(table)) => Source::Table(table),
                // The reader of all frames reports what is wrong with it.
                Ok(None) | Err(_) => Source::Scanned(scan(&eh_frame)),
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
        // Of an entry that cannot be read it is still known where its code begins.
        let start_before = || after.checked_sub(1).and_then(|index| self.start(index)).unwrap_or(LinkAddr(0));
        let gap_start = before.map_or_else(start_before, |entry| entry.end.min(addr));
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
            Source::Table(table) => table.count(),
            Source::Scanned(entries) => entries.len() as u64,
        }
    }

    fn start(&self, index: u64) -> Option<LinkAddr> {
        match &self.source {
            Source::Table(_) => Some(self.table_row(index)?.0),
            Source::Scanned(entries) => Some(entries.get(index as usize)?.start),
        }
    }

    fn entry(&self, index: u64) -> Option<Range<LinkAddr>> {
        match &self.source {
            Source::Scanned(entries) => entries.get(index as usize).cloned(),
            Source::Table(_) => {
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
        let Source::Table(table) = self.source else { return None };
        table.row(self.image.eh_frame()?.hdr?, index)
    }
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
