//! Children, and other programs.

use callpath_end_to_end::Program;

use super::assert_counted;

const FUNCTIONS: [&str; 3] = ["leaf", "work", "child"];

#[test]
fn children_count_their_own() {
    for metric in ["calls", "wall-time"] {
        let recorded = Program::nasty("forks.c").arguments(["fork"]).options(&["-m", metric]).same_probed(&FUNCTIONS);
        assert_eq!(recorded.ended.status, 3, "{recorded:?}");
        let profile = assert_counted(&recorded, &FUNCTIONS, &["forks"]);
        assert_eq!(profile.processes().len(), 8);
    }
}

#[test]
fn children_that_share_memory_and_execute() {
    let other = Program::nasty("sites.c").path().to_str().unwrap().to_owned();
    for metric in ["calls", "wall-time"] {
        let forks = Program::nasty("forks.c").arguments(["vfork", &other]).options(&["-m", metric]);
        let recorded = forks.same_probed(&FUNCTIONS);
        assert_eq!(recorded.ended.status, 3, "{recorded:?}");
        // The other program has functions of these names, too.
        assert_counted(&recorded, &FUNCTIONS[..2], &["forks", "sites"]);
    }
}

#[test]
fn a_program_that_becomes_another_one() {
    let forks = Program::nasty("forks.c").arguments(["exec", "/bin/sh", "-c", "sleep 1; exit 9"]);
    let recorded = forks.same_probed(&FUNCTIONS);
    assert_eq!(recorded.ended.status, 9, "{recorded:?}");
    assert_eq!(recorded.profile().calls_of("leaf"), 1001);
    let other = Program::nasty("sites.c").path().to_str().unwrap().to_owned();
    let recorded = Program::nasty("forks.c").arguments(["exec", &other]).same_probed(&FUNCTIONS);
    assert_eq!(recorded.ended.status, 5, "{recorded:?}");
    assert_counted(&recorded, &FUNCTIONS, &["forks", "sites"]);
}

/// A program that waits to begin has not reached `_start`, whose call is counted.
#[test]
fn nothing_has_begun_in_a_program_that_is_started() {
    let recorded = Program::nasty("sites.c").probed(&["_start", "main"]);
    assert_eq!(recorded.profile().calls_of("_start"), 1);
    let report = callpath_end_to_end::run_report(&recorded.directory, &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&report.stdout).expect("the report is JSON");
    assert_eq!(json["quality"]["probes"]["inside_when_set"], 0, "{json}");
}
