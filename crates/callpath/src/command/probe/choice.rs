//! The functions that were meant, found in each module of the process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callpath_analyze::functions::{Function, Functions, Ifunc, Inlined, Pattern, Selection, unknown};
use callpath_format::address::LinkAddr;
use callpath_image::elf::Image;
use callpath_image::exports::imports_any;
use callpath_record::{Chooser, Come, Unknown};

use crate::{output, surroundings};

/// So many are named of what is not probed.
const NAMED: usize = 5;

/// So many modules are remembered; of more, those in which something has a name that was meant.
const MOST_MODULES: usize = 1000;

/// What inlined calls need to be seen.
const WITHOUT_DWARF: &str = "calls that the compiler inlined cannot be seen: there is no debug information";

/// The C library's functions that execute a program.
const EXECUTING: [&str; 13] = [
    "execve",
    "execv",
    "execvp",
    "execvpe",
    "execl",
    "execlp",
    "execle",
    "fexecve",
    "execveat",
    "posix_spawn",
    "posix_spawnp",
    "system",
    "popen",
];

/// What is meant, and what of it was found.
pub(in crate::command) struct Choice {
    patterns: Vec<Pattern>,
    /// What was added last.
    added: Vec<Pattern>,
    /// Whether executed programs are probed, too.
    come: Come,
    modules: Vec<InModule>,
    names: BTreeMap<(PathBuf, LinkAddr), String>,
}

/// What patterns name in one module.
pub(super) struct InModule {
    pub(super) image: Arc<Image>,
    pub(super) functions: Functions,
    pub(super) selection: Selection,
    pub(super) inlined: Vec<Inlined>,
}

impl InModule {
    /// What is probed: functions that are named, and those between which a named one chooses, with that one. By
    /// ascending entry, each once.
    pub(super) fn probed(&self) -> Vec<(&Function, Option<&Function>)> {
        let Selection { chosen, ifuncs, .. } = &self.selection;
        let of_ifunc = |ifunc: &'_ Ifunc| ifunc.implementations.len();
        let mut all = Vec::with_capacity(chosen.len() + ifuncs.iter().map(of_ifunc).sum::<usize>());
        all.extend(chosen.iter().map(|function| (function, None)));
        for Ifunc { resolver, implementations } in ifuncs {
            all.extend(implementations.iter().map(|function| (function, Some(resolver))));
        }
        // One that was named itself stands first.
        all.sort_by_key(|(function, _)| function.entry);
        all.dedup_by_key(|(function, _)| function.entry);
        all
    }

    /// Whether it asks for libraries while it runs.
    fn opens_libraries(&self) -> bool {
        self.uses(&["dlopen", "dlmopen"])
    }

    /// Whether it may execute other programs.
    fn executes(&self) -> bool {
        self.uses(&EXECUTING)
    }

    /// Whether it has one of these functions from others. The C library, which has them, calls them for purposes of its own.
    fn uses(&self, functions: &[&str]) -> bool {
        let file = self.functions.path().file_name().unwrap_or_default().to_string_lossy();
        let is_of_c = ["libc.so", "libc-2", "libdl.so", "libdl-2"].iter().any(|begin| file.starts_with(begin));
        !is_of_c && imports_any(&self.image, functions)
    }

    /// What is probed, by name.
    fn names(&self) -> Vec<((PathBuf, LinkAddr), String)> {
        let path = self.functions.path();
        let probed = self.probed().into_iter();
        probed.map(|(function, _)| ((path.to_owned(), function.entry), function.name.clone())).collect()
    }

    /// Whether a pattern, by its index, names something here: also what cannot be probed.
    fn knows(&self, pattern: usize) -> bool {
        let is_named = !self.selection.unmatched.contains(&pattern);
        is_named || self.inlined.iter().any(|inlined| inlined.pattern == pattern)
    }
}

impl Choice {
    /// What somebody typed.
    ///
    /// # Errors
    /// Where that is no pattern.
    pub(in crate::command) fn typed(patterns: &[String]) -> anyhow::Result<Choice> {
        let patterns: Result<Vec<Pattern>, _> = patterns.iter().map(|typed| Pattern::parse(typed)).collect();
        Ok(Choice::new(patterns.map_err(|error| anyhow::anyhow!("{error}"))?))
    }

    fn new(patterns: Vec<Pattern>) -> Choice {
        Choice { patterns, added: Vec::new(), come: Come::Libraries, modules: Vec::new(), names: BTreeMap::new() }
    }

    /// What was typed, in its order.
    pub(super) fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// What was found in each module that was looked at.
    pub(super) fn modules(&self) -> &[InModule] {
        &self.modules
    }

