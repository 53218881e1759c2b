//! A unit while it is read: the views of its files, and the other units that it refers to.

use std::collections::HashMap;
use std::rc::Rc;

use gimli::{AttributeValue, DebugInfoOffset, Dwarf, UnitOffset};

use super::files::Texts;
use super::module_dwarf::ModuleDwarf;
use super::root::{UnitRoot, read_root};
use super::unit::UnitId;
use crate::dwarf::{Home, Reader};
use crate::error::ImageError;

/// More diagnostics of one unit than this tell nothing new.
const DIAGNOSTICS_LIMIT: usize = 20;

pub(super) struct Reading<'a> {
    pub(super) module: &'a ModuleDwarf,
    pub(super) id: UnitId,
    main: &'a Dwarf<Reader<'a>>,
    split: Option<&'a Dwarf<Reader<'a>>>,
    /// The unit of the main file; of a split one, the skeleton. Line tables are its.
    pub(super) skeleton: Rc<UnitRoot<'a>>,
    /// The unit with the entries.
    pub(super) root: Rc<UnitRoot<'a>>,
    others: HashMap<(Home, usize), Option<Rc<UnitRoot<'a>>>>,
    pub(super) texts: Texts<'a>,
    pub(super) diagnostics: Vec<ImageError>,
}

/// Where a unit's entries are.
pub(super) struct FoundUnit<'a> {
    pub(super) id: UnitId,
    pub(super) main: &'a Dwarf<Reader<'a>>,
    /// The unit of the main file.
    pub(super) skeleton: Rc<UnitRoot<'a>>,
    /// The sections with the entries, and the unit there, if those are others.
    pub(super) split: Option<(&'a Dwarf<Reader<'a>>, Rc<UnitRoot<'a>>)>,
}

/// An entry, wherever it is.
#[derive(Clone)]
pub(super) struct EntryRef<'a> {
    pub(super) root: Rc<UnitRoot<'a>>,
    pub(super) offset: UnitOffset,
}

impl EntryRef<'_> {
    /// Tells entries apart.
    pub(super) fn key(&self) -> (Home, usize) {
        (self.root.home, self.root.start.saturating_add(self.offset.0))
    }
}

impl<'a> Reading<'a> {
    pub(super) fn new(module: &'a ModuleDwarf, unit: FoundUnit<'a>) -> Reading<'a> {
        let FoundUnit { id, main, skeleton, split } = unit;
        let (split, root) = match split {
            Some((dwarf, root)) => (Some(dwarf), root),
            None => (None, Rc::clone(&skeleton)),
        };
        let (texts, diagnostics) = (Texts::new(module.text_limit()), Vec::new());
        Reading { module, id, main, split, skeleton, root, others: HashMap::new(), texts, diagnostics }
    }

    /// The sections of a file. A unit of the supplement exists only if there is one.
    pub(super) fn dwarf(&self, home: Home) -> &'a Dwarf<Reader<'a>> {
        match home {
            Home::Main => self.main,
            Home::Supplement => self.main.sup().unwrap_or(self.main),
            Home::Split => self.split.unwrap_or(self.main),
        }
    }

    /// The entry that an attribute of an entry in `from` refers to.
    pub(super) fn follow(
        &mut self,
        from: &Rc<UnitRoot<'a>>,
        value: AttributeValue<Reader<'a>>,
    ) -> Result<EntryRef<'a>, String> {
        let (home, offset) = match value {
            AttributeValue::UnitRef(offset) => {
                if !offset.is_in_bounds(&from.unit.header) {
                    return Err(format!("it refers to {:#x}, outside of the unit", offset.0));
                }
                return Ok(EntryRef { root: Rc::clone(from), offset });
            }
            AttributeValue::DebugInfoRef(offset) => (from.home, offset),
            AttributeValue::DebugInfoRefSup(offset) => {
                if self.main.sup().is_none() {
                    return Err("it refers to a supplementary file, which was not found".to_string());
                }
                (Home::Supplement, offset)
            }
            value => return Err(format!("it refers to another entry by {value:?}")),
        };
        let outside = || format!("it refers to {:#x}, where there is no unit", offset.0);
        let root = self.unit_around(home, offset).ok_or_else(outside)?;
        let offset = offset.to_unit_offset(&root.unit.header).ok_or_else(outside)?;
        Ok(EntryRef { root, offset })
    }

    /// The unit that holds an offset of `.debug_info`.
    fn unit_around(&mut self, home: Home, offset: DebugInfoOffset) -> Option<Rc<UnitRoot<'a>>> {
        let holds = |root: &UnitRoot<'_>| root.home == home && offset.to_unit_offset(&root.unit.header).is_some();
        if holds(&self.root) {
            return Some(Rc::clone(&self.root));
        }
        let start = match home {
            Home::Split => split_unit_around(self.dwarf(home), offset)?,
            _ => {
                let extents = self.module.extents_of(home);
                let before = extents.partition_point(|extent| extent.start <= offset.0).checked_sub(1)?;
                extents.get(before).filter(|extent| offset.0 < extent.end)?.start
            }
        };
        if let Some(known) = self.others.get(&(home, start)) {
            return known.clone();
        }
        let other = self.read_other(home, start);
        if let Err(error) = &other {
            self.diagnose(start, format!("referred to from elsewhere: {error}"));
        }
        let other = other.ok().map(Rc::new);
        self.others.insert((home, start), other.clone());
        other
    }

    fn read_other(&self, home: Home, start: usize) -> Result<UnitRoot<'a>, gimli::Error> {
        let dwarf = self.dwarf(home);
        let header = dwarf.debug_info.header_from_offset(DebugInfoOffset(start))?;
        let abbreviations = self.module.abbreviations(home, dwarf, header.debug_abbrev_offset())?;
        read_root(dwarf, home, header, abbreviations)
    }

    /// The file that an entry of `root`'s unit names by its index.
    pub(super) fn file(&mut self, root: &Rc<UnitRoot<'a>>, index: u64) -> Result<u32, String> {
        // Split units' files are in the skeleton's table.
        let root = if root.home == Home::Split { Rc::clone(&self.skeleton) } else { Rc::clone(root) };
        self.texts.file(self.dwarf(root.home), &root, index)
    }

    /// Tells what is wrong with the entry at `entry` of its section.
    pub(super) fn diagnose(&mut self, entry: usize, why: String) {
        if self.diagnostics.len() < DIAGNOSTICS_LIMIT {
            self.diagnostics.push(self.module.broken(self.id.0, entry as u64, why));
        }
    }
}

fn split_unit_around(dwarf: &Dwarf<Reader<'_>>, offset: DebugInfoOffset) -> Option<usize> {
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        if offset.to_unit_offset(&header).is_some() {
            return header.debug_info_offset().map(|start| start.0);
        }
    }
    None
}
