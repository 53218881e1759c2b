//! From the entries of a unit to its tree of scopes.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use gimli::{Attribute, AttributeValue, DebugInfoOffset, DwTag, Dwarf, UnitOffset, constants};

use super::container_tree::{self, ContainerTree};
use super::containers::Around;
use super::declared::{self, Declaration};
use super::folded::folded;
use super::module_dwarf::ModuleDwarf;
use super::origins::Origins;
use super::paint::paint;
use super::reading::{EntryRef, FoundUnit, Reading};
use super::root::read_root;
use super::rows;
use super::split::SplitSections;
use super::unit::{END, NONE, Row, STATEMENT, ScopeRecord, UnitId, UnitScopes};
use crate::code_ranges::{CodeAttributes, Within};
use crate::dwarf::{Home, Reader};

/// Ranges that a unit may have besides one for each of its bytes.
const RANGES_BESIDES: usize = 1 << 12;
/// Zeros that may follow a unit's last entry, bytes.
const PADDING: usize = 16;

/// Reads the unit `id`.
pub(super) fn read(module: &ModuleDwarf, id: UnitId) -> Result<UnitScopes, gimli::Error> {
    let main = module.main.dwarf();
    let header = main.debug_info.header_from_offset(DebugInfoOffset(id.0 as usize))?;
    let abbreviations = module.abbreviations(Home::Main, &main, header.debug_abbrev_offset())?;
    let skeleton = Rc::new(read_root(&main, Home::Main, header, abbreviations)?);
    let mut why_not_split = None;
    let sections = match SplitSections::find(module, &skeleton) {
        Some(Ok(sections)) => Some(sections),
        Some(Err(why)) => {
            why_not_split = Some(why);
            None
        }
        None => None,
    };
    let split_dwarf = match sections.as_ref().map(|sections| sections.dwarf(&main)) {
        Some(Ok(dwarf)) => dwarf,
        Some(Err(error)) => {
            why_not_split = Some(format!("it is split, and its other half cannot be read: {error}"));
            None
        }
        None => None,
    };
    let split_root = match (&sections, &split_dwarf) {
        (Some(sections), Some(dwarf)) => sections.root(module, dwarf, &skeleton).map(Some),
        _ => Ok(None),
    };
    let split_root = split_root.unwrap_or_else(|why| {
        why_not_split = Some(why);
        None
    });
    let split = split_dwarf.as_ref().zip(split_root);
    read_entries(module, FoundUnit { id, main: &main, skeleton, split }, why_not_split)
}

fn read_entries<'a>(
    module: &'a ModuleDwarf,
    unit: FoundUnit<'a>,
    why_not_split: Option<String>,
) -> Result<UnitScopes, gimli::Error> {
    let id = unit.id;
    let mut reading = Reading::new(module, unit);
    if let Some(why) = why_not_split {
        reading.diagnose(id.0 as usize, why);
    }
    let skeleton = Rc::clone(&reading.skeleton);
    skeleton.odd.iter().for_each(|why| reading.diagnose(skeleton.start, why.clone()));
    // First of all the lines: files are numbered in the order of the code, and lines stay where entries are broken.
    let lines = rows::read(&mut reading);
    let root = Rc::clone(&reading.root);
    let unit_len = root.unit.header.length_including_self();
    let mut walk = Walk {
        dwarf: reading.dwarf(root.home),
        reading,
        scopes: Vec::new(),
        ranges: Vec::new(),
        origins: Origins::default(),
        containers: ContainerTree::default(),
        declarations: Vec::new(),
        open: Vec::new(),
        ranges_left: unit_len.saturating_add(RANGES_BESIDES),
        dropped: None,
    };
    if let Err((offset, error)) = walk.entries() {
        let entry = root.start.saturating_add(offset.0);
        walk.reading.diagnose(entry, format!("it and all entries behind it in the unit are lost: {error}"));
    }
    Ok(walk.finish(lines))
}

struct Walk<'a> {
    reading: Reading<'a>,
    dwarf: &'a Dwarf<Reader<'a>>,
    scopes: Vec<ScopeRecord>,
    ranges: Vec<Range<LinkAddr>>,
    origins: Origins<'a>,
    containers: ContainerTree,
    declarations: Vec<(Declaration, UnitOffset)>,
    /// Scopes around the entry that is read: depth and number.
    open: Vec<(isize, u32)>,
    ranges_left: usize,
    /// A procedure whose code the linker dropped, or so the table of addresses says.
    dropped: Option<UnitOffset>,
}

