//! `callpath record --probe`: samples and calls are one measurement, and one tree.

use std::path::Path;
use std::process::{Command, Stdio};

use callpath_end_to_end::{Program, callpath, run_report};
use serde_json::Value;

/// The number behind a word of a line.
fn said(stdout: &str, word: &str) -> u64 {
    let line = stdout.lines().find_map(|line| line.strip_prefix(word)).expect("it says it");
    line.trim().parse().expect("a number")
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

#[test]
fn threads_forks_and_executed_programs_have_one_tree_each() {
    let options = ["--probe", "leaf", "--probe-metrics", "wall-time"];
    let recorded = Program::nasty("sampled_calls.c").options(&options).same();
    assert_eq!(recorded.ended.status, 8);
    let called: u64 = ["parent ", "child ", "executed "].map(|who| said(&recorded.ended.stdout, who)).iter().sum();
    let profile = recorded.profile();
    assert_eq!(profile.total("calls"), called);
    profile.assert_full(1000);
    let report = run_report(&recorded.directory, &["--json"]);
    let json: Value = serde_json::from_str(&report.stdout).expect("it is JSON");
    assert_eq!(json["quality"]["partial"], 0, "{}", json["quality"]);
    assert_eq!(json["quality"]["probes"]["hits"], called);
    let names: Vec<&str> = json["metrics"].as_array().unwrap().iter().map(|m| m["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["cpu-time", "calls", "wall-time", "samples"]);
    let nodes = json["nodes"].as_array().unwrap();
    // What the child executes is the same process.
    let of_kind = |kind: &str| nodes.iter().filter(|node| node["kind"] == kind).count();
    assert_eq!(of_kind("process"), 2);
    // A node for each path of `leaf` has both.
    let mut both = 0;
    for node in nodes.iter().filter(|node| node["kind"] == "procedure" && node["name"] == "leaf") {
        let [calls, samples] = [1, 3].map(|metric| number(&node["inclusive"][metric]));
        assert!(calls > 0 && samples > 0, "{node}");
        both += 1;
    }
    // In threads, after them, and in the child, which executes the same program.
    assert_eq!(both, 3);
}

/// All of an interpreter's own functions, with so much memory of contexts that many calls are walked.
#[test]
fn an_interpreter_does_what_it_does_bare_and_no_path_breaks() {
    let script = "my %h; for my $i (1 .. 30000) { $h{join '', map { chr(97 + $i * $_ % 26) } 1 .. 4} .= $i } \
                  print join(',', map { \"$_=\" . length $h{$_} } sort keys %h), qq(\\n)";
    let perl = Program::at("/usr/bin/perl").arguments(["-e", script]);
    let sampled = perl.clone().options(&["-F", "1000"]).recorded().profile();
    let both = perl.options(&["-F", "1000", "--probe", "Perl_*"]).same().profile();
    assert!(both.total("calls") > 1_000_000, "{:?}", both.quality);
    let whole = |quality: &callpath_end_to_end::Quality| quality.full * 1000 / (quality.full + quality.partial).max(1);
    assert!(whole(&both.quality) >= whole(&sampled.quality), "{:?} {:?}", both.quality, sampled.quality);
}

#[track_caller]
fn ask(directory: &Path, words: &[&str]) -> String {
    let output = Command::new(callpath()).arg("ctl").arg(directory).args(words).output().expect("callpath can be run");
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("it answers in UTF-8")
}

#[test]
fn probes_beside_samples_are_changed_while_they_run() {
    let crew = Program::nasty("crew.c");
    let surroundings = tempfile::tempdir().expect("a directory");
    let directory = surroundings.path().join("crew.callpath");
    let mut command = Command::new(callpath());
    command
        .args(["record", "-q", "--probe", "crew!leaf", "-o"])
        .arg(&directory)
        .arg("--")
        .arg(crew.path())
        .arg("asked");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it can be started");
    while !directory.join("control").exists() {
        assert!(child.try_wait().expect("it is a child").is_none(), "it has ended");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(ask(&directory, &["list"]), "crew!leaf: probed\n");
    assert_eq!(ask(&directory, &["add", "crew!step"]), "1 function was added\n");
    assert_eq!(ask(&directory, &["remove", "leaf"]), "1 function was removed\n");
    assert_eq!(ask(&directory, &["list"]), "crew!leaf: removed\ncrew!step: probed\n");
    let flat = || -> Value {
        ask(&directory, &["snapshot"]);
        let report = run_report(&directory, &["--view", "flat", "--json"]);
        serde_json::from_str(&report.stdout).expect("it is JSON")
    };
    let of = |json: &Value, name: &str, metric: usize| -> u64 {
        let nodes = json["nodes"].as_array().expect("a list").iter();
        nodes.filter(|node| node["name"] == name).map(|node| number(&node["self"][metric])).sum()
    };
    while of(&flat(), "step", 1) == 0 {}
    // After the probes, samples go on.
    ask(&directory, &["stop"]);
    assert_eq!(ask(&directory, &["list"]), "crew!leaf: removed\ncrew!step: removed\n");
    let before = flat();
    let samples = |json: &Value| number(&json["quality"]["taken"]);
    let after = loop {
        let now = flat();
        if samples(&now) > samples(&before) + 10 {
            break now;
        }
    };
    assert_eq!(of(&after, "step", 1), of(&before, "step", 1));
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("it is a child").code(), Some(7));
}

#[test]
fn what_cannot_be_recorded_and_probed_is_refused() {
    // It executes no other program, which could have such a function.
    let program = Program::nasty("sites.c");
    for (options, complaint) in [
        (&["--probe", "lief"][..], "failed to find these functions: lief: no function has this name"),
        (&["--probe", "leaf", "--sentinel", "always"], "--sentinel=always changes return addresses"),
        (&["--probe", "leaf", "-e", "wall-time", "--probe-metrics", "wall-time"], "`wall-time` would be measured by"),
        (&["--probe-metrics", "wall-time"], "--probe"),
    ] {
        let recorded = program.clone().options(options).recorded();
        assert_ne!(recorded.ended.status, 5, "{recorded:?}");
        assert_eq!(recorded.ended.stdout, "", "it never ran");
        assert!(recorded.ended.stderr.contains(complaint), "{recorded:?}");
        assert!(!recorded.directory.exists());
    }
}
