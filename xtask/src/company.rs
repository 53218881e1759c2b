//! `cargo xtask company`: the end-to-end tests with large runtimes (Java, Node, Go), which are installed for it.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::ensure;

use crate::arguments::Arguments;
use crate::{build, install};

/// Several hundred MB: not for every run of the tests.
const PACKAGES: [&str; 4] = ["default-jdk-headless", "nodejs", "golang-go", "gcc"];

/// Installs, builds, tests.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&[])?;
    let began = Instant::now();
    let missing = install::packages_or_commands(&PACKAGES)?;
    ensure!(missing.is_empty(), "cannot install {}", missing.join(" "));
    println!("runtimes are there after {:.0} s", began.elapsed().as_secs_f64());
    let built = build::release()?;
    Ok(if tests(&built.callpath).status()?.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The tests of runtimes, one after the other, with a built command. A test whose runtime is not here counts as skipped. They are compiled as
/// all tests are (`--workspace`): what is there is not compiled again.
pub fn tests(callpath: &Path) -> Command {
    let mut tests = build::cargo();
    tests.arg("test").args(build::TESTED).args(["--workspace", "--test", "end_to_end", "--"]);
    tests.args(["--ignored", "--test-threads", "1", "runtimes::"]).env("CALLPATH_UNDER_TEST", callpath);
    tests
}
