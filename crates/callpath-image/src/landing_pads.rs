//! Where exceptions land: the tables of call sites that frame description entries name (`.gcc_except_table`).
//! Knows nothing of instructions, and of which exceptions are caught where some are.
//!
//! ```text
//! byte      encoding of the address that pads count from; 0xff: they count from the entry's first instruction
//! ...       that address
//! byte      encoding of types; 0xff: there are none
//! uleb128   where types end
//! byte      encoding of what a call site says
//! uleb128   bytes of call sites
//!   ...     call site: first instruction, length, pad (0: nothing lands), uleb128 of what is done there
//! ```
//!
//! Addresses count from the entry's first instruction. (Itanium C++ ABI, exception handling tables; gcc's `except.cc`.)

use std::fmt;
use std::ops::Range;

use callpath_format::address::LinkAddr;

use crate::cfi::CallFrames;
use crate::elf::Image;
use crate::parse_counts::ImagePart;

/// Diagnostics that are kept; the others are counted.
const MAX_DIAGNOSTICS: usize = 64;
const OMITTED: u8 = 0xff;

/// Exceptions of the calls in a stretch of code land at one place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LandingPad {
    /// The code.
    pub calls: Range<LinkAddr>,
    /// Where control goes on.
    pub pad: LinkAddr,
    /// They may be caught there; else it only cleans up.
    pub catches: bool,
}

/// What a module's tables of call sites say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LandingPads {
    /// In the order of the frame description entries.
    pub pads: Vec<LandingPad>,
    /// What was odd; no more than 64.
    pub diagnostics: Vec<LandingPadDiagnostic>,
    /// Diagnostics beyond those.
    pub diagnostics_left_out: u64,
}

/// Something odd in a table of call sites: what follows in it is not read, but for single call sites.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LandingPadDiagnostic {
    /// Where the table begins.
    pub table: LinkAddr,
    /// Where in it, bytes.
    pub offset: u64,
    /// What.
    pub trouble: LandingPadTrouble,
}

/// What can be odd in a table of call sites.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LandingPadTrouble {
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
}

impl fmt::Display for LandingPadDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read the landing pads at {:#x}, offset {:#x}: ", self.table.0, self.offset)?;
        match self.trouble {
            LandingPadTrouble::Nowhere => write!(f, "no bytes of the file lie there"),
            LandingPadTrouble::Cut => write!(f, "the table ends too early"),
            LandingPadTrouble::Encoding(encoding) => write!(f, "an unknown encoding of pointers, {encoding:#x}"),
            LandingPadTrouble::Outside => write!(f, "a call site or its landing pad is outside of the code"),
            LandingPadTrouble::Work => write!(f, "tables that overlap; the rest is not read"),
        }
    }
}

impl LandingPads {
    /// All that an image's frame description entries name. `frames` are the image's own.
    pub(crate) fn of_image(image: &Image, frames: &CallFrames) -> LandingPads {
        image.count_parse(ImagePart::LandingPads);
        let mut found = LandingPads::default();
        let code = image.executable_ranges();
        // Tables lie side by side. Any that overlap would make work out of proportion.
        let mut budget = image.bytes().len();
        for range in &frames.ranges {
            let Some(table) = range.landing_table else { continue };
            let Some(bytes) = image.bytes_from(table) else {
                found.report(table, 0, LandingPadTrouble::Nowhere);
                continue;
            };
            budget = match budget.checked_sub(found.read(table, bytes, &range.code, &code)) {
                Some(left) => left,
                None => {
                    found.report(table, 0, LandingPadTrouble::Work);
                    break;
                }
            };
        }
        found
    }

    fn report(&mut self, table: LinkAddr, offset: usize, trouble: LandingPadTrouble) {
        if self.diagnostics.len() < MAX_DIAGNOSTICS {
            self.diagnostics.push(LandingPadDiagnostic { table, offset: offset as u64, trouble });
        } else {
            self.diagnostics_left_out += 1;
        }
    }

    /// Reads the table of the procedure, or of the part of one, that `procedure` is. How many bytes were looked at.
    fn read(&mut self, table: LinkAddr, bytes: &[u8], procedure: &Range<LinkAddr>, code: &[Range<LinkAddr>]) -> usize {
        let mut cursor = Cursor { bytes, at: 0, table };
        if let Err(trouble) = self.call_sites(&mut cursor, procedure, code) {
            self.report(table, cursor.at, trouble);
        }
        cursor.at
    }

