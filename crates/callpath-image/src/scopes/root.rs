//! The first entry of a unit: what all other entries are read by.
//!
//! gimli's own reading of it also parses the line program's header, and gives the unit up where that
//! is broken. Here also the headers of the tables that a unit's entries index are looked at: wrong
//! names and addresses are worse than none.

use std::sync::Arc;

use gimli::{
    Abbreviations, AttributeValue, DebugAddrBase, DebugLineOffset, DebugLocListsBase, DebugRngListsBase,
    DebugStrOffsetsBase, Dwarf, Section, UnitHeader, UnitType, constants,
};

use super::unit::Language;
use crate::bytes::Bytes;
use crate::code_ranges::CodeAttributes;
use crate::dwarf::{Home, Reader};

/// A unit whose entries can be read.
pub(crate) struct UnitRoot<'a> {
    /// gimli's view, without a line program.
    pub(crate) unit: gimli::Unit<Reader<'a>>,
    pub(super) home: Home,
    /// Where it begins in its section.
    pub(super) start: usize,
    /// Where its line program, or that of its skeleton, begins in the main file's section (the supplement's own).
    pub(crate) line_offset: Option<DebugLineOffset>,
    pub(super) language: Language,
    /// Made by a compiler of GCC's.
    pub(super) is_gcc: bool,
    pub(super) dwo_name: Option<Reader<'a>>,
    /// The compiler, in its own words.
    pub(super) producer: Option<Reader<'a>>,
    /// All of its code.
    pub(crate) code: CodeAttributes<'a>,
    /// What it refers to and cannot be used.
    pub(super) odd: Vec<String>,
}

