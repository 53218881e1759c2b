//! Call frame information and exception tables for code that was moved: what a module's own say of each instruction, said of
//! the instruction's copy. Written as a linker writes them, so that an unwinder reads them where they lie in memory.
//!
//! ```text
//! exception tables                  one for each entry that has one; landing pads are the original ones
//! .eh_frame                         an entry for each stretch of moved code that one original entry speaks of
//! .eh_frame_hdr                     the sorted table of these entries, which an unwinder begins with
//! ```
//!
//! An original entry that cannot be said of moved code (an expression with rsp, a table that is odd) is left out: who moves
//! code asks [`MovableFrames::speak_of`] before.

mod bytes;
mod rows;
mod table;

use std::collections::BTreeMap;
use std::ops::Range;

use callpath_format::address::LinkAddr;
use gimli::{BaseAddresses, EhFrame, EndianSlice, FrameDescriptionEntry, LittleEndian, Pointer, UnwindSection};

use crate::cfi::{CfiInput, CfiSection, FrameRange};
use crate::elf::ImageKind;
use crate::exception_table::{CallSite, ExceptionTable, INDIRECT};
use crate::module_file::ModuleFile;
use bytes::{distance, uleb};
use rows::{Row, advance, rows};
pub use table::fuzz_exception_table_written;
use table::{RELATIVE, ULEB};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The column of the return address, and `DW_CFA_def_cfa` of rsp + 8, `DW_CFA_offset` of the return address.
const RETURN_ADDRESS: u8 = 16;
const AT_ENTRY: [u8; 5] = [0x0c, 7, 8, 0x80 | RETURN_ADDRESS, 1];
/// The length of a length, a distance or an address, as they are written here, bytes.
const WORD_BYTES: u64 = 4;
/// `DW_EH_PE_udata4`; `DW_EH_PE_datarel | DW_EH_PE_sdata4`.
const COUNT_ENCODING: u8 = 0x03;
const ROW_ENCODING: u8 = 0x3b;

/// What a module's call frame information says, as far as it can be said of moved code.
pub struct MovableFrames<'m> {
    file: &'m ModuleFile,
    /// By ascending code, disjoint.
    entries: Vec<&'m FrameRange>,
    /// For each of them: whether it can still be said if the frames of its code are larger.
    can_be_larger: Vec<bool>,
    /// From each of these addresses on, ascending: bytes of arguments on the stack that a landing pad does not expect there. 0 before the first.
    arguments: Vec<(LinkAddr, u64)>,
}

/// A piece of moved code: it stands for the instruction at `origin`, and reaches up to the next piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where it begins.
    pub at: LinkAddr,
    /// The instruction.
    pub origin: LinkAddr,
    /// rsp is so many bytes lower than at the instruction.
    pub lowered_bytes: u32,
    /// The frame beside that at the instruction.
    pub size: Size,
}

/// The frame of moved code beside that at home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// The same.
    AsAtHome,
    /// So many bytes larger, right below the return address: a multiple of 8.
    LargerBy(u32),
    /// The return address and nothing else.
    ReturnAddress,
}

/// Moved code in one piece of memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MovedCode {
    /// By ascending address, at least one.
    pub pieces: Vec<Piece>,
    /// One past the last byte.
    pub end: LinkAddr,
}

/// What was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MovedFrames {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Where `.eh_frame_hdr` begins in them, bytes.
    pub header: u64,
    /// The number of entries.
    pub entries: usize,
}

/// What an original entry says.
struct Description {
    rows: Vec<(LinkAddr, Row)>,
    /// The routine that exceptions are given to with the table, if there is a table.
    exceptions: Option<(Routine, ExceptionTable)>,
}

/// A routine of a language: its address, or that of the word which the loader fills with it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Routine {
    address: LinkAddr,
    is_indirect: bool,
}

/// Moved code that one original entry speaks of.
struct Stretch<'p> {
    entry: usize,
    pieces: &'p [Piece],
    code: Range<LinkAddr>,
}

