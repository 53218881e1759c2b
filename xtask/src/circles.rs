//! Checks that no circle of files that use one another is larger than three: to read one of them is to read them all.
//!
//! A file uses another one if a path in it (`crate::`, `super::`, `self::`, or by a module that it declares) leads
//! there, through `pub use` if need be. Declaring a module and handing a name on is no use; tests may look at anything.

mod paths;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, ensure};
use paths::Source;

use crate::{build, rooms};

/// The most files of a circle.
const LARGEST: usize = 3;

/// Fails with each circle that is too large.
pub fn check() -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    let crates = build::root().join("crates");
    let mut packages = vec![build::root().join("xtask")];
    for entry in std::fs::read_dir(&crates).with_context(|| format!("failed to read {}", crates.display()))? {
        packages.push(entry?.path());
    }
    packages.sort();
    for package in packages.iter().filter(|package| package.join("src").is_dir()) {
        let name = package.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let circles = circles_of(&package.join("src"))?;
        for circle in circles.iter().filter(|circle| circle.len() > LARGEST) {
            wrong.push(format!(
                "{name}: {} files use one another, {LARGEST} are allowed: {}",
                circle.len(),
                circle.join(" ")
            ));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n  "));
    Ok(())
}

/// The circles of the files below a directory, by the files' paths there.
fn circles_of(directory: &Path) -> anyhow::Result<Vec<Vec<String>>> {
    let mut files = Vec::new();
    rooms::sources(directory, &mut files)?;
    let mut texts = BTreeMap::new();
    for file in &files {
        let text = std::fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
        let name = file.strip_prefix(directory).unwrap_or(file).to_string_lossy().into_owned();
        texts.insert(name, text);
    }
    Ok(circles(&uses(&texts)))
}

/// Which file uses which.
fn uses(texts: &BTreeMap<String, String>) -> BTreeMap<String, BTreeSet<String>> {
    let sources: BTreeMap<Vec<String>, (&String, Source)> =
        texts.iter().map(|(name, text)| (module(name), (name, Source::read(text)))).collect();
    let is_test = |at: &[String]| {
        (1..=at.len()).any(|len| {
            let (above, name) = (&at[..len - 1], &at[len - 1]);
            sources.get(above).is_some_and(|(_, source)| source.tests.contains(name))
        })
    };
    let mut edges = BTreeMap::new();
    for (at, (name, source)) in sources.iter().filter(|(at, _)| !is_test(at)) {
        let used = source.paths.iter().filter_map(|path| resolve(&sources, at, path, 0));
        let others: BTreeSet<String> = used.filter(|other| other != *name).collect();
        edges.insert((*name).clone(), others);
    }
    edges
}

/// A file's module: `a/b.rs` and `a/b/mod.rs` are `a::b`.
fn module(name: &str) -> Vec<String> {
    let mut parts: Vec<String> = name.trim_end_matches(".rs").split('/').map(ToOwned::to_owned).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

/// The file in which what a path names is defined. `None`: not in this crate.
fn resolve(
    sources: &BTreeMap<Vec<String>, (&String, Source)>,
    at: &[String],
    path: &[String],
    depth: usize,
) -> Option<String> {
    // A name may be handed on in a circle.
    const DEEPEST: usize = 16;
    let (_, source) = sources.get(at)?;
    let (mut module, rest) = match path.first()?.as_str() {
        "crate" => (Vec::new(), &path[1..]),
        "self" => (at.to_vec(), &path[1..]),
        "super" => (at[..at.len().checked_sub(1)?].to_vec(), &path[1..]),
        child if source.modules.contains(child) => (at.to_vec(), path),
        _ => return None,
    };
    let mut rest = rest.iter();
    while let Some(name) = rest.next() {
        if name == "super" {
            module.pop()?;
            continue;
        }
        module.push(name.clone());
        if sources.contains_key(&module) {
            continue;
        }
        module.pop();
        let (file, source) = sources.get(&module)?;
        if let Some(handed) = source.handed_on.get(name).filter(|_| depth < DEEPEST) {
            let onwards: Vec<String> = handed.iter().chain(rest).cloned().collect();
            return resolve(sources, &module, &onwards, depth + 1).or_else(|| Some((*file).clone()));
        }
        break;
    }
    sources.get(&module).map(|(file, _)| (*file).clone())
}

/// Files that reach one another, more than one. By what each reaches: files are few.
fn circles(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached = |from: &String| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(file) = open.pop() {
            for next in edges.get(file).into_iter().flatten() {
                if reached.insert(next) {
                    open.push(next);
                }
            }
        }
        reached
    };
    let all: BTreeMap<&String, BTreeSet<&String>> = edges.keys().map(|file| (file, reached(file))).collect();
    let mut circles: Vec<Vec<String>> = Vec::new();
    for (file, from_it) in &all {
        if circles.iter().flatten().any(|other| other == *file) {
            continue;
        }
        let circle: Vec<String> = from_it
            .iter()
            .filter(|other| all.get(**other).is_some_and(|back| back.contains(*file)))
            .map(|other| (**other).clone())
            .collect();
        if circle.len() > 1 {
            circles.push(circle);
        }
    }
    circles
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let texts = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        circles(&uses(&texts))
    }

    #[test]
    fn a_circle_is_found_however_its_paths_are_written() {
        let circle = of(&[
            ("lib.rs", "mod a; mod b; pub mod c; mod d; pub use c::inner::Thing;"),
            ("a.rs", "use crate::{b::{self, B}, d};"),
            ("b.rs", "fn f() { super::c::go() }"),
            ("c/mod.rs", "mod inner; use std::fmt; fn g() -> crate::a::A { inner::x() }"),
            ("c/inner.rs", "use super::super::d::D;"),
            ("d.rs", "use crate::Thing;"),
        ]);
        assert_eq!(circle, [vec!["a.rs", "b.rs", "c/mod.rs"], vec!["c/inner.rs", "d.rs"]]);
    }

    #[test]
    fn tests_comments_texts_and_handed_on_names_are_no_uses() {
        let circle = of(&[
            ("lib.rs", "mod a; mod b; pub use a::A; pub use b::B;"),
            ("c.rs", "pub use c::C; fn f(c: C) {}"),
            ("c/c.rs", "use crate::e::E;"),
            ("e.rs", "pub use crate::c::C;"),
            ("a.rs", "use crate::b::B; #[cfg(test)] mod tests; mod tests { use super::x; }"),
            (
                "b.rs",
                "// use crate::a::A;\nconst T: &str = \"crate::a\"; fn f<'a>() -> char { '\"' }\n\
                 #[cfg(test)]\nmod tests { use crate::a::A; fn g() { { } } }\n#[cfg(test)] use crate::a;",
            ),
            ("a/tests.rs", "use crate::b;"),
        ]);
        assert_eq!(circle, Vec::<Vec<String>>::new());
    }
}
