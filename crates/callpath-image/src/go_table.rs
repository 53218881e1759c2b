//! `.gopclntab`, Go's own table of a program's code (the names and types are those of Go's src/runtime/symtab.go): names, lines, and how
//! large the stack frame is at each instruction. It stays in stripped programs: the runtime walks stacks by it.
//!
//! Versions of Go 1.16, 1.18 and 1.20, which others up to now share. Work is bounded by the table's length.

use std::borrow::Cow;
use std::ops::Range;

use callpath_format::address::LinkAddr;

use crate::bytes::{Bytes, cstr_at};
use crate::elf::{Image, Section};

/// The table's names of sections: of an executable, of one that can lie anywhere.
const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];

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

/// An interval of code in which a value holds.
struct Interval {
    code: Range<u64>,
    value: i32,
}

impl Image {
    /// Go's own table of the code, if it has one: what stands in for call frame information and symbols where they are missing.
    pub fn go_table(&self) -> Option<Section<'_>> {
        SECTIONS.iter().find_map(|name| self.section(name))
    }
}

impl<'a> GoTable<'a> {
    /// That of an image, if it has one of a version that is known.
    pub(crate) fn of(image: &'a Image) -> Option<GoTable<'a>> {
        let section = image.go_table()?;
        let text = image.section(".text").map_or(0, |text| text.addr.0);
        GoTable::parse(section.data, text)
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

    fn procedure(&self, index: usize) -> Option<GoProcedure> {
        let (start, info) = self.entry(index)?;
        let end = self.start(index + 1).filter(|end| *end >= start)?;
        Some(GoProcedure { code: LinkAddr(start)..LinkAddr(end), info })
    }

    /// The procedure around an address.
    fn procedure_at(&self, addr: LinkAddr) -> Option<GoProcedure> {
        let (mut low, mut high) = (0, self.functions);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.start(middle)? <= addr.0 { low = middle + 1 } else { high = middle }
        }
        self.procedure(low.checked_sub(1)?).filter(|procedure| procedure.code.contains(&addr))
    }

    /// A number of what is said of a procedure: the `index`-th behind its entry address.
    fn number(&self, procedure: &GoProcedure, index: u64) -> Option<u32> {
        let entry_bytes = if self.version == Version::Go116 { 8 } else { 4 };
        self.bytes.u32_at(self.table.checked_add(procedure.info)?.checked_add(entry_bytes + 4 * index)?)
    }

    /// The name, as Go's linker writes it.
    pub(crate) fn name(&self, procedure: &GoProcedure) -> Option<&str> {
        const NAME: u64 = 0;
        let at = self.names.checked_add(self.number(procedure, NAME)?.into())?;
        let name = cstr_at(&self.bytes, at).filter(|name| !name.is_empty() && name.len() <= NAME_LEN_LIMIT)?;
        std::str::from_utf8(name).ok()
    }

    /// The source file and line of an address.
    pub(crate) fn line(&self, addr: LinkAddr) -> Option<(&str, u32)> {
        const FILE: u64 = 4;
        const LINE: u64 = 5;
        const UNIT: u64 = 7;
        let procedure = self.procedure_at(addr)?;
        let value = |table| {
            let mut intervals = self.intervals(&procedure, table)?;
            intervals.find(|interval| interval.code.contains(&addr.0)).map(|interval| interval.value)
        };
        let (file, line) = (u32::try_from(value(FILE)?).ok()?, u32::try_from(value(LINE)?).ok()?);
        let in_unit = u64::from(self.number(&procedure, UNIT)?) + u64::from(file);
        let at = self.bytes.u32_at(self.units.checked_add(4 * in_unit)?).filter(|at| *at != u32::MAX)?;
        let name = cstr_at(&self.bytes, self.files.checked_add(at.into())?)?;
        Some((std::str::from_utf8(name).ok().filter(|name| name.len() <= NAME_LEN_LIMIT)?, line))
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
            assert!(procedures <= bytes.len() && names <= procedures * NAME_LEN_LIMIT && lines <= 64);
            assert!(table.call_frames().len() <= AMPLIFICATION * bytes.len() + (1 << 16));
        }
    }
}