impl<'m> MovableFrames<'m> {
    /// Of a module.
    pub fn of(file: &'m ModuleFile) -> MovableFrames<'m> {
        let mut entries: Vec<&FrameRange> = file.call_frames().ranges.iter().collect();
        entries.sort_by_key(|range| (range.code.start, range.code.end));
        // Of code that two speak of nothing is sure.
        let mut reaches = LinkAddr(0);
        let mut is_sure = vec![true; entries.len()];
        for index in 0..entries.len() {
            let Range { start, end } = entries[index].code;
            if start < reaches {
                is_sure[index] = false;
                is_sure[index - 1] = false;
            }
            reaches = reaches.max(end);
        }
        let all = MovableFrames { file, entries, can_be_larger: Vec::new(), arguments: Vec::new() };
        let (mut entries, mut can_be_larger, mut arguments) = (Vec::new(), Vec::new(), Vec::new());
        for (index, range) in all.entries.iter().enumerate().filter(|(index, _)| is_sure[*index]) {
            let Some(Description { rows, .. }) = all.describe(index) else { continue };
            entries.push(*range);
            can_be_larger.push(rows.iter().all(|(_, row)| row.enlarged(WORD_BYTES as u32 * 2).is_some()));
            if rows.iter().any(|(_, row)| row.arguments_len > 0) {
                arguments.extend(rows.iter().map(|(at, row)| (*at, row.arguments_len)));
                arguments.push((range.code.end, 0));
            }
        }
        MovableFrames { file, entries, can_be_larger, arguments }
    }

    /// Whether what is said of an instruction can be said of its copy.
    pub fn speak_of(&self, at: LinkAddr) -> bool {
        self.entry_at(at).is_some()
    }

    /// Bytes of arguments on the stack that a landing pad does not expect there (`DW_CFA_GNU_args_size`), where a call's last byte is.
    pub fn arguments_at(&self, at: LinkAddr) -> u64 {
        let index = self.arguments.partition_point(|(from, _)| *from <= at).checked_sub(1);
        index.and_then(|index| self.arguments.get(index)).map_or(0, |(_, bytes)| *bytes)
    }

    /// Whether that can still be said if the frames of code are larger.
    pub fn can_enlarge(&self, code: &Range<LinkAddr>) -> bool {
        let first = self.entries.partition_point(|entry| entry.code.end <= code.start);
        let entries = self.entries.iter().zip(&self.can_be_larger).skip(first);
        let mut of_code = entries.take_while(|(entry, _)| entry.code.start < code.end);
        of_code.all(|(_, can_be_larger)| *can_be_larger)
    }

    fn entry_at(&self, at: LinkAddr) -> Option<usize> {
        let index = self.entries.partition_point(|entry| entry.code.start <= at).checked_sub(1)?;
        self.entries.get(index).filter(|entry| entry.code.contains(&at)).map(|_| index)
    }

    fn describe(&self, index: usize) -> Option<Description> {
        let range = self.entries.get(index).filter(|range| range.section == CfiSection::EhFrame)?;
        let (section, bases) = self.section()?;
        let offset = usize::try_from(range.offset).ok()?;
        let fde = section.fde_from_offset(&bases, offset.into(), EhFrame::cie_from_offset).ok()?;
        if fde.cie().return_address_register().0 != RETURN_ADDRESS.into() || fde.is_signal_trampoline() {
            return None;
        }
        let exceptions = match range.landing_table {
            Some(_) => Some((self.routine(&fde)?, self.table(range)?)),
            None if range.lands_unseen => return None,
            None => None,
        };
        Some(Description { rows: rows(&section, &bases, &fde)?, exceptions })
    }

    fn section(&self) -> Option<(EhFrame<Slice<'m>>, BaseAddresses)> {
        let image = self.file.image();
        let input = CfiInput::of_eh_frame(image, self.file.code());
        let (_, bytes) = input.eh_frame?;
        let mut section = EhFrame::new(bytes, LittleEndian);
        section.set_address_size(8);
        Some((section, input.bases()))
    }

    fn routine(&self, fde: &FrameDescriptionEntry<Slice<'_>>) -> Option<Routine> {
        let (encoding, pointer) = fde.cie().personality_with_encoding()?;
        if !self.is_address(encoding.0) {
            return None;
        }
        Some(match pointer {
            Pointer::Direct(address) => Routine { address: LinkAddr(address), is_indirect: false },
            Pointer::Indirect(address) => Routine { address: LinkAddr(address), is_indirect: true },
        })
    }

    fn table(&self, range: &FrameRange) -> Option<ExceptionTable> {
        let table = ExceptionTable::of(self.file, range).ok()??;
        let is_known = table.type_encoding.is_none_or(|encoding| self.is_address(encoding) || table.types.is_empty());
        is_known.then_some(table)
    }

    /// Whether what is written in this encoding is an address as the file has it: nothing that the loader changes.
    fn is_address(&self, encoding: u8) -> bool {
        match encoding & 0x70 {
            0x10 => true,
            0 => self.file.image().kind() == ImageKind::Executable,
            _ => false,
        }
    }

    /// Says of moved code what is said of what it stands for; the bytes are to lie at `at`, which a multiple of 8 is.
    /// `None`: something is too far away.
    pub fn write(&self, moved: &[MovedCode], at: LinkAddr) -> Option<MovedFrames> {
        let mut out = Writer { at, bytes: Vec::new(), commons: BTreeMap::new() };
        let stretches: Vec<Stretch<'_>> = moved.iter().flat_map(|code| self.stretches(code)).collect();
        let mut described: Vec<Described<'_>> = Vec::new();
        for stretch in stretches {
            let Some(Description { rows, exceptions }) = self.describe(stretch.entry) else { continue };
            let exceptions = match exceptions {
                Some((routine, table)) => Some((routine, out.table(&stretch, &table)?)),
                None => None,
            };
            described.push(Described { stretch, rows, exceptions });
        }
        out.align();
        let frames = out.next();
        let mut index: Vec<(LinkAddr, LinkAddr)> = Vec::new();
        for described in &described {
            let common = out.common(described.exceptions.map(|(routine, _)| routine))?;
            index.push((described.stretch.code.start, out.next()));
            out.entry(common, described)?;
        }
        // The end.
        out.bytes.extend([0; WORD_BYTES as usize]);
        index.sort_unstable();
        let header = out.header(frames, &index)?;
        Some(MovedFrames { bytes: out.bytes, header, entries: index.len() })
    }

    fn stretches<'p>(&self, code: &'p MovedCode) -> Vec<Stretch<'p>> {
        let mut found: Vec<Stretch<'p>> = Vec::new();
        let mut first = 0;
        while let Some(piece) = code.pieces.get(first) {
            let entry = self.entry_at(piece.origin);
            let rest = code.pieces.get(first..).unwrap_or(&[]);
            let len = rest.iter().take_while(|piece| self.entry_at(piece.origin) == entry).count().max(1);
            let end = rest.get(len).map_or(code.end, |next| next.at);
            let (at, pieces) = (piece.at, rest.get(..len).unwrap_or(&[]));
            found.extend(entry.filter(|_| at < end).map(|entry| Stretch { entry, pieces, code: at..end }));
            first += len;
        }
        found
    }
}

