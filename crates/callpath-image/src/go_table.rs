//! `.gopclntab`, Go's own table of a program's code (the names and types are those of Go's src/runtime/symtab.go): names, lines, and how
//! large the stack frame is at each instruction. It stays in stripped programs: the runtime walks stacks by it.
//!
//! Versions of Go 1.16, 1.18 and 1.20, which others up to now share. Work is bounded by the table's length.

use std::borrow::Cow;
use std::ops::Range;

use callpath_format::address::LinkAddr;

use crate::bytes::{Bytes, cstr_at};
use rustc_hash::FxHashMap;

use crate::elf::{Image, Section};
use crate::go_place::GoPlace;
use crate::headers::Segment;
use crate::loading::Loading;

/// The table's names of sections: of an executable, of one that can lie anywhere.
const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];
/// Where it is without a section of its own: The external linker puts it there in position-independent programs.
const AMONG_OTHERS: &str = ".data.rel.ro";
/// Go programs have one of these.
const SECTIONS_OF_GO: [&str; 2] = [".go.buildinfo", ".note.go.buildid"];
/// How the table begins, behind its first byte, which the version decides.
const HEAD: [u8; 7] = [0xff, 0xff, 0xff, 0, 0, 1, 8];

/// No name is longer.
const NAME_LEN_LIMIT: usize = 1 << 16;

/// Rows of all procedures' frames together are no more than the table's bytes times this.
const AMPLIFICATION: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Go116,
    Go118,
    Go120,
}

/// The table of an image.
pub(crate) struct GoTable<'a> {
    bytes: Cow<'a, [u8]>,
    version: Version,
    functions: usize,
    /// What entries count from.
    text: u64,
    names: u64,
    units: u64,
    files: u64,
    values: u64,
    /// Entries of procedures, and what is said of each.
    table: u64,
}

/// A procedure.
pub(crate) struct GoProcedure {
    pub(crate) code: Range<LinkAddr>,
    /// Where it is described, from [`GoTable::table`].
    info: u64,
}

/// A call that was inlined.
pub(crate) struct GoInlinedCall<'t> {
    /// What was called.
    pub(crate) name: &'t str,
    /// Offset, from the procedure's start, of an instruction that has the call's line; bytes.
    pub(crate) called_at: u32,
    /// Index of the enclosing call in the tree; negative: the procedure itself. `None` (from Go 1.20 on): the call that the instruction
    /// at [`GoInlinedCall::called_at`] belongs to.
    pub(crate) parent: Option<i32>,
    /// The call's file and line, where the tree has them.
    pub(crate) site: Option<(&'t str, u32)>,
    /// The line that what was called begins in, from Go 1.20 on.
    pub(crate) start_line: Option<u32>,
}

/// The tables of values of every procedure, and how many further ones it has, as [`GoTable::number`]s.
const FILES: u64 = 4;
const LINES: u64 = 5;
const TABLES: u64 = 6;

/// An interval of code in which a value holds.
struct Interval {
    code: Range<u64>,
    value: i32,
}

impl Image {
    /// Where Go's own table is, if it has one.
    fn go_place(&self) -> Option<&GoPlace> {
        self.go_place.get_or_init(|| GoPlace::find(self)).as_ref()
    }

    /// Go's own table of the code, if it has one: what stands in for call frame information and symbols where they are missing.
    /// Where it has no section of its own, it reaches up to the end of what it is in.
    pub fn go_table(&self) -> Option<Section<'_>> {
        let place = self.go_place()?;
        let (addr, data) = place.bytes(self)?;
        Some(Section { name: place.section, addr, data: Cow::Borrowed(data), executable: false })
    }
}

