//! `cargo xtask test`: everything that must hold, in one command on a machine with a toolchain and gcc alone.
//! Knows nothing of single tests.

use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::report::Report;
use crate::{audit, build, install, lint};

/// Installs, lints, builds, audits, tests; what is skipped stands at the end.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&[])?;
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
        built = Some(build::release()?);
        Ok(())
    });
    let Some(built) = built else {
        report.skip("everything that needs the built command".into());
        return Ok(report.finish());
    };
    report.step("audit-collect", || audit::check(&built.preload));
    // In the dev profile: its checks of overflow are part of the tests. The programs are recorded with the release build.
    let mut tests = build::cargo();
    tests.args(["test", "--workspace", "--locked", "--no-fail-fast"]).env("CALLPATH_UNDER_TEST", &built.callpath);
    report.cargo_test("tests", &mut tests);
    Ok(report.finish())
}