/// The attributes of a procedure or an inlined call that matter here.
#[derive(Default)]
struct EntryAttributes<'a> {
    code: CodeAttributes<'a>,
    origin: Option<AttributeValue<Reader<'a>>>,
    /// Where it is declared, or was called.
    file: Option<u64>,
    line: Option<u64>,
    call_column: Option<u64>,
    discriminator: Option<u64>,
    is_declaration: bool,
}

impl<'a> EntryAttributes<'a> {
    fn take(&mut self, attribute: &Attribute<Reader<'a>>) {
        let number = || attribute.udata_value();
        match attribute.name() {
            constants::DW_AT_low_pc => self.code.low = Some(attribute.value()),
            constants::DW_AT_high_pc => self.code.high = Some(attribute.value()),
            constants::DW_AT_ranges => self.code.ranges = Some(attribute.value()),
            constants::DW_AT_abstract_origin => self.origin = Some(attribute.value()),
            constants::DW_AT_call_file | constants::DW_AT_decl_file => {
                self.file = match attribute.value() {
                    AttributeValue::FileIndex(index) => Some(index),
                    _ => number(),
                }
            }
            constants::DW_AT_call_line | constants::DW_AT_decl_line => self.line = number(),
            constants::DW_AT_call_column => self.call_column = number(),
            constants::DW_AT_declaration => self.is_declaration = true,
            constants::DW_AT_GNU_discriminator => self.discriminator = number(),
            _ => {}
        }
    }
}

/// What is known of an entry before its attributes.
struct EntryHead {
    tag: DwTag,
    depth: isize,
    offset: UnitOffset,
    has_children: bool,
}

impl<'a> Walk<'a> {
    /// Reads all entries; an error says where it stopped.
    fn entries(&mut self) -> Result<(), (UnitOffset, gimli::Error)> {
        let root = Rc::clone(&self.reading.root);
        let abbreviations = Arc::clone(&root.unit.abbreviations);
        let unit_end = root.unit.header.length_including_self();
        let mut entries = root.unit.header.entries_raw(&abbreviations, None).map_err(|error| (UnitOffset(0), error))?;
        while !entries.is_empty() {
            let (depth, offset) = (entries.next_depth(), entries.next_offset());
            let at = |error| (offset, error);
            let Some(abbreviation) = entries.read_abbreviation().map_err(at)? else {
                // The unit's own entry has ended.
                let left = unit_end.saturating_sub(entries.next_offset().0);
                if entries.next_depth() <= 0 && left > PADDING {
                    self.diagnose(offset, format!("the unit's entries end there, {left} bytes before the unit does"));
                    return Ok(());
                }
                continue;
            };
            self.close(depth, offset);
            let (tag, has_children) = (abbreviation.tag(), abbreviation.has_children());
            if matches!(tag, constants::DW_TAG_subprogram | constants::DW_TAG_inlined_subroutine) {
                let mut attributes = EntryAttributes::default();
                for spec in abbreviation.attributes() {
                    attributes.take(&entries.read_attribute_inline(*spec).map_err(at)?);
                }
                self.scope(&EntryHead { tag, depth, offset, has_children }, &attributes);
            } else {
                entries.skip_attributes(abbreviation.attributes()).map_err(at)?;
            }
            if let Some(kind) = container_tree::kind(tag).filter(|_| has_children) {
                self.containers.open(depth, offset, kind);
            }
        }
        Ok(())
    }

    fn close(&mut self, depth: isize, offset: UnitOffset) {
        while self.open.last().is_some_and(|(open_depth, _)| *open_depth >= depth) {
            self.open.pop();
        }
        self.containers.close(depth, offset);
    }