impl GoPlace {
    fn find(image: &Image) -> Option<GoPlace> {
        let named = SECTIONS.iter().find(|name| image.plain_section(name).is_some());
        let mut place = match named {
            Some(section) => GoPlace { section, offset: 0, text: 0 },
            None if SECTIONS_OF_GO.iter().any(|name| image.section(name).is_some()) => GoPlace::among_others(image)?,
            None => return None,
        };
        let (addr, bytes) = place.bytes(image)?;
        let table = GoTable::parse(Cow::Borrowed(bytes), 0)?;
        if table.lacks_text() {
            let text = table.text_in_record(image, addr);
            place.text = text.or_else(|| Some(image.plain_section(".text")?.0.0)).unwrap_or(0);
        }
        Some(place)
    }

    fn among_others(image: &Image) -> Option<GoPlace> {
        const ALIGNMENT: u64 = 8;
        let (start, bytes) = image.plain_section(AMONG_OTHERS)?;
        let executable = image.executable_ranges();
        let is_table = |offset: &usize| {
            let table = bytes.get(*offset..).and_then(|bytes| GoTable::parse(Cow::Borrowed(bytes), 0));
            let names_code = |table: GoTable<'_>| {
                table.lacks_text() || table.procedure(0).is_some_and(|first| is_in(&executable, first.code.start))
            };
            start.0.wrapping_add(*offset as u64).is_multiple_of(ALIGNMENT) && table.is_some_and(names_code)
        };
        let offset = memchr::memmem::find_iter(bytes, &HEAD).filter_map(|at| at.checked_sub(1)).find(is_table)?;
        Some(GoPlace { section: AMONG_OTHERS, offset, text: 0 })
    }

    /// Its address, and all bytes from there to the end of the section.
    fn bytes<'i>(&self, image: &'i Image) -> Option<(LinkAddr, &'i [u8])> {
        let (start, bytes) = image.plain_section(self.section)?;
        Some((LinkAddr(start.0.checked_add(self.offset as u64)?), bytes.get(self.offset..)?))
    }
}

fn is_in(ranges: &[Range<LinkAddr>], addr: LinkAddr) -> bool {
    ranges.iter().any(|range| range.contains(&addr))
}

