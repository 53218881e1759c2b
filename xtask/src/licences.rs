//! Foreign crates: licences that go with MIT OR Apache-2.0, and one version of each.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, ensure};

use crate::build;

/// What callpath is built for.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Licences that a binary under MIT OR Apache-2.0 may include.
const COMPATIBLE: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Fails with every crate whose licence is not compatible with ours, or that names none.
pub fn check_licences() -> anyhow::Result<()> {
    let metadata = build::metadata("Cargo.toml", &["--filter-platform", TARGET])?;
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().context("cargo metadata without packages")? {
        let name = package["name"].as_str().unwrap_or_default();
        match package["license"].as_str() {
            Some(licence) if is_compatible(licence) => {}
            Some(licence) => wrong.push(format!("{name}: {licence}")),
            None => wrong.push(format!("{name}: no licence named")),
        }
    }
    ensure!(wrong.is_empty(), "licences that do not go with ours:\n  {}", wrong.join("\n  "));
    Ok(())
}

/// Fails with every crate of which more than one version is built. Cargo.lock may hold others, for other systems.
pub fn check_duplicates() -> anyhow::Result<()> {
    let output = build::cargo()
        .args(["tree", "--workspace", "--locked", "--target", TARGET, "--edges", "normal,build,dev"])
        .args(["--prefix", "none", "--format", "{p}"])
        .output()
        .context("failed to run cargo tree")?;
    ensure!(output.status.success(), "cargo tree failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, rest) in said.lines().filter_map(|line| line.split_once(' ')) {
        versions.entry(name).or_default().extend(rest.split(' ').next());
    }
    ensure!(!versions.is_empty(), "cargo tree names no crates");
    versions.retain(|_, versions| versions.len() > 1);
    let names: Vec<_> = versions.into_keys().collect();
    ensure!(names.is_empty(), "built in several versions (`cargo tree -d --target {TARGET}`): {}", names.join(", "));
    Ok(())
}

/// Whether some choice that an SPDX expression leaves is compatible.
fn is_compatible(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    either(&words, &mut at) && at == words.len()
}

fn either(words: &[&str], at: &mut usize) -> bool {
    let mut good = both(words, at);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        good |= both(words, at);
    }
    good
}

fn both(words: &[&str], at: &mut usize) -> bool {
    let mut good = one(words, at);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        good &= one(words, at);
    }
    good
}

fn one(words: &[&str], at: &mut usize) -> bool {
    let Some(&word) = words.get(*at) else { return false };
    *at += 1;
    if word == "(" {
        let good = either(words, at);
        *at += 1;
        return good;
    }
    if words.get(*at) == Some(&"WITH") {
        let whole = format!("{word} WITH {}", words.get(*at + 1).unwrap_or(&""));
        *at += 2;
        return COMPATIBLE.contains(&whole.as_str());
    }
    COMPATIBLE.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        for good in ["MIT", "MIT OR GPL-3.0", "MIT/Apache-2.0", "(GPL-2.0 OR MIT) AND Unicode-3.0", "Unlicense OR MIT"]
        {
            assert!(is_compatible(good), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "MPL-2.0", "", "(MIT", "MIT MIT", "Apache-2.0 WITH something"] {
            assert!(!is_compatible(bad), "{bad}");
        }
    }
}
