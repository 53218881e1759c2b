//! Chooses the functions of a module that patterns name.

use callpath_format::address::LinkAddr;
use callpath_image::lines::SourceLine;
use rustc_hash::{FxHashMap, FxHashSet};

use super::address::Begun;
use super::matching::{Symbol, Wanted, without_clone};
use super::pattern::{What, is_end_of_path};
use super::source::Declared;
use super::{Function, Functions, Ifunc, Listed, Pattern, Selection};

/// What DWARF says of functions, by their entry.
type DeclaredAt = FxHashMap<LinkAddr, Declared>;

/// What a function may be told apart by; `None` where it is not known.
type Mark<'a> = &'a dyn Fn(&Listed) -> Option<String>;

impl Functions {
    /// The functions that `patterns` name.
    pub fn select(&self, patterns: &[Pattern]) -> Selection {
        let mut selection = Selection::default();
        // By index in `listed`: the first pattern that names it.
        let mut chosen: FxHashMap<usize, usize> = FxHashMap::default();
        let mut declared = DeclaredAt::default();
        let wholes = self.wholes(patterns);
        for (number, pattern) in patterns.iter().enumerate() {
            if !pattern.is_of(&self.path) {
                selection.unmatched.push(number);
                continue;
            }
            match &pattern.what {
                What::At(address) => match self.at(*address, number, &wholes) {
                    Ok(Begun::Listed(index)) => {
                        chosen.entry(index).or_insert(number);
                    }
                    Ok(Begun::Nameless(function)) => selection.chosen.push(function),
                    Err(not_entry) => selection.not_entries.push(not_entry),
                },
                What::Named { file, name } => {
                    let mut found = self.named(&Wanted::new(name));
                    if let Some(file) = file {
                        self.declare(&found, &mut declared);
                        found.retain(|index| self.is_in_file(*index, file, &declared));
                    } else if Wanted::new(name).is_more_exact() {
                        self.declare(&found, &mut declared);
                    }
                    found.retain(|index| self.may_be_exact(*index, &Wanted::new(name), &declared));
                    if found.is_empty() {
                        selection.unmatched.push(number);
                    }
                    found.into_iter().for_each(|index| {
                        chosen.entry(index).or_insert(number);
                    });
                }
            }
        }
        let mut numbered: Vec<(usize, usize)> = chosen.into_iter().collect();
        numbered.sort_unstable();
        let ifuncs: Vec<(usize, usize, Vec<usize>)> = numbered
            .iter()
            .filter(|(index, _)| self.listed.get(*index).is_some_and(|listed| listed.chooses))
            .map(|(index, number)| (*index, *number, self.implementations(*index)))
            .collect();
        let all = numbered.iter().map(|(index, _)| *index).chain(ifuncs.iter().flat_map(|(.., some)| some.clone()));
        self.declare(&self.in_question(all), &mut declared);
        let of = |index: usize, number| self.function(index, number, &declared);
        let procedures = numbered.iter().filter(|(index, _)| self.listed.get(*index).is_some_and(|one| !one.chooses));
        selection.chosen.extend(procedures.filter_map(|(index, number)| of(*index, *number)));
        selection.chosen.sort_by_key(|function| (function.entry, function.pattern));
        selection.chosen.dedup_by_key(|function| function.entry);
        selection.ifuncs.extend(ifuncs.into_iter().filter_map(|(index, number, implementations)| {
            let implementations = implementations.into_iter().filter_map(|index| of(index, number)).collect();
            Some(Ifunc { resolver: of(index, number)?, implementations })
        }));
        selection
    }

    /// Functions have this name as it is: it is no glob.
    pub(super) fn is_name(&self, wanted: &Wanted<'_>) -> bool {
        self.listed.iter().any(|listed| self.has_name(listed, wanted))
    }

    /// By index: those of the name, else those that it describes as a glob.
    fn named(&self, wanted: &Wanted<'_>) -> Vec<usize> {
        let all = |is: &dyn Fn(&Listed) -> bool| -> Vec<usize> {
            let found = self.listed.iter().enumerate().filter(|(_, listed)| is(listed));
            found.map(|(index, _)| index).collect()
        };
        let exact = all(&|listed| self.has_name(listed, wanted));
        if !exact.is_empty() || !wanted.is_glob() {
            return exact;
        }
        all(&|listed| self.symbols_named(listed).any(|symbol| wanted.describes_symbol(&symbol)))
    }

    fn has_name(&self, listed: &Listed, wanted: &Wanted<'_>) -> bool {
        self.symbols_named(listed).any(|symbol| wanted.is_symbol(&symbol))
    }

    /// All names of a function.
    fn symbols_named<'a>(&'a self, listed: &'a Listed) -> impl Iterator<Item = Symbol<'a>> {
        let known = |name: &str| (name == listed.raw_name).then_some(&*listed.name);
        self.symbols_of(listed).iter().map(move |symbol| Symbol {
            name: &symbol.name,
            version: symbol.version.as_deref(),
            demangled: known(&symbol.name),
        })
    }

    /// Reads what DWARF says of functions, where it is not known yet.
    fn declare(&self, indices: &[usize], declared: &mut DeclaredAt) {
        let entries = indices.iter().filter_map(|index| Some(self.listed.get(*index)?.entry));
        let unknown: Vec<LinkAddr> = entries.filter(|entry| !declared.contains_key(entry)).collect();
        if !unknown.is_empty() {
            declared.extend(self.declared(&unknown));
        }
    }

