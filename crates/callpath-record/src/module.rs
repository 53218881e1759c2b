//! One load module: its identity, its segments, its recipe table or the slices of it.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_format::shared::load_map::Mapping;
use callpath_image::elf::Segment;
use callpath_image::go::Go;
use callpath_image::identity::ModuleIdentity;
use callpath_image::return_use::ReturnUse;
use callpath_tables::module_memo::LoadedModule;
use callpath_tables::slices::Slices;
use callpath_target::MapEntry;

use crate::publish::Publisher;

/// A module's number in the measurement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ModuleId(pub(crate) usize);

/// A table that a sample waits for: the slice of a large module's, or else the module's own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Awaited {
    pub(crate) module: ModuleId,
    pub(crate) slice: Option<u32>,
}

/// A part of a module's code, and where its recipe table is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) code: Range<LinkAddr>,
    /// Where its recipe table is published, 0 if it has none; or what is awaited.
    pub(crate) table: Result<u64, Awaited>,
    /// [`Module::flags`], [`Mapping::UNFINISHED`]
    pub(crate) flags: u16,
}

/// The slices of a large module's table, as long as it has no whole table.
pub(crate) struct Slicing {
    pub(crate) slices: Arc<Slices>,
    pub(crate) tables: Vec<SliceTable>,
    /// So many samples wanted all of the table.
    pub(crate) whole_wanted: u32,
    /// It could not be built.
    pub(crate) has_no_whole: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SliceTable {
    Absent,
    Asked,
    /// Where it is published; 0: there is none.
    There(u64),
}

/// A module.
pub(crate) struct Module {
    pub(crate) path: PathBuf,
    /// `None`: it could not be read.
    pub(crate) identity: Option<ModuleIdentity>,
    /// Where its recipe table is published; 0: it has none.
    table: u64,
    /// Its table is being built.
    pub(crate) is_awaited: bool,
    pub(crate) slicing: Option<Slicing>,
    /// How its code uses return addresses.
    pub(crate) return_use: ReturnUse,
    segments: Vec<Segment>,
    /// How Go has built it. Without C, it handles signals past all hooks: a sample would end its process.
    pub(crate) go: Option<Go>,
}

impl Module {
    /// Whose table is being built. `loaded` has none yet.
    pub(crate) fn awaited(path: PathBuf, loaded: LoadedModule, slicing: Option<Slicing>) -> Module {
        let LoadedModule { identity, segments, return_use, .. } = loaded;
        let identity = Some(identity);
        Module { identity, is_awaited: true, slicing, return_use, segments, ..Module::unreadable(path) }
    }

    /// With its table, which is published.
    pub(crate) fn published(path: PathBuf, loaded: LoadedModule, publisher: &mut Publisher) -> Module {
        let LoadedModule { identity, segments, return_use, table } = loaded;
        let table = if table.is_empty() { 0 } else { publisher.append(&table).unwrap_or(0) };
        Module { identity: Some(identity), table, return_use, segments, ..Module::unreadable(path) }
    }

    /// A module of which only the path is known.
    pub(crate) fn unreadable(path: PathBuf) -> Module {
        Module {
            path,
            identity: None,
            table: 0,
            is_awaited: false,
            slicing: None,
            return_use: ReturnUse::default(),
            segments: Vec::new(),
            go: None,
        }
    }

    /// Its table has been made; it is published.
    pub(crate) fn take_table(&mut self, loaded: LoadedModule, publisher: &mut Publisher) {
        let path = std::mem::take(&mut self.path);
        let go = self.go;
        *self = Module { go, ..Module::published(path, loaded, publisher) };
    }

    /// It has no table; a large one is left with its slices.
    pub(crate) fn go_without_table(&mut self) {
        match &mut self.slicing {
            Some(slicing) => slicing.has_no_whole = true,
            None => {
                self.is_awaited = false;
                self.return_use = ReturnUse::default();
            }
        }
    }

    /// A slice's table has been made, if there is one; it is published unless the whole module's has come first.
    pub(crate) fn take_slice(&mut self, index: u32, table: Option<Vec<u8>>, publisher: &mut Publisher) {
        let place = self.slicing.as_mut().and_then(|slicing| slicing.tables.get_mut(index as usize));
        if let Some(place) = place {
            *place = SliceTable::There(table.and_then(|table| publisher.append(&table)).unwrap_or(0));
        }
    }

    /// Its flags in a load map.
    pub(crate) fn flags(&self) -> u16 {
        let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        flag(self.return_use.reads, Mapping::PINNED) | flag(self.return_use.catches, Mapping::CATCHES)
    }

    /// The tables of a range of its code.
    pub(crate) fn parts(&self, id: ModuleId, code: Range<LinkAddr>) -> Vec<Part> {
        let flags = self.flags();
        let Some(Slicing { slices, tables, .. }) = self.slicing.as_ref().filter(|_| self.is_awaited) else {
            let awaited = Awaited { module: id, slice: None };
            let table = if self.is_awaited { Err(awaited) } else { Ok(self.table) };
            return vec![Part { code, table, flags }];
        };
        let (mut parts, mut at) = (Vec::new(), code.start);
        // Pinned frames are unknown, too.
        let flags = flags | Mapping::PINNED | Mapping::CATCHES | Mapping::UNFINISHED;
        // What is mapped before and behind the code is in no slice, and stays unknown.
        let between = |code: Range<LinkAddr>| Part { code, table: Ok(0), flags: flags & !Mapping::UNFINISHED };
        for ((index, range), table) in (0..).zip(slices.ranges()).zip(tables) {
            let (start, end) = (range.start.max(code.start), range.end.min(code.end));
            if start >= end {
                continue;
            }
            if at < start {
                parts.push(between(at..start));
            }
            let table = match table {
                SliceTable::There(table) => Ok(*table),
                SliceTable::Absent | SliceTable::Asked => Err(Awaited { module: id, slice: Some(index) }),
            };
            parts.push(Part { code: start..end, table, flags });
            at = end;
        }
        if at < code.end {
            parts.push(between(at..code.end));
        }
        parts
    }

    /// Its table is being built, and soon there.
    pub(crate) fn is_soon_there(&self) -> bool {
        self.is_awaited && self.slicing.is_none()
    }

    /// The load bias that puts a mapping where it is.
    pub(crate) fn bias(&self, entry: &MapEntry) -> u64 {
        let page = |n: u64| n & !4095;
        let segment = self.segments.iter().find(|s| {
            let first = page(s.file_offset);
            s.executable && first <= entry.file_offset && entry.file_offset < s.file_offset + s.file_len.max(1)
        });
        let link = match segment {
            Some(s) => s.vaddr.0.wrapping_sub(s.file_offset).wrapping_add(entry.file_offset),
            None => entry.file_offset,
        };
        entry.start.0.wrapping_sub(link)
    }
}
