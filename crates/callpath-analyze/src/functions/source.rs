//! What DWARF says of functions: where they are declared, their exact names, and the calls of them that were inlined.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Scope as Threads};

use callpath_format::address::LinkAddr;
use callpath_image::lines::SourceLine;
use callpath_image::scopes::{FileId, Origin, Scope, ScopeKind, Scopes, UnitId, UnitScopes};
use rustc_hash::FxHashMap;

use super::matching::{Symbol, Wanted};
use super::pattern::{What, is_end_of_path};
use super::{Functions, Pattern};
use crate::permits::Permit;

/// The copies of one function that were inlined into others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inlined {
    /// The pattern that names it, by its index.
    pub pattern: usize,
    /// The function, as reports show it.
    pub name: String,
    /// Where it is declared.
    pub place: Option<SourceLine>,
    /// Each copy, by ascending address.
    pub copies: Vec<InlinedAt>,
}

/// One call that was replaced by the callee's body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InlinedAt {
    /// Where the copy begins: the lowest address of its code.
    pub address: LinkAddr,
    /// The function in whose source the call stands; it may be inlined itself.
    pub caller: Arc<str>,
    /// The line of the call.
    pub call: Option<SourceLine>,
}

/// What DWARF says of a function with code.
#[derive(Clone, Debug)]
pub(super) struct Declared {
    /// Its name, for people.
    pub(super) name: Option<String>,
    pub(super) place: Option<SourceLine>,
}

impl Functions {
    /// Where the procedures that begin at `entries` are declared. Reads their units.
    pub(super) fn declared(&self, entries: &[LinkAddr]) -> FxHashMap<LinkAddr, Declared> {
        let Some(scopes) = self.scopes() else { return FxHashMap::default() };
        let mut by_unit: FxHashMap<UnitId, Vec<LinkAddr>> = FxHashMap::default();
        for entry in entries {
            if let Some(unit) = scopes.unit_at(*entry) {
                by_unit.entry(unit).or_default().push(*entry);
            }
        }
        let units: Vec<UnitId> = by_unit.keys().copied().collect();
        let found = self.each_unit(scopes, &units, |unit| {
            let mut files = Files::of(unit);
            let of = |entry: &LinkAddr, files: &mut Files<'_>| {
                let origin = unit.procedure_at(*entry)?.origin?;
                let name = origin.display_name().map(|name| name.into_owned());
                Some((*entry, Declared { name, place: files.place(origin.file(), origin.line()) }))
            };
            let entries = by_unit.get(&unit.id()).into_iter().flatten();
            entries.filter_map(|entry| of(entry, &mut files)).collect()
        });
        found.into_iter().collect()
    }

    /// Where the functions that begin at `entries` are declared, as far as DWARF says it. Reads their units.
    pub fn places(&self, entries: &[LinkAddr]) -> FxHashMap<LinkAddr, SourceLine> {
        let declared = self.declared(entries).into_iter();
        declared.filter_map(|(entry, declared)| Some((entry, declared.place?))).collect()
    }

    /// The calls of functions that patterns name which were inlined: by pattern, name and place. Reads all DWARF; none
    /// are known without it ([`Functions::has_dwarf`]). An address names no source function: it has none.
    pub fn inlined(&self, patterns: &[Pattern]) -> Vec<Inlined> {
        let wanted = self.wanted_names(patterns);
        // Others than are kept: these bound how much is read of all units together.
        let Some(scopes) = self.new_scopes().filter(|_| !wanted.is_empty()) else { return Vec::new() };
        let units: Vec<UnitId> = scopes.units().collect();
        let copies = self.each_unit(&scopes, &units, |unit| copies_of(unit, &wanted));
        let mut functions: FxHashMap<(usize, Arc<str>, Option<SourceLine>), Vec<InlinedAt>> = FxHashMap::default();
        for copy in copies {
            functions.entry((copy.pattern, copy.name, copy.place)).or_default().push(copy.at);
        }
        let sorted = functions.into_iter().map(|((pattern, name, place), mut copies)| {
            copies.sort_by(|a, b| (a.address, &a.call_key()).cmp(&(b.address, &b.call_key())));
            // Units that linkers took one copy of code from may describe it each.
            copies.dedup();
            Inlined { pattern, name: name.to_string(), place, copies }
        });
        let mut sorted: Vec<Inlined> = sorted.collect();
        sorted
            .sort_by(|a, b| (a.pattern, &a.name, place_key(&a.place)).cmp(&(b.pattern, &b.name, place_key(&b.place))));
        sorted
    }

    fn wanted_names<'a>(&self, patterns: &'a [Pattern]) -> Vec<WantedOrigin<'a>> {
        let of_module = patterns.iter().enumerate().filter(|(_, pattern)| pattern.is_of(self.path()));
        let named = of_module.filter_map(|(number, pattern)| match &pattern.what {
            What::Named { file, name } => {
                Some(WantedOrigin { number, file: file.as_deref(), name: Wanted::new(name), is_exact: true })
            }
            What::At(_) => None,
        });
        let mut named: Vec<WantedOrigin<'a>> = named.collect();
        for wanted in &mut named {
            // A name with a `*` in it that functions have is no glob.
            wanted.is_exact = !wanted.name.is_glob() || self.is_name(&wanted.name);
        }
        named
    }
}

/// A source function that a pattern names.
struct WantedOrigin<'a> {
    number: usize,
    file: Option<&'a str>,
    name: Wanted<'a>,
    is_exact: bool,
}

