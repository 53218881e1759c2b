//! The DWARF of a module: its files, where units lie in them, and what units that are read one by one have in common.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gimli::{Abbreviations, DebugAbbrevOffset, DebugInfoOffset, UnitType};

use super::container_tree::ContainerTree;
use super::split::{self, Package};
use crate::code_ranges::CodeEnd;
use crate::dwarf::{DwarfSections, Home, Reader};
use crate::error::ImageError;

/// How often all sections together may be read through while units are read: sound units share little, hostile ones
/// can share everything.
const EFFORT_PER_BYTE: u64 = 64;
/// Effort that is allowed even where sections are small.
const LEAST_EFFORT: u64 = 16 << 20;
/// Abbreviation tables that are cached.
const ABBREVIATIONS_CACHED: usize = 1 << 12;

/// The DWARF of a module.
pub(super) struct ModuleDwarf {
    pub(super) main: DwarfSections,
    pub(super) package: Option<Package>,
    pub(super) code_end: CodeEnd,
    /// Of the main file: sorted.
    pub(super) headers: Vec<UnitExtent>,
    supplement_headers: Vec<UnitExtent>,
    shared: Shared,
}

/// Where a unit lies in `.debug_info`.
#[derive(Clone, Copy)]
pub(super) struct UnitExtent {
    pub(super) start: usize,
    pub(super) end: usize,
    /// It may hold code of its own.
    pub(super) compiles: bool,
}

/// What units have in common, found when first needed.
#[derive(Default)]
struct Shared {
    abbreviations: Mutex<HashMap<(Home, usize), Arc<Abbreviations>>>,
    containers: Mutex<HashMap<(Home, usize), Arc<ContainerTree>>>,
    /// Line programs by their offset: the unit that first read it.
    line_programs: Mutex<HashMap<usize, usize>>,
    effort: AtomicU64,
}

impl ModuleDwarf {
    /// `program`: the file that was linked, if that is another one than the one with these sections.
    pub(super) fn new(
        main: DwarfSections,
        program: Option<&Path>,
        code_end: CodeEnd,
        diagnostics: &mut Vec<ImageError>,
    ) -> ModuleDwarf {
        let headers = extents(&main);
        let supplement_headers = main.supplement().map(extents).unwrap_or_default();
        let mut package = None;
        if split::any_skeletons(&main, &headers) {
            let places = program.into_iter().chain([main.image().origin()]);
            package = Package::find(places, diagnostics);
        }
        ModuleDwarf { main, package, code_end, headers, supplement_headers, shared: Shared::default() }
    }

    pub(super) fn broken(&self, unit: u64, entry: u64, why: String) -> ImageError {
        ImageError::Entry { path: self.main.image().origin().to_path_buf(), unit, entry, why }
    }

    pub(super) fn extents_of(&self, home: Home) -> &[UnitExtent] {
        match home {
            Home::Main => &self.headers,
            Home::Supplement => &self.supplement_headers,
            Home::Split => &[],
        }
    }

    /// The abbreviations at `offset`; read once where they are shared.
    pub(super) fn abbreviations(
        &self,
        home: Home,
        dwarf: &gimli::Dwarf<Reader<'_>>,
        offset: DebugAbbrevOffset,
    ) -> Result<Arc<Abbreviations>, gimli::Error> {
        let read = || dwarf.debug_abbrev.abbreviations(offset).map(Arc::new);
        if home == Home::Split {
            return read();
        }
        let kept = || self.shared.abbreviations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept().get(&(home, offset.0)) {
            return Ok(Arc::clone(known));
        }
        let new = read()?;
        let mut kept = kept();
        if kept.len() >= ABBREVIATIONS_CACHED {
            kept.clear();
        }
        kept.insert((home, offset.0), Arc::clone(&new));
        Ok(new)
    }

    /// Whether the line program at `offset` is read by the unit at `unit` alone, so far.
    pub(super) fn is_first_use(&self, offset: usize, unit: usize) -> bool {
        let mut programs = self.shared.line_programs.lock().unwrap_or_else(PoisonError::into_inner);
        *programs.entry(offset).or_insert(unit) == unit
    }

    /// The tree of containers of a unit that is not split: what others have read, else what `read` gives.
    pub(super) fn containers(&self, unit: (Home, usize), read: impl FnOnce() -> ContainerTree) -> Arc<ContainerTree> {
        let kept = || self.shared.containers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept().get(&unit) {
            return Arc::clone(known);
        }
        let tree = Arc::new(read());
        kept().insert(unit, Arc::clone(&tree));
        tree
    }

    /// The most text that a unit's names and paths can have in a sound file.
    pub(super) fn text_limit(&self) -> usize {
        let all = self.main.total_len() + self.main.supplement().map_or(0, DwarfSections::total_len);
        all.saturating_mul(2).max(1 << 16)
    }

    /// Accounts for `bytes` that are about to be read; `false` if that is more than any sound file would need.
    pub(super) fn spend(&self, bytes: usize) -> bool {
        let all = self.main.total_len() + self.main.supplement().map_or(0, DwarfSections::total_len);
        let limit = (all as u64).saturating_mul(EFFORT_PER_BYTE).max(LEAST_EFFORT);
        self.shared.effort.fetch_add(bytes as u64, Ordering::Relaxed) <= limit
    }
}

/// Where all units of a file lie, sorted. The index of units has reported what is broken.
fn extents(sections: &DwarfSections) -> Vec<UnitExtent> {
    let dwarf = sections.dwarf_of_this_file();
    let mut headers = dwarf.units();
    let mut extents = Vec::new();
    while let Ok(Some(header)) = headers.next() {
        let Some(DebugInfoOffset(start)) = header.debug_info_offset() else { continue };
        let end = start.saturating_add(header.length_including_self());
        let compiles = matches!(header.type_(), UnitType::Compilation | UnitType::Skeleton(_));
        extents.push(UnitExtent { start, end, compiles });
    }
    extents
}
