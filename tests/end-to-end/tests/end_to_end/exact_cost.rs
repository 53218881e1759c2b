//! What samples beside counts of paths say of each path.

use std::path::Path;
use std::process::Command;

use callpath_end_to_end::{callpath, run_report};
use serde_json::Value;

/// A view of `m` in a directory.
fn view(directory: &Path, options: &[&str]) -> Value {
    let report = run_report(&directory.join("m"), &[options, &["--json"]].concat());
    serde_json::from_str(&report.stdout).unwrap_or_else(|error| panic!("{error}: {}", report.stderr))
}

fn nodes(json: &Value) -> &[Value] {
    json["nodes"].as_array().expect("nodes")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// What stands below the node of this index, and of each its number of this name.
fn below<'j>(json: &'j Value, at: usize, key: &'j str) -> impl Iterator<Item = (&'j Value, u64)> {
    nodes(json).iter().filter(move |node| node["parent"] == at).map(move |node| (node, number(&node[key])))
}

/// The procedures of a view, with their indices.
fn procedures(json: &Value) -> impl Iterator<Item = (usize, &Value)> {
    nodes(json).iter().enumerate().filter(|(_, node)| node["kind"] == "procedure")
}

/// The line of the source with this mark.
fn marked(source: &str, mark: &str) -> u64 {
    let is_it = |line: &str| line.contains(&format!("/* {mark} */"));
    source.lines().position(is_it).expect("a mark") as u64 + 1
}

/// Records a program that has a dear path and a cheap one, on which it executes more instructions, each as often as it says.
#[test]
fn paths_have_their_part_of_what_was_sampled() {
    let directory = tempfile::tempdir().expect("room");
    let directory = directory.path();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../nasty/dear.c");
    let run = |command: &mut Command| {
        let output = command.current_dir(directory).output().expect("it can be run");
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    run(Command::new("gcc").args(["-O1", "-g", "-o", "dear", source]));
    let said = run(Command::new(callpath()).args(["record", "-q", "--exact=paths", "-o", "m", "--", "./dear"]));
    let each: u64 = said.trim().parse().expect("how often it took each path");

    let paths = view(directory, &["--view", "paths"]);
    let of = |name: &str| procedures(&paths).find(|(_, node)| node["name"] == name).expect("a procedure");
    let source = std::fs::read_to_string(source).expect("a source");
    let (works, node) = of("works");
    let path = |mark: &str| {
        let line = marked(&source, mark);
        let mut found = below(&paths, works, "sampled_estimate")
            .filter(|(path, _)| path["lines"].as_array().expect("lines").iter().any(|place| place["line"] == line));
        let (path, estimate) = found.next().unwrap_or_else(|| panic!("{mark}: {paths}"));
        assert!(found.next().is_none() && number(&path["inclusive"][1]) == each, "{mark}: {path}");
        (number(&path["inclusive"][0]), estimate)
    };
    let ((dear_instructions, dear), (cheap_instructions, cheap)) = (path("DEAR"), path("CHEAP"));
    // Divisions that wait for each other take longer than three times as many instructions that do not wait.
    assert!(dear_instructions < cheap_instructions && dear > cheap, "{dear} {cheap}: {node}");
    let shown = |options: &[&str]| run_report(&directory.join("m"), &[&["--view", "paths"], options].concat()).stdout;
    let text = shown(&["--order-by", "cpu-time", "--width", "120"]);
    let first = text.lines().nth(2).expect("a row");
    assert!(text.starts_with("Paths by cpu-time: ") && first.contains("  works  #"), "{text}");
    assert!(text.contains("\nworks: ") && text.contains(" here is on 1 of 2 paths (all executed)\n"), "{text}");
    let text = shown(&["--order-by", "instructions"]);
    assert!(text.starts_with("Paths by instructions: "), "{text}");
    // A machine may have a slow clock.
    let by = if number(&paths["sampled"]["samples"]) < 100 { "instructions" } else { "cpu-time" };
    assert!(shown(&[]).starts_with(&format!("Paths by {by}: ")), "{paths}");

    // No path through the block was ended in which `leaves` fills memory.
    let (_, leaves) = of("leaves");
    let unended = number(&leaves["undivided"]["unexecuted"]);
    assert!(unended > 0 && number(&leaves["sampled"]) >= unended, "{leaves}");

    adds_up(directory, &paths);
}

/// What paths and blocks have of what was sampled, and what is not divided, is what the procedure costs itself in the view of its samples: so samples
/// in copies of procedures lie in the blocks that they were copied from.
fn adds_up(directory: &Path, paths: &Value) {
    let flat = view(directory, &["--view", "flat", "--no-loops", "--no-inlines"]);
    assert_eq!((&flat["metrics"][0]["name"], &paths["sampled"]["name"]), (&"cpu-time".into(), &"cpu-time".into()));
    let same = |one: &Value, other: &Value| one["name"] == other["name"] && one["module"] == other["module"];
    let exclusive = |procedure: &Value| -> u64 {
        let alike = procedures(&flat).filter(|(_, node)| same(node, procedure));
        alike.map(|(_, node)| number(&node["exclusive"][0])).sum()
    };
    let blocks = view(directory, &["--view", "blocks"]);
    let mut all = number(&paths["sampled"]["elsewhere"]);
    for (json, key) in [(paths, "sampled_estimate"), (&blocks, "sampled")] {
        for (at, procedure) in procedures(json) {
            let on_paths: u64 = below(json, at, key).map(|(_, sampled)| sampled).sum();
            let undivided = &procedure["undivided"];
            let sum = on_paths + number(&undivided["unexecuted"]) + number(&undivided["outside"]);
            assert_eq!(number(&procedure["sampled"]), sum, "{procedure}");
        }
    }
    for (_, procedure) in procedures(paths) {
        let alike = procedures(paths).filter(|(_, node)| same(node, procedure));
        let sampled: u64 = alike.map(|(_, node)| number(&node["sampled"])).sum();
        assert_eq!(sampled, exclusive(procedure), "{procedure}");
        all += number(&procedure["sampled"]);
    }
    let total = number(&paths["sampled"]["total"]);
    assert_eq!((all, number(&flat["nodes"][0]["inclusive"][0])), (total, total));
}
