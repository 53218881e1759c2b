//! Source structure from DWARF, or from Go's own table in images without DWARF: procedures, the calls inlined into them, the scopes around them, and their lines.
//! It looks at no instructions and symbols, and does not guess what DWARF does not say.
//!
//! Everything is read unit by unit, and each unit when it is asked for, from as many threads as there are: what comes
//! back ([`UnitScopes`]) owns what it says. `.debug_aranges`, or the units' own ranges, lead from an address to a unit.
//!
//! DWARF 2 to 5; split information (`.dwo` files, `.dwp` beside the program, and GNU's form of it for DWARF 4); type
//! units; partial units and a supplementary file (dwz); units that refer to others (link-time optimization).

mod begun;
mod container_tree;
mod containers;
mod declared;
mod files;
mod folded;
mod go;
mod lambdas;
mod module_dwarf;
mod origins;
mod paint;
mod reading;
pub(crate) mod root;
mod rows;
mod split;
mod unit;
mod walk;

use std::path::Path;
use std::sync::Arc;

use callpath_format::address::LinkAddr;

use crate::code_ranges::CodeEnd;
use crate::dwarf::{DwarfSections, is_named};
use crate::elf::Image;
use crate::error::ImageError;
use crate::units::Units;
pub use begun::Begun;
use go::GoScopes;
use module_dwarf::ModuleDwarf;
pub use unit::{
    CallSite, Container, ContainerId, ContainerKind, FileId, Frame, LineRun, Origin, Scope, ScopeId, ScopeKind, UnitId,
    UnitScopes,
};

/// The source structure that one image's DWARF holds, or Go's own table. All methods take `&self`, from any thread.
pub struct Scopes {
    source: Source,
    diagnostics: Vec<ImageError>,
}

enum Source {
    Dwarf { dwarf: Box<ModuleDwarf>, units: Units },
    Go(GoScopes),
}

impl Scopes {
    /// Finds the units of `image`, which holds the DWARF sections or Go's table; `supplement` is what its `.gnu_debugaltlink` names.
    /// `program` is the file that was linked, if that is another one: a `.dwp` lies beside it.
    pub fn new(image: Arc<Image>, supplement: Option<Arc<Image>>, program: Option<&Path>) -> Scopes {
        match Scopes::find(Arc::clone(&image), supplement.clone(), program) {
            Some(scopes) => scopes,
            None => Scopes::of_dwarf(image, supplement, program),
        }
    }

    /// The same, if there is anything to read.
    pub fn find(image: Arc<Image>, supplement: Option<Arc<Image>>, program: Option<&Path>) -> Option<Scopes> {
        if has_dwarf(&image) {
            return Some(Scopes::of_dwarf(image, supplement, program));
        }
        GoScopes::of(&image).map(|go| Scopes { source: Source::Go(go), diagnostics: Vec::new() })
    }

    fn of_dwarf(image: Arc<Image>, supplement: Option<Arc<Image>>, program: Option<&Path>) -> Scopes {
        let main = DwarfSections::load(Arc::clone(&image), supplement);
        let path = image.origin();
        let (units, index_diagnostics) = Units::index(&main, path);
        let mut diagnostics = main.diagnostics(path);
        diagnostics.extend(main.supplement().into_iter().flat_map(|sup| sup.diagnostics(sup.image().origin())));
        diagnostics.extend(index_diagnostics);
        let dwarf = ModuleDwarf::new(main, program, CodeEnd::of(&image), &mut diagnostics);
        Scopes { source: Source::Dwarf { dwarf: Box::new(dwarf), units }, diagnostics }
    }

    /// What was found broken while the units were looked for. Each unit has its own besides.
    pub fn diagnostics(&self) -> &[ImageError] {
        &self.diagnostics
    }

    /// The units that may hold code, in the order of the file.
    pub fn units(&self) -> impl Iterator<Item = UnitId> + '_ {
        let (dwarf, go) = match &self.source {
            Source::Dwarf { dwarf, .. } => (Some(dwarf), None),
            Source::Go(go) => (None, Some(go)),
        };
        let of_dwarf = dwarf.into_iter().flat_map(|dwarf| &dwarf.headers).filter(|extent| extent.compiles);
        let of_dwarf = of_dwarf.map(|extent| UnitId(extent.start as u64));
        of_dwarf.chain(go.into_iter().flat_map(GoScopes::units))
    }

    /// The unit that holds `addr`.
    pub fn unit_at(&self, addr: LinkAddr) -> Option<UnitId> {
        match &self.source {
            Source::Dwarf { units, .. } => units.unit_at(addr.0).map(|unit| UnitId(unit.0 as u64)),
            Source::Go(go) => go.unit_at(addr),
        }
    }

    /// Reads a unit. An error means that no part of it can be read; what is wrong with a part is among
    /// [`UnitScopes::diagnostics`].
    pub fn read(&self, unit: UnitId) -> Result<UnitScopes, ImageError> {
        match &self.source {
            Source::Dwarf { dwarf, .. } => {
                walk::read(dwarf, unit).map_err(|error| dwarf.broken(unit.0, unit.0, error.to_string()))
            }
            Source::Go(go) => go.read(unit),
        }
    }
}

fn has_dwarf(image: &Image) -> bool {
    image.section_headers().iter().any(|header| is_named(&header.name, ".debug_info") && header.has_bytes())
}
