//! `record --exact ... -m A,B`: metrics other than the time that passes, two at once, and at back edges. The truth is in `tests/nasty/touches.c`: so many new
//! pages are touched on each path, and one path waits.

use std::path::Path;
use std::process::{Command, Output};

use callpath_end_to_end::{callpath, run_report};
use serde_json::Value;

fn source(name: &str) -> String {
    format!("{}/../nasty/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn compiled(directory: &Path, compiler: &str, words: &[&str]) {
    let output = Command::new(compiler).args(words).args(["-g", "-o", "program"]).current_dir(directory).output();
    let output = output.expect("it can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn recorded(directory: &Path, into: &str, options: &[&str], arguments: &[&str]) -> Output {
    let mut record = Command::new(callpath());
    record.args(["record", "-q", "-o", into]).args(options).arg("--").arg("./program").args(arguments);
    record.current_dir(directory).output().expect("it can be run")
}

fn view(directory: &Path, measurement: &str, options: &[&str]) -> Value {
    let said = run_report(&directory.join(measurement), &[options, &["--json"]].concat());
    serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {}", said.stderr))
}

/// The path of a procedure of the program that was executed so often.
fn path<'j>(json: &'j Value, procedure: &str, executions: u64) -> &'j Value {
    let nodes = json["nodes"].as_array().expect("nodes");
    let is_of = |node: &&Value| {
        let above = &nodes[node["parent"].as_u64().unwrap_or(0) as usize];
        node["kind"] == "path" && above["name"] == procedure && node["inclusive"][1] == executions
    };
    nodes.iter().find(is_of).unwrap_or_else(|| panic!("{procedure}: {json}"))
}

fn mean(measured: &Value) -> f64 {
    measured["mean"].as_f64().unwrap_or_else(|| panic!("no mean: {measured}"))
}

/// Each path has the faults of its own instructions, and not those of what it calls: a caller has one, with a callee that has three. Exactly, of all and
/// of some executions, beside other metrics and alone, in either order.
#[test]
fn page_faults_are_charged_to_the_path_that_takes_them() {
    const ROUNDS: u64 = 4_000;
    let directory = tempfile::tempdir().expect("room");
    let directory = directory.path();
    compiled(directory, "gcc", &["-O2", &source("touches.c")]);
    for (number, (metrics, options)) in [
        ("page-faults,cpu-time", &["--full"][..]),
        ("cpu-time,page-faults", &[]),
        ("wall-time,page-faults", &[]),
        ("page-faults", &[]),
        ("minor-faults,major-faults", &["--full"]),
    ]
    .into_iter()
    .enumerate()
    {
        for kind in ["paths", "calls,paths"] {
            let exact = format!("--exact={kind}");
            let into = format!("{kind}{number}");
            let only = ["-F", "0", "--only", "outer,touches", "-m", metrics, exact.as_str()];
            let output = recorded(directory, &into, &[&only, options].concat(), &["4000"]);
            assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{} pages\n", ROUNDS + ROUNDS / 4 * 3));
            let json = view(directory, &into, &["--view", "paths"]);
            let names: Vec<&str> = metrics.split(',').collect();
            let measured = json["measured"].as_array().expect("what was measured");
            let found: Vec<&str> = measured.iter().map(|metric| metric["name"].as_str().unwrap_or("")).collect();
            assert_eq!(found, names);
            assert_eq!(json["timed"].is_null(), !names.contains(&"wall-time"), "{metrics}");
            let key = if metrics.contains("minor") { "minor_faults" } else { "page_faults" };
            for (procedure, executions, faults) in
                [("outer", ROUNDS, 1.0), ("touches", ROUNDS / 4, 3.0), ("touches", ROUNDS / 4 * 3, 0.0)]
            {
                let path = path(&json, procedure, executions);
                let its = &path[key];
                assert_eq!((mean(its), &its["interval"]), (faults, &0.0.into()), "{metrics} {kind}: {procedure} {its}");
                assert_eq!(its["estimate"], (faults * executions as f64) as u64);
                let count = its["measured"].as_u64().expect("a number");
                let is_full = options.contains(&"--full");
                assert!(if is_full { count == executions } else { (20..executions / 2).contains(&count) }, "{its}");
                for name in &names {
                    // Time that passed may have been another's.
                    let of = &path[name.replace('-', "_")];
                    let all = of["measured"].as_u64().zip(of["interrupted"].as_u64()).map(|(whole, cut)| whole + cut);
                    assert_eq!(all, Some(count), "{metrics}: {path}");
                }
                if metrics.contains("major") {
                    assert_eq!(mean(&path["major_faults"]), 0.0);
                }
            }
            for metric in measured {
                let unit =
                    if metric["name"].as_str().is_some_and(|name| name.ends_with("time")) { "ns" } else { "count" };
                assert_eq!((&metric["unit"], &metric["lost"]), (&unit.into(), &0.into()));
                // What reading takes is taken off: it takes time, and faults nowhere.
                assert_eq!(metric["clock"].as_u64().is_some_and(|cost| cost > 0), unit == "ns", "{metric}");
            }
            let text = run_report(&directory.join(&into), &["--view", "paths", "--width", "160"]).stdout;
            assert!(text.starts_with(&format!("Paths by {}: ", names[0])), "{text}");
            let heading = text.lines().nth(1).expect("a heading");
            assert!(names.iter().all(|name| heading.contains(name)), "{text}");
            if names.contains(&"page-faults") {
                assert!(text.contains("takes 3.00 page-faults (95%: 3.00 to 3.00), by "), "{text}");
                let by_faults = run_report(&directory.join(&into), &["--view", "paths", "--order-by", "page-faults"]);
                assert!(by_faults.stdout.starts_with("Paths by page-faults: "), "{}", by_faults.stderr);
            }
        }
    }
}

