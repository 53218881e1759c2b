//! Exact counts of programs that a program executes: each is counted from its first constructor on, however it came to run.

use std::process::Command;

use callpath_end_to_end::{Program, Recorded, callpath, run_report};
use serde_json::Value;

/// `unit` is called so often in all programs together (tests/nasty/executes.c).
const UNITS: u64 = 10 + 4 * 100 + 200 + 300 + 4 * 50 + 400 + 1000;

/// Runs it bare and recorded, and asserts that its output is the same.
#[track_caller]
fn recorded(options: &[&str]) -> Recorded {
    let recorded = Program::nasty("executes.c").options(options).same();
    assert_eq!(recorded.ended.status, 0, "{recorded:?}");
    assert_eq!(recorded.ended.stdout, "7 children\n", "{options:?}");
    recorded
}

fn view(recorded: &Recorded, name: &str) -> Value {
    let report = run_report(&recorded.directory, &["--view", name, "--json"]);
    serde_json::from_str(&report.stdout).unwrap_or_else(|error| panic!("{error}: {}", report.stderr))
}

/// How often a procedure was entered.
fn entries(json: &Value, procedure: &str) -> u64 {
    let nodes = json["nodes"].as_array().expect("nodes");
    let is_it =
        |node: &&Value| node["kind"] == "procedure" && node["module"] == "executes" && node["name"] == procedure;
    nodes.iter().filter(is_it).map(|node| node["entries"].as_u64().expect("a number")).sum()
}

#[test]
fn calls_of_all_programs() {
    for options in [&["--exact=calls"][..], &["--exact=calls", "-F", "0", "--only", "unit,become"]] {
        let recorded = recorded(options);
        let profile = recorded.profile();
        // Its children call it, too.
        assert_eq!((profile.calls_of("unit"), profile.calls_of("become")), (UNITS, 4 + 1 + 1), "{options:?}");
    }
}

#[test]
fn paths_and_edges_of_all_programs() {
    for kinds in ["edges", "calls,paths"] {
        let recorded = recorded(&["--exact", kinds, "-F", "0", "--only", "unit,work,main"]);
        let blocks = view(&recorded, "blocks");
        let found = ["unit", "work"].map(|name| entries(&blocks, name));
        assert_eq!(found, [UNITS, 1 + 4 + 1 + 1 + 4 + 1 + 1], "{kinds}: {}", blocks["quality"]);
        assert_eq!(blocks["quality"]["exact"]["lost"], 0, "{kinds}");
    }
}

/// All have the same addresses then, and so do their copies.
#[test]
fn programs_at_the_same_addresses() {
    let program = Program::nasty("executes.c").options(&["--exact=calls,paths", "-F", "2000", "--only", "unit"]);
    let recorded = program.through(&["setarch", "-R"]).same();
    assert_eq!(recorded.ended.stdout, "7 children\n");
    let profile = recorded.profile();
    assert_eq!((profile.calls_of("unit"), entries(&view(&recorded, "blocks"), "unit")), (UNITS, UNITS));
    assert_eq!(profile.quality.dropped.get("no-memory"), None, "{:?}", profile.quality);
}

/// What is counted in a program that a shell executes, and what becomes of others.
#[test]
fn functions_of_a_program_that_a_shell_executes() {
    let directory = tempfile::tempdir().expect("room");
    let run = |only: &str, script: &str, output: &str| {
        let words = ["record", "--exact=calls", "-F", "0", "--only", only, "-o", output, "--", "sh", "-c", script];
        let mut command = Command::new(callpath());
        command.args(words).current_dir(directory.path());
        let output = command.output().expect("it can be run");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let program = Program::nasty("executes.c");
    let program = program.path().to_string_lossy().into_owned();
    let script = format!("{program} leaf 25; {program} leaf 5; true");
    let (status, said) = run("executes!unit", &script, "m");
    assert_eq!(status, Some(0), "{said}");
    let report = run_report(&directory.path().join("m"), &["--json"]);
    let profile = callpath_end_to_end::Profile::of_json(&report.stdout);
    assert_eq!(profile.calls_of("unit"), 30);
    // It may be a function of any program: the one that was typed has none of this name.
    let (status, said) = run("unit", &script, "n");
    assert_eq!((status, directory.path().join("n").exists()), (Some(125), false), "{said}");
    assert!(said.contains("if a program that is executed later has it: --only 'PROGRAM!FUNCTION'"), "{said}");
    let (status, said) = run("executes!unti", &script, "o");
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("not counted: executes!unti: no function of executes has this name"), "{said}");
    // A program that waits for its copies may be ended.
    let (status, said) = run("executes!unit", &format!("timeout -s KILL 0.01 {program} leaf 9; {script}"), "p");
    assert_eq!(status, Some(0), "{said}");
    let report = run_report(&directory.path().join("p"), &["--json"]);
    let counted = callpath_end_to_end::Profile::of_json(&report.stdout).calls_of("unit");
    assert!([30, 39].contains(&counted), "{counted}");
}