impl<'a> GoTable<'a> {
    /// That of an image, if it has one of a version that is known.
    pub(crate) fn of(image: &'a Image) -> Option<GoTable<'a>> {
        let place = image.go_place()?;
        GoTable::parse(Cow::Borrowed(place.bytes(image)?.1), place.text)
    }

    /// `text`: where code begins, for tables that a loader writes it into.
    fn parse(bytes: Cow<'a, [u8]>, text: u64) -> Option<GoTable<'a>> {
        const WORD: u64 = 8;
        let version = match bytes.u32_at(0)? {
            0xffff_fffa => Version::Go116,
            0xffff_fff0 => Version::Go118,
            0xffff_fff1 => Version::Go120,
            _ => return None,
        };
        // Two zeros, the least length of an instruction, that of a pointer.
        if bytes.slice(4, 4)? != [0, 0, 1, WORD as u8] {
            return None;
        }
        let word = |index: u64| bytes.u64_at(8 + WORD * index);
        let functions = usize::try_from(word(0)?).ok()?;
        let first = if version == Version::Go116 { 2 } else { 3 };
        let own_text = if version == Version::Go116 { 0 } else { word(2)? };
        let [names, units, files, values, table] = [0, 1, 2, 3, 4].map(|index| word(first + index));
        let (names, units, files, values, table) = (names?, units?, files?, values?, table?);
        let text = if version == Version::Go116 || own_text != 0 { own_text } else { text };
        let found = GoTable { version, functions, text, names, units, files, values, table, bytes };
        // Each procedure has an entry there.
        (functions as u64).checked_mul(found.entry_bytes()).filter(|len| *len < found.bytes.len() as u64)?;
        Some(found)
    }

    /// Whether it leaves it to others to say where code begins.
    fn lacks_text(&self) -> bool {
        self.version != Version::Go116 && self.text == 0
    }

    fn entry_bytes(&self) -> u64 {
        if self.version == Version::Go116 { 16 } else { 8 }
    }

    /// An entry's first address, and where its procedure is described.
    fn entry(&self, index: usize) -> Option<(u64, u64)> {
        let at = self.table.checked_add(self.entry_bytes() * index as u64)?;
        if self.version == Version::Go116 {
            return Some((self.bytes.u64_at(at)?, self.bytes.u64_at(at + 8)?));
        }
        let (start, info) = (self.bytes.u32_at(at)?, self.bytes.u32_at(at + 4)?);
        Some((self.text.wrapping_add(start.into()), info.into()))
    }

    /// The address at which the last procedure ends, too.
    fn start(&self, index: usize) -> Option<u64> {
        let at = self.table.checked_add(self.entry_bytes() * index as u64)?;
        if self.version == Version::Go116 {
            return self.bytes.u64_at(at);
        }
        Some(self.text.wrapping_add(self.bytes.u32_at(at)?.into()))
    }

    /// All procedures, in order of address.
    pub(crate) fn procedures(&self) -> impl Iterator<Item = GoProcedure> {
        (0..self.functions).map_while(|index| self.procedure(index))
    }

    pub(crate) fn procedure(&self, index: usize) -> Option<GoProcedure> {
        let (start, info) = self.entry(index)?;
        let end = self.start(index + 1).filter(|end| *end >= start)?;
        Some(GoProcedure { code: LinkAddr(start)..LinkAddr(end), info })
    }

    /// The procedure around an address.
    fn procedure_at(&self, addr: LinkAddr) -> Option<GoProcedure> {
        self.procedure(self.index_at(addr)?)
    }

    /// Its index.
    pub(crate) fn index_at(&self, addr: LinkAddr) -> Option<usize> {
        let (mut low, mut high) = (0, self.functions);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.start(middle)? <= addr.0 { low = middle + 1 } else { high = middle }
        }
        let index = low.checked_sub(1)?;
        self.procedure(index).filter(|procedure| procedure.code.contains(&addr)).map(|_| index)
    }

    /// A number of what is said of a procedure: the `index`-th behind its entry address.
    fn number(&self, procedure: &GoProcedure, index: u64) -> Option<u32> {
        let entry_bytes = if self.version == Version::Go116 { 8 } else { 4 };
        self.bytes.u32_at(self.table.checked_add(procedure.info)?.checked_add(entry_bytes + 4 * index)?)
    }

    /// The name, as Go's linker writes it.
    pub(crate) fn name(&self, procedure: &GoProcedure) -> Option<&str> {
        const NAME: u64 = 0;
        self.name_at(self.number(procedure, NAME)?)
    }

    fn name_at(&self, offset: u32) -> Option<&str> {
        self.text_at(self.names.checked_add(offset.into())?).filter(|name| !name.is_empty())
    }

    fn text_at(&self, at: u64) -> Option<&str> {
        let rest = self.bytes.get(usize::try_from(at).ok()?..)?;
        let text = cstr_at(rest.get(..=NAME_LEN_LIMIT).unwrap_or(rest), 0)?;
        std::str::from_utf8(text).ok()
    }

    /// The source file and line of an address.
    pub(crate) fn line(&self, addr: LinkAddr) -> Option<(&str, u32)> {
        let procedure = self.procedure_at(addr)?;
        let value = |table| {
            let mut intervals = self.intervals(&procedure, table)?;
            intervals.find(|interval| interval.code.contains(&addr.0)).map(|interval| interval.value)
        };
        Some((self.file(&procedure, value(FILES)?)?, u32::try_from(value(LINES)?).ok()?))
    }

    /// The source file and line of each range of a procedure's code, ascending; without those of which nothing is known.
    pub(crate) fn lines(&self, procedure: &GoProcedure) -> impl Iterator<Item = (Range<LinkAddr>, &str, u32)> {
        let mut files = self.intervals(procedure, FILES).into_iter().flatten().peekable();
        let mut lines = self.intervals(procedure, LINES).into_iter().flatten().peekable();
        let mut at = procedure.code.start.0;
        let mut known: FxHashMap<i32, Option<&str>> = FxHashMap::default();
        std::iter::from_fn(move || {
            loop {
                let (file, line) = (files.peek()?, lines.peek()?);
                let end = file.code.end.min(line.code.end);
                let code = LinkAddr(at)..LinkAddr(end);
                let path = *known.entry(file.value).or_insert_with(|| self.file(procedure, file.value));
                let found = path.zip(u32::try_from(line.value).ok()).filter(|_| at < end);
                at = end;
                files.next_if(|file| file.code.end <= at);
                lines.next_if(|line| line.code.end <= at);
                if let Some((path, line)) = found {
                    return Some((code, path, line));
                }
            }
        })
    }

    /// A file by its number in a procedure's unit.
    fn file(&self, procedure: &GoProcedure, number: i32) -> Option<&str> {
        const UNIT: u64 = 7;
        let in_unit = u64::from(self.number(procedure, UNIT)?) + u64::from(u32::try_from(number).ok()?);
        let at = self.bytes.u32_at(self.units.checked_add(4 * in_unit)?).filter(|at| *at != u32::MAX)?;
        self.text_at(self.files.checked_add(at.into())?)
    }

    /// Where in the image trees of inlined calls are: what offsets of them count from (`go:func.*`). Only the runtime's record of the program
    /// says it. `None`: an older Go, or there is no record.
    pub(crate) fn inlined_calls(&self, image: &Image) -> Option<LinkAddr> {
        let place = match self.version {
            Version::Go116 => return None,
            Version::Go118 => 304,
            Version::Go120 => 320,
        };
        let (own, _) = image.go_place()?.bytes(image)?;
        let trees = LinkAddr(self.in_record(image, own, place)?);
        let holds =
            |segment: &Segment| !segment.executable && segment.vaddr <= trees && image.bytes_from(trees).is_some();
        image.segments().iter().any(holds).then_some(trees)
    }

    /// Where code begins, by the same record.
    fn text_in_record(&self, image: &Image, own: LinkAddr) -> Option<u64> {
        const TEXT: u64 = 176;
        let text = self.in_record(image, own, TEXT)?;
        is_in(&image.executable_ranges(), LinkAddr(text)).then_some(text)
    }

    /// A word of the runtime's record of the program (`moduledata`), which begins with the addresses of this table (`own`) and of its names.
    fn in_record(&self, image: &Image, LinkAddr(own): LinkAddr, place: u64) -> Option<u64> {
        let loading = Loading::of(image);
        let relocated = |slot: u64| {
            let at = loading.pointers.binary_search_by_key(&slot, |(slot, _)| slot.0).ok()?;
            loading.pointers.get(at).map(|(_, to)| to.0)
        };
        let word = |slot: u64| relocated(slot).or_else(|| image.bytes_at(LinkAddr(slot), 8)?.u64_at(0));
        let is_record = |slot: &u64| word(slot.saturating_add(8)) == Some(own.wrapping_add(self.names));
        let slots = loading.pointers.iter().filter(|(_, to)| to.0 == own).map(|(slot, _)| slot.0);
        let record = slots.chain(words_in(image, own)).find(is_record)?;
        word(record.checked_add(place)?)
    }

    /// Of each range of a procedure's code, the innermost inlined call that it belongs to, as an index of its tree: ascending, without gaps.
    pub(crate) fn inlined(&self, procedure: &GoProcedure) -> impl Iterator<Item = (Range<LinkAddr>, Option<u32>)> {
        const TREE: u64 = 2;
        let count = self.number(procedure, TABLES).unwrap_or(0);
        let table = (TREE < count.into()).then(|| self.first_table() + TREE);
        let intervals = table.and_then(|table| self.intervals(procedure, table)).into_iter().flatten();
        intervals.map(|Interval { code, value }| (LinkAddr(code.start)..LinkAddr(code.end), u32::try_from(value).ok()))
    }

    /// An inlined call of a procedure. `trees`: see [`GoTable::inlined_calls`].
    pub(crate) fn inlined_call(
        &self,
        image: &Image,
        trees: LinkAddr,
        (procedure, index): (&GoProcedure, u32),
    ) -> Option<GoInlinedCall<'_>> {
        const TREE: u64 = 3;
        let (tables, data) = (self.number(procedure, TABLES)?, self.number(procedure, self.first_table() - 1)? >> 24);
        let offset = self.number(procedure, self.first_table() + u64::from(tables) + TREE);
        let offset = offset.filter(|offset| TREE < data.into() && *offset != u32::MAX)?;
        let tree = trees.0.checked_add(offset.into())?;
        let len = if self.version == Version::Go120 { 16 } else { 20 };
        let entry = image.bytes_at(LinkAddr(tree.checked_add(len * u64::from(index))?), len as usize)?;
        let number = |at| entry.u32_at(at);
        let len_bytes = procedure.code.end.0 - procedure.code.start.0;
        let called_at = |at| number(at).filter(|called_at| u64::from(*called_at) < len_bytes);
        if self.version == Version::Go120 {
            // What it is for the runtime, the name, where it is called, the line that it begins in.
            let (name, called_at) = (self.name_at(number(4)?)?, called_at(8)?);
            return Some(GoInlinedCall { name, called_at, parent: None, site: None, start_line: number(12) });
        }
        // The call around it, what it is for the runtime, file and line of the call, the name, where it is called.
        let (name, called_at) = (self.name_at(number(12)?)?, called_at(16)?);
        let site = self.file(procedure, number(4)? as i32).zip(number(8));
        let parent = Some(i32::from(entry.u16_at(0)? as i16));
        Some(GoInlinedCall { name, called_at, parent, site, start_line: None })
    }

