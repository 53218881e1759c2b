//! Whose code a scope is: names and declarations, through abstract instances and declarations, in whatever unit.

use std::collections::HashMap;
use std::rc::Rc;

use gimli::{AttributeValue, DwTag, constants};

use super::reading::{EntryRef, Reading};
use super::unit::{NONE, OriginRecord, Text};
use crate::dwarf::{Home, Reader};

/// From a concrete instance to an abstract one, from there to a definition, and on to a declaration: three steps.
const STEPS: usize = 16;

/// The origins of one unit.
#[derive(Default)]
pub(super) struct Origins<'a> {
    pub(super) records: Vec<OriginRecord>,
    known: HashMap<(Home, usize), u32>,
    /// The last entry of each record's chain: what it is declared in lies around that.
    pub(super) declarations: Vec<EntryRef<'a>>,
}

/// What an entry says.
#[derive(Default)]
pub(super) struct Declared<'a> {
    pub(super) tag: Option<DwTag>,
    pub(super) name: Option<AttributeValue<Reader<'a>>>,
    linkage_name: Option<AttributeValue<Reader<'a>>>,
    pub(super) file: Option<u64>,
    pub(super) line: Option<u32>,
    pub(super) column: Option<u32>,
    /// Where to look for what it does not say.
    pub(super) next: Option<AttributeValue<Reader<'a>>>,
}

impl<'a> Origins<'a> {
    /// The number of the origin that begins at `entry`.
    pub(super) fn of(&mut self, reading: &mut Reading<'a>, entry: EntryRef<'a>) -> u32 {
        let key = entry.key();
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let (record, declaration) = chain(reading, entry);
        let index = self.records.len() as u32;
        self.records.push(record);
        self.declarations.push(declaration);
        self.known.insert(key, index);
        index
    }
}

fn chain<'a>(reading: &mut Reading<'a>, first: EntryRef<'a>) -> (OriginRecord, EntryRef<'a>) {
    let mut record = OriginRecord {
        name: Text::default(),
        linkage_name: Text::default(),
        decl_file: NONE,
        decl_line: 0,
        container: NONE,
        code: 0,
    };
    let first_key = first.key();
    let mut entry = first;
    for step in 0.. {
        let declared = match declared(&entry) {
            Ok(declared) => declared,
            Err(error) => {
                reading.diagnose(entry.key().1, format!("it was referred to and cannot be read: {error}"));
                break;
            }
        };
        add(reading, &entry, &declared, &mut record);
        let Some(next) = declared.next else { break };
        match reading.follow(&entry.root, next) {
            Ok(next) if next.key() == first_key || step >= STEPS => {
                reading.diagnose(first_key.1, "its origins go round in a circle".to_string());
                break;
            }
            Ok(next) => entry = next,
            Err(why) => {
                reading.diagnose(entry.key().1, why);
                break;
            }
        }
    }
    (record, entry)
}

/// Reads an entry.
pub(super) fn declared<'a>(entry: &EntryRef<'a>) -> Result<Declared<'a>, gimli::Error> {
    let unit = &entry.root.unit;
    let mut declared = Declared::default();
    let mut entries = unit.header.entries_raw(&unit.abbreviations, Some(entry.offset))?;
    let Some(abbreviation) = entries.read_abbreviation()? else { return Err(gimli::Error::NoEntryAtGivenOffset(0)) };
    declared.tag = Some(abbreviation.tag());
    for spec in abbreviation.attributes() {
        match spec.name() {
            constants::DW_AT_name
            | constants::DW_AT_linkage_name
            | constants::DW_AT_MIPS_linkage_name
            | constants::DW_AT_decl_file
            | constants::DW_AT_decl_line
            | constants::DW_AT_decl_column
            | constants::DW_AT_abstract_origin
            | constants::DW_AT_specification => {}
            _ => {
                entries.skip_attributes(std::slice::from_ref(spec))?;
                continue;
            }
        }
        let attribute = entries.read_attribute(*spec)?;
        declared.take(attribute.name(), &attribute);
    }
    Ok(declared)
}

impl<'a> Declared<'a> {
    fn take(&mut self, name: constants::DwAt, attribute: &gimli::Attribute<Reader<'a>>) {
        let value = attribute.value();
        match name {
            constants::DW_AT_name => self.name = Some(value),
            constants::DW_AT_linkage_name | constants::DW_AT_MIPS_linkage_name => self.linkage_name = Some(value),
            constants::DW_AT_decl_file => {
                self.file = match value {
                    AttributeValue::FileIndex(index) => Some(index),
                    _ => attribute.udata_value(),
                }
            }
            constants::DW_AT_decl_line => {
                self.line = attribute.udata_value().and_then(|line| u32::try_from(line).ok());
            }
            constants::DW_AT_decl_column => {
                self.column = attribute.udata_value().and_then(|column| u32::try_from(column).ok());
            }
            _ => self.next = Some(value),
        }
    }
}

/// Adds what an entry says and no entry before it did.
fn add<'a>(reading: &mut Reading<'a>, entry: &EntryRef<'a>, declared: &Declared<'a>, record: &mut OriginRecord) {
    for (value, is_linkage) in [(declared.name, false), (declared.linkage_name, true)] {
        let slot = if is_linkage { record.linkage_name } else { record.name };
        let Some(value) = value.filter(|_| slot.len == 0 && !reading.texts.is_full()) else { continue };
        let name = reading.dwarf(entry.root.home).attr_string(&entry.root.unit, value);
        match name.map_err(|error| error.to_string()).and_then(|name| a_name(name, entry.root.producer)) {
            Ok(name) => {
                let text = reading.texts.keep(name);
                *(if is_linkage { &mut record.linkage_name } else { &mut record.name }) = text;
            }
            Err(why) => reading.diagnose(entry.key().1, format!("it has a name that cannot be read: {why}")),
        }
    }
    if record.decl_line == 0 {
        record.decl_line = declared.line.unwrap_or(0);
    }
    if let Some(index) = declared.file.filter(|_| record.decl_file == NONE) {
        match reading.file(&Rc::clone(&entry.root), index) {
            Ok(file) => record.decl_file = file,
            Err(error) => reading.diagnose(entry.key().1, format!("its file cannot be found: {error}")),
        }
    }
}

/// A name, unless a broken table has led to something else: a wrong name is worse than none.
fn a_name<'a>(name: Reader<'a>, producer: Option<Reader<'a>>) -> Result<Reader<'a>, String> {
    let bytes = name.slice();
    if bytes.is_empty() {
        return Err("it is empty".to_owned());
    }
    if producer.is_some_and(|producer| std::ptr::eq(producer.slice(), bytes)) {
        return Err("it is the compiler's".to_owned());
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(char::is_control) => Ok(name),
        _ => Err(format!("{:?} is none", name.to_string_lossy())),
    }
}