/// A stretch with what is said of it.
struct Described<'p> {
    stretch: Stretch<'p>,
    rows: Vec<(LinkAddr, Row)>,
    /// The routine and its table, if there is one.
    exceptions: Option<(Routine, LinkAddr)>,
}

/// Bytes that are written for an address.
struct Writer {
    at: LinkAddr,
    bytes: Vec<u8>,
    /// Common information entries by the routine that they name.
    commons: BTreeMap<Option<Routine>, LinkAddr>,
}

impl Writer {
    /// Where the next byte comes.
    fn next(&self) -> LinkAddr {
        LinkAddr(self.at.0.wrapping_add(self.bytes.len() as u64))
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }

    /// The distance from where the next byte comes.
    fn distance_to(&mut self, to: LinkAddr) -> Option<()> {
        let bytes = distance(self.next().0, to.0)?;
        self.bytes.extend(bytes);
        Some(())
    }

    /// Writes the table of a stretch, and tells where.
    fn table(&mut self, stretch: &Stretch<'_>, table: &ExceptionTable) -> Option<LinkAddr> {
        self.bytes.resize(self.bytes.len().next_multiple_of(WORD_BYTES as usize), 0);
        let site_of = |origin: LinkAddr| table.call_sites.iter().position(|site| site.calls.contains(&origin));
        let ends = stretch.pieces.iter().skip(1).map(|next| next.at).chain([stretch.code.end]);
        let mut call_sites: Vec<CallSite> = Vec::new();
        let mut last: Option<usize> = None;
        for (piece, end) in stretch.pieces.iter().zip(ends) {
            let site = site_of(piece.origin);
            match (site, call_sites.last_mut()) {
                (Some(_), Some(before)) if site == last && before.calls.end == piece.at => before.calls.end = end,
                (Some(index), _) => {
                    let original = table.call_sites.get(index)?;
                    call_sites.push(CallSite { calls: piece.at..end, ..original.clone() });
                }
                (None, _) => {}
            }
            last = site;
        }
        let at = self.next();
        let moved = ExceptionTable {
            at,
            code: stretch.code.clone(),
            pads_from: Some(table.pads_from.unwrap_or(table.code.start)),
            call_site_encoding: ULEB,
            call_sites,
            ..table.clone()
        };
        self.bytes.extend(moved.to_bytes()?);
        Some(at)
    }