    /// The line that a procedure begins in, from Go 1.20 on.
    pub(crate) fn start_line(&self, procedure: &GoProcedure) -> Option<u32> {
        const START_LINE: u64 = 8;
        if self.version == Version::Go120 { self.number(procedure, START_LINE) } else { None }
    }

    /// Index of the first further table of a procedure, for [`GoTable::number`].
    fn first_table(&self) -> u64 {
        if self.version == Version::Go120 { 10 } else { 9 }
    }

    /// What a table of values says of a procedure's code: differences of values and of addresses in turn.
    fn intervals(&self, procedure: &GoProcedure, table: u64) -> Option<impl Iterator<Item = Interval>> {
        let offset = self.number(procedure, table).filter(|offset| *offset != 0)?;
        let mut at = self.values.checked_add(offset.into())?;
        let (mut value, mut start, end) = (-1i32, procedure.code.start.0, procedure.code.end.0);
        let mut is_first = true;
        Some(std::iter::from_fn(move || {
            let zigzag = self.varint(&mut at)?;
            if (zigzag == 0 && !is_first) || start >= end {
                return None;
            }
            is_first = false;
            let difference = (zigzag >> 1) as i32 ^ -((zigzag & 1) as i32);
            value = value.wrapping_add(difference);
            let until = start.checked_add(self.varint(&mut at)?.into()).filter(|until| *until > start)?.min(end);
            let interval = Interval { code: start..until, value };
            start = until;
            Some(interval)
        }))
    }

