//! Requests to a probe that is under way.

use std::path::Path;
use std::process::{Command, Output};

use callpath_end_to_end::{Attached, Profile, Program, callpath, run_report};
use serde_json::Value;

/// As much of a function's code is looked at: where a jump would be, and not the next function.
const BYTES: usize = 16;

/// `callpath ctl`, as it answers.
fn asked(directory: &Path, words: &[&str]) -> Output {
    Command::new(callpath()).arg("ctl").arg(directory).args(words).output().expect("callpath can be run")
}

#[track_caller]
fn ask(directory: &Path, words: &[&str]) -> String {
    let output = asked(directory, words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("it answers in UTF-8")
}

/// Its complaint.
#[track_caller]
fn refused(directory: &Path, words: &[&str]) -> String {
    let output = asked(directory, words);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(125), &b""[..]), "{words:?}: {output:?}");
    String::from_utf8(output.stderr).expect("it complains in UTF-8")
}

/// What is listed: functions and their states.
fn listed(directory: &Path) -> Vec<(String, String)> {
    let json: Value = serde_json::from_str(&ask(directory, &["list", "--json"])).expect("it is JSON");
    assert_eq!((json["schema"].as_u64(), json["kind"].as_str()), (Some(1), Some("ctl")));
    let word = |probe: &Value, field: &str| probe[field].as_str().expect("a string").to_owned();
    let probes = json["probes"].as_array().expect("a list").iter();
    probes.map(|probe| (word(probe, "function"), word(probe, "state"))).collect()
}

/// Calls of a procedure in the report of what is there now.
fn calls_of(directory: &Path, name: &str) -> u64 {
    let said = run_report(directory, &["--view", "flat", "--json"]);
    assert_eq!(said.status, 0, "{said:?}");
    let json: Value = serde_json::from_str(&said.stdout).expect("it is JSON");
    let nodes = json["nodes"].as_array().expect("a list").iter();
    let named = nodes.filter(|node| node["kind"] == "procedure" && node["name"] == name);
    named.map(|node| node["self"][0].as_u64().expect("a number")).sum()
}

#[test]
fn a_probe_that_is_under_way_is_changed() {
    let mut running = Program::nasty("crew.c").arguments(["asked"]).started();
    let line = running.line();
    let words: Vec<&str> = line.split(' ').collect();
    let address = |at: usize| u64::from_str_radix(words[at].trim_start_matches("0x"), 16).expect("an address");
    let (leaf, step) = (address(1), address(3));
    let bare = [running.bytes(leaf, BYTES), running.bytes(step, BYTES)];
    let attached = Attached::to(running.pid(), &["crew!leaf"], &["-m", "wall-time,wall-time:max,arg:1"])
        .until_probed(&running, leaf);
    let attached = {
        let socket = attached.directory().join("control");
        attached.until(move || socket.exists())
    };
    let directory = attached.directory().to_owned();
    let state = |function: &str, state: &str| (function.to_owned(), state.to_owned());
    assert_eq!(listed(&directory), [state("crew!leaf", "probed")]);
    assert_eq!(running.bytes(step, BYTES), bare[1]);

    assert_eq!(ask(&directory, &["add", "crew!step"]), "1 function was added\n");
    assert_eq!(running.bytes(step, 1), [0xe9]);
    assert_eq!(listed(&directory), [state("crew!leaf", "probed"), state("crew!step", "probed")]);
    assert_eq!(ask(&directory, &["remove", "leaf"]), "1 function was removed\n");
    assert_eq!(running.bytes(leaf, BYTES), bare[0]);
    assert_eq!(listed(&directory), [state("crew!leaf", "removed"), state("crew!step", "probed")]);

    // What is removed is counted no more, and what is added is.
    ask(&directory, &["snapshot"]);
    let before = [calls_of(&directory, "leaf"), calls_of(&directory, "step")];
    assert!(before[0] > 0, "{before:?}");
    while calls_of(&directory, "step") == before[1] {
        ask(&directory, &["snapshot"]);
    }
    assert_eq!(calls_of(&directory, "leaf"), before[0]);

    assert_eq!(ask(&directory, &["metrics"]), "calls\nwall-time\nwall-time:max\narg:1\n");
    // What is not measured stays as it is, and calls are counted on.
    for metrics in ["wall-time:max", "calls,arg:1", "calls", "wall-time"] {
        let answer = format!("calls\n{}\n", metrics.trim_start_matches("calls").trim_start_matches(','));
        assert_eq!(ask(&directory, &["metrics", metrics]), answer.replace("\n\n", "\n"));
        let step = || Profile::of_json(&run_report(&directory, &["--json"]).stdout);
        ask(&directory, &["snapshot"]);
        let (arguments, calls) = (step().total("arg:1"), step().total("calls"));
        while step().total("calls") == calls {
            ask(&directory, &["snapshot"]);
        }
        assert_eq!(step().total("arg:1") > arguments, metrics.contains("arg:1"), "{metrics}");
    }
    assert_eq!(ask(&directory, &["metrics", "calls"]), "calls\n");
    assert_eq!(running.bytes(step, 1), [0xe9]);
    assert_eq!(running.bytes(leaf, BYTES), bare[0]);
    assert_eq!(ask(&directory, &["metrics", "calls,wall-time"]), "calls\nwall-time\n");
    let complaint = refused(&directory, &["metrics", "page-faults"]);
    assert!(complaint.contains("begun with calls, wall-time, wall-time:max, arg:1"), "{complaint}");

    let complaint = refused(&directory, &["add", "crew!stepp"]);
    assert!(complaint.contains("crew!stepp") && complaint.contains("similar names: crew!step"), "{complaint}");
    let complaint = refused(&directory, &["remove", "leaf"]);
    assert!(complaint.contains("nothing of that name is probed"), "{complaint}");
    assert_eq!(ask(&directory, &["add", "leaf"]), "1 function was added\n");
    assert_eq!(running.bytes(leaf, 1), [0xe9]);

    assert_eq!(ask(&directory, &["stop"]), "the probes are taken out\n");
    let recorded = attached.ended();
    assert_eq!(recorded.ended.status, 0, "{recorded:?}");
    assert_eq!([running.bytes(leaf, BYTES), running.bytes(step, BYTES)], bare);
    let complaint = refused(&recorded.directory, &["list"]);
    assert!(complaint.contains("no probe is under way"), "{complaint}");
    let ended = running.ended();
    assert!(ended.stdout.ends_with("all is right\n"), "{ended:?}");
}

