//! Whose code each line is, where DWARF has lines and procedures but no inlined calls.
//! Knows nothing of loops.
//!
//! Tallent et al. 2009, sections 3.1 and 3.2: procedures do not overlap in the source, so each one's lines end before the
//! next one's begin (invariants 1 and 2; a Fortran procedure's own lines end where the first that it contains begins,
//! invariant 3). Code of other lines is alien: it was inlined. Into what is not known, so that alien contexts are flat.

use callpath_image::scopes::UnitScopes;
use rustc_hash::FxHashMap;

use super::SourcePlace;
use super::atoms::{Atom, Context, Files, HOST, Source};

/// Where the procedures of some units begin in the source.
#[derive(Debug, Default)]
pub(super) struct Beginnings {
    /// By file, the lines and names, ascending.
    files: FxHashMap<String, Vec<(u32, String)>>,
}

impl Beginnings {
    /// Takes in the procedures of a unit.
    pub(super) fn add(&mut self, unit: &UnitScopes) {
        for origin in unit.scopes().filter_map(|scope| scope.origin) {
            let Some(path) = origin.file().and_then(|file| unit.file(file)) else { continue };
            if origin.line() == 0 {
                continue;
            }
            let name = origin.display_name().map(|name| name.into_owned()).unwrap_or_default();
            let begun = self.files.entry(path.to_owned()).or_default();
            let at = begun.partition_point(|(line, _)| *line < origin.line());
            if begun.get(at).is_none_or(|(line, _)| *line != origin.line()) {
                begun.insert(at, (origin.line(), name));
            }
        }
    }

    /// The procedure whose lines a line is among: where it begins, and its name.
    fn owner(&self, path: &str, line: u32) -> Option<(u32, &str)> {
        let begun = self.files.get(path)?;
        let (start, name) = begun.get(begun.partition_point(|(start, _)| *start <= line).checked_sub(1)?)?;
        Some((*start, name))
    }
}

/// Gives the atoms contexts: the host's, or an alien one.
pub(super) fn infer(source: &mut Source, beginnings: &Beginnings) {
    let Source { files, contexts, atoms } = source;
    // A host of which nothing is declared (assembly) has no bounds but its file.
    let host = contexts.first().and_then(|host| host.place);
    let host_file = host.map(|place| place.file).or_else(|| first_place(atoms).map(|place| place.file));
    let mut known: FxHashMap<(u32, u32), u32> = FxHashMap::default();
    for atom in atoms {
        let Some(place) = atom.place else { continue };
        let owner = files.paths.get(place.file as usize).and_then(|path| beginnings.owner(path, place.line));
        let start = owner.map_or(0, |(start, _)| start);
        let is_native = Some(place.file) == host_file && host.is_none_or(|host| host.line == start);
        atom.context = if is_native {
            HOST
        } else {
            *known.entry((place.file, start)).or_insert_with(|| {
                contexts.push(alien(files, place.file, owner));
                contexts.len() as u32 - 1
            })
        };
    }
}

fn alien(files: &Files, file: u32, owner: Option<(u32, &str)>) -> Context {
    let path = files.paths.get(file as usize).map_or("", |path| &**path);
    let file_name = path.rsplit('/').next().unwrap_or(path);
    let name = owner.map(|(_, name)| name.to_owned()).filter(|name| !name.is_empty());
    Context {
        parent: HOST,
        name: Some(name.unwrap_or_else(|| format!("[code of {file_name}]"))),
        place: owner.map(|(line, _)| SourcePlace { file, line }),
        call_site: None,
    }
}

fn first_place(atoms: &[Atom]) -> Option<SourcePlace> {
    atoms.iter().find_map(|atom| atom.place)
}
