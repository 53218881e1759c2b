//! The first entry of a unit: what all other entries are read by.
//! Knows nothing of the other entries.
//!
//! gimli's own reading of it also parses the line program's header, and gives the unit up where that is broken.

use std::sync::Arc;

use gimli::{
    Abbreviations, AttributeValue, DebugAddrBase, DebugLineOffset, DebugLocListsBase, DebugRngListsBase,
    DebugStrOffsetsBase, Dwarf, UnitHeader, UnitType, constants,
};

use super::Home;
use super::unit::Language;
use crate::dwarf::Reader;

/// A unit whose entries can be read.
pub(super) struct UnitRoot<'a> {
    /// gimli's view, without a line program.
    pub(super) unit: gimli::Unit<Reader<'a>>,
    pub(super) home: Home,
    /// Where it begins in its section.
    pub(super) start: usize,
    /// Where its line program, or that of its skeleton, begins in the main file's section (the supplement's own).
    pub(super) line_offset: Option<DebugLineOffset>,
    pub(super) language: Language,
    /// Made by a compiler of GCC's.
    pub(super) is_gcc: bool,
    pub(super) dwo_name: Option<Reader<'a>>,
}

/// Reads the first entry of a unit.
pub(super) fn read_root<'a>(
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
    let language = Language::default();
    let mut root = UnitRoot { unit, home, start, line_offset: None, language, is_gcc: false, dwo_name: None };
    let unit = &mut root.unit;
    let (mut name, mut comp_dir, mut dwo_name, mut low_pc, mut producer) = (None, None, None, None, None);
    let abbreviations = Arc::clone(&unit.abbreviations);
    let mut entries = unit.header.entries_raw(&abbreviations, None)?;
    let abbreviation = entries.read_abbreviation()?.ok_or(gimli::Error::MissingUnitDie)?;
    for spec in abbreviation.attributes() {
        let attribute = entries.read_attribute(*spec)?;
        match (attribute.name(), attribute.value()) {
            (constants::DW_AT_name, value) => name = Some(value),
            (constants::DW_AT_comp_dir, value) => comp_dir = Some(value),
            (constants::DW_AT_dwo_name | constants::DW_AT_GNU_dwo_name, value) => dwo_name = Some(value),
            (constants::DW_AT_low_pc, value) => low_pc = Some(value),
            (constants::DW_AT_producer, value) => producer = Some(value),
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
    // What these say may be broken; the unit is of use without.
    let text = |unit: &gimli::Unit<Reader<'a>>, value: Option<_>| dwarf.attr_string(unit, value?).ok();
    unit.name = text(unit, name);
    unit.comp_dir = text(unit, comp_dir);
    root.dwo_name = text(unit, dwo_name);
    root.is_gcc = text(unit, producer).is_some_and(|name| name.slice().starts_with(b"GNU "));
    if let Some(low_pc) = low_pc {
        unit.low_pc = dwarf.attr_address(unit, low_pc).ok().flatten().unwrap_or(0);
    }
    Ok(root)
}