/// A path that waits takes time, and none of a processor; one that works takes both. Where it waits, the thread leaves its processor.
#[test]
fn what_waits_takes_no_time_of_a_processor() {
    const WAIT_NS: f64 = 2e6;
    let directory = tempfile::tempdir().expect("room");
    let directory = directory.path();
    compiled(directory, "gcc", &["-O2", &source("touches.c")]);
    for (into, metrics) in [("a", "cpu-time,wall-time"), ("b", "wall-time,context-switches")] {
        let options = ["-F", "0", "--only", "waits", "--full", "--exact=paths", "-m", metrics];
        assert!(recorded(directory, into, &options, &["200", "wait"]).status.success());
        let json = view(directory, into, &["--view", "paths"]);
        let [waits, works] = [50, 150].map(|executions| path(&json, "waits", executions));
        assert!(mean(&waits["wall_time"]) >= WAIT_NS, "{waits}");
        if into == "a" {
            let [waited, worked] = [waits, works].map(|path| mean(&path["cpu_time"]));
            assert!(waited < WAIT_NS / 4.0 && worked > 5_000.0, "{waits} {works}");
            // Others may have had the processor meanwhile.
            assert!(mean(&works["wall_time"]) > worked * 0.8, "{works}");
        } else {
            let [waited, worked] = [waits, works].map(|path| mean(&path["context_switches"]));
            assert!((1.0..2.0).contains(&waited) && worked < 0.9, "{waits} {works}");
        }
    }
}

fn faults_in(directory: &Path, into: &str, procedure: &str) -> [u64; 2] {
    let json = view(directory, into, &["--columns", "calls,page-faults", "--no-loops", "--threshold", "0"]);
    let nodes = json["nodes"].as_array().expect("nodes");
    let node = nodes.iter().find(|node| node["name"] == procedure).unwrap_or_else(|| panic!("{procedure}: {json}"));
    [0, 1].map(|column| node["exclusive"][column].as_u64().expect("a number"))
}

#[test]
fn contexts_have_two_metrics() {
    let directory = tempfile::tempdir().expect("room");
    let directory = directory.path();
    compiled(directory, "gcc", &["-O2", &source("touches.c")]);
    let options = ["-F", "0", "--only", "outer,touches", "--exact=calls", "--full", "-m", "wall-time,page-faults"];
    assert!(recorded(directory, "m", &options, &["4000"]).status.success());
    assert_eq!(faults_in(directory, "m", "outer"), [4_000, 4_000]);
    assert_eq!(faults_in(directory, "m", "touches"), [4_000, 3_000]);
    let json = view(directory, "m", &["--no-loops", "--threshold", "0"]);
    let metrics = json["metrics"].as_array().expect("metrics");
    let of = |metric: &Value| [&metric["name"], &metric["unit"]].map(|word| word.as_str().unwrap_or("").to_owned());
    let found: Vec<[String; 2]> = metrics.iter().take(3).map(of).collect();
    assert_eq!(
        found,
        [["calls", "count"], ["wall-time", "ns"], ["page-faults", "count"]].map(|row| row.map(str::to_owned))
    );
    let nodes = json["nodes"].as_array().expect("nodes");
    let outer = nodes.iter().find(|node| node["name"] == "outer").expect("it is there");
    assert!(outer["exclusive"][1].as_u64().is_some_and(|time| time > 0), "{outer}");
}

