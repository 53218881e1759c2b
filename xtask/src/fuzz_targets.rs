//! Every fuzz entry of the crates has a target under fuzz/, and every target an entry.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, ensure};

use crate::build;

/// Fails with each entry without a target, and with each target without an entry.
pub fn check() -> anyhow::Result<()> {
    let mut entries = BTreeSet::new();
    for crate_dir in children(&build::root().join("crates"))? {
        walk(&crate_dir.join("src"), &mut entries)?;
    }
    let mut targets = BTreeSet::new();
    for file in children(&build::root().join("fuzz/fuzz_targets"))? {
        if let Some(stem) = file.file_stem().and_then(|stem| stem.to_str()) {
            targets.insert(format!("fuzz_{stem}"));
        }
    }
    let without_target: Vec<_> = entries.difference(&targets).cloned().collect();
    let without_entry: Vec<_> = targets.difference(&entries).cloned().collect();
    ensure!(without_target.is_empty(), "no target in fuzz/fuzz_targets for {}", without_target.join(", "));
    ensure!(without_entry.is_empty(), "targets of functions that are gone: {}", without_entry.join(", "));
    Ok(())
}

fn children(directory: &Path) -> anyhow::Result<Vec<std::path::PathBuf>> {
    let listed = std::fs::read_dir(directory).with_context(|| format!("failed to read {}", directory.display()))?;
    listed.map(|entry| Ok(entry?.path())).collect()
}

fn walk(directory: &Path, entries: &mut BTreeSet<String>) -> anyhow::Result<()> {
    if !directory.is_dir() {
        return Ok(());
    }
    for path in children(directory)? {
        if path.is_dir() {
            walk(&path, entries)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
            for line in text.lines() {
                if let Some(name) = line.trim().strip_prefix("pub fn fuzz_") {
                    let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(name.len());
                    entries.insert(format!("fuzz_{}", &name[..end]));
                }
            }
        }
    }
    Ok(())
}
