//! Where exceptions land: the tables of call sites that frame description entries name (`.gcc_except_table`).
//!
//! `lsda` describes the layout. [`crate::exception_table`] says what is caught where, for one procedure at a time.

use std::fmt;
use std::ops::Range;

use callpath_format::address::LinkAddr;

use crate::cfi::CallFrames;
use crate::elf::Image;
use crate::lsda::{Cursor, Header, LISTED_LIMIT, LsdaTrouble, RawCallSite};
use crate::parse_counts::ImagePart;

/// Diagnostics that are kept; the others are counted.
const MAX_DIAGNOSTICS: usize = 64;

/// Exceptions of the calls in a stretch of code land at one place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LandingPad {
    /// The code.
    pub calls: Range<LinkAddr>,
    /// Where control continues.
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
    pub trouble: LsdaTrouble,
}

impl fmt::Display for LandingPadDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the landing pads at {:#x}, offset {:#x}: ", self.table.0, self.offset)?;
        match self.trouble {
            LsdaTrouble::Nowhere => write!(f, "no bytes of the file lie there"),
            LsdaTrouble::Cut => write!(f, "the table ends too early"),
            LsdaTrouble::Encoding(encoding) => write!(f, "an unknown encoding of pointers, {encoding:#x}"),
            LsdaTrouble::Outside => write!(f, "a call site or its landing pad is outside of the code"),
            LsdaTrouble::Work => write!(f, "tables that overlap; the rest is not read"),
            LsdaTrouble::Lists => write!(f, "lists of more than {LISTED_LIMIT} types together"),
            LsdaTrouble::Action => write!(f, "an action leads out of the table or in a circle"),
            LsdaTrouble::Type => write!(f, "a type that is named does not lie in the table"),
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
                found.report(table, 0, LsdaTrouble::Nowhere);
                continue;
            };
            budget = match budget.checked_sub(found.read(&Named { table, bytes, procedure: &range.code, code: &code }))
            {
                Some(left) => left,
                None => {
                    found.report(table, 0, LsdaTrouble::Work);
                    break;
                }
            };
        }
        found
    }

    fn report(&mut self, table: LinkAddr, offset: usize, trouble: LsdaTrouble) {
        if self.diagnostics.len() < MAX_DIAGNOSTICS {
            self.diagnostics.push(LandingPadDiagnostic { table, offset: offset as u64, trouble });
        } else {
            self.diagnostics_left_out += 1;
        }
    }

    /// Reads the table of a procedure, or of a part of one. How many bytes were looked at.
    fn read(&mut self, named: &Named<'_>) -> usize {
        let mut cursor = Cursor { bytes: named.bytes, at: 0, table: named.table };
        if let Err(trouble) = self.call_sites(&mut cursor, named) {
            self.report(named.table, cursor.at, trouble);
        }
        cursor.at
    }

    fn call_sites(&mut self, cursor: &mut Cursor<'_>, named: &Named<'_>) -> Result<(), LsdaTrouble> {
        let header = Header::read(cursor)?;
        let procedure = named.procedure;
        let pads_from = header.pads_from.unwrap_or(procedure.start);
        while cursor.at < header.call_sites.end {
            let at = cursor.at;
            let site = RawCallSite::read(cursor, header.call_site_encoding)?;
            if site.pad == 0 {
                continue;
            }
            let start = LinkAddr(procedure.start.0.wrapping_add(site.start));
            let calls = start..LinkAddr(start.0.saturating_add(site.len));
            let pad = LinkAddr(pads_from.0.wrapping_add(site.pad));
            let is_inside = calls.start >= procedure.start && calls.end <= procedure.end;
            let next = named.code.partition_point(|range| range.end <= pad);
            if !is_inside || calls.is_empty() || !named.code.get(next).is_some_and(|range| range.contains(&pad)) {
                self.report(cursor.table, at, LsdaTrouble::Outside);
                continue;
            }
            self.pads.push(LandingPad { calls, pad, catches: site.action != 0 });
        }
        Ok(())
    }
}

/// A table, and the procedure, or the part of one, whose frame description entry names it.
struct Named<'a> {
    table: LinkAddr,
    /// From its beginning on.
    bytes: &'a [u8],
    procedure: &'a Range<LinkAddr>,
    /// All executable code.
    code: &'a [Range<LinkAddr>],
}

/// For fuzzing: any bytes as a table give call sites in the procedure and pads in the code, no
/// more of them than the bytes can account for.
#[doc(hidden)]
pub fn fuzz_landing_pads(bytes: &[u8]) {
    const CALL_SITE_LEN: usize = 4;
    let code = [LinkAddr(0x1000)..LinkAddr(0x9000), LinkAddr(0x40_0000)..LinkAddr(0x41_0000)];
    let procedure = LinkAddr(0x2000)..LinkAddr(0x3000);
    let mut found = LandingPads::default();
    let table = LinkAddr(0x10_0000);
    let read = found.read(&Named { table, bytes, procedure: &procedure, code: &code });
    assert!(read <= bytes.len() && found.pads.len() <= read / CALL_SITE_LEN);
    assert!(found.diagnostics.iter().all(|diagnostic| diagnostic.offset <= bytes.len() as u64));
    for LandingPad { calls, pad, .. } in &found.pads {
        assert!(procedure.start <= calls.start && calls.start < calls.end && calls.end <= procedure.end);
        assert!(code.iter().any(|range| range.contains(pad)));
    }
}
