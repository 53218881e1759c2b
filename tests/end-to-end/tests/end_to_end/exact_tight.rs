//! Loops that count in turn, and procedures with words for some of their paths and a hash table for the others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use callpath_end_to_end::{callpath, run_report};
use serde_json::Value;

/// The program, compiled into a directory.
fn compiled(directory: &Path) -> PathBuf {
    let program = directory.join("tight");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../nasty/tight.c");
    let compiled = Command::new("gcc").args(["-O2", "-g", "-o"]).arg(&program).arg(source).status();
    assert!(compiled.expect("gcc can be run").success());
    program
}

/// Those of one procedure lie close together as long as there are few: the others still find room.
#[test]
fn hundreds_of_thousands_of_paths_of_a_procedure_have_room() {
    let directory = tempfile::tempdir().expect("room");
    let program = compiled(directory.path());
    let mut command = Command::new(callpath());
    command.args(["record", "-F", "0", "--exact=paths", "-o"]).arg(directory.path().join("m"));
    let output = command.arg("--").arg(&program).arg("400000").output().expect("it can be run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("missing"), "{said}");
    let report = run_report(&directory.path().join("m"), &["--view", "paths"]);
    let words = report.stdout.lines().next().unwrap_or_default().split(' ');
    let executed = words.skip_while(|word| *word != "instructions:").nth(1).map(|number| number.replace(',', ""));
    let executed: u64 = executed.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{}", report.stdout));
    assert!(executed > 250_000 && !report.stdout.contains("missing"), "{executed}: {}", report.stderr);
}

#[test]
fn tight_loops_count_all_that_is_executed() {
    let directory = tempfile::tempdir().expect("room");
    let program = compiled(directory.path());
    for options in [&["--exact=paths"][..], &["--exact=paths", "-F", "0"], &["--exact=calls,paths"]] {
        let measurement = directory.path().join(options.concat());
        let mut command = Command::new(callpath());
        command.args(["record", "-o"]).arg(&measurement).args(options).arg("--").arg(&program);
        let output = command.output().expect("it can be run");
        assert!(output.status.success(), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let own: BTreeMap<&str, u64> = said
            .lines()
            .filter_map(|line| line.split_once(' ').and_then(|(name, count)| Some((name, count.parse().ok()?))))
            .collect();
        assert_eq!(own.keys().copied().collect::<Vec<_>>(), ["few", "many"], "{said}");
        let report = run_report(&measurement, &["--view", "paths", "--json", "--threshold", "0"]);
        let json: Value = serde_json::from_str(&report.stdout).expect("JSON");
        let nodes = json["nodes"].as_array().expect("nodes");
        assert_eq!(json["quality"]["exact"]["cut_short"], 0, "{options:?}");
        let metrics = json["metrics"].as_array().expect("metrics");
        let executions = metrics.iter().position(|metric| metric["name"] == "executions").expect("executions");
        for (name, paths) in own {
            let is_it = |node: &Value| node["kind"] == "procedure" && node["module"] == "tight" && node["name"] == name;
            let at = nodes.iter().position(is_it).expect("the procedure");
            let of = |node: &&Value| node["parent"] == at && node["kind"] == "path";
            let counts: Vec<u64> =
                nodes.iter().filter(of).filter_map(|path| path["self"][executions].as_u64()).collect();
            assert_eq!(counts.iter().sum::<u64>(), paths, "{options:?}: {name}");
            // Each path stands there once.
            let blocks: BTreeSet<String> = nodes
                .iter()
                .filter(of)
                .map(|path| format!("{} {} {}", path["blocks"], path["category"], path["calls"]))
                .collect();
            assert_eq!(blocks.len(), counts.len(), "{options:?}: {name}");
            match name {
                "few" => assert_eq!(counts.len(), 4, "{options:?}"),
                // Of so many ways, few are taken twice.
                _ => assert!(counts.len() > 10_000, "{options:?}: {}", counts.len()),
            }
            let possible = nodes[at]["possible"].as_u64().expect("a number");
            assert!((name == "few") == (possible <= 4), "{options:?}: {possible}");
        }
    }
}
