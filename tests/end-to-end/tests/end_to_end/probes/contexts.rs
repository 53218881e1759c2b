//! `-m context`: a program logs where it is by numbers, and says itself where that was (tests/nasty/numbers.c, caught.cpp).

use std::collections::{BTreeMap, BTreeSet};

use callpath_end_to_end::{Attached, C, Program, Recorded, Running, run_report};
use serde_json::Value;

/// By process and number, the paths for which it was logged.
fn logged(recorded: &Recorded) -> BTreeMap<(u64, u64), BTreeSet<String>> {
    let text = std::fs::read_to_string(recorded.surroundings().join("logged")).expect("the program has logged");
    let mut logged: BTreeMap<(u64, u64), BTreeSet<String>> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [pid, given, path] = words[..] else { panic!("not a line of the log: {line}") };
        let number = |word: &str| word.parse::<u64>().expect("a number");
        logged.entry((number(pid), number(given))).or_default().insert(path.to_owned());
    }
    assert!(!logged.is_empty() && logged.keys().all(|(_, of)| *of < 1 << 61));
    logged
}

/// What `report --context` says of numbers: process and path of each, by the names of one module's functions.
fn resolved(recorded: &Recorded, numbers: &[u64], module: &str) -> Vec<(u64, String)> {
    let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
    let said = run_report(&recorded.directory, &["--context", &words.join(","), "--json"]);
    assert_eq!(said.status, 0, "{said:?}");
    let json: Value = serde_json::from_str(&said.stdout).expect("it is JSON");
    let contexts = json["contexts"].as_array().expect("an array");
    let mut ids = BTreeSet::new();
    let found = contexts.iter().zip(numbers).map(|(context, number)| {
        assert_eq!((context["context"].as_u64(), &context["partial"]), (Some(*number), &Value::Bool(false)));
        assert!(context["calls"].as_u64() > Some(0), "{context}");
        ids.insert(context["id"].as_str().expect("an id").to_owned());
        let own = |frame: &&Value| frame["module"] == module && frame["name"] != "_start";
        let path = context["path"].as_array().expect("a path").iter().filter(own);
        let path: Vec<&str> = path.map(|frame| frame["name"].as_str().expect("a name")).collect();
        (context["pids"][0].as_u64().expect("a process"), path.join(";"))
    });
    found.collect()
}

/// Each number that was logged is the path for which it was, and the only one of that.
#[track_caller]
fn assert_right(recorded: &Recorded, module: &str) {
    let logged = logged(recorded);
    let mut expected = Vec::new();
    for ((pid, number), paths) in &logged {
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let [path] = paths[..] else { panic!("the number {number} of {paths:?}") };
        assert_eq!(*number == 0, path == "-", "{number} of {path}");
        expected.extend((*number != 0).then(|| (*number, (*pid, path.to_owned()))));
    }
    let distinct: BTreeSet<_> = expected.iter().map(|(_, context)| context).collect();
    assert_eq!(distinct.len(), expected.len(), "a context has two numbers: {expected:?}");
    let (numbers, contexts): (Vec<u64>, Vec<(u64, String)>) = expected.into_iter().unzip();
    assert!(numbers.len() > 1, "{numbers:?}");
    assert_eq!(resolved(recorded, &numbers, module), contexts);
}

/// In threads, recursion, after longjmp, in a handler, in a coroutine, and in a fork's child.
#[test]
fn a_number_that_was_logged_is_its_path() {
    for metrics in ["context", "context,wall-time", "context,cpu-time,ret"] {
        let program = Program::nasty("numbers.c").options(&["-m", metrics]);
        let recorded = program.same_probed(&["known_*"]);
        assert_eq!(recorded.ended.stdout, "all is logged\n", "{recorded:?}");
        assert_right(&recorded, "numbers");
        // It is no cost.
        let profile = recorded.profile();
        assert!(profile.has_metric("calls") && !profile.has_metric("context"));
    }
}

