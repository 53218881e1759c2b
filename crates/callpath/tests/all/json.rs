//! `--json` of every command that prints data: it parses, and says its schema. Commands are taken from the help, so that none is
//! forgotten.

use crate::duckdb;
use crate::measurement;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use measurement::{measurement, with_calls, with_paths};
use serde_json::Value;

/// Commands that print no data of their own, and why.
const WITHOUT: [(&str, &str); 9] = [
    ("record", "prints what the program prints"),
    ("ctl", "prints what a probe that is under way answers; its list as JSON is tested with one that is"),
    ("map train", "writes a map, which map show prints"),
    ("map static", "writes a map, which map show prints"),
    ("map resize", "writes a plan"),
    ("export", "writes the formats of other tools, some of which are JSON"),
    ("completions", "prints a script for a shell"),
    ("help", "prints help"),
    ("debug preload-object", "writes a file and prints nothing"),
];

/// What a command is called with in the test, and what its JSON says that it is.
const WITH: &[(&str, &[&str], &str)] = &[
    ("list", &[], "kind events"),
    ("probe", &["--list", "-f", "mem*", "--", "LIBRARY"], "kind probes"),
    ("report", &["MEASUREMENT"], "view context"),
    ("report", &["MEASUREMENT", "--view", "callers"], "view callers"),
    ("report", &["MEASUREMENT", "--view", "flat"], "view flat"),
    ("report", &["EXACT", "--view", "paths"], "view paths"),
    ("report", &["EXACT", "--view", "blocks"], "view blocks"),
    ("report", &["CALLS", "--view", "contexts"], "view contexts"),
    ("report", &["MEASUREMENT", "--quality"], "view quality"),
    ("report", &["MEASUREMENT", "--statistics"], "view statistics"),
    ("annotate", &["*code without a file*", "MEASUREMENT"], "kind annotate"),
    ("annotate", &["*code without a file*", "MEASUREMENT", "--asm"], "kind annotate"),
    ("merge", &["MEASUREMENT", "MEASUREMENT", "-o", "NEW"], "kind merge"),
    ("query", &["MEASUREMENT", "SELECT count(*) AS contexts FROM node"], "kind query"),
    ("diff", &["MEASUREMENT", "MEASUREMENT"], "view diff"),
    ("diff", &["MEASUREMENT", "MEASUREMENT", "--view", "callers"], "view diff"),
    ("diff", &["MEASUREMENT", "MEASUREMENT", "--view", "flat"], "view diff"),
    (
        "compare",
        &["-n", "2", "--", "CALLPATH", "debug", "busy", "20", ":::", "CALLPATH", "debug", "busy", "20"],
        "view diff",
    ),
    ("map show", &["MAP"], "kind map"),
    ("map check", &["MAP", "HEIGHTS"], "kind map-check"),
    ("map explain", &["MAP", "_start", "-8"], "kind map-explain"),
    ("report", &["HEIGHTS", "--map", "MAP"], "view context"),
    ("doctor", &[], "kind doctor"),
    ("structure", &["--no-cache", "PROGRAM"], "kind structure"),
    ("demo", &["--libraries", "0"], "view context"),
    ("install", &["--prefix", "NEW"], "kind install"),
    ("debug unwind", &[], "kind unwind"),
    ("debug recipes", &["PROGRAM"], "kind recipes"),
    ("debug recipes", &["--disagree", "PROGRAM"], "kind disagreements"),
    ("debug contexts", &["MEASUREMENT"], "kind contexts"),
    ("debug rewrite", &["LIBRARY", "malloc", "--plan", "count-blocks"], "kind rewrite"),
    ("debug rewrite", &["PROGRAM", "--list"], "kind rewritable"),
];

/// The commands that a help lists.
fn listed(words: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_callpath")).args(words).arg("--help").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // What a command does goes on in deeper lines.
    let names = lines.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    names.filter_map(|line| line.split(' ').next()).map(String::from).collect()
}

#[test]
fn every_command_has_json_or_prints_no_data() {
    let mut commands = listed(&[]);
    for group in ["debug", "map"] {
        assert!(commands.remove(group) && commands.len() > 10, "{commands:?}");
        let of_group = listed(&[group]).into_iter().filter(|name| name != "help");
        commands.extend(of_group.map(|name| format!("{group} {name}")));
    }
    let known = WITHOUT.iter().map(|(name, _)| name.to_string()).chain(WITH.iter().map(|(name, ..)| name.to_string()));
    assert_eq!(commands, known.collect::<BTreeSet<_>>());
}

/// The JSON of a command that is run in a directory of its own.
fn json_of(name: &str, words: &[&str], measured: &Path) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let (exact, calls) = (with_paths(), with_calls());
    let [map, heights] = ["a.map", "heights.callpath"].map(|name| measured.with_file_name(name));
    let places: BTreeMap<&str, &str> = BTreeMap::from([
        ("MEASUREMENT", measured.to_str().unwrap()),
        ("EXACT", exact.path().to_str().unwrap()),
        ("CALLS", calls.path().to_str().unwrap()),
        ("MAP", map.to_str().unwrap()),
        ("HEIGHTS", heights.to_str().unwrap()),
        ("PROGRAM", "/bin/true"),
        ("LIBRARY", "/lib/x86_64-linux-gnu/libc.so.6"),
        ("CALLPATH", env!("CARGO_BIN_EXE_callpath")),
        ("NEW", "new"),
    ]);
    let words = words.iter().map(|word| places.get(word).unwrap_or(word));
    let mut command = Command::new(env!("CARGO_BIN_EXE_callpath"));
    // Options of our own come before the command that is recorded.
    command.args(name.split(' ')).arg("--json").args(words).current_dir(directory.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Of no snapshots; others read nothing.
    drop(child.stdin.take().unwrap().write_all(b"CPSNAP01"));
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{name}: {error}: {said}"))
}

#[test]
fn what_is_printed_parses_and_says_its_schema() {
    let measured = measurement(2, true);
    let beside = tempfile::tempdir().unwrap();
    let own = beside.path().join("m.callpath");
    std::os::unix::fs::symlink(measured.path(), &own).unwrap();
    for words in [
        &["map", "train", "-q", "-o", "a.map", "--", "/bin/true"][..],
        &["record", "-q", "--unwind=both", "-o", "heights.callpath", "/bin/true"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_callpath"));
        assert!(command.args(words).current_dir(beside.path()).status().unwrap().success(), "{words:?}");
    }
    let has_duckdb = duckdb::is_there("query --json");
    for &(name, words, expected) in WITH {
        if name == "query" && !has_duckdb {
            continue;
        }
        let json = json_of(name, words, &own);
        let (key, word) = expected.split_once(' ').unwrap();
        assert_eq!(json[key], word, "{name} {words:?}");
        assert!(json["schema"].as_u64().is_some_and(|schema| schema > 0), "{name} {words:?}");
    }
}

#[test]
fn statistics_say_how_costs_are_distributed() {
    let json = json_of("report", &["MEASUREMENT", "--statistics"], measurement(2, true).path());
    let whole = &json["nodes"][0];
    assert_eq!(
        (&whole["total"], &whole["mean"], &whole["deviation"]),
        (&2_000_000.into(), &1_000_000.into(), &0.into())
    );
    assert_eq!((&whole["present"], json["profiles"].as_array().unwrap().len()), (&2.into(), 2));
}
