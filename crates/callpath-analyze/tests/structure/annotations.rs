//! Annotations in sources: which loops and inlined calls a person sees there, in which context.
//!
//! ```text
//! for (i = 0; i < n; i++) //@ loop rows: fill, main > fill()
//!     x += area(i);       //@ O1+ inlined area: fill > rows, main > fill() > rows
//! ```
//!
//! After `@` clauses stand between semicolons: for which compilers, options and levels (all, if none is named), `loop`
//! and what it is called here, or `inlined` and the procedure's name, and each context that it stands in: the
//! procedure, then loops by what they are called, and inlined calls by the procedure's name and `()`. A loop's line is
//! that of its `for`, `while` or `do`, where the line map has it, else that of its first statement. An inlined call's
//! line is the call's. `line`, and a name of it, and the scope that all of the line's code is in, wherever the compiler
//! put it. `may` before a clause: a compiler may leave it out or not, as it sees fit; it is not counted. `shared`: it
//! has its header in common with the loop around it, so that machine code alone does not tell it.

use std::collections::BTreeMap;
use std::path::Path;

/// What is expected of one file at one level.
#[derive(Clone, Default)]
pub(crate) struct Annotations {
    /// What the loop of a line is called: by file name and line.
    pub(crate) loops: BTreeMap<(String, u32), String>,
    /// The scope that all code of a line is in: by file name and line.
    pub(crate) lines: BTreeMap<(String, u32), String>,
    /// Paths of scopes that must be found, as often as they stand here.
    pub(crate) expected: Vec<String>,
    /// Those of them that only lines distinguish from the loops around them.
    pub(crate) shared: Vec<String>,
    /// Paths of loops that may be found.
    pub(crate) allowed: Vec<String>,
}

/// The annotations of a source and of what lies beside it under the same name, for
/// a level and what else selectors may name.
pub(crate) fn read(source: &Path, words: &[&str], level: &str) -> Annotations {
    let mut annotations = Annotations::default();
    let stem = source.file_stem().unwrap().to_str().unwrap();
    for entry in std::fs::read_dir(source.parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path == source || name.starts_with(&format!("{stem}_")) {
            for (line, text) in (1u32..).zip(std::fs::read_to_string(&path).unwrap().lines()) {
                let Some((_, clauses)) = text.split_once("@ ") else { continue };
                for clause in clauses.split(';') {
                    annotations.add((&name, line), clause.trim(), (words, level));
                }
            }
        }
    }
    annotations
}

impl Annotations {
    /// The same, but a loop is known by its two next lines, too, where no other loop's line comes before.
    pub(crate) fn tolerant(&self) -> Annotations {
        let mut loops = self.loops.clone();
        for ((file, line), name) in &self.loops {
            for below in 1..=2 {
                if self.loops.contains_key(&(file.clone(), line + below)) {
                    break;
                }
                loops.insert((file.clone(), line + below), name.clone());
            }
        }
        Annotations { loops, ..self.clone() }
    }

    /// What a clause of a line says, if it is about a build that is named so, at this level of optimization.
    fn add(&mut self, (file, line): (&str, u32), clause: &str, (named, level): (&[&str], &str)) {
        let (head, contexts) = clause.split_once(": ").unwrap_or_else(|| panic!("{file}:{line}: {clause}: no context"));
        let words: Vec<&str> = head.split(' ').collect();
        let [selectors @ .., kind, name] = &words[..] else { panic!("{file}:{line}: {clause}: no name") };
        let is_loop = match *kind {
            "loop" => true,
            "inlined" | "line" => false,
            other => panic!("{file}:{line}: {other}: neither loop, inlined nor line"),
        };
        let selectors: Vec<&str> = selectors.iter().copied().filter(|word| !["may", "shared"].contains(word)).collect();
        let is_may = words.contains(&"may");
        if !applies(&selectors, named, level) {
            return;
        }
        if *kind == "line" {
            self.lines.insert((file.to_owned(), line), contexts.to_owned());
            return;
        }
        if is_loop {
            self.loops.insert((file.to_owned(), line), (*name).to_owned());
        }
        for context in contexts.split(',').map(str::trim) {
            let scope = if is_loop { format!("{context} > {name}") } else { format!("{context} > {name}() at {line}") };
            if words.contains(&"shared") {
                self.shared.push(scope.clone());
            }
            if is_may { &mut self.allowed } else { &mut self.expected }.push(scope);
        }
    }
}

/// `gcc`, `!g1`, `O0`, `Os`, `O1+` (which `Os` is), `O0-1`.
fn applies(selectors: &[&str], named: &[&str], level: &str) -> bool {
    let digit = level.as_bytes()[1];
    selectors.iter().all(|selector| match *selector.as_bytes() {
        [b'O', one] => one == digit,
        [b'O', from, b'+'] => from <= digit,
        [b'O', from, b'-', to] => (from..=to).contains(&digit),
        _ => match selector.strip_prefix('!') {
            Some(other) => !named.contains(&other),
            None => named.contains(selector),
        },
    })
}
