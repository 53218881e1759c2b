//! The tables that frame description entries name for a language's own routine (`.gcc_except_table`), as bytes: what
//! comes first in each, and how its numbers are written.
//!
//! ```text
//! byte      encoding of the address that pads count from; 0xff: they count from the entry's first instruction
//! ...       that address
//! byte      encoding of types; 0xff: there are none
//! uleb128   where types end: bytes from behind this number on
//! byte      encoding of what a call site says
//! uleb128   bytes of call sites
//!   ...     call site: first instruction, length, pad (0: nothing lands), uleb128 of what is done there
//! ...       actions: sleb128 what (0: clean up; n > 0: catch type n; n < 0: let through the types listed at -n - 1 behind
//!           where types end), sleb128 the next one's distance from this number (0: none)
//! ...       types: type n lies n lengths before where they end; 0: any
//! ...       lists of types that may be thrown: uleb128 numbers, up to a 0
//! ```
//!
//! Addresses count from the entry's first instruction. What is done at a call site is 0 for nothing, else 1
//! more than the offset of the first action, bytes. (Itanium C++ ABI, exception handling tables; gcc's
//! `except.cc`; LSB core, section 10.5 for encodings.)

use std::ops::Range;

use callpath_format::address::LinkAddr;

/// An encoding that says that something is not there.
pub(crate) const OMITTED: u8 = 0xff;

/// Numbers in all lists of types of a table. They may overlap, so that its length does not bound them.
pub(crate) const LISTED_LIMIT: u32 = 1 << 16;

/// What can be odd in a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LsdaTrouble {
    /// The table does not lie in the file.
    Nowhere,
    /// It ends too early.
    Cut,
    /// A pointer in an encoding that no compiler uses here.
    Encoding(u8),
    /// A call site that is not in its procedure's code, or lands where no code is. The others are read.
    Outside,
    /// All tables together are longer than the file.
    Work,
    /// What is done at a call site leads out of the table, or in a circle.
    Action,
    /// The lists of types that may be thrown on are longer than any compiler makes them.
    Lists,
    /// A type that is named lies out of the table.
    Type,
}

/// What a table begins with.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    /// What pads count from, if that is not the entry's first instruction.
    pub(crate) pads_from: Option<LinkAddr>,
    /// How types are written, and where they end, as an offset in the table; `None`: there are none.
    pub(crate) types: Option<(u8, u64)>,
    /// How call sites are written.
    pub(crate) call_site_encoding: u8,
    /// Where they lie in the table; actions follow.
    pub(crate) call_sites: Range<usize>,
}

impl Header {
    /// Leaves the cursor at the first call site.
    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Header, LsdaTrouble> {
        let pads_from = match cursor.byte()? {
            OMITTED => None,
            encoding => Some(LinkAddr(cursor.pointer(encoding)?)),
        };
        let types = match cursor.byte()? {
            OMITTED => None,
            encoding => {
                let distance = cursor.uleb()?;
                Some((encoding, distance.saturating_add(cursor.at as u64)))
            }
        };
        let call_site_encoding = cursor.byte()?;
        let len = usize::try_from(cursor.uleb()?).map_err(|_| LsdaTrouble::Cut)?;
        let end = cursor.at.checked_add(len).filter(|end| *end <= cursor.bytes.len()).ok_or(LsdaTrouble::Cut)?;
        Ok(Header { pads_from, types, call_site_encoding, call_sites: cursor.at..end })
    }
}

/// A call site as it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawCallSite {
    /// From the entry's first instruction, bytes.
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// From what pads count from, bytes; 0: nothing lands.
    pub(crate) pad: u64,
    /// 0: nothing is done but what the pad does by itself.
    pub(crate) action: u64,
}

impl RawCallSite {
    pub(crate) fn read(cursor: &mut Cursor<'_>, encoding: u8) -> Result<RawCallSite, LsdaTrouble> {
        let (start, len) = (cursor.number(encoding)?, cursor.number(encoding)?);
        Ok(RawCallSite { start, len, pad: cursor.number(encoding)?, action: cursor.uleb()? })
    }
}

/// The numbers of a table, one after the other.
pub(crate) struct Cursor<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
    /// Where the bytes lie.
    pub(crate) table: LinkAddr,
}

impl Cursor<'_> {
    fn take<const LEN: usize>(&mut self) -> Result<[u8; LEN], LsdaTrouble> {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        let taken = rest.first_chunk().copied().ok_or(LsdaTrouble::Cut)?;
        self.at += LEN;
        Ok(taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, LsdaTrouble> {
        self.take::<1>().map(|[byte]| byte)
    }

    /// Bits beyond the 64th are lost.
    pub(crate) fn uleb(&mut self) -> Result<u64, LsdaTrouble> {
        self.leb().map(|(value, ..)| value)
    }

    pub(crate) fn sleb(&mut self) -> Result<i64, LsdaTrouble> {
        Ok(match self.leb()? {
            (value, bits, true) => value | u64::MAX.checked_shl(bits).unwrap_or(0),
            (value, ..) => value,
        } as i64)
    }

    /// The value, the bits that were written, and whether the last of these is set.
    fn leb(&mut self) -> Result<(u64, u32, bool), LsdaTrouble> {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            shift = shift.saturating_add(7);
            if byte & 0x80 == 0 {
                return Ok((value, shift, byte & 0x40 != 0));
            }
        }
    }

    /// A number in the format that an encoding names.
    pub(crate) fn number(&mut self, encoding: u8) -> Result<u64, LsdaTrouble> {
        Ok(match encoding {
            0x00 | 0x04 | 0x0c => u64::from_le_bytes(self.take()?),
            0x01 => self.uleb()?,
            0x02 => u16::from_le_bytes(self.take()?).into(),
            0x03 => u32::from_le_bytes(self.take()?).into(),
            0x09 => self.sleb()? as u64,
            0x0a => i64::from(i16::from_le_bytes(self.take()?)) as u64,
            0x0b => i64::from(i32::from_le_bytes(self.take()?)) as u64,
            _ => return Err(LsdaTrouble::Encoding(encoding)),
        })
    }

    /// An address: absolute, or relative to where it is written.
    pub(crate) fn pointer(&mut self, encoding: u8) -> Result<u64, LsdaTrouble> {
        let (base, number) = self.base_and_number(encoding)?;
        Ok(base.wrapping_add(number))
    }

    /// The same; `None` where a 0 is written.
    pub(crate) fn pointer_or_none(&mut self, encoding: u8) -> Result<Option<u64>, LsdaTrouble> {
        let (base, number) = self.base_and_number(encoding)?;
        Ok((number != 0).then(|| base.wrapping_add(number)))
    }

    fn base_and_number(&mut self, encoding: u8) -> Result<(u64, u64), LsdaTrouble> {
        let base = match encoding & 0xf0 {
            0x00 => 0,
            0x10 => self.table.0.wrapping_add(self.at as u64),
            _ => return Err(LsdaTrouble::Encoding(encoding)),
        };
        Ok((base, self.number(encoding & 0x0f)?))
    }
}
