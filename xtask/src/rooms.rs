//! The rules for source files that a machine can check: a first line that says what
//! the file does, no drawers, no long files.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::build;

const DRAWERS: &[&str] = &["utils", "util", "helpers", "helper", "common", "misc", "shared_code"];
/// Lines before the tests above which a file is named, since it may be two.
const LONG: usize = 500;
const ROOTS: &[&str] = &["crates", "xtask", "tests", "fuzz"];

/// Fails with the name of each file that has no first line or is a drawer. Long files are listed, and are no failure.
pub fn check() -> anyhow::Result<()> {
    let mut files = Vec::new();
    for place in ROOTS {
        let directory = build::root().join(place);
        if directory.is_dir() {
            sources(&directory, &mut files)?;
        }
    }
    let (mut wrong, mut long) = (Vec::new(), Vec::new());
    for file in &files {
        let text = std::fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
        let name = file.strip_prefix(build::root()).unwrap_or(file).display();
        if !text.starts_with("//!") {
            wrong.push(format!("{name}: the first line does not say what the file does (`//!`)"));
        }
        if file.file_stem().and_then(|stem| stem.to_str()).is_some_and(|stem| DRAWERS.contains(&stem)) {
            wrong.push(format!("{name}: name the file by what it does"));
        }
        let lines = text.lines().take_while(|line| line.trim() != "#[cfg(test)]").count();
        if lines > LONG {
            long.push(format!("  {lines} lines: {name}"));
        }
    }
    println!("{} source files", files.len());
    if !long.is_empty() {
        println!("{} with more than {LONG} lines before their tests:\n{}", long.len(), long.join("\n"));
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