#[test]
fn what_is_no_measurement_is_not_asked() {
    let place = tempfile::tempdir().expect("a directory");
    assert!(refused(place.path(), &["list"]).contains("no probe is under way"));
    // Whatever is there that does not answer.
    std::fs::write(place.path().join("control"), "").expect("it can be written");
    assert!(refused(place.path(), &["list"]).contains("no probe is under way"));
}

/// A function of the C library that has a hidden probe already gets another one, and loses it.
#[test]
fn functions_that_wait_are_added_and_removed() {
    let mut running = Program::nasty("crew.c").arguments(["asked"]).started();
    let line = running.line();
    let leaf = line.split(' ').nth(1).expect("an address");
    let leaf = u64::from_str_radix(leaf.trim_start_matches("0x"), 16).expect("an address");
    let attached = Attached::to(running.pid(), &["crew!leaf"], &["-m", "wait-time,io-time"]);
    let attached = attached.until_probed(&running, leaf);
    let directory = attached.directory().to_owned();
    let attached = attached.until(|| directory.join("control").exists());
    let is_probed =
        |name: &str| listed(&directory).iter().any(|(function, state)| function == name && state == "probed");
    assert_eq!(listed(&directory).len(), 1);
    assert_eq!(ask(&directory, &["add", "libc.so*!usleep"]), "1 function was added\n");
    assert_eq!(ask(&directory, &["add", "crew!step"]), "1 function was added\n");
    assert!(is_probed("libc.so.6!usleep") && is_probed("crew!step"));
    for metrics in ["calls", "io-time", "wait-time", "wait-time,io-time"] {
        ask(&directory, &["metrics", metrics]);
        assert_eq!(listed(&directory).iter().filter(|(_, state)| state == "probed").count(), 3);
    }
    assert_eq!(ask(&directory, &["remove", "usleep"]), "1 function was removed\n");
    assert_eq!(ask(&directory, &["add", "usleep"]), "1 function was added\n");
    ask(&directory, &["stop"]);
    let recorded = attached.ended();
    assert!(recorded.ended.status == 0 && !recorded.ended.stderr.contains("failed"), "{recorded:?}");
    // One that was removed and added again is one.
    assert!(recorded.ended.stderr.contains("3 functions were probed"), "{recorded:?}");
    let ended = running.ended();
    assert!(ended.stdout.ends_with("all is right\n"), "{ended:?}");
}

/// A function that has a hidden probe, too, keeps that when the other one is removed: others wait in it.
#[test]
fn what_is_removed_is_measured_on_where_others_wait_in_it() {
    let mut running = Program::nasty("numbers.c").arguments(["asked"]).started();
    running.line();
    let attached = Attached::to(running.pid(), &["known_reads"], &["-m", "io-time"]);
    let directory = attached.directory().to_owned();
    let attached = attached.until(|| directory.join("control").exists());
    let mut waited = || {
        // The first line ends a call that had begun before.
        (0..2).for_each(|_| assert_eq!(running.ask("go"), "0"));
        ask(&directory, &["snapshot"]);
        let report = run_report(&directory, &["--json"]);
        Profile::of_json(&report.stdout).through(&["known_reads"], "io-time")
    };
    let at_first = waited();
    assert!(at_first > 0);
    assert_eq!(ask(&directory, &["add", "libc.so*!read"]), "1 function was added\n");
    let added = waited();
    assert_eq!(ask(&directory, &["remove", "read"]), "1 function was removed\n");
    let removed = waited();
    assert!(at_first < added && added < removed, "{at_first} {added} {removed}");
    assert!(listed(&directory).contains(&("libc.so.6!read".to_owned(), "removed".to_owned())));
    assert_eq!(attached.detached().ended.status, 0);
    assert_eq!(running.ended().status, 0);
}