/// A procedure that is left in the middle of its loop, by a handler's `siglongjmp` or the program's end, has what it spent up to the last back edge if metrics
/// are read there. Else its stretch has not ended.
#[test]
fn what_was_spent_before_a_back_edge_stays_if_that_is_asked_for() {
    let directory = tempfile::tempdir().expect("room");
    let directory = directory.path();
    compiled(directory, "gcc", &["-O2", &source("touches.c")]);
    for how in ["jump", "kill"] {
        for (is_read, more) in [(false, &[][..]), (true, &["--back-edges"])] {
            for metrics in ["page-faults", "wall-time,page-faults"] {
                let into = format!("{how}{is_read}{}", metrics.len());
                let options = ["-F", "0", "--only", "loops", "--exact=calls", "--full", "-m", metrics];
                let output = recorded(directory, &into, &[&options, more].concat(), &["100", how]);
                assert_eq!(output.status.code(), if how == "jump" { Some(0) } else { Some(128 + 9) }, "{output:?}");
                let expected = if is_read { 990 } else { 0 };
                assert_eq!(faults_in(directory, &into, "loops"), [1, expected], "{into}");
            }
        }
    }
}

/// In threads, forks, handlers, with exceptions and `longjmp`, and at a `kill -9`.
#[test]
#[ignore = "takes minutes: `cargo xtask test --long`"]
fn measuring_two_metrics_changes_nothing_that_a_program_does() {
    let directory = tempfile::tempdir().expect("room");
    let directory = directory.path();
    compiled(directory, "g++", &["-O2", "-pthread", &source("counted.cpp")]);
    let bare =
        Command::new("sh").args(["-c", "./program; exit $?"]).current_dir(directory).output().expect("it can be run");
    for (into, kind, options) in [
        ("a", "paths", &["-m", "cpu-time,page-faults", "--full"][..]),
        ("b", "calls", &["-m", "page-faults,wall-time", "--full", "--back-edges"]),
        ("c", "calls,paths", &["-m", "context-switches,wall-time"]),
    ] {
        let exact = format!("--exact={kind}");
        let measured = recorded(directory, into, &[&[exact.as_str(), "-F", "0"], options].concat(), &[]);
        let said = (measured.status.code(), &measured.stdout);
        assert_eq!(said, (bare.status.code(), &bare.stdout), "{kind} {options:?}");
    }
}

#[test]
fn metrics_that_cannot_be_measured_are_refused_in_a_sentence() {
    let directory = tempfile::tempdir().expect("room");
    let directory = directory.path();
    compiled(directory, "gcc", &["-O2", &source("touches.c")]);
    for (options, part) in [
        (&["--exact=paths", "-m", "cpu-time,page-faults,wall-time", "-F", "0"][..], "two metrics at once"),
        (&["--exact=paths", "-m", "cpu-time,cpu-time", "-F", "0"], "-m names cpu-time twice"),
        (&["--exact=paths", "-m", "frobs"], "not `frobs`"),
        (&["--exact=paths", "-m", "page-faults,alignment-faults"], "not `alignment-faults`"),
        (&["--exact=paths", "-m", "cpu-time"], "`cpu-time` would be measured by samples and by -m"),
        (&["--exact=paths", "-m", "page-faults", "--back-edges"], "--back-edges is for contexts"),
        (&["--exact=calls,paths", "-m", "page-faults", "--back-edges"], "--back-edges is for --exact=calls alone"),
        (&["--exact=calls", "--back-edges"], "--metrics"),
    ] {
        let output = recorded(directory, "m", options, &["10"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(part), "{options:?}: {said}");
        assert!(!directory.join("m").exists(), "{options:?}");
    }
}

/// Where the machine has counters they are measured; where it has none, as virtual machines, a sentence says so.
#[test]
fn hardware_counters_are_read_or_refused() {
    let directory = tempfile::tempdir().expect("room");
    let directory = directory.path();
    compiled(directory, "gcc", &["-O2", &source("timed.c")]);
    let list = Command::new(callpath()).arg("list").output().expect("it can be run");
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(list.contains("instructions"), "{list}");
    let options = ["-F", "0", "--only", "works", "--full", "--exact=paths", "-m", "instructions,cycles"];
    let output = recorded(directory, "m", &options, &["2000"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        let json = view(directory, "m", &["--view", "paths"]);
        let [short, long] = [1_500, 500].map(|executions| path(&json, "works", executions));
        // Sixteen divisions more, with two instructions each beside.
        let more = mean(&long["instructions"]) - mean(&short["instructions"]);
        assert!((40.0..60.0).contains(&more), "{short} {long}");
        assert!(mean(&long["cycles"]) > mean(&short["cycles"]), "{short} {long}");
    } else {
        assert!(said.contains("failed to count instructions: "), "{said}");
        assert!(said.contains("-m wall-time and cpu-time can be measured here"), "{said}");
        assert!(!directory.join("m").exists());
    }
}
