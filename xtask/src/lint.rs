//! What can be said of the sources without running them.

use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};

use crate::arguments::Arguments;
use crate::build::{self, OBJECT_MANIFESTS};
use crate::report::Report;
use crate::{circles, fuzz_targets, install, layers, licences, paths, rooms};

/// `cargo xtask lint`
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&[])?;
    install::components()?;
    let mut report = Report::default();
    steps(&mut report);
    Ok(report.finish())
}

/// Each lint as a step.
pub fn steps(report: &mut Report) {
    report.step("formatting", || {
        passes(build::cargo().args(["fmt", "--all", "--check"]))?;
        for manifest in OBJECT_MANIFESTS {
            passes(build::cargo().args(["fmt", "--check", "--manifest-path", manifest]))?;
        }
        passes(build::cargo().args(["fmt", "--check", "--manifest-path", "fuzz/Cargo.toml"]))
    });
    report.step("clippy", || {
        passes(
            build::cargo()
                .args(["clippy", "--workspace", "--all-targets"])
                .args(build::TESTED)
                .args(["--", "-D", "warnings"]),
        )?;
        OBJECT_MANIFESTS.into_iter().try_for_each(|manifest| {
            passes(build::cargo().args(["clippy", "--locked", "--manifest-path", manifest, "--", "-D", "warnings"]))
        })
    });
    report.step("directions of the crates' dependencies", layers::check);
    report.step("licences", licences::check_licences);
    report.step("one version of each crate", licences::check_duplicates);
    report.step("source files", rooms::check);
    report.step("circles of files", circles::check);
    report.step("paths in the documents", paths::check);
    report.step("fuzz targets", fuzz_targets::check);
}

/// Runs a command that must succeed.
pub fn passes(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("failed to start {command:?}"))?;
    ensure!(status.success(), "{} ended with {status}", words(command));
    Ok(())
}

fn words(command: &Command) -> String {
    let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
    format!("cargo {}", words.collect::<Vec<_>>().join(" "))
}
