//! The functions that were meant, found in each module of the process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callpath_analyze::functions::{Functions, Ifunc, Pattern, unknown};
use callpath_format::address::LinkAddr;
use callpath_image::elf::Image;
use callpath_record::Chooser;

use crate::surroundings;

/// So many are named of what is not probed.
const NAMED: usize = 5;

/// What is meant, and what of it was found.
pub(super) struct Choice {
    patterns: Vec<Pattern>,
    modules: Vec<Functions>,
    /// By pattern, whether it has named something.
    is_found: Vec<bool>,
    names: BTreeMap<(PathBuf, LinkAddr), String>,
    notes: Vec<String>,
}

impl Choice {
    pub(super) fn new(patterns: Vec<Pattern>) -> Choice {
        let is_found = vec![false; patterns.len()];
        Choice { patterns, modules: Vec::new(), is_found, names: BTreeMap::new(), notes: Vec::new() }
    }

    /// What the user should know of what was found.
    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Says how many there are beyond those that are named.
    fn note_others(&mut self, count: usize, what: &str) {
        if let Some(others) = count.checked_sub(NAMED).filter(|others| *others > 0) {
            self.notes.push(format!("{others} other {what}"));
        }
    }

    /// Why nothing has the name of a pattern, with the names that may have been meant.
    fn unknown(&self, pattern: &Pattern) -> String {
        let modules: Vec<&Functions> = self.modules.iter().collect();
        unknown(pattern, &modules)
    }
}

impl Chooser for Choice {
    fn choose(&mut self, image: &Arc<Image>, path: &Path) -> Vec<LinkAddr> {
        let functions = Functions::of(image, path, &surroundings::debug_roots());
        let selection = functions.select(&self.patterns);
        for function in &selection.chosen {
            if let Some(found) = self.is_found.get_mut(function.pattern) {
                *found = true;
            }
            self.names.insert((path.to_owned(), function.entry), function.name.clone());
        }
        for Ifunc { resolver, implementations } in selection.ifuncs.iter().take(NAMED) {
            let names: Vec<&str> = implementations.iter().map(|function| function.name.as_str()).collect();
            let names = if names.is_empty() { String::new() } else { format!("; it knows {}", names.join(", ")) };
            self.notes.push(format!(
                "{} chooses one of several functions when the program starts, and is not probed itself{names}",
                resolver.name
            ));
        }
        self.note_others(
            selection.ifuncs.len(),
            "functions are chosen when the program starts, and not probed themselves",
        );
        for not_entry in &selection.not_entries {
            self.notes.push(not_entry.describe(path).to_string());
        }
        let inlined = functions.inlined(&self.patterns);
        self.note_others(inlined.len(), "functions are inlined in places that are not probed");
        for (number, inlined) in inlined.into_iter().enumerate() {
            if let Some(found) = self.is_found.get_mut(inlined.pattern) {
                *found = true;
            }
            if number >= NAMED {
                continue;
            }
            let places: Vec<String> = inlined.copies.iter().take(3).map(|copy| copy.caller.to_string()).collect();
            self.notes.push(format!(
                "{} is inlined in {} place{}, not probed (in {}{})",
                inlined.name,
                inlined.copies.len(),
                if inlined.copies.len() == 1 { "" } else { "s" },
                places.join(", "),
                if inlined.copies.len() > places.len() { ", ..." } else { "" }
            ));
        }
        self.modules.push(functions);
        selection.chosen.iter().map(|function| function.entry).collect()
    }

    fn add(&mut self, patterns: &[String]) -> Result<(), String> {
        for typed in patterns {
            let pattern = Pattern::parse(typed).map_err(|error| format!("failed to {error}"))?;
            if !self.patterns.contains(&pattern) {
                self.patterns.push(pattern);
                self.is_found.push(false);
            }
        }
        // All modules are looked at again.
        self.modules.clear();
        Ok(())
    }

    fn is_meant(&self, patterns: &[String], path: &Path, entry: LinkAddr) -> Result<bool, String> {
        let parsed: Result<Vec<Pattern>, _> = patterns.iter().map(|typed| Pattern::parse(typed)).collect();
        let parsed = parsed.map_err(|error| format!("failed to {error}"))?;
        let mut of_path = self.modules.iter().filter(|functions| functions.path() == path);
        Ok(of_path.any(|functions| functions.select(&parsed).chosen.iter().any(|function| function.entry == entry)))
    }

    fn name(&self, path: &Path, entry: LinkAddr) -> String {
        let module = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        match self.names.get(&(path.to_owned(), entry)) {
            Some(name) => format!("{module}!{name}"),
            None => format!("{module}+{:#x}", entry.0),
        }
    }

    fn check(&mut self) -> Result<(), String> {
        let missing: Vec<&Pattern> = self
            .patterns
            .iter()
            .zip(&self.is_found)
            .filter(|(_, found)| !**found)
            .map(|(pattern, _)| pattern)
            .collect();
        let reasons: Vec<String> = missing.iter().map(|pattern| self.unknown(pattern)).collect();
        // A library may come later.
        let is_of_none = |pattern: &&Pattern| {
            pattern.module().is_some() && !self.modules.iter().any(|functions| pattern.is_of(functions.path()))
        };
        if missing.len() == self.patterns.len() && !missing.iter().any(is_of_none) {
            return Err(reasons.join("; "));
        }
        self.notes.extend(reasons);
        Ok(())
    }
}
