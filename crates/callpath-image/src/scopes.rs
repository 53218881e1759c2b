//! Source structure from DWARF: procedures, the calls inlined into them, the scopes around them, and their lines.
//! Knows nothing of instructions, of symbols, and of what DWARF does not say.
//!
//! Everything is read unit by unit, and each unit when it is asked for, from as many threads as there are: what comes
//! back ([`UnitScopes`]) owns what it says. `.debug_aranges`, or the units' own ranges, lead from an address to a unit.
//!
//! DWARF 2 to 5; split information (`.dwo` files, `.dwp` beside the program, and GNU's form of it for DWARF 4); type
//! units; partial units and a supplementary file (dwz); units that refer to others (link-time optimization).

mod begun;
mod containers;
mod declared;
mod files;
mod folded;
mod origins;
mod paint;
mod reading;
pub(crate) mod root;
mod rows;
mod split;
mod unit;
mod walk;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use callpath_format::address::LinkAddr;
use gimli::{Abbreviations, DebugAbbrevOffset, DebugInfoOffset, UnitType};

use crate::code_ranges::CodeEnd;
use crate::dwarf::{DwarfSections, Reader, is_named};
use crate::elf::Image;
use crate::error::ImageError;
use crate::units::Units;
pub use begun::Begun;
use containers::ContainerTree;
use split::Package;
pub use unit::{
    CallSite, Container, ContainerId, ContainerKind, FileId, Frame, LineRun, Origin, Scope, ScopeId, ScopeKind,
    UnitScopes,
};

/// How often all sections together may be read through while units are read: sound units share little, hostile ones
/// can share everything.
const EFFORT_PER_BYTE: u64 = 64;
/// Effort that is allowed even where sections are small.
const LEAST_EFFORT: u64 = 16 << 20;
/// Abbreviation tables that are kept.
const ABBREVIATIONS_KEPT: usize = 1 << 12;

/// A compilation unit, by its offset in `.debug_info`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UnitId(pub u64);

/// The source structure that one image's DWARF holds. All methods take `&self`, from any thread.
pub struct Scopes {
    main: DwarfSections,
    package: Option<Package>,
    units: Units,
    code_end: CodeEnd,
    /// Of the main file: sorted.
    headers: Vec<UnitExtent>,
    supplement_headers: Vec<UnitExtent>,
    diagnostics: Vec<ImageError>,
    shared: Shared,
}

/// Where a unit lies in `.debug_info`.
#[derive(Clone, Copy)]
struct UnitExtent {
    start: usize,
    end: usize,
    /// It may hold code of its own.
    compiles: bool,
}

/// The file that an entry stands in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Home {
    Main,
    /// What dwz moved out, in `.gnu_debugaltlink`'s file.
    Supplement,
    /// The `.dwo` of the unit that is being read.
    Split,
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

impl Scopes {
    /// Whether there is anything to read.
    pub fn has_any(image: &Image) -> bool {
        image.section_headers().iter().any(|header| is_named(&header.name, ".debug_info") && header.has_bytes())
    }

    /// Finds the units of `image`, which holds the DWARF sections; `supplement` is what its `.gnu_debugaltlink` names.
    /// `program` is the file that was linked, if that is another one: a `.dwp` lies beside it.
    pub fn new(image: Arc<Image>, supplement: Option<Arc<Image>>, program: Option<&Path>) -> Scopes {
        let main = DwarfSections::load(Arc::clone(&image), supplement);
        let path = image.origin();
        let (units, index_diagnostics) = Units::index(&main, path);
        let mut diagnostics = main.diagnostics(path);
        diagnostics.extend(main.supplement().into_iter().flat_map(|sup| sup.diagnostics(sup.image().origin())));
        diagnostics.extend(index_diagnostics);
        let headers = extents(&main);
        let supplement_headers = main.supplement().map(extents).unwrap_or_default();
        let mut package = None;
        if split::any_skeletons(&main, &headers) {
            let places = program.into_iter().chain([path]);
            package = Package::find(places, &mut diagnostics);
        }
        let (shared, code_end) = (Shared::default(), CodeEnd::of(&image));
        Scopes { main, package, units, code_end, headers, supplement_headers, diagnostics, shared }
    }

    /// What was found broken while the units were looked for. Each unit has its own besides.
    pub fn diagnostics(&self) -> &[ImageError] {
        &self.diagnostics
    }

    /// The units that may hold code, in the order of the file.
    pub fn units(&self) -> impl Iterator<Item = UnitId> + '_ {
        self.headers.iter().filter(|extent| extent.compiles).map(|extent| UnitId(extent.start as u64))
    }

    /// The unit that holds `addr`.
    pub fn unit_at(&self, addr: LinkAddr) -> Option<UnitId> {
        self.units.unit_at(addr.0).map(|unit| UnitId(unit.0 as u64))
    }

    /// Reads a unit. An error says that nothing of it makes sense; what is wrong with a part of it is among
    /// [`UnitScopes::diagnostics`].
    pub fn read(&self, unit: UnitId) -> Result<UnitScopes, ImageError> {
        walk::read(self, unit).map_err(|error| self.broken(unit.0, unit.0, error.to_string()))
    }

    fn broken(&self, unit: u64, entry: u64, why: String) -> ImageError {
        ImageError::Entry { path: self.main.image().origin().to_path_buf(), unit, entry, why }
    }

    fn extents_of(&self, home: Home) -> &[UnitExtent] {
        match home {
            Home::Main => &self.headers,
            Home::Supplement => &self.supplement_headers,
            Home::Split => &[],
        }
    }

    /// The abbreviations at `offset`; read once where they are shared.
    fn abbreviations(
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
        if kept.len() >= ABBREVIATIONS_KEPT {
            kept.clear();
        }
        kept.insert((home, offset.0), Arc::clone(&new));
        Ok(new)
    }

    /// Whether the line program at `offset` is read by the unit at `unit` alone, so far.
    fn is_first_use(&self, offset: usize, unit: usize) -> bool {
        let mut programs = self.shared.line_programs.lock().unwrap_or_else(PoisonError::into_inner);
        *programs.entry(offset).or_insert(unit) == unit
    }

    /// The most text that a unit's names and paths can have in a sound file.
    fn text_limit(&self) -> usize {
        let all = self.main.total_len() + self.main.supplement().map_or(0, DwarfSections::total_len);
        all.saturating_mul(2).max(1 << 16)
    }

    /// Accounts for `bytes` that are about to be read; `false` if that is more than any sound file would need.
    fn spend(&self, bytes: usize) -> bool {
        let all = self.main.total_len() + self.main.supplement().map_or(0, DwarfSections::total_len);
        let limit = (all as u64).saturating_mul(EFFORT_PER_BYTE).max(LEAST_EFFORT);
        self.shared.effort.fetch_add(bytes as u64, Ordering::Relaxed) <= limit
    }
}

/// Where all units of a file lie, sorted. What is broken was told by the index of units.
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