    /// Those of whom more has to be known than symbols say: all of one name, and Rust's.
    fn in_question(&self, indices: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut found: FxHashSet<usize> = FxHashSet::default();
        for index in indices {
            let Some(listed) = self.listed.get(index) else { continue };
            found.extend(self.namesakes(&listed.name));
            if listed.is_inexact {
                found.insert(index);
            }
        }
        found.into_iter().collect()
    }

    fn is_in_file(&self, index: usize, file: &str, declared: &DeclaredAt) -> bool {
        let Some(listed) = self.listed.get(index) else { return false };
        let place = declared.get(&listed.entry).and_then(|declared| declared.place.as_ref());
        let is_units = || self.unit_file_of(listed).is_some_and(|unit| is_end_of_path(file, unit));
        place.is_some_and(|place| is_end_of_path(file, &place.file)) || is_units()
    }

    /// Its exact name, as far as that is known, does not say that a Rust function of the name is another one.
    fn may_be_exact(&self, index: usize, wanted: &Wanted<'_>, declared: &DeclaredAt) -> bool {
        let Some(listed) = self.listed.get(index) else { return false };
        let is_known = || listed.raw_name.starts_with("_R") || declared.contains_key(&listed.entry);
        // A linker's name was typed, which is exact.
        let is_raw = wanted.is_raw(&listed.raw_name);
        is_raw || !is_known() || wanted.may_be_exact(Functions::exact_name(listed, declared))
    }

    /// The name with what DWARF says more of it.
    fn exact_name<'a>(listed: &'a Listed, declared: &'a DeclaredAt) -> &'a str {
        let exact = declared.get(&listed.entry).filter(|_| listed.is_inexact);
        exact.and_then(|exact| exact.name.as_deref()).unwrap_or(&listed.name)
    }

    fn function(&self, index: usize, pattern: usize, declared: &DeclaredAt) -> Option<Function> {
        let listed = self.listed.get(index)?;
        Some(Function {
            entry: listed.entry,
            size_bytes: listed.size_bytes,
            name: Functions::exact_name(listed, declared).to_owned(),
            raw_name: listed.raw_name.clone(),
            place: declared.get(&listed.entry).and_then(|declared| declared.place.clone()),
            unit_file: self.unit_file_of(listed).map(str::to_owned),
            is_exported: listed.is_exported,
            distinguishing: self.distinguishing(listed, declared),
            pattern,
        })
    }

    /// The first of these that no other function of the name has: version, line, file, linker's name; else the address.
    fn distinguishing(&self, listed: &Listed, declared: &DeclaredAt) -> Option<String> {
        let name = Functions::exact_name(listed, declared);
        let namesakes = self.namesakes(&listed.name).iter().filter_map(|index| self.listed.get(*index));
        let others: Vec<&Listed> = namesakes
            .filter(|other| other.entry != listed.entry && Functions::exact_name(other, declared) == name)
            .collect();
        if others.is_empty() {
            return None;
        }
        let place = |of: &Listed| declared.get(&of.entry).and_then(|declared| declared.place.clone());
        let last = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let version = |of: &Listed| {
            let named =
                self.symbols_of(of).iter().find(|symbol| symbol.name == of.raw_name && symbol.version.is_some())?;
            Some(format!("{}{}", named.name, named.version.as_ref()?))
        };
        let is_mangled = |of: &&Listed| of.raw_name != of.name;
        let kinds: [Mark<'_>; 5] = [
            &|of| version(of).filter(|_| !is_mangled(&of)),
            &|of| place(of).map(|SourceLine { file, line }| format!("{}:{line}", last(&file))),
            &|of| place(of).map(|SourceLine { file, line }| format!("{file}:{line}")),
            &|of| self.unit_file_of(of).map(str::to_owned),
            &|of| Some(of).filter(is_mangled).map(|of| of.raw_name.clone()),
        ];
        let unique = kinds.iter().find_map(|kind| {
            let own = kind(listed)?;
            others.iter().all(|other| kind(other).as_ref() != Some(&own)).then_some(own)
        });
        Some(unique.unwrap_or_else(|| format!("+{:#x}", listed.entry)))
    }

    /// `__memcpy_avx_unaligned` of `memcpy`, `f.avx2` of `f`: those whose names say that this one chooses them.
    fn implementations(&self, index: usize) -> Vec<usize> {
        let Some(ifunc) = self.listed.get(index) else { return Vec::new() };
        let names = |of: &Listed| -> Vec<String> {
            let names = self.symbols_of(of).iter().map(|symbol| symbol.name.trim_start_matches('_').to_owned());
            names.collect()
        };
        let own = names(ifunc);
        let of_own = |name: &str, own: &str| {
            let is_clone = without_clone(name) == own && name != own;
            is_clone || name.strip_prefix(own).is_some_and(|rest| rest.starts_with('_'))
        };
        // `memcpy_chk` chooses itself, and has implementations of its own.
        let longer: Vec<String> = self.listed.iter().filter(|other| other.chooses).flat_map(names).collect();
        let longer: Vec<&String> = longer.iter().filter(|name| own.iter().any(|own| of_own(name, own))).collect();
        let is_one = |listed: &Listed| {
            !listed.chooses
                && !listed.is_exported
                && names(listed).iter().any(|name| {
                    own.iter().any(|own| of_own(name, own)) && !longer.iter().any(|longer| of_own(name, longer))
                })
        };
        let found = self.listed.iter().enumerate().filter(|(_, listed)| is_one(listed));
        found.map(|(index, _)| index).collect()
    }
}
