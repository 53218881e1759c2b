//! The house rules that a machine can see: what a room's first line says, drawers, length.
//! Knows nothing of what stands in the rooms.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::build;

const DRAWERS: &[&str] = &["utils", "util", "helpers", "helper", "common", "misc", "shared_code"];
/// Lines before the tests above which a file is asked: which two rooms are these?
const LONG: usize = 500;
const PLACES: &[&str] = &["crates", "xtask", "tests", "fuzz"];

/// Fails with each file without its first line and with each drawer; names the long ones.
pub fn check() -> anyhow::Result<()> {
    let mut files = Vec::new();
    for place in PLACES {
        let directory = build::root().join(place);
        if directory.is_dir() {
            sources(&directory, &mut files)?;
        }
    }
    let mut wrong = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
        let name = file.strip_prefix(build::root()).unwrap_or(file).display();
        if !text.starts_with("//!") {
            wrong.push(format!("{name} does not begin with what it is for (`//!`)"));
        }
        if file.file_stem().and_then(|stem| stem.to_str()).is_some_and(|stem| DRAWERS.contains(&stem)) {
            wrong.push(format!("{name} is a drawer: name the room by what it is for"));
        }
        let lines = text.lines().take_while(|line| line.trim() != "#[cfg(test)]").count();
        if lines > LONG {
            println!("asked: {name} has {lines} lines before its tests: which two rooms are these?");
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n  "));
    Ok(())
}

/// The source files below a directory.
pub fn sources(directory: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(directory).with_context(|| format!("failed to read {}", directory.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                sources(&path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}