    /// The common information entry for a routine, which is written once.
    fn common(&mut self, routine: Option<Routine>) -> Option<LinkAddr> {
        if let Some(known) = self.commons.get(&routine) {
            return Some(*known);
        }
        let at = self.next();
        let length_at = self.begin(0);
        self.bytes.push(1);
        self.bytes.extend(if routine.is_some() { &b"zPLR\0"[..] } else { b"zR\0" });
        // The factors of code and data, and the return address's column.
        self.bytes.extend([1, (rows::DATA_ALIGNMENT as u8) & 0x7f, RETURN_ADDRESS]);
        match routine {
            Some(Routine { address, is_indirect }) => {
                // The routine's encoding and address, and the encodings of tables and code.
                uleb(&mut self.bytes, 3 + WORD_BYTES);
                self.bytes.push(RELATIVE | if is_indirect { INDIRECT } else { 0 });
                self.distance_to(address)?;
                self.bytes.extend([RELATIVE, RELATIVE]);
            }
            None => self.bytes.extend([1, RELATIVE]),
        }
        self.bytes.extend(AT_ENTRY);
        self.end(length_at);
        self.commons.insert(routine, at);
        Some(at)
    }

    /// Writes a frame description entry.
    fn entry(&mut self, common: LinkAddr, described: &Described<'_>) -> Option<()> {
        let Described { stretch, rows, exceptions } = described;
        let back = self.next().0.wrapping_add(WORD_BYTES).wrapping_sub(common.0);
        let length_at = self.begin(u32::try_from(back).ok()?);
        self.distance_to(stretch.code.start)?;
        let len = u32::try_from(stretch.code.end.0.checked_sub(stretch.code.start.0)?).ok()?;
        self.bytes.extend(len.to_le_bytes());
        match exceptions {
            Some((_, table)) => {
                uleb(&mut self.bytes, WORD_BYTES);
                self.distance_to(*table)?;
            }
            None => uleb(&mut self.bytes, 0),
        }
        let (mut at, mut before) = (stretch.code.start, Row::at_entry());
        let mut last = None;
        for piece in stretch.pieces {
            let found = rows.partition_point(|(start, _)| *start <= piece.origin).checked_sub(1)?;
            if last.replace((found, piece.size, piece.lowered_bytes)) == Some((found, piece.size, piece.lowered_bytes))
            {
                continue;
            }
            let row = match piece.size {
                Size::AsAtHome => rows.get(found)?.1.clone(),
                Size::LargerBy(bytes) => rows.get(found)?.1.enlarged(bytes)?,
                Size::ReturnAddress => Row::at_entry(),
            };
            let row = row.lowered(piece.lowered_bytes);
            if row != before {
                advance(&mut self.bytes, u32::try_from(piece.at.0.checked_sub(at.0)?).ok()?);
                row.write_changes(&before, &mut self.bytes);
                (at, before) = (piece.at, row);
            }
        }
        self.end(length_at);
        Some(())
    }

    /// Begins an entry of `.eh_frame`; `id` is 0 or the distance back to the common one.
    fn begin(&mut self, id: u32) -> usize {
        let length_at = self.bytes.len();
        self.bytes.extend([0; WORD_BYTES as usize]);
        self.bytes.extend(id.to_le_bytes());
        length_at
    }

    /// Ends an entry, with `DW_CFA_nop` up to a multiple of four bytes.
    fn end(&mut self, length_at: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(WORD_BYTES as usize), 0);
        let len = (self.bytes.len() - length_at - WORD_BYTES as usize) as u32;
        if let Some(place) = self.bytes.get_mut(length_at..length_at + WORD_BYTES as usize) {
            place.copy_from_slice(&len.to_le_bytes());
        }
    }

    /// Writes `.eh_frame_hdr`, and tells where it begins.
    fn header(&mut self, frames: LinkAddr, index: &[(LinkAddr, LinkAddr)]) -> Option<u64> {
        self.align();
        let (header, offset) = (self.next(), self.bytes.len() as u64);
        self.bytes.extend([1, RELATIVE, COUNT_ENCODING, ROW_ENCODING]);
        self.distance_to(frames)?;
        self.bytes.extend(u32::try_from(index.len()).ok()?.to_le_bytes());
        for (code, entry) in index {
            self.bytes.extend(distance(header.0, code.0)?);
            self.bytes.extend(distance(header.0, entry.0)?);
        }
        Some(offset)
    }
}
