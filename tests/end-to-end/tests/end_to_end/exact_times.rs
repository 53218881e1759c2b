//! `record --exact ... -m wall-time`: what paths and calls take is measured, of executions that are chosen by chance or of all; what is counted, and what the
//! program does, stay what they are. Times decide nothing here but that three times as much work takes longer: `cargo xtask bench-intervals` prints how
//! good they are.

use std::collections::BTreeMap;
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

/// Runs the program, recorded with these options into a directory.
fn recorded(directory: &Path, into: &str, options: &[&str], arguments: &[&str]) -> Output {
    let mut record = Command::new(callpath());
    record.args(["record", "-q", "-o", into]).args(options).arg("--").arg("./program").args(arguments);
    record.current_dir(directory).output().expect("it can be run")
}

fn view(directory: &Path, measurement: &str, options: &[&str]) -> Value {
    let said = run_report(&directory.join(measurement), &[options, &["--json"]].concat());
    serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {}", said.stderr))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// A path of a procedure: by what it is known in another measurement, how often it was executed, and what was measured.
struct Timed {
    procedure: String,
    blocks: String,
    executions: u64,
    time: Value,
}

fn paths_of(json: &Value) -> Vec<Timed> {
    let nodes = json["nodes"].as_array().expect("nodes");
    let paths = nodes.iter().filter(|node| node["kind"] == "path");
    let of = |node: &Value| {
        let procedure = &nodes[number(&node["parent"]) as usize];
        Timed {
            procedure: format!(
                "{} {}",
                procedure["module"].as_str().unwrap_or("?"),
                procedure["name"].as_str().unwrap_or("?")
            ),
            blocks: format!("{} {} {}", procedure["address"], node["category"], node["blocks"]),
            executions: number(&node["inclusive"][1]),
            time: node["wall_time"].clone(),
        }
    };
    paths.map(of).collect()
}

/// How often each path of the program's own procedures was executed, by what it is.
fn executions(paths: &[Timed]) -> BTreeMap<String, u64> {
    let own = paths.iter().filter(|path| path.procedure.starts_with("program "));
    own.map(|path| (path.blocks.clone(), path.executions)).collect()
}

#[test]
fn all_or_some_executions_are_measured_and_counts_stay_what_they_are() {
    let directory = tempfile::tempdir().expect("room");
    let directory = directory.path();
    compiled(directory, "gcc", &["-O2", &source("timed.c")]);
    let counted = recorded(directory, "bare", &["--exact=paths", "-F", "0"], &["20000"]);
    let bare = paths_of(&view(directory, "bare", &["--view", "paths"]));
    assert!(counted.status.success() && bare.iter().all(|path| path.time.is_null()));
    for (kind, options) in
        [("paths", &["--full"][..]), ("paths", &[]), ("calls,paths", &["--full"]), ("calls,paths", &[])]
    {
        let exact = format!("--exact={kind}");
        let into = format!("m{kind}{}", options.len());
        let options = [&[exact.as_str(), "-m", "wall-time", "-F", "0"], options].concat();
        let timed = recorded(directory, &into, &options, &["20000"]);
        assert_eq!((timed.status, &timed.stdout), (counted.status, &counted.stdout), "{options:?}");
        let json = view(directory, &into, &["--view", "paths"]);
        let paths = paths_of(&json);
        if kind == "paths" {
            assert_eq!(executions(&paths), executions(&bare), "{options:?}");
        }
        let is_full = options.contains(&"--full");
        let mean = |procedure: &str, executions: u64| {
            let is_it =
                |path: &&Timed| path.procedure == format!("program {procedure}") && path.executions == executions;
            let path = paths.iter().find(is_it).unwrap_or_else(|| panic!("{procedure}: {}", json["quality"]));
            let measured = number(&path.time["measured"]) + number(&path.time["interrupted"]);
            // The first 64 of a procedure, and then ever fewer.
            assert!(
                if is_full { measured == executions } else { (64..executions / 2).contains(&measured) },
                "{}",
                path.time
            );
            let (estimate, mean) = (number(&path.time["estimate"]), path.time["mean"].as_f64().expect("a mean"));
            assert!((estimate as f64 - mean * executions as f64).abs() <= 1.0, "{}", path.time);
            assert!(path.time["interval"].as_f64().is_some_and(|interval| interval > 0.0), "{}", path.time);
            mean
        };
        let (short, long, calls) = (mean("works", 15_000), mean("works", 5_000), mean("calls", 20_000));
        // Of some, one that was interrupted for a few microseconds may stand for hundreds.
        assert!(!is_full || long > short && long > calls, "{options:?}: {short} {long} {calls}");
        let timed = &json["timed"];
        assert_eq!((&timed["name"], &timed["lost"]), (&"wall-time".into(), &0.into()));
        let unmeasured = paths.iter().filter(|path| path.time.is_null());
        assert_eq!(number(&timed["unmeasured"]["paths"]), unmeasured.clone().count() as u64);
        assert_eq!(number(&timed["unmeasured"]["executions"]), unmeasured.map(|path| path.executions).sum::<u64>());
        let text = run_report(&directory.join(&into), &["--view", "paths"]).stdout;
        assert!(text.starts_with("Paths by wall-time: ") && text.contains("takes "), "{text}");
        let all_of_works = text.lines().filter(|line| line.contains("by 15,000 of") || line.contains("by 5,000 of"));
        assert!(all_of_works.count() == 0 && (!is_full || text.contains("by all of them")), "{text}");
    }
}

/// In threads, forks, handlers, with exceptions and `longjmp`, and at a `kill -9`.
#[test]
#[ignore = "takes minutes: `cargo xtask test --long`"]
fn measuring_changes_nothing_that_a_program_does() {
    let directory = tempfile::tempdir().expect("room");
    let directory = directory.path();
    compiled(directory, "g++", &["-O2", "-pthread", &source("counted.cpp")]);
    let bare =
        Command::new("sh").args(["-c", "./program; exit $?"]).current_dir(directory).output().expect("it can be run");
    let mut counts: BTreeMap<&str, BTreeMap<String, u64>> = BTreeMap::new();
    for (into, kind, options) in [
        ("a", "paths", &[][..]),
        ("b", "paths", &["-m", "wall-time"]),
        ("c", "paths", &["-m", "wall-time", "--full"]),
        ("d", "calls", &["-m", "wall-time", "--full"]),
        ("e", "calls,paths", &["-m", "wall-time"]),
    ] {
        let exact = format!("--exact={kind}");
        let timed = recorded(directory, into, &[&[exact.as_str()], options].concat(), &[]);
        assert_eq!((timed.status.code(), &timed.stdout), (bare.status.code(), &bare.stdout), "{kind} {options:?}");
        if kind == "paths" {
            counts.insert(into, executions(&paths_of(&view(directory, into, &["--view", "paths"]))));
        }
    }
    assert!(counts["a"].len() > 20 && counts["a"] == counts["b"] && counts["a"] == counts["c"], "{counts:?}");
}

/// The time of a context is that of the procedure itself: what it calls has its own.
#[test]
fn contexts_have_the_time_of_their_activations() {
    let directory = tempfile::tempdir().expect("room");
    let directory = directory.path();
    compiled(directory, "gcc", &["-O2", &source("timed.c")]);
    for options in [&["--full"][..], &[]] {
        let into = format!("m{}", options.len());
        let options = [&["--exact=calls", "-m", "wall-time", "-F", "0"], options].concat();
        assert!(recorded(directory, &into, &options, &["20000"]).status.success());
        let json = view(directory, &into, &["--columns", "calls,wall-time", "--no-loops", "--threshold", "0"]);
        let names: Vec<&Value> =
            json["metrics"].as_array().expect("metrics").iter().map(|metric| &metric["name"]).collect();
        assert_eq!(names[..2], ["calls", "wall-time"]);
        let node = |name: &str| {
            let nodes = json["nodes"].as_array().expect("nodes");
            nodes.iter().find(|node| node["name"] == name).unwrap_or_else(|| panic!("{name}: {json}"))
        };
        let of = |name: &str| [0, 1].map(|column| number(&node(name)["exclusive"][column]));
        let ([calls, own], [works, its]) = (of("calls"), of("works"));
        assert_eq!([calls, works], [20_000, 20_000]);
        // On average, half as much again as its caller does itself.
        let is_full = options.contains(&"--full");
        assert!(own > 0 && its > 0 && (!is_full || its > own), "{options:?}: {own} {its}");
        let inclusive = number(&node("calls")["inclusive"][1]);
        assert_eq!(inclusive, own + its);
        // Its frame is the kernel's: a call, and no time.
        assert_eq!(of("_start"), [1, 0]);
        let refused = json["quality"]["exact"]["refused"].as_array().expect("what was not counted");
        let start = refused.iter().find(|refused| refused["function"] == "_start").expect("_start is named");
        let reason = start["reason"].as_str().unwrap_or_default();
        assert!(reason.starts_with("its calls were counted, and not measured: "), "{reason}");
        for counted in ["calls", "works"] {
            assert!(refused.iter().all(|refused| refused["function"] != counted), "{counted}");
        }
    }
}

#[test]
fn what_cannot_be_measured_is_said() {
    let directory = tempfile::tempdir().expect("room");
    let directory = directory.path();
    compiled(directory, "gcc", &["-O2", &source("timed.c")]);
    for (options, part) in [
        (
            &["-m", "wall-time"][..],
            "-m measures what paths or calls take: count them (--exact=paths, calls or calls,paths)",
        ),
        (&["--exact=edges", "-m", "wall-time"], "-m measures what paths or calls take"),
        (&["--exact=paths", "-m", "walltime"], "of paths and calls, `wall-time`, `cpu-time`, "),
        (
            &["--exact=calls", "-m", "wall-time", "-e", "wall-time"],
            "`wall-time` would be measured by samples and by -m: leave out -e wall-time or -m",
        ),
        (&["--exact=paths", "-m", "wall-time", "-e", "wall-time"], "leave out -e wall-time or -m"),
        (&["--exact=paths", "--full"], "--metrics"),
    ] {
        let output = recorded(directory, "m", options, &["10"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(part), "{options:?}: {said}");
        assert!(!directory.join("m").exists(), "{options:?}");
    }
    // perf's pages.
    let output = Command::new(callpath())
        .args(["record", "-m", "512", "-o", "m", "--", "./program", "10"])
        .current_dir(directory)
        .output();
    let said = String::from_utf8_lossy(&output.expect("it can be run").stderr).into_owned();
    assert!(said.contains("-m, --mmap-pages is not needed"), "{said}");
    let text = run_report(&directory.join("m"), &["--view", "paths", "--order-by", "wall-time"]);
    assert!(text.stderr.contains("has no counts of them"), "{}", text.stderr);
}

/// A procedure with 16 million paths, and one with a loop of a million: each path has a counter.
#[test]
fn paths_that_are_too_many_for_an_array_are_counted() {
    let directory = tempfile::tempdir().expect("room");
    let directory = directory.path();
    compiled(directory, "gcc", &["-O1", &source("manypaths.c")]);
    let mut all = Vec::new();
    for (into, options) in [
        ("a", &["--exact=paths"][..]),
        ("b", &["--exact=calls,paths"]),
        ("c", &["--exact=paths", "-m", "wall-time"]),
        ("d", &["--exact=paths", "--guide", "a"]),
    ] {
        let output = recorded(directory, into, options, &["30000"]);
        let mut own: Vec<u64> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
            .collect();
        own.sort_unstable();
        let json = view(directory, into, &["--view", "paths"]);
        let nodes = json["nodes"].as_array().expect("nodes");
        let of = |name: &str| {
            nodes.iter().find(|node| node["name"] == name && node["module"] == "program").expect("it is there")
        };
        assert_eq!(
            [&of("chooses")["possible"], &of("chooses")["cuts"]],
            [&Value::from(1 << 24), &0.into()],
            "{options:?}"
        );
        assert!(number(&of("loops")["possible"]) > 1 << 20 && of("loops")["cuts"] == 0, "{options:?}");
        let paths = paths_of(&json);
        let of = |name: &str| -> Vec<u64> {
            let mut all: Vec<u64> = paths
                .iter()
                .filter(|path| path.procedure == format!("program {name}"))
                .map(|path| path.executions)
                .collect();
            all.sort_unstable();
            all
        };
        assert!(own.len() > 4_000 && of("chooses") == own, "{options:?}: {} {}", own.len(), of("chooses").len());
        assert_eq!(of("loops").iter().sum::<u64>(), 30_000, "{options:?}");
        assert_eq!(
            [&json["quality"]["exact"]["lost"], &json["quality"]["exact"]["cut_short"]],
            [&0, &0],
            "{options:?}"
        );
        all.push(executions(&paths));
    }
    assert_eq!(all[0], all[2]);
    assert_eq!(all[0], all[3]);
}
