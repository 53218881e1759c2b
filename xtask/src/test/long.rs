//! `cargo xtask test --long`: the tests that take minutes each, which are ignored otherwise.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};

use crate::build::{self, Profile};
use crate::report::Report;

/// What the reason says for which such a test is ignored.
const REASON: &str = "`cargo xtask test --long`\"]";

pub fn run() -> anyhow::Result<ExitCode> {
    let mut report = Report::default();
    let mut built = None;
    report.step("build", || {
        built = Some(build::callpath(Profile::Quick)?);
        Ok(())
    });
    let names = all()?;
    let Some(built) = built else {
        report.skip("everything that needs the built command".into());
        return Ok(report.finish());
    };
    let mut tests = build::cargo();
    tests.args(["test", "--workspace", "--no-fail-fast"]).args(build::TESTED).args(["--", "--ignored"]);
    tests.args(names).env("CALLPATH_UNDER_TEST", &built.callpath);
    report.cargo_test("tests that take minutes", &mut tests);
    Ok(report.finish())
}

/// The names of all such tests, without their modules.
fn all() -> anyhow::Result<Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut names = Vec::new();
    for directory in ["crates", "tests"] {
        read(&root.join(directory), &mut names)?;
    }
    ensure!(!names.is_empty(), "no test is ignored for taking minutes (xtask/src/test/long.rs)");
    Ok(names)
}

fn read(directory: &Path, names: &mut Vec<String>) -> anyhow::Result<()> {
    let cannot = || format!("failed to read {}", directory.display());
    for entry in std::fs::read_dir(directory).with_context(cannot)? {
        let path: PathBuf = entry.with_context(cannot)?.path();
        if path.is_dir() {
            read(&path, names)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
            names.extend(named(&text));
        }
    }
    Ok(())
}

/// Of one file.
fn named(text: &str) -> Vec<String> {
    let behind = text.split(REASON).skip(1);
    let name = |behind: &str| Some(behind.trim_start().strip_prefix("fn ")?.split_once('(')?.0.to_owned());
    behind.filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_behind_the_reason() {
        let text = "#[test]\n#[ignore = \"takes minutes: `cargo xtask test --long`\"]\nfn a_million() {}\n#[test]\nfn one() {}\n";
        assert_eq!(named(text), ["a_million"]);
        assert!(all().expect("sources").iter().any(|name| name == "halted_a_thousand_times"));
    }
}