impl WantedOrigin<'_> {
    fn is(&self, origin: &Origin<'_>, path: &str) -> bool {
        if !self.file.is_none_or(|file| is_end_of_path(file, path)) {
            return false;
        }
        if origin.name().is_none_or(|name| !self.name.may_be_symbol(name)) {
            return false;
        }
        let display = origin.display_name();
        let is_symbol = |name: &str| {
            let symbol = Symbol { name, version: None, demangled: None };
            if self.is_exact { self.name.is_symbol(&symbol) } else { self.name.describes_symbol(&symbol) }
        };
        let is_display = |name: &str| match self.is_exact {
            true => self.name.is_demangled(name) && self.name.may_be_exact(name),
            false => self.name.describes_demangled(name),
        };
        display.as_deref().is_some_and(is_display)
            || origin.linkage_name().is_some_and(is_symbol)
                && display.as_deref().is_none_or(|name| self.name.may_be_exact(name))
    }
}

struct Copy {
    pattern: usize,
    name: Arc<str>,
    place: Option<SourceLine>,
    at: InlinedAt,
}

fn copies_of(unit: &UnitScopes, wanted: &[WantedOrigin<'_>]) -> Vec<Copy> {
    let mut files = Files::of(unit);
    let mut names = Names::default();
    // The patterns that name an origin: looked for once.
    let mut matched: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
    let mut found = Vec::new();
    for scope in unit.scopes().filter(|scope| scope.kind == ScopeKind::InlinedCall) {
        let Some((origin, address)) = scope.origin.zip(scope.ranges.iter().map(|range| range.start).min()) else {
            continue;
        };
        let matches = matched.entry(origin.index()).or_insert_with(|| {
            let path = origin.file().and_then(|file| unit.file(file)).unwrap_or_default();
            wanted.iter().filter(|wanted| wanted.is(&origin, path)).map(|wanted| wanted.number).collect()
        });
        for pattern in matches {
            let caller = scope.parent.and_then(|parent| unit.scope(parent));
            found.push(Copy {
                pattern: *pattern,
                name: names.of(&scope),
                place: files.place(origin.file(), origin.line()),
                at: InlinedAt {
                    address,
                    caller: caller.map_or_else(|| Arc::from(""), |caller| names.of(&caller)),
                    call: scope.call.and_then(|call| files.place(call.file, call.line)),
                },
            });
        }
    }
    found
}

/// The names of a unit's source functions, shared.
#[derive(Default)]
struct Names(FxHashMap<u32, Arc<str>>);

impl Names {
    fn of(&mut self, scope: &Scope<'_>) -> Arc<str> {
        let Some(origin) = scope.origin else { return Arc::from("") };
        let read = || origin.display_name().map_or_else(|| Arc::from(""), |name| Arc::from(&*name));
        Arc::clone(self.0.entry(origin.index()).or_insert_with(read))
    }
}

/// The paths of a unit's files, shared.
struct Files<'a> {
    unit: &'a UnitScopes,
    paths: FxHashMap<FileId, Arc<str>>,
}

impl<'a> Files<'a> {
    fn of(unit: &'a UnitScopes) -> Files<'a> {
        Files { unit, paths: FxHashMap::default() }
    }

    /// `line` is 0 where it is not known.
    fn place(&mut self, file: Option<FileId>, line: u32) -> Option<SourceLine> {
        let (file, path) = file.filter(|_| line != 0).and_then(|file| Some((file, self.unit.file(file)?)))?;
        let file = Arc::clone(self.paths.entry(file).or_insert_with(|| Arc::from(path)));
        Some(SourceLine { file, line })
    }
}

impl InlinedAt {
    fn call_key(&self) -> (Option<(&str, u32)>, &str) {
        (place_key(&self.call), &self.caller)
    }
}

fn place_key(place: &Option<SourceLine>) -> Option<(&str, u32)> {
    place.as_ref().map(|place| (&*place.file, place.line))
}

/// Units to be read, and what was found in them.
struct Work<'a, T, F> {
    scopes: &'a Scopes,
    units: &'a [UnitId],
    of: F,
    next: AtomicUsize,
    found: Mutex<(Vec<T>, Vec<String>)>,
}

impl<T: Send, F: Fn(&UnitScopes) -> Vec<T> + Sync> Work<'_, T, F> {
    /// Takes units until none is left. Whenever a processor is free, another thread helps.
    fn run<'s>(&'s self, threads: &'s Threads<'s, '_>) {
        while let Some(unit) = self.units.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let is_last = self.next.load(Ordering::Relaxed) >= self.units.len();
            if let Some(permit) = if is_last { None } else { Permit::take() } {
                let help = move || {
                    permit.begin();
                    self.run(threads);
                    drop(permit);
                };
                // Without it this one does all: where no thread can be begun, none is lost.
                drop(Builder::new().spawn_scoped(threads, help));
            }
            let (mut found, odd) = match self.scopes.read(*unit) {
                Ok(unit) => ((self.of)(&unit), unit.diagnostics().iter().map(ToString::to_string).collect()),
                Err(error) => (Vec::new(), vec![error.to_string()]),
            };
            let mut all = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            all.0.append(&mut found);
            all.1.extend(odd.into_iter().map(|error| format!("failed to {error}")));
        }
    }
}

impl Functions {
    /// What `of` finds in units, in no order; other threads help as far as there are processors.
    fn each_unit<T: Send>(
        &self,
        scopes: &Scopes,
        units: &[UnitId],
        of: impl Fn(&UnitScopes) -> Vec<T> + Sync,
    ) -> Vec<T> {
        let work = Work { scopes, units, of, next: AtomicUsize::new(0), found: Mutex::default() };
        let permit = Permit::of_caller();
        std::thread::scope(|threads| work.run(threads));
        drop(permit);
        let (found, odd) = work.found.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.odd.lock().unwrap_or_else(PoisonError::into_inner).extend(odd);
        found
    }
}
