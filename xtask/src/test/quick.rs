//! `cargo xtask test --quick`: the daily round. It installs nothing and needs no compiler but rustc and gcc.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};

use crate::build::{self, Profile};
use crate::report::Report;
use crate::{audit, lint};

/// Modules of tests (`tests/all` of the crates) that need packages beyond gcc: other compilers, linkers and tools.
const NEED_PACKAGES: &[&str] = &[
    "damaged_sections",
    "debug_files",
    "exception_tables",
    "landing_pads",
    "lines",
    "pinned_returns",
    "scopes",
    "symbols",
];

/// Programs of tests that do, and programs that take a good part of a minute each, or longer.
const PROGRAMS_NEED_PACKAGES: &[&str] = &["real_programs", "structure"];
const SLOW: &[&str] = &["deep", "halt", "relocation"];

/// End-to-end tests that are run, by name: one or two for each part of a
/// recording. None takes longer than some seconds.
const END_TO_END: &[&str] = &[
    "children::in_every_way",
    "damage::the_program_replaced_after_the_run",
    "endings::by_return_and_exit",
    "endings::by_sigkill",
    "events::each_page_fault_is_where_it_happened",
    "generated::code_that_is_jumped_into_returns_for_its_procedure",
    "loading::two_libraries_in_turn_at_the_same_address",
    "messages::",
    "processes::fork",
    "processes::exec_without_a_child",
    "recorder::a_termination_is_handed_on",
    "refusals::",
    "sentinel::jumps_over_marked_frames",
    "sentinel::registers_and_flags_survive",
    "signals::its_own_handler_for_sigtrap",
    "signals::sigtrap_blocked",
    "stacks::a_handler_on_an_alternate_stack",
    "stacks::coroutines",
    "stacks::two_threads_1500_deep",
    "structure::with_dwarf",
    "threads::made_before_main_by_a_library",
    "threads::at_work_when_the_process_exits",
    "time::of_a_read_loop",
    "transparency::surroundings",
    "jit::procedures_with_and_without_a_frame_pointer",
];

/// Lints, builds with the `quick` profile, audits, and runs the tests of the crates and the end-to-end tests above.
/// Installs nothing: where rustfmt, clippy or gcc is missing, the step fails.
pub fn run() -> anyhow::Result<ExitCode> {
    let mut report = Report::default();
    report.skip(format!(
        "what needs packages beyond gcc ({}, {}), what is slow ({}), and most end-to-end tests: `cargo xtask test` runs all",
        NEED_PACKAGES.join(", "),
        PROGRAMS_NEED_PACKAGES.join(", "),
        SLOW.join(", ")
    ));
    lint::steps(&mut report);

    let mut built = None;
    report.step("build", || {
        built = Some(build::callpath(Profile::Quick)?);
        Ok(())
    });
    let Some(built) = built else {
        report.skip("everything that needs the built command".into());
        return Ok(report.finish());
    };
    report.step("audit-collect", || audit::check(&built.preload));

    let (mut programs, mut skipped) = (Vec::new(), Vec::new());
    report.step("choose tests", || {
        let packages = packages()?;
        programs = chosen(packages.iter().flat_map(|package| package.programs.iter().cloned()).collect())?;
        skipped = skipped_of(&packages)?;
        println!("{} names of programs of tests in the crates", programs.len());
        Ok(())
    });
    let of_crates = || {
        let mut tests = build::cargo();
        tests.arg("test").args(build::TESTED);
        tests.args(["--workspace", "--exclude", "callpath-end-to-end", "--no-fail-fast"]);
        tests
    };
    report.cargo_test("unit tests", of_crates().args(["--lib", "--bins"]));
    let mut integration = of_crates();
    integration.args(programs.iter().flat_map(|program| ["--test", program.as_str()])).arg("--");
    integration.args(skipped.iter().flat_map(|module| ["--skip", module.as_str()]));
    report.cargo_test("tests of the crates", &mut integration);

    let mut end_to_end = build::cargo();
    end_to_end.arg("test").args(build::TESTED).args(["--package", "callpath-end-to-end", "--test", "end_to_end", "--"]);
    end_to_end.args(END_TO_END).env("CALLPATH_UNDER_TEST", &built.callpath);
    report.cargo_test("end-to-end tests", &mut end_to_end);
    Ok(report.finish())
}

/// A crate with tests.
struct Package {
    /// The names of its programs of integration tests.
    programs: Vec<String>,
    directory: PathBuf,
}

fn packages() -> anyhow::Result<Vec<Package>> {
    let metadata = build::metadata("Cargo.toml", &["--no-deps"])?;
    let packages = metadata["packages"].as_array().context("cargo metadata without packages")?;
    let crates = packages.iter().filter(|package| package["name"] != "callpath-end-to-end");
    crates
        .map(|package| {
            let targets = package["targets"].as_array().into_iter().flatten();
            let programs = targets.filter(|target| target["kind"][0] == "test");
            let manifest = package["manifest_path"].as_str().context("a package without a manifest")?;
            Ok(Package {
                programs: programs.filter_map(|target| target["name"].as_str().map(str::to_owned)).collect(),
                directory: Path::new(manifest).with_file_name(""),
            })
        })
        .collect()
}

/// `programs`, each once, without [`PROGRAMS_NEED_PACKAGES`] and [`SLOW`]. Fails if these name one that does not exist.
fn chosen(mut programs: Vec<String>) -> anyhow::Result<Vec<String>> {
    let left_out = || PROGRAMS_NEED_PACKAGES.iter().chain(SLOW);
    let gone: Vec<&str> = left_out().copied().filter(|name| !programs.iter().any(|it| it == name)).collect();
    ensure!(gone.is_empty(), "no such programs of tests: {} (xtask/src/test/quick.rs)", gone.join(", "));
    programs.retain(|program| !left_out().any(|name| name == program));
    programs.sort();
    programs.dedup();
    Ok(programs)
}

/// What the names of tests in [`NEED_PACKAGES`] begin with. Fails if there is no such module.
fn skipped_of(packages: &[Package]) -> anyhow::Result<Vec<String>> {
    let is_there = |name: &str| packages.iter().any(|it| it.directory.join(format!("tests/all/{name}.rs")).exists());
    let gone: Vec<&str> = NEED_PACKAGES.iter().copied().filter(|name| !is_there(name)).collect();
    ensure!(gone.is_empty(), "no such modules of tests: {} (xtask/src/test/quick.rs)", gone.join(", "));
    Ok(NEED_PACKAGES.iter().map(|name| format!("{name}::")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_are_left_out_must_exist() {
        let names = PROGRAMS_NEED_PACKAGES.iter().chain(SLOW);
        let mut programs: Vec<String> = names.map(|name| (*name).to_owned()).collect();
        programs.extend(["all".to_owned(), "all".to_owned()]);
        assert_eq!(chosen(programs.clone()).expect("all are there"), ["all"]);
        let error = chosen(programs.split_off(1)).expect_err("one is gone").to_string();
        assert!(error.contains(PROGRAMS_NEED_PACKAGES[0]), "{error}");
    }

    #[test]
    fn modules_that_are_left_out_exist() {
        assert_eq!(
            skipped_of(&packages().expect("cargo knows them")).expect("all are there").len(),
            NEED_PACKAGES.len()
        );
        assert!(skipped_of(&[]).is_err());
    }
}