#[test]
fn functions_that_an_exception_has_left_are_not_logged() {
    let program = Program::compiled(C { source: "caught.cpp", output: "caught", options: &[] });
    let recorded = program.options(&["-m", "context"]).same_probed(&["known_*"]);
    assert_eq!(recorded.ended.stdout, "caught 7\n", "{recorded:?}");
    let logged = logged(&recorded);
    let paths: Vec<(bool, Vec<&str>)> =
        logged.iter().map(|((_, number), paths)| (*number == 0, paths.iter().map(String::as_str).collect())).collect();
    assert_eq!(paths, [(true, vec!["-"]), (false, vec!["main;known_catches"])]);
    let number = logged.keys().map(|(_, number)| *number).max().expect("a number");
    assert_eq!(resolved(&recorded, &[number], "caught")[0].1, "main;known_catches");
}

#[test]
fn beside_samples_and_in_a_pack() {
    let program = Program::nasty("numbers.c").options(&["--probe", "known_*", "--probe-metrics", "context"]);
    let recorded = program.same();
    assert_right(&recorded, "numbers");
    let packed = run_report(&recorded.directory, &["--pack"]);
    assert_eq!(packed.status, 0, "{packed:?}");
    assert_right(&recorded, "numbers");
}

#[test]
fn what_has_no_number_is_said() {
    let program = Program::nasty("numbers.c").options(&["-m", "context"]);
    let recorded = program.probed(&["known_leaf"]);
    let refused = |numbers: &str, words: &str| {
        let said = run_report(&recorded.directory, &["--context", numbers]);
        assert!(said.status == 1 && said.stderr.contains(words), "{said:?}");
    };
    refused("5", "has the number 5; there are ");
    refused("0", "0 is no context");
    let unnumbered = Program::nasty("numbers.c").probed(&["known_leaf"]);
    let said = run_report(&unnumbered.directory, &["--context", "5"]);
    assert!(said.status == 1 && said.stderr.contains("measure with `-m context`"), "{said:?}");
    // A program that does not ask.
    let silent = Program::nasty("takes.c").options(&["-m", "context"]).same_probed(&["inner"]);
    assert!(silent.ended.stderr.contains("add `__attribute__((weak)) unsigned long callpath_context"), "{silent:?}");
}

/// A process that runs is told its contexts as long as it is probed, and the function that asks is put back.
#[test]
fn a_process_that_runs_is_told() {
    let mut running = Program::nasty("numbers.c").arguments(["asked"]).started();
    let line = running.line();
    let address = |nth: usize| {
        let word = line.split(' ').nth(nth).expect("an address").trim_start_matches("0x");
        u64::from_str_radix(word, 16).expect("an address")
    };
    let (tells, context) = (address(1), address(3));
    let code = |running: &Running| [tells, context].map(|function| running.bytes(function, 16));
    let bare = code(&running);
    assert_eq!(running.ask("go"), "0");
    let attached = Attached::to(running.pid(), &["known_tells"], &["-m", "context"]);
    // All is written while the program stands still; what it says later, it says with all of that.
    let attached = attached.until(|| code(&running).iter().zip(&bare).all(|(now, bare)| now != bare));
    let number: u64 = running.ask("go").parse().expect("a number");
    assert_ne!(number, 0);
    let recorded = attached.detached();
    assert_eq!(recorded.ended.status, 0, "{recorded:?}");
    assert_eq!((code(&running), running.ask("go")), (bare, "0".to_owned()));
    assert_eq!(
        resolved(&recorded, &[number], "numbers"),
        [(running.pid().into(), "main;asked;known_tells".to_owned())]
    );
    // How it ends is not known, since it goes on.
    let report = run_report(&recorded.directory, &[]).stdout;
    assert!(report.contains(", goes on,") && !report.contains("exit status"), "{report}");
    assert!(!report.contains("by the kernel"), "{report}");
    running.ended();
}