    /// The patterns that name nothing in any module, also nothing that is inlined everywhere.
    pub(in crate::command) fn unknown(&self) -> Vec<&Pattern> {
        let numbered = self.patterns.iter().enumerate();
        let unknown = numbered.filter(|(number, _)| !self.modules.iter().any(|module| module.knows(*number)));
        unknown.map(|(_, pattern)| pattern).collect()
    }

    /// Why nothing has the name of a pattern, with the names that may have been meant.
    pub(in crate::command) fn why_unknown(&self, pattern: &Pattern) -> String {
        let modules: Vec<&Functions> = self.modules.iter().map(|module| &module.functions).collect();
        unknown(pattern, &modules)
    }

    /// What the user should know of what was found.
    pub(in crate::command) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for module in &self.modules {
            notes.extend(of_ifuncs(&module.selection.ifuncs));
            let path = module.functions.path();
            notes.extend(module.selection.not_entries.iter().map(|not_entry| not_entry.describe(path).to_string()));
            notes.extend(of_inlined(&module.inlined));
        }
        notes.extend(self.without_dwarf());
        notes.extend(self.unknown().into_iter().map(|pattern| self.why_unknown(pattern)));
        notes
    }

    /// Says that inlined calls cannot be seen, where that is so of all modules that are meant.
    pub(super) fn without_dwarf(&self) -> Option<String> {
        let is_meant = |functions: &Functions| {
            let mut named = self.patterns.iter().filter(|pattern| pattern.name().is_some());
            named.any(|pattern| pattern.is_of(functions.path()))
        };
        let mut meant = self.modules.iter().map(|module| &module.functions).filter(|f| is_meant(f)).peekable();
        let is_said = meant.peek().is_some() && !meant.any(Functions::has_scopes);
        is_said.then(|| WITHOUT_DWARF.to_owned())
    }

    /// Whether there is a function with one of the names in a module that was looked at.
    fn has_any(&self) -> bool {
        self.modules.iter().any(|module| !module.probed().is_empty())
    }

    /// Whether a pattern names a library: it may be loaded later.
    pub(in crate::command) fn names_libraries(&self) -> bool {
        self.patterns.iter().any(|pattern| pattern.module().is_some_and(|module| module.contains(".so")))
    }

    /// Why nothing can be probed. `None`: something can, or a library may come that has it.
    pub(in crate::command) fn nothing(&self) -> Option<String> {
        let may_come = self.patterns.iter().any(|pattern| self.is_of_none(pattern));
        (!self.has_any() && !may_come).then(|| self.notes().join("; "))
    }

    /// Whether a pattern is of a module that is not there.
    fn is_of_none(&self, pattern: &Pattern) -> bool {
        pattern.module().is_some() && !self.modules.iter().any(|module| pattern.is_of(module.functions.path()))
    }

    /// Of patterns that name nothing, those of which a library may have something that comes later: those of a module that
    /// is not there, and in a program that opens libraries those of any module.
    fn awaited(&self) -> Vec<&Pattern> {
        let opens = self.modules.iter().any(InModule::opens_libraries);
        let may_come = |pattern: &&Pattern| self.is_of_none(pattern) || opens && pattern.module().is_none();
        self.unknown().into_iter().filter(may_come).collect()
    }

    /// Whether programs may come that are probed.
    fn programs_may_come(&self) -> bool {
        self.come == Come::Programs && self.modules.iter().any(InModule::executes)
    }
}

impl Choice {
    /// What was found in a module. It may be mapped by many programs.
    fn found_in(&self, image: &Image, path: &Path) -> Option<&InModule> {
        let is_it = |of: &&InModule| {
            of.functions.path() == path
                && of.image.bytes().len() == image.bytes().len()
                && of.image.identity() == image.identity()
        };
        self.modules.iter().find(is_it)
    }
}

impl Chooser for Choice {
    fn choose(&mut self, image: &Arc<Image>, path: &Path) -> Vec<LinkAddr> {
        if let Some(found) = self.found_in(image, path) {
            return found.probed().iter().map(|(function, _)| function.entry).collect();
        }
        let functions = Functions::of(image, path, &surroundings::debug_roots());
        let selection = functions.select(&self.patterns);
        let inlined = functions.inlined(&self.patterns);
        let module = InModule { image: Arc::clone(image), functions, selection, inlined };
        let probed = module.probed();
        self.names.extend(module.names());
        let entries = probed.iter().map(|(function, _)| function.entry).collect();
        if self.modules.len() >= MOST_MODULES {
            let patterns = self.patterns.len();
            let mut first = MOST_MODULES / 2;
            self.modules.retain(|module| {
                let is_first = first > 0;
                first -= usize::from(is_first);
                is_first || (0..patterns).any(|pattern| module.knows(pattern))
            });
        }
        self.modules.push(module);
        entries
    }

