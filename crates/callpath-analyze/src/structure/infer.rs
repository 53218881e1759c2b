//! Whose code each line is, where DWARF has lines and procedures but no inlined calls.
//!
//! Tallent et al. 2009, sections 3.1 and 3.2: procedures do not overlap in the source, so each one's lines
//! end before the next one's begin (invariants 1 and 2; a Fortran procedure's own lines end where the
//! first that it contains begins, invariant 3). Code of other lines is alien: it was inlined. Into what is
//! not known, so that alien contexts are flat.
//!
//! Here also: between two member functions of one class in a procedure there is no code of that procedure; and lines
//! behind the last that a procedure's own code has are not its, but of a static procedure without descriptor.

use std::rc::Rc;

use callpath_image::scopes::{ContainerId, ContainerKind, UnitScopes};
use rustc_hash::FxHashMap;

use super::code_ranges::{CodeRange, Context, Files, HOST, Source};
use super::{SourceLocation, steps};

/// Where the procedures of a unit begin in the source.
#[derive(Debug, Default)]
pub(super) struct Beginnings {
    files: FxHashMap<String, FileBeginnings>,
    is_fortran: bool,
}

/// Where procedures begin in one file.
#[derive(Debug, Default)]
struct FileBeginnings {
    /// By ascending line.
    begun: Vec<Beginning>,
    /// For each, the last that is not nested, up to itself.
    outer: Vec<Option<u32>>,
    /// For each, the first that is not nested, from itself on.
    next: Vec<Option<u32>>,
}

impl FileBeginnings {
    fn of(mut begun: Vec<Beginning>) -> FileBeginnings {
        // A place that is nested and not is one that is: its unit says so, others know its origin only.
        begun.sort_by_key(|begun| (begun.line, !begun.is_nested));
        begun.dedup_by_key(|begun| begun.line);
        let mut last = None;
        let mut outer = Vec::with_capacity(begun.len());
        for (number, begun) in (0u32..).zip(&begun) {
            last = if begun.is_nested { last } else { Some(number) };
            outer.push(last);
        }
        let mut first = None;
        let mut next = vec![None; begun.len()];
        for (number, next) in next.iter_mut().enumerate().rev() {
            first = if begun[number].is_nested { first } else { Some(number as u32) };
            *next = first;
        }
        FileBeginnings { begun, outer, next }
    }

    /// How many begin up to a line.
    fn up_to(&self, line: u32) -> usize {
        steps::take(1);
        self.begun.partition_point(|begun| begun.line <= line)
    }
}

#[derive(Debug)]
struct Beginning {
    line: u32,
    name: String,
    /// It is inside of another procedure. The end of the last one in it is unknown, except in Fortran.
    is_nested: bool,
    /// The class of which it is a member.
    class: Option<(usize, ContainerId)>,
    /// The last line that its own code has, if it has code.
    last: Option<u32>,
}

impl Beginnings {
    /// Takes in the procedures of a unit, those without code of their own, too, and
    /// those of units that its own are declared in.
    pub(super) fn of(unit: &UnitScopes, elsewhere: &[Rc<UnitScopes>]) -> Beginnings {
        let mut files: FxHashMap<String, Vec<Beginning>> = FxHashMap::default();
        let mut last_of: FxHashMap<(String, u32), u32> = FxHashMap::default();
        for procedure in unit.procedures() {
            let Some((file, origin)) = procedure.origin.and_then(|origin| Some((origin.file()?, origin))) else {
                continue;
            };
            let Some(path) = unit.file(file) else { continue };
            let runs = procedure.ranges.iter().flat_map(|range| unit.lines(range.clone()));
            let last = runs.filter(|run| run.file == Some(file)).map(|run| run.line).max().unwrap_or(0);
            let known = last_of.entry((path.to_owned(), origin.line())).or_default();
            *known = last.max(*known);
        }
        for (number, unit) in std::iter::once(unit).chain(elsewhere.iter().map(|unit| &**unit)).enumerate() {
            // A reference from elsewhere gives the first declaration, or the definition, as its place.
            let with_code = unit.procedures().filter_map(|scope| scope.origin.map(|origin| (origin, false)));
            for (origin, is_nested) in unit.declared().chain(with_code) {
                let Some(path) = origin.file().and_then(|file| unit.file(file)) else { continue };
                // The C `main` of a Fortran program stands on a line of the program's own.
                let is_made =
                    unit.is_fortran() && origin.source_name() == Some("main") && origin.linkage_name().is_none();
                if origin.line() == 0 || is_made {
                    continue;
                }
                let name = origin.display_name().map(|name| name.into_owned()).unwrap_or_default();
                let begun = files.entry(path.to_owned()).or_default();
                // Rust's closures are in a namespace beside the procedure that they stand in.
                let is_nested = is_nested || origin.source_name().is_some_and(|name| name.starts_with("{closure"));
                let class = origin.containers().next().filter(|around| around.kind == ContainerKind::Class);
                let class = class.map(|class| (number, class.id));
                let last = last_of.get(&(path.to_owned(), origin.line())).copied();
                begun.push(Beginning { line: origin.line(), name, is_nested, class, last });
            }
        }
        let files = files.into_iter().map(|(path, begun)| (path, FileBeginnings::of(begun))).collect();
        Beginnings { files, is_fortran: unit.is_fortran() }
    }

