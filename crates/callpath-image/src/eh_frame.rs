//! Where an image's call frame information lies, with section headers and without.

use callpath_format::address::LinkAddr;

use crate::abi;
use crate::bytes::Bytes;
use crate::elf::Image;

/// Where an image's call frame information lies.
#[derive(Clone, Copy, Debug)]
pub struct EhFrame<'a> {
    /// Where `.eh_frame` begins.
    pub addr: LinkAddr,
    /// Its bytes. Where section headers are stripped its end is not known: then up to the end of its segment, and a
    /// reader stops at the terminator (an entry of length 0).
    pub data: &'a [u8],
    /// `.eh_frame_hdr` with its sorted table, if there is one.
    pub hdr: Option<EhFrameHdr<'a>>,
}

/// The index to `.eh_frame`.
#[derive(Clone, Copy, Debug)]
pub struct EhFrameHdr<'a> {
    /// Where `.eh_frame_hdr` begins.
    pub addr: LinkAddr,
    /// Its bytes.
    pub data: &'a [u8],
}

/// The sorted table in `.eh_frame_hdr`: where code begins, and its entry. Rows are read where they lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameTable {
    /// Of the first row, in `.eh_frame_hdr`.
    offset: u64,
    count: u64,
}

/// Why the table cannot be used, and the offset in `.eh_frame_hdr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TableFault {
    pub(crate) offset: u64,
    pub(crate) why: &'static str,
}

/// The encoding of every table that a linker writes: `DW_EH_PE_datarel | DW_EH_PE_sdata4`.
const TABLE_ENCODING: u8 = 0x3b;
/// `DW_EH_PE_omit`
const OMITTED: u8 = 0xff;
const ROW_LEN: u64 = 8;

impl EhFrame<'_> {
    /// The table, if there is one: its rows ascend. They may lead out of `.eh_frame` where that is cut.
    pub(crate) fn table(&self) -> Result<Option<FrameTable>, TableFault> {
        let Some(hdr) = self.hdr else { return Ok(None) };
        let fault = |offset, why| TableFault { offset, why };
        let Some(&[1, pointer_encoding, count_encoding, table_encoding]) = hdr.data.first_chunk() else {
            return Err(fault(0, "it does not begin with a header"));
        };
        if [count_encoding, table_encoding].contains(&OMITTED) {
            return Ok(None);
        }
        let pointer_len = match pointer_encoding & 0x0f {
            0x03 | 0x0b => 4,
            0x00 | 0x04 | 0x0c => 8,
            _ => return Err(fault(1, "its pointer is encoded as no linker does it")),
        };
        if [count_encoding, table_encoding] != [3, TABLE_ENCODING] {
            return Err(fault(2, "its table is encoded as no linker does it"));
        }
        let offset = 8 + pointer_len;
        let count = hdr.data.u32_at(4 + pointer_len).map(u64::from);
        let room = (hdr.data.len() as u64).saturating_sub(offset) / ROW_LEN;
        let Some(count) = count.filter(|count| *count <= room) else {
            return Err(fault(4 + pointer_len, "it claims more rows than it has"));
        };
        let table = FrameTable { offset, count };
        let mut before = None;
        for (index, (start, _)) in (0..).map_while(|index| Some((index, table.row(hdr, index)?))) {
            if before.is_some_and(|before| before >= start) {
                return Err(fault(table.offset_of(index), "its rows do not ascend"));
            }
            before = Some(start);
        }
        Ok((count > 0).then_some(table))
    }
}

impl FrameTable {
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Where a row's code begins and where its entry lies.
    pub(crate) fn row(&self, hdr: EhFrameHdr<'_>, index: u64) -> Option<(LinkAddr, LinkAddr)> {
        if index >= self.count {
            return None;
        }
        let row = hdr.data.slice(self.offset + index * ROW_LEN, ROW_LEN)?;
        let relative = |at| Some(LinkAddr(hdr.addr.0.wrapping_add_signed((row.u32_at(at)? as i32).into())));
        Some((relative(0)?, relative(4)?))
    }

    /// The offset of a row in `.eh_frame_hdr`.
    pub(crate) fn offset_of(&self, index: u64) -> u64 {
        self.offset.saturating_add(index.saturating_mul(ROW_LEN))
    }
}

impl Image {
    /// Where the call frame information lies. Through the section headers if they are there, else through
    /// `PT_GNU_EH_FRAME`.
    pub fn eh_frame(&self) -> Option<EhFrame<'_>> {
        let hdr = self.eh_frame_hdr();
        let by_section = self.plain_section(".eh_frame").filter(|(_, data)| !data.is_empty());
        let (addr, data) = match by_section {
            Some(found) => found,
            None => {
                let addr = eh_frame_pointer(hdr?)?;
                (addr, self.bytes_from(addr)?)
            }
        };
        Some(EhFrame { addr, data, hdr })
    }

    /// There is an index to `.eh_frame`, whether or not it can be used.
    pub(crate) fn has_eh_frame_hdr(&self) -> bool {
        self.eh_frame_hdr().is_some()
    }

    fn eh_frame_hdr(&self) -> Option<EhFrameHdr<'_>> {
        let by_segment = self.part(abi::PT_GNU_EH_FRAME).and_then(|part| {
            let len = usize::try_from(part.file_len).ok()?;
            Some((LinkAddr(part.vaddr), self.bytes_at(LinkAddr(part.vaddr), len)?))
        });
        let (addr, data) = by_segment.or_else(|| self.plain_section(".eh_frame_hdr"))?;
        Some(EhFrameHdr { addr, data })
    }
}

/// `DW_EH_PE` encodings of the pointer to `.eh_frame` that linkers write: absolute or relative to the pointer itself,
/// of 4 or 8 bytes.
fn eh_frame_pointer(hdr: EhFrameHdr<'_>) -> Option<LinkAddr> {
    if hdr.data.first() != Some(&1) {
        return None;
    }
    let encoding = *hdr.data.get(1)?;
    let value = match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => hdr.data.u64_at(4)?,
        0x03 => hdr.data.u32_at(4)?.into(),
        0x0b => hdr.data.u32_at(4)? as i32 as i64 as u64,
        _ => return None,
    };
    let base = match encoding & 0xf0 {
        0x00 => 0,
        0x10 => hdr.addr.0.wrapping_add(4),
        0x30 => hdr.addr.0,
        _ => return None,
    };
    Some(LinkAddr(base.wrapping_add(value)))
}