    fn scope(&mut self, head: &EntryHead, attributes: &EntryAttributes<'a>) {
        let EntryHead { tag, depth, offset, has_children } = *head;
        let is_inlined = tag == constants::DW_TAG_inlined_subroutine;
        if !is_inlined {
            self.declare(attributes, offset);
        }
        let first_range = self.ranges.len();
        if let Err(why) = self.add_ranges(attributes) {
            self.diagnose(offset, format!("its code cannot be found: {why}"));
        }
        let has_code = self.ranges.len() > first_range;
        let is_indexed = matches!(attributes.code.low, Some(AttributeValue::DebugAddrIndex(_)));
        if !is_inlined && !has_code && is_indexed {
            self.dropped = self.dropped.or(Some(offset));
        }
        // Without code there may still be code in what is inlined into an inlined call; abstract instances have none.
        let may_hold_code = is_inlined && has_children;
        if !has_code && !may_hold_code {
            return;
        }
        let root = Rc::clone(&self.reading.root);
        let entry = EntryRef { root: Rc::clone(&root), offset };
        let origin = match attributes.origin {
            // All calls of one procedure share its origin.
            Some(value) if is_inlined => match self.reading.follow(&root, value) {
                Ok(entry) => self.origins.of(&mut self.reading, entry),
                Err(why) => {
                    self.diagnose(offset, why);
                    NONE
                }
            },
            _ => self.origins.of(&mut self.reading, entry),
        };
        let called_in = attributes.file.filter(|_| is_inlined);
        let call_file = match called_in.map(|index| self.reading.file(&root, index)) {
            Some(Ok(file)) => file,
            Some(Err(error)) => {
                self.diagnose(offset, format!("the file it was called in cannot be found: {error}"));
                NONE
            }
            None => NONE,
        };
        let number = |value: Option<u64>| value.and_then(|value| u32::try_from(value).ok()).unwrap_or(0);
        let index = self.scopes.len() as u32;
        self.scopes.push(ScopeRecord {
            parent: self.open.last().map_or(NONE, |(_, scope)| *scope),
            origin,
            first_range: first_range as u32,
            call_file,
            call_line: number(attributes.line.filter(|_| is_inlined)),
            call_column: number(attributes.call_column),
            call_discriminator: u16::try_from(attributes.discriminator.unwrap_or(0)).unwrap_or(0),
            is_inlined,
        });
        if has_children {
            self.open.push((depth, index));
        }
    }

    /// Keeps where a procedure is declared. One that does not say both is an instance of one that does.
    fn declare(&mut self, attributes: &EntryAttributes<'a>, offset: UnitOffset) {
        let (Some(index), Some(line)) = (attributes.file, attributes.line) else { return };
        // Outside of classes that is a procedure of elsewhere, in Fortran even "declared" where it is called.
        if attributes.is_declaration && !self.containers.is_in_class() {
            return;
        }
        let root = Rc::clone(&self.reading.root);
        if let (Ok(file), Ok(line)) = (self.reading.file(&root, index), u32::try_from(line)) {
            let is_nested = self.containers.is_in_procedure();
            self.declarations.push((Declaration { file, line, is_nested, origin: NONE }, offset));
        }
    }

    fn add_ranges(&mut self, attributes: &EntryAttributes<'a>) -> Result<(), String> {
        let root = Rc::clone(&self.reading.root);
        let (module, ranges, left) = (self.reading.module, &mut self.ranges, &mut self.ranges_left);
        let within = Within { dwarf: self.dwarf, unit: &root.unit, code_end: module.code_end };
        attributes.code.each(&within, |start, end| {
            match left.checked_sub(1) {
                Some(fewer) => *left = fewer,
                None if module.spend(16) => {}
                None => return Err("there are more ranges than sound tables hold".to_string()),
            }
            ranges.push(LinkAddr(start)..LinkAddr(end));
            Ok(())
        })?;
        Ok(())
    }

    fn diagnose(&mut self, offset: UnitOffset, why: String) {
        self.reading.diagnose(self.reading.root.start.saturating_add(offset.0), why);
    }