    /// The procedure whose lines a line is among.
    fn owner(&self, path: &str, line: u32) -> Option<&Beginning> {
        if let Some(member) = self.member(path, line) {
            return Some(member);
        }
        let file = self.files.get(path)?;
        let last = file.up_to(line).checked_sub(1)?;
        let owner = if self.is_fortran { last } else { (*file.outer.get(last)?)? as usize };
        let owner = file.begun.get(owner)?;
        owner.last.is_none_or(|last| line <= last).then_some(owner)
    }

    /// The member function of a class in a procedure whose lines a line is surely among: another of the class follows.
    fn member(&self, path: &str, line: u32) -> Option<&Beginning> {
        let file = self.files.get(path)?;
        let next = file.up_to(line);
        let (member, next) = (file.begun.get(next.checked_sub(1)?)?, file.begun.get(next)?);
        (member.is_nested && member.class.is_some() && member.class == next.class).then_some(member)
    }

    /// One past the last line that may be of the procedure that begins in a line.
    fn end(&self, path: &str, start: u32) -> u32 {
        let Some(file) = self.files.get(path) else { return u32::MAX };
        let next = file.up_to(start);
        let last = next.checked_sub(1).and_then(|last| file.begun.get(last));
        let is_nested = last.is_some_and(|begun| begun.line == start && begun.is_nested);
        let outer = file.next.get(next).copied().flatten().map(|outer| outer as usize);
        let ends_it = if is_nested || self.is_fortran { Some(next) } else { outer };
        ends_it.and_then(|ends_it| file.begun.get(ends_it)).map_or(u32::MAX, |begun| begun.line)
    }
}

/// Gives the code ranges contexts: the host's, or an alien one.
pub(super) fn infer(source: &mut Source, beginnings: &Beginnings) {
    let Source { files, contexts, code_ranges, .. } = source;
    // A host of which nothing is declared (assembly) has no bounds but its file.
    let host = contexts.first().and_then(|host| host.location);
    let host_file =
        host.map(|location| location.file).or_else(|| first_location(code_ranges).map(|location| location.file));
    let path_of = |files: &Files, file: u32| files.paths.get(file as usize).cloned().unwrap_or_default();
    let native = host.map_or(0..u32::MAX, |host| host.line..beginnings.end(&path_of(files, host.file), host.line));
    let mut known: FxHashMap<(u32, u32), u32> = FxHashMap::default();
    for code_range in code_ranges {
        let Some(location) = code_range.location else { continue };
        let member = beginnings.member(&path_of(files, location.file), location.line);
        let is_members = member.is_some_and(|member| host.is_some_and(|host| member.line > host.line));
        if Some(location.file) == host_file && native.contains(&location.line) && !is_members {
            code_range.context = HOST;
            continue;
        }
        let owner = beginnings.owner(&path_of(files, location.file), location.line);
        let start = owner.map_or(0, |owner| owner.line);
        code_range.context = *known.entry((location.file, start)).or_insert_with(|| {
            contexts.push(alien(files, location.file, owner));
            contexts.len() as u32 - 1
        });
    }
}

fn alien(files: &Files, file: u32, owner: Option<&Beginning>) -> Context {
    let path = files.paths.get(file as usize).map_or("", |path| &**path);
    let file_name = path.rsplit('/').next().unwrap_or(path);
    let name = owner.map(|owner| owner.name.clone()).filter(|name| !name.is_empty());
    Context {
        parent: HOST,
        identity: 0,
        name: Some(name.unwrap_or_else(|| format!("[code of {file_name}]"))),
        location: owner.map(|owner| SourceLocation { file, line: owner.line }),
        call_site: None,
    }
}

fn first_location(code_ranges: &[CodeRange]) -> Option<SourceLocation> {
    code_ranges.iter().find_map(|code_range| code_range.location)
}
