//! Where an image's call frame information lies, with section headers and without.
//! Knows nothing of the entries in it.

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