    fn finish(mut self, lines: rows::LineRows) -> UnitScopes {
        let root = Rc::clone(&self.reading.root);
        let mut declared = declared::tidy(std::mem::take(&mut self.declarations));
        // Where inlined calls are recorded they name what was inlined.
        let mut elsewhere = Vec::new();
        let has_inlined_calls = self.scopes.iter().any(|scope| scope.is_inlined);
        if !has_inlined_calls {
            let origins = self.origins.declarations.iter().map(|origin| &origin.root);
            let others = origins.filter(|other| other.home == Home::Main && other.start != root.start);
            elsewhere.extend(others.map(|other| UnitId(other.start as u64)));
            elsewhere.sort_unstable();
            elsewhere.dedup();
            for (declaration, offset) in &mut declared {
                let entry = EntryRef { root: Rc::clone(&root), offset: *offset };
                declaration.origin = self.origins.of(&mut self.reading, entry);
            }
        }
        let mut around = Around::new(&root, std::mem::take(&mut self.containers));
        let Origins { mut records, declarations, .. } = self.origins;
        let mut codes = HashMap::new();
        for scope in self.scopes.iter().filter(|scope| !scope.is_inlined) {
            let declaration = declarations.get(scope.origin as usize);
            if let Some((declaration, code)) = declaration.zip(self.ranges.get(scope.first_range as usize)) {
                codes.entry(declaration.key()).or_insert(code.start.0);
            }
        }
        for (record, declaration) in records.iter_mut().zip(declarations) {
            record.container = around.container_of(&mut self.reading, &declaration);
            if record.linkage_name.len == 0 {
                record.code = codes.get(&declaration.key()).copied().unwrap_or(0);
            }
            let lambda = around.records.get(record.container as usize).map(|around| around.lambda);
            if let Some(lambda) = lambda.filter(|lambda| lambda.number > 0 && record.decl_line == 0) {
                (record.decl_file, record.decl_line) = (lambda.file, lambda.line);
            }
        }
        let is_folded = folded(&self.scopes, &self.ranges, &records, &lines.rows);
        let mut painted = Vec::with_capacity(self.ranges.len());
        for (index, scope) in self.scopes.iter().enumerate().filter(|(index, _)| !is_folded[*index]) {
            let end = self.scopes.get(index + 1).map_or(self.ranges.len(), |next| next.first_range as usize);
            let ranges = self.ranges.get(scope.first_range as usize..end).unwrap_or_default();
            painted.extend(ranges.iter().map(|range| (range.clone(), index as u32)));
        }
        let (mut paint_addrs, mut paint_scopes) = paint(painted);
        paint_addrs.shrink_to_fit();
        paint_scopes.shrink_to_fit();
        if let Some(offset) = self.dropped
            && let Some(addr) = first_unclaimed(&lines.rows, &paint_addrs, &paint_scopes)
        {
            let why = format!("its code is not in the module, but code at {addr:#x} has lines and no procedure");
            self.reading.diagnose(root.start.saturating_add(offset.0), why);
        }
        let Reading { id, mut texts, diagnostics, skeleton, .. } = self.reading;
        texts.text.shrink_to_fit();
        texts.files.shrink_to_fit();
        self.scopes.shrink_to_fit();
        self.ranges.shrink_to_fit();
        records.shrink_to_fit();
        let language = if root.language == Default::default() { skeleton.language } else { root.language };
        UnitScopes {
            id,
            language,
            text: texts.text,
            files: texts.files,
            scopes: self.scopes,
            ranges: self.ranges,
            origins: records,
            containers: around.records,
            paint_addrs,
            paint_scopes,
            rows: lines.rows,
            bare: lines.bare,
            is_gcc: root.is_gcc || skeleton.is_gcc,
            has_inlined_calls,
            elsewhere,
            declarations: declared.into_iter().map(|(declaration, _)| declaration).collect(),
            diagnostics,
        }
    }
}

/// The first code with a line that belongs to no scope, if there is much of that: procedures that compilers make of two
/// that are the same have no entry, and a few bytes.
fn first_unclaimed(rows: &[Row], paint_addrs: &[u64], paint_scopes: &[u32]) -> Option<u64> {
    let (mut first, mut unclaimed, mut claimed) = (None, 0u64, 0u64);
    for pair in rows.windows(2) {
        let [row, next] = pair else { continue };
        let painted = paint_addrs.partition_point(|addr| *addr <= row.addr).checked_sub(1);
        let scope = painted.and_then(|painted| paint_scopes.get(painted)).filter(|scope| **scope != NONE);
        let len = next.addr.saturating_sub(row.addr);
        if row.file & !STATEMENT == END {
            continue;
        }
        if scope.is_some() {
            claimed = claimed.saturating_add(len);
        } else {
            unclaimed = unclaimed.saturating_add(len);
            first = first.or(Some(row.addr));
        }
    }
    first.filter(|_| unclaimed > claimed / 8)
}