    fn call_sites(
        &mut self,
        cursor: &mut Cursor<'_>,
        procedure: &Range<LinkAddr>,
        code: &[Range<LinkAddr>],
    ) -> Result<(), LandingPadTrouble> {
        let pads_from = match cursor.byte()? {
            OMITTED => procedure.start.0,
            encoding => cursor.pointer(encoding)?,
        };
        if cursor.byte()? != OMITTED {
            cursor.uleb()?;
        }
        let encoding = cursor.byte()?;
        let len = usize::try_from(cursor.uleb()?).map_err(|_| LandingPadTrouble::Cut)?;
        let end = cursor.at.checked_add(len).filter(|end| *end <= cursor.bytes.len()).ok_or(LandingPadTrouble::Cut)?;
        while cursor.at < end {
            let at = cursor.at;
            let (start, len) = (cursor.number(encoding)?, cursor.number(encoding)?);
            let pad = cursor.number(encoding)?;
            let action = cursor.uleb()?;
            if pad == 0 {
                continue;
            }
            let start = LinkAddr(procedure.start.0.wrapping_add(start));
            let calls = start..LinkAddr(start.0.saturating_add(len));
            let pad = LinkAddr(pads_from.wrapping_add(pad));
            let is_inside = calls.start >= procedure.start && calls.end <= procedure.end;
            let next = code.partition_point(|range| range.end <= pad);
            if !is_inside || calls.is_empty() || !code.get(next).is_some_and(|range| range.contains(&pad)) {
                self.report(cursor.table, at, LandingPadTrouble::Outside);
                continue;
            }
            self.pads.push(LandingPad { calls, pad, catches: action != 0 });
        }
        Ok(())
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where the bytes lie.
    table: LinkAddr,
}

impl Cursor<'_> {
    fn take<const LEN: usize>(&mut self) -> Result<[u8; LEN], LandingPadTrouble> {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        let taken = rest.first_chunk().copied().ok_or(LandingPadTrouble::Cut)?;
        self.at += LEN;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, LandingPadTrouble> {
        self.take::<1>().map(|[byte]| byte)
    }

    /// Bits beyond the 64th are lost.
    fn uleb(&mut self) -> Result<u64, LandingPadTrouble> {
        self.leb().map(|(value, ..)| value)
    }

    /// The value, the bits that were written, and whether the last of these is set.
    fn leb(&mut self) -> Result<(u64, u32, bool), LandingPadTrouble> {
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
    fn number(&mut self, encoding: u8) -> Result<u64, LandingPadTrouble> {
        Ok(match encoding {
            0x00 | 0x04 | 0x0c => u64::from_le_bytes(self.take()?),
            0x01 => self.uleb()?,
            0x02 => u16::from_le_bytes(self.take()?).into(),
            0x03 => u32::from_le_bytes(self.take()?).into(),
            0x09 => match self.leb()? {
                (value, bits, true) => value | u64::MAX.checked_shl(bits).unwrap_or(0),
                (value, ..) => value,
            },
            0x0a => i64::from(i16::from_le_bytes(self.take()?)) as u64,
            0x0b => i64::from(i32::from_le_bytes(self.take()?)) as u64,
            _ => return Err(LandingPadTrouble::Encoding(encoding)),
        })
    }

    /// An address: absolute, or relative to where it is written.
    fn pointer(&mut self, encoding: u8) -> Result<u64, LandingPadTrouble> {
        let base = match encoding & 0xf0 {
            0x00 => 0,
            0x10 => self.table.0.wrapping_add(self.at as u64),
            _ => return Err(LandingPadTrouble::Encoding(encoding)),
        };
        Ok(base.wrapping_add(self.number(encoding & 0x0f)?))
    }
}

/// For fuzzing: any bytes as a table give call sites in the procedure and pads in the code, no more of them than the bytes
/// can account for.
#[doc(hidden)]
pub fn fuzz_landing_pads(bytes: &[u8]) {
    const CALL_SITE_LEN: usize = 4;
    let code = [LinkAddr(0x1000)..LinkAddr(0x9000), LinkAddr(0x40_0000)..LinkAddr(0x41_0000)];
    let procedure = LinkAddr(0x2000)..LinkAddr(0x3000);
    let mut found = LandingPads::default();
    let read = found.read(LinkAddr(0x10_0000), bytes, &procedure, &code);
    assert!(read <= bytes.len() && found.pads.len() <= read / CALL_SITE_LEN);
    assert!(found.diagnostics.iter().all(|diagnostic| diagnostic.offset <= bytes.len() as u64));
    for LandingPad { calls, pad, .. } in &found.pads {
        assert!(procedure.start <= calls.start && calls.start < calls.end && calls.end <= procedure.end);
        assert!(code.iter().any(|range| range.contains(pad)));
    }
}
