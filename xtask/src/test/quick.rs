//! `cargo xtask test --quick`: the daily round. It installs nothing and needs no compiler but rustc and gcc.

use std::process::ExitCode;

use anyhow::{Context, ensure};

use crate::build::{self, Profile};
use crate::report::Report;
use crate::{audit, lint};

/// Files of tests in the crates that need packages beyond gcc: other compilers, linkers and tools.
const NEED_PACKAGES: &[&str] = &[
    "damaged_sections",
    "debug_files",
    "exception_tables",
    "landing_pads",
    "lines",
    "pinned_returns",
    "real_programs",
    "scopes",
    "structure",
    "symbols",
];

/// Files of tests that take a good part of a minute each.
const SLOW: &[&str] = &["deep"];

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
        "what needs packages beyond gcc ({}), what is slow ({}), and most end-to-end tests: `cargo xtask test` runs all",
        NEED_PACKAGES.join(", "),
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

    let mut files = Vec::new();
    report.step("choose tests", || {
        files = chosen(test_files()?)?;
        println!("{} files of tests in the crates", files.len());
        Ok(())
    });
    let mut crates = build::cargo();
    crates.arg("test").args(build::TESTED).args(["--workspace", "--exclude", "callpath-end-to-end", "--no-fail-fast"]);
    crates.args(["--lib", "--bins"]).args(files.iter().flat_map(|file| ["--test", file.as_str()]));
    report.cargo_test("tests of the crates", &mut crates);

    let mut end_to_end = build::cargo();
    end_to_end.arg("test").args(build::TESTED).args(["--package", "callpath-end-to-end", "--test", "end_to_end", "--"]);
    end_to_end.args(END_TO_END).env("CALLPATH_UNDER_TEST", &built.callpath);
    report.cargo_test("end-to-end tests", &mut end_to_end);
    Ok(report.finish())
}

/// The names of all files of integration tests in the crates, sorted.
fn test_files() -> anyhow::Result<Vec<String>> {
    let metadata = build::metadata("Cargo.toml", &["--no-deps"])?;
    let packages = metadata["packages"].as_array().context("cargo metadata without packages")?;
    let targets = packages.iter().filter(|package| package["name"] != "callpath-end-to-end").flat_map(|package| {
        let targets = package["targets"].as_array();
        targets.into_iter().flatten().filter(|target| target["kind"][0] == "test")
    });
    let mut names: Vec<String> = targets.filter_map(|target| target["name"].as_str().map(str::to_owned)).collect();
    names.sort();
    Ok(names)
}

/// `files` without [`NEED_PACKAGES`] and [`SLOW`]. Fails if these name one that does not exist.
fn chosen(mut files: Vec<String>) -> anyhow::Result<Vec<String>> {
    let left_out = || NEED_PACKAGES.iter().chain(SLOW);
    let gone: Vec<&str> = left_out().copied().filter(|name| !files.iter().any(|file| file == name)).collect();
    ensure!(gone.is_empty(), "no such files of tests: {} (xtask/src/test/quick.rs)", gone.join(", "));
    files.retain(|file| !left_out().any(|name| name == file));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_left_out_must_exist() {
        let mut files: Vec<String> = NEED_PACKAGES.iter().chain(SLOW).map(|name| (*name).to_owned()).collect();
        files.push("properties".to_owned());
        assert_eq!(chosen(files.clone()).expect("all are there"), ["properties"]);
        let error = chosen(files.split_off(1)).expect_err("one is gone").to_string();
        assert!(error.contains(NEED_PACKAGES[0]), "{error}");
    }
}