    fn add(&mut self, patterns: &[String]) -> Result<(), String> {
        self.added = parsed(patterns)?;
        if !self.programs_may_come() {
            // What named nothing is forgotten.
            let unknown: Vec<Pattern> = Choice::unknown(self).into_iter().cloned().collect();
            self.patterns.retain(|pattern| !unknown.contains(pattern) || pattern.module().is_some());
        }
        for pattern in &self.added {
            if !self.patterns.contains(pattern) {
                self.patterns.push(pattern.clone());
            }
        }
        for module in &mut self.modules {
            module.selection = module.functions.select(&self.patterns);
            module.inlined = module.functions.inlined(&self.patterns);
            self.names.extend(module.names());
        }
        Ok(())
    }

    fn meant(&self, patterns: &[String], image: &Image, path: &Path) -> Result<Vec<LinkAddr>, String> {
        let patterns = parsed(patterns)?;
        let Some(module) = self.found_in(image, path) else { return Ok(Vec::new()) };
        let selection = module.functions.select(&patterns);
        let implementations = selection.ifuncs.iter().flat_map(|ifunc| &ifunc.implementations);
        let mut meant: Vec<LinkAddr> =
            selection.chosen.iter().chain(implementations).map(|function| function.entry).collect();
        meant.sort_unstable();
        Ok(meant)
    }

    fn name(&self, path: &Path, entry: LinkAddr) -> String {
        let module = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        match self.names.get(&(path.to_owned(), entry)) {
            Some(name) => format!("{module}!{name}"),
            None => format!("{module}+{:#x}", entry.0),
        }
    }

    fn unknown(&self) -> Unknown {
        let unknown = Choice::unknown(self).into_iter().filter(|pattern| self.added.contains(pattern));
        let why: Vec<String> = unknown.map(|pattern| self.why_unknown(pattern)).collect();
        Unknown { why, may_come: self.programs_may_come() }
    }

    fn check(&mut self, come: Come) -> Result<(), String> {
        self.come = come;
        if self.has_any() || self.programs_may_come() {
            return Ok(());
        }
        let awaited = self.awaited();
        if awaited.is_empty() {
            return self.nothing().map_or(Ok(()), Err);
        }
        for pattern in awaited {
            output::say(format_args!(
                "{}; it will be probed if a library that has it is loaded",
                self.why_unknown(pattern)
            ));
        }
        Ok(())
    }
}

/// What somebody typed while it runs.
fn parsed(patterns: &[String]) -> Result<Vec<Pattern>, String> {
    let parsed: Result<Vec<Pattern>, _> = patterns.iter().map(|typed| Pattern::parse(typed)).collect();
    parsed.map_err(|error| format!("failed to {error}"))
}

/// What becomes of functions that choose others.
fn of_ifuncs(ifuncs: &[Ifunc]) -> Vec<String> {
    let describe = |Ifunc { resolver, implementations }: &Ifunc| {
        let names: Vec<&str> = implementations.iter().take(NAMED).map(|function| function.name.as_str()).collect();
        let count = implementations.len();
        let more = count.checked_sub(names.len()).filter(|more| *more > 0);
        let more = more.map_or_else(String::new, |more| format!(" and {more} more"));
        match count {
            0 => format!(
                "{} chooses its implementation when it is loaded, and no symbol names one: it is not probed",
                resolver.name
            ),
            _ => format!(
                "{} chooses one of these when it is loaded, all are probed: {}{more}",
                resolver.name,
                names.join(", ")
            ),
        }
    };
    named(ifuncs, describe, "functions choose their implementations when they are loaded")
}

fn of_inlined(inlined: &[Inlined]) -> Vec<String> {
    let describe = |inlined: &Inlined| {
        let places: Vec<String> = inlined.copies.iter().take(3).map(|copy| copy.caller.to_string()).collect();
        format!(
            "{} is inlined in {} place{}, not probed (in {}{})",
            inlined.name,
            inlined.copies.len(),
            if inlined.copies.len() == 1 { "" } else { "s" },
            places.join(", "),
            if inlined.copies.len() > places.len() { ", ..." } else { "" }
        )
    };
    named(inlined, describe, "functions are inlined in places that are not probed")
}

/// A line for each of the first ones, and how many others there are.
fn named<T>(all: &[T], describe: impl Fn(&T) -> String, what: &str) -> Vec<String> {
    let mut lines: Vec<String> = all.iter().take(NAMED).map(describe).collect();
    let others = all.len().checked_sub(NAMED).filter(|others| *others > 0);
    lines.extend(others.map(|others| format!("{others} other {what}")));
    lines
}