    fn varint(&self, at: &mut u64) -> Option<u32> {
        let mut value = 0u32;
        for shift in (0..35).step_by(7) {
            let byte = *self.bytes.get(usize::try_from(*at).ok()?)?;
            *at += 1;
            value |= u32::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// The same as a `.debug_frame` section (DWARF 5, section 6.4), as Go's linker makes it of the same numbers: from the stack pointer,
    /// the frame's length leads to the return address.
    pub(crate) fn call_frames(&self) -> Vec<u8> {
        const FRAME: u64 = 3;
        let mut section = CIE.to_vec();
        let most = self.bytes.len().saturating_mul(AMPLIFICATION);
        for procedure in self.procedures() {
            let Some(intervals) = self.intervals(&procedure, FRAME) else { continue };
            let (start, len) = (procedure.code.start.0, procedure.code.end.0 - procedure.code.start.0);
            let mut program = Vec::new();
            let mut at = start;
            for Interval { code, value } in intervals {
                let Ok(frame) = u32::try_from(value) else { break };
                push_advance(&mut program, code.start - at);
                at = code.start;
                program.push(DEF_CFA_OFFSET);
                push_uleb(&mut program, u64::from(frame) + RETURN_ADDRESS_BYTES);
            }
            const HEAD: usize = 4 + 8 + 8;
            section.extend(((HEAD + program.len()) as u32).to_le_bytes());
            section.extend(0u32.to_le_bytes());
            section.extend(start.to_le_bytes());
            section.extend(len.to_le_bytes());
            section.extend(program);
            if section.len() > most {
                break;
            }
        }
        section
    }
}

/// Where an image's data have a word, aligned to its length.
fn words_in(image: &Image, word: u64) -> impl Iterator<Item = u64> {
    let wanted = word.to_le_bytes();
    let data = image.segments().iter().filter(|segment| !segment.executable);
    let data = data.filter_map(|segment| Some((segment.vaddr.0, image.bytes_from(segment.vaddr)?)));
    let words = data.flat_map(|(start, bytes)| {
        let at = move |(index, bytes)| Some((start.checked_add(8 * index as u64)?, bytes));
        bytes.chunks_exact(8).enumerate().map_while(at)
    });
    // Segments may overlap.
    let most = usize::try_from(image.file_len() / 4).unwrap_or(usize::MAX);
    words.take(most).filter(move |(_, bytes)| **bytes == wanted).map(|(at, _)| at)
}

const RETURN_ADDRESS_BYTES: u64 = 8;
const DEF_CFA_OFFSET: u8 = 0x0e;

/// Code is aligned to 1, data to -8; the return address is register 16. The CFA is rsp + 8 at first, and the return address below it.
const CIE: [u8; 24] = [
    20, 0, 0, 0, // length
    0xff, 0xff, 0xff, 0xff, // it is a CIE
    3,    // version
    0,    // no augmentation
    1,    // code alignment
    0x78, // data alignment, -8
    16,   // return address
    0x0c, 7, 8, // DW_CFA_def_cfa rsp, 8
    0x90, 1, // DW_CFA_offset 16, 1
    0, 0, 0, 0, 0, 0,
];

fn push_advance(program: &mut Vec<u8>, by: u64) {
    match by {
        0 => {}
        1..0x40 => program.push(0x40 | by as u8),
        0x40..0x100 => program.extend([0x02, by as u8]),
        0x100..0x1_0000 => {
            program.push(0x03);
            program.extend((by as u16).to_le_bytes());
        }
        _ => {
            program.push(0x04);
            program.extend((by as u32).to_le_bytes());
        }
    }
}

fn push_uleb(program: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        program.push(value as u8 | 0x80);
        value >>= 7;
    }
    program.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cfi::{CallFrames, CfiInput};
    use callpath_format::recipe::Recipe;

    const TEXT: u64 = 0x40_1000;

    /// A table of Go 1.18 with two procedures: `main.f` of 32 bytes with a frame of 24 behind its fourth byte, on lines 7 and 9 of
    /// a.go; `main.g` of 16 bytes without a frame.
    fn table() -> Vec<u8> {
        let mut bytes = vec![0xf0, 0xff, 0xff, 0xff, 0, 0, 1, 8];
        let parts: [&[u8]; 4] = [
            b"main.f\0main.g\0",
            // The unit's files: where their names are.
            &[0, 0, 0, 0],
            b"a.go\0",
            // Nothing; f's frame: 0 for 4, then 24; its file: the first; its lines: 7 for 8, then 9; g's frame: 0.
            &[0, 2, 4, 48, 28, 0, 2, 32, 0, 16, 8, 4, 24, 0, 2, 16, 0],
        ];
        let head = 8 + 8 * 8;
        let mut at = head as u64;
        let mut offsets = Vec::new();
        for part in parts {
            offsets.push(at);
            at += part.len() as u64;
        }
        offsets.push(at);
        for word in [2, 1, TEXT].into_iter().chain(offsets) {
            bytes.extend(word.to_le_bytes());
        }
        parts.into_iter().for_each(|part| bytes.extend(part));
        // Entries, the end, then what is said of each.
        let entries = 2 * 8 + 4;
        let info = |which: u32| entries + 44 * which;
        for word in [0, info(0), 32, info(1), 48] {
            bytes.extend(word.to_le_bytes());
        }
        // Entry, name, arguments, deferreturn, frames, files, lines, number of further tables, unit.
        for words in [[0u32, 0, 0, 0, 1, 6, 9, 0, 0, 0, 0], [32, 7, 0, 0, 14, 0, 0, 0, 0, 0, 0]] {
            words.into_iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        }
        bytes
    }

    fn parsed(bytes: &[u8]) -> Option<GoTable<'_>> {
        GoTable::parse(Cow::Borrowed(bytes), 0)
    }

