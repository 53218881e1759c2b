//! Libraries that come after the probes, and go.

use callpath_end_to_end::{C, Counts, Program, compiled, run_report};

use super::truth;

const PLUGGABLE: C = C { source: "pluggable.c", output: "libpluggable.so", options: &["-shared", "-fPIC"] };

#[test]
fn one_that_comes_and_goes() {
    let library = compiled(PLUGGABLE).expect("the library compiles").to_str().unwrap().to_owned();
    let functions = ["libpluggable.so!plugged", "libpluggable.so!plugged_deep", "libpluggable.so!briefly"];
    for metric in ["calls", "wall-time"] {
        let plugs_in = Program::nasty("plugs_in.c").arguments([&library, "5", "100"]);
        let bare = plugs_in.bare();
        let recorded = plugs_in.arguments(["probed"]).options(&["-m", metric]).probed(&functions);
        assert_eq!((bare.status, &bare.stdout), (recorded.ended.status, &recorded.ended.stdout), "{recorded:?}");
        let (profile, truth) = (recorded.profile(), truth(&recorded));
        // While it is probed, all; while nothing waits for the probes, no more than there were.
        assert_eq!(profile.calls_of("plugged"), truth.calls_of("plugged"));
        assert_eq!(profile.calls_of("plugged_deep"), 5 * 100 * (1..=10).sum::<u64>());
        assert!(profile.calls_of("briefly") <= truth.calls_of("briefly"), "{profile:?}");
        let paths = profile.calls(&["plugs_in", "libpluggable.so"]).into_values().next().expect("a process");
        for path in paths.keys() {
            let is_one = path.starts_with("main;use;plugged") || path == "main;briefly";
            assert!(is_one, "no such path: {path}");
        }
    }
}

/// A pattern with the name of a module that is not there yet is no error; nor is one that never comes.
#[test]
fn one_that_never_comes() {
    let recorded = Program::nasty("many.c").probed(&["libno_such.so!function"]);
    assert_eq!(recorded.ended.status, 2, "{recorded:?}");
    assert!(recorded.ended.stderr.contains("libno_such.so"), "{recorded:?}");
    assert_eq!(recorded.profile().total("calls"), 0);
}

/// A library calls the program as soon as it is there: each call has its whole path.
#[test]
fn one_that_calls_at_once() {
    let library = C { source: "answers_library.c", output: "libanswers.so", options: &["-O2", "-shared", "-fPIC"] };
    let library = compiled(library).expect("the library compiles");
    for metric in ["calls", "wall-time", "ret"] {
        let program = Program::nasty("answers.c").arguments([library.as_os_str()]).options(&["-m", metric]);
        let recorded = program.same_probed(&["answers"]);
        assert_eq!(recorded.ended.status, 6, "{recorded:?}");
        let profile = recorded.profile();
        let (_, parts) = profile.with_parts("calls", &["answers", "libanswers.so"]);
        assert_eq!(parts, Counts::new(), "{metric}");
        assert_eq!(profile.through(&["main", "asks", "asks_often", "answers"], "calls"), 2000, "{metric}");
    }
}

/// The recipe table of a large library has slices, which samples ask for: a call's path is whole without them.
#[test]
fn a_path_through_a_large_one() {
    let library = C { source: "sliced.c", output: "libsliced.so", options: &["-shared", "-fPIC"] };
    let library = compiled(library).expect("sliced.c compiles");
    let program = C { source: "late.c", output: "late_probed", options: &["-pthread"] };
    let program = Program::compiled(program).arguments([library.as_os_str()]).arguments(["300", "1", "0"]);
    let cache = tempfile::tempdir().expect("a directory can be made");
    let setting = format!("CALLPATH_CACHE_DIR={}", cache.path().display());
    let recorded = program.through(&["env", &setting]).probed(&["work"]);
    let profile = recorded.profile();
    let through = profile.through(&["use", "down", "large_run", "hop_two", "hop_three", "work"], "calls");
    assert!(through > 0 && through == profile.calls_of("work"), "{through} of {}", profile.calls_of("work"));
}

/// A program that opens libraries may get the function with one: it is probed when it comes, also without its module's name.
#[test]
fn one_whose_functions_have_bare_names() {
    let library = compiled(PLUGGABLE).expect("the library compiles").to_str().unwrap().to_owned();
    let plugs_in = |arguments: &[&str]| Program::nasty("plugs_in.c").arguments([&library]).arguments(arguments);
    let recorded = plugs_in(&["2", "0", "probed"]).probed(&["plugged", "plugged_deep"]);
    assert_eq!(recorded.ended.status, 0, "{recorded:?}");
    let said = &recorded.ended.stderr;
    assert_eq!(said.matches("plugged: no function has this name").count(), 1, "{said}");
    assert_eq!(recorded.profile().calls_of("plugged"), truth(&recorded).calls_of("plugged"));
    // One that no library has is said once more at the end; nothing was called, which takes no memory.
    let recorded = plugs_in(&["0", "0"]).probed(&["pluggde"]);
    assert_eq!(recorded.ended.status, 0, "{recorded:?}");
    let said = &recorded.ended.stderr;
    assert_eq!(said.matches("pluggde: no function has this name").count(), 2, "{said}");
    assert_eq!(said.matches("it will be probed if a library that has it is loaded").count(), 1, "{said}");
    assert_eq!(recorded.profile().total("calls"), 0);
    let report = run_report(&recorded.directory, &[]);
    assert!(!report.stdout.contains("memory"), "{report:?}");
}
