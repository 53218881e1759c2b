//! `cargo xtask test`: everything that must hold, in one command on a machine with a toolchain and gcc alone.

mod long;
mod quick;

use std::process::{Command, ExitCode};

use anyhow::Context;

use crate::arguments::Arguments;
use crate::build::{self, Profile};
use crate::report::Report;
use crate::{audit, company, engines, install, lint, oracle_counts};

/// `cargo xtask test [--quick|--long]`: installs what the tests use, lints, builds, audits the preloaded object,
/// runs all tests. What was skipped stands before the counts. The status is a failure if any step or test failed.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["quick", "long"])?;
    if arguments.flag("quick") {
        return quick::run();
    }
    if arguments.flag("long") {
        return long::run();
    }
    let mut report = Report::default();
    let mut lacking = Vec::new();
    report.step("install what the tests use", || {
        install::components()?;
        let wanted: Vec<&str> = install::FOR_TESTS.iter().map(|(package, _)| *package).collect();
        match install::packages(&wanted) {
            Ok(missing) => lacking = missing,
            Err(error) => {
                println!("cannot install: {error:#}");
                lacking = install::missing(&wanted).unwrap_or(wanted);
            }
        }
        Ok(())
    });
    for (package, purpose) in install::FOR_TESTS.iter().filter(|(package, _)| lacking.contains(package)) {
        report.skip(format!(
            "{purpose}, as far as it needs the Debian package {package}, which cannot be installed here"
        ));
    }
    lint::steps(&mut report);

    let mut built = None;
    report.step("build", || {
        // With the command: what both are made of is compiled once. What is wrong with the tests shows when they run.
        tests().arg("--no-run").status().context("failed to run cargo test")?;
        built = Some(build::callpath(Profile::Quick)?);
        Ok(())
    });
    let Some(built) = built else {
        report.skip("everything that needs the built command".into());
        return Ok(report.finish());
    };
    report.step("audit-collect", || audit::check(&built.preload));
    report.step("oracle-counts", || oracle_counts::check(&built.callpath));
    let mut tests = tests();
    tests.arg("--no-fail-fast").env("CALLPATH_UNDER_TEST", &built.callpath);
    match engines::duckdb_on_path() {
        Ok(path) => {
            tests.env("PATH", path);
        }
        Err(error) => report.skip(format!("queries of exported tables, if there is no DuckDB: {error:#}")),
    }
    report.cargo_test("tests", &mut tests);
    report.cargo_test("tests of the runtimes that are here", &mut company::tests(&built.callpath));
    Ok(report.finish())
}

/// All tests but those of runtimes.
fn tests() -> Command {
    let mut tests = build::cargo();
    tests.args(["test", "--workspace"]).args(build::TESTED);
    tests
}