    #[test]
    fn names_and_lines() {
        let bytes = table();
        let table = parsed(&bytes).expect("a table");
        let found: Vec<_> =
            table.procedures().map(|p| (p.code.start.0, p.code.end.0, table.name(&p).unwrap().to_owned())).collect();
        assert_eq!(found, [(TEXT, TEXT + 32, "main.f".into()), (TEXT + 32, TEXT + 48, "main.g".into())]);
        let line = |offset| table.line(LinkAddr(TEXT + offset));
        assert_eq!(
            (line(0), line(7), line(8), line(31)),
            (Some(("a.go", 7)), Some(("a.go", 7)), Some(("a.go", 9)), Some(("a.go", 9)))
        );
        assert_eq!((line(32), line(48), table.line(LinkAddr(TEXT - 1))), (None, None, None));
        let runs = |index| table.lines(&table.procedure(index).unwrap()).collect::<Vec<_>>();
        let at = |offset| LinkAddr(TEXT + offset);
        assert_eq!((runs(0), runs(1)), (vec![(at(0)..at(8), "a.go", 7), (at(8)..at(32), "a.go", 9)], vec![]));
    }

    #[test]
    fn frames_as_call_frame_information() {
        let bytes = table();
        let section = parsed(&bytes).expect("a table").call_frames();
        let code = [LinkAddr(TEXT)..LinkAddr(TEXT + 48)];
        let frames = CallFrames::read(&CfiInput { debug_frame: Some(&section), code: &code, ..CfiInput::default() });
        assert_eq!((frames.diagnostics.len(), frames.ranges.len()), (0, 2), "{frames:?}");
        let rows = |index: usize| -> Vec<(u64, &Recipe)> {
            let rows = frames.rows_of(&frames.ranges[index]).iter();
            rows.map(|row| (row.start.0 - TEXT, &frames.recipes[row.recipe as usize])).collect()
        };
        let [(0, at_entry), (4, with_frame)] = rows(0)[..] else { panic!("{:?}", rows(0)) };
        assert_eq!(rows(1), [(32, at_entry)]);
        assert!(format!("{at_entry:?}").contains('8') && format!("{with_frame:?}").contains("32"), "{frames:?}");
    }

    #[test]
    fn any_bytes_are_read_without_harm() {
        let good = table();
        let mut seed = 7u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize
        };
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..1 + next() % 4 {
                let at = next() % bytes.len();
                bytes[at] = [0, 0xff, next() as u8][next() % 3];
            }
            bytes.truncate(bytes.len() - next() % 8);
            let Some(table) = parsed(&bytes) else { continue };
            let procedures = table.procedures().count();
            let names: usize = table.procedures().filter_map(|p| table.name(&p).map(str::len)).sum();
            let lines = (0..64).filter(|offset| table.line(LinkAddr(TEXT + offset)).is_some()).count();
            let runs: usize = table.procedures().map(|p| table.lines(&p).count() + table.inlined(&p).count()).sum();
            assert!(runs <= 4 * procedures * bytes.len());
            assert!(procedures <= bytes.len() && names <= procedures * NAME_LEN_LIMIT && lines <= 64);
            assert!(table.call_frames().len() <= AMPLIFICATION * bytes.len() + (1 << 16));
        }
    }
}