/// Reads the first entry of a unit.
pub(crate) fn read_root<'a>(
    dwarf: &Dwarf<Reader<'a>>,
    home: Home,
    header: UnitHeader<Reader<'a>>,
    abbreviations: Arc<Abbreviations>,
) -> Result<UnitRoot<'a>, gimli::Error> {
    let (encoding, file_type) = (header.encoding(), dwarf.file_type);
    let start = header.offset().0;
    let dwo_id = match header.type_() {
        UnitType::Skeleton(id) | UnitType::SplitCompilation(id) => Some(id),
        _ => None,
    };
    let unit = gimli::Unit {
        header,
        abbreviations,
        name: None,
        comp_dir: None,
        low_pc: 0,
        str_offsets_base: DebugStrOffsetsBase::default_for_encoding_and_file(encoding, file_type),
        addr_base: DebugAddrBase(0),
        loclists_base: DebugLocListsBase::default_for_encoding_and_file(encoding, file_type),
        rnglists_base: DebugRngListsBase::default_for_encoding_and_file(encoding, file_type),
        line_program: None,
        dwo_id,
    };
    let mut root = UnitRoot {
        unit,
        home,
        start,
        line_offset: None,
        language: Language::default(),
        is_gcc: false,
        dwo_name: None,
        producer: None,
        code: CodeAttributes::default(),
        odd: Vec::new(),
    };
    let unit = &mut root.unit;
    let (mut name, mut comp_dir, mut dwo_name, mut producer) = (None, None, None, None);
    let abbreviations = Arc::clone(&unit.abbreviations);
    let mut entries = unit.header.entries_raw(&abbreviations, None)?;
    let abbreviation = entries.read_abbreviation()?.ok_or(gimli::Error::MissingUnitDie)?;
    for spec in abbreviation.attributes() {
        let attribute = entries.read_attribute(*spec)?;
        match (attribute.name(), attribute.value()) {
            (constants::DW_AT_name, value) => name = Some(value),
            (constants::DW_AT_comp_dir, value) => comp_dir = Some(value),
            (constants::DW_AT_dwo_name | constants::DW_AT_GNU_dwo_name, value) => dwo_name = Some(value),
            (constants::DW_AT_producer, value) => producer = Some(value),
            (constants::DW_AT_low_pc, value) => root.code.low = Some(value),
            (constants::DW_AT_high_pc, value) => root.code.high = Some(value),
            (constants::DW_AT_ranges, value) => root.code.ranges = Some(value),
            (constants::DW_AT_stmt_list, AttributeValue::DebugLineRef(offset)) => root.line_offset = Some(offset),
            (constants::DW_AT_language, AttributeValue::Language(language)) => root.language = Language(language.0),
            (constants::DW_AT_str_offsets_base, AttributeValue::DebugStrOffsetsBase(base)) => {
                unit.str_offsets_base = base;
            }
            (constants::DW_AT_addr_base | constants::DW_AT_GNU_addr_base, AttributeValue::DebugAddrBase(base)) => {
                unit.addr_base = base;
            }
            (
                constants::DW_AT_rnglists_base | constants::DW_AT_GNU_ranges_base,
                AttributeValue::DebugRngListsBase(base),
            ) => unit.rnglists_base = base,
            (constants::DW_AT_GNU_dwo_id, AttributeValue::DwoId(id)) => unit.dwo_id = unit.dwo_id.or(Some(id)),
            _ => {}
        }
    }
    if encoding.version >= 5 {
        let mut check = |table: &'static str, bytes: &[u8], base: &mut usize, header_len: usize| {
            if let Err((why, is_cut)) = check_header(bytes, *base, header_len) {
                root.odd.push(format!("its part of {table} begins at {:#x}, but {why}", *base));
                // Whatever is looked up there is not there.
                *base = if is_cut { *base } else { usize::MAX };
            }
        };
        let is_named = |name: constants::DwAt| abbreviation.attributes().iter().any(|spec| spec.name() == name);
        if is_named(constants::DW_AT_str_offsets_base) {
            let bytes = dwarf.debug_str_offsets.reader().slice();
            check(".debug_str_offsets", bytes, &mut unit.str_offsets_base.0, 8);
        }
        if is_named(constants::DW_AT_addr_base) {
            check(".debug_addr", dwarf.debug_addr.reader().slice(), &mut unit.addr_base.0, 8);
        }
        if is_named(constants::DW_AT_rnglists_base) {
            let bytes = dwarf.ranges.debug_rnglists().reader().slice();
            check(".debug_rnglists", bytes, &mut unit.rnglists_base.0, 12);
        }
    }
    // What these say may be broken; the unit is of use without.
    let text = |unit: &gimli::Unit<Reader<'a>>, value: Option<_>| dwarf.attr_string(unit, value?).ok();
    unit.name = text(unit, name);
    unit.comp_dir = text(unit, comp_dir);
    root.dwo_name = text(unit, dwo_name);
    root.producer = text(unit, producer);
    root.is_gcc = root.producer.is_some_and(|name| name.slice().starts_with(b"GNU "));
    if let Some(low_pc) = root.code.low {
        unit.low_pc = dwarf.attr_address(unit, low_pc).ok().flatten().unwrap_or(0);
    }
    Ok(root)
}

/// Looks at the header in front of `base` (DWARF 5, sections 7.26 to 7.28): a length, then the version. In
/// 64-bit DWARF the upper half of the length stands where the length is looked for, and is 0. An error says
/// why, and whether only the end is missing.
fn check_header(bytes: &[u8], base: usize, header_len: usize) -> Result<(), (String, bool)> {
    let header = base.checked_sub(header_len).and_then(|start| bytes.get(start..));
    let field = |at: u64| header?.u16_at(at);
    let (Some(len), Some(version)) = (header.and_then(|header| header.u32_at(0)), field(4)) else {
        return Err((format!("the section has {} bytes", bytes.len()), false));
    };
    let room = bytes.len().saturating_sub(base).saturating_add(header_len - 4);
    match () {
        () if version != 5 => Err((format!("its header has version {version}"), false)),
        () if len as usize > room => Err((format!("its header claims {len} bytes, of which {room} are there"), true)),
        () => Ok(()),
    }
}
