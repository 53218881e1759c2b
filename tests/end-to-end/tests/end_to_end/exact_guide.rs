//! Counters placed by an earlier measurement: what is counted is the same, and less is executed for it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output};

use callpath_end_to_end::{callpath, run_report};
use serde_json::Value;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../nasty/guided.c");

/// Compiles the program into a directory.
fn compile(directory: &Path, level: &str) {
    let compiled = Command::new("gcc").args([level, "-g", "-o", "guided", SOURCE]).current_dir(directory).status();
    assert!(compiled.expect("gcc is there").success());
}

/// Runs callpath with these words there.
fn run(directory: &Path, words: &[&str]) -> Output {
    Command::new(callpath()).args(words).current_dir(directory).output().expect("it can be run")
}

/// Records the program, with these words; it has to succeed. Gives what was said.
fn record(directory: &Path, words: &[&str], program: &[&str]) -> String {
    let output = run(directory, &[&["record"], words, &["--"], program].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {said}");
    said
}

/// How often what counts was executed, and how often it would have been if it had been placed by loop depth.
fn executed(said: &str) -> [u64; 2] {
    let line = said.lines().find(|line| line.contains("--guide: ")).unwrap_or_else(|| panic!("{said}"));
    let numbers = line.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u64>>();
    numbers.try_into().unwrap_or_else(|_| panic!("{line}"))
}

/// What was counted in `turns`, by everything that tells it.
fn counts(measurement: &Path, view: &str) -> BTreeMap<String, u64> {
    let report = run_report(measurement, &["--view", view, "--json"]);
    let json: Value = serde_json::from_str(&report.stdout).unwrap_or_else(|error| panic!("{error}: {}", report.stderr));
    let nodes = json["nodes"].as_array().expect("nodes");
    let at = nodes.iter().position(|node| node["kind"] == "procedure" && node["name"] == "turns");
    let at = at.unwrap_or_else(|| panic!("{}", json["quality"]));
    let of_turns = nodes.iter().filter(|node| node["parent"] == at);
    let told = |node: &Value| {
        let words = ["kind", "number", "category", "blocks", "address", "edges"].map(|key| node[key].to_string());
        (words.join(" "), node["inclusive"][1].as_u64().expect("a number"))
    };
    of_turns.map(told).collect()
}

#[test]
fn counts_are_the_same_whatever_guides() {
    let kinds = [("paths", "paths"), ("edges", "blocks"), ("calls,paths", "paths")];
    for (level, kinds) in [("-O1", &kinds[..]), ("-O2", &kinds[..1])] {
        let directory = tempfile::tempdir().expect("room");
        let directory = directory.path();
        compile(directory, level);
        // A second: some hundred samples do not always tell which way a branch goes.
        record(directory, &["-o", "samples"], &["./guided", "600000000"]);
        let program = ["./guided", "20000"];
        for &(kind, view) in kinds {
            let exact = ["-F", "0", "--only", "turns", "--exact", kind];
            let bare = format!("bare-{kind}");
            let said = record(directory, &[&exact[..], &["-o", &bare]].concat(), &program);
            assert!(!said.contains("--guide"), "{said}");
            let expect = counts(&directory.join(&bare), view);
            assert!(expect.len() > 5 && expect.values().sum::<u64>() >= 20_000, "{expect:?}");
            let mut by_depth = Vec::new();
            for guide in BTreeSet::from(["samples", "bare-paths", &bare]) {
                let output = format!("{kind}-by-{guide}");
                let words = [&exact[..], &["--guide", guide, "-o", &output]].concat();
                let [guided, without] = executed(&record(directory, &words, &program));
                assert_eq!(counts(&directory.join(&output), view), expect, "{level} {kind} by {guide}");
                println!("{level} {kind} by {guide}: {guided}, by depth {without}");
                // By counts of the same run there are no more. At -O2, the order of blocks hides what the depth of loops does not tell.
                let most = if level == "-O1" { without / 2 } else { without };
                let most = if guide == "samples" { most * 11 / 10 } else { most };
                assert!(guided <= most, "{level} {kind} by {guide}: {guided} {without}");
                by_depth.push(without);
            }
            // What it would have been does not depend on the guide.
            assert!(by_depth.windows(2).all(|pair| pair[0] == pair[1]), "{by_depth:?}");
        }
    }
}

#[test]
fn what_cannot_guide_is_said() {
    let directory = tempfile::tempdir().expect("room");
    let directory = directory.path();
    compile(directory, "-O1");
    let refused = |words: &[&str], program: &str| {
        let output = run(directory, &[&["record", "-F", "0", "-o", "new"], words, &["--", program]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(125) && output.stdout.is_empty(), "{words:?}: {said}");
        assert!(!directory.join("new").exists(), "{words:?}");
        said
    };
    let said = refused(&["--exact=paths", "--guide", "missing"], "./guided");
    assert!(said.contains("missing") && said.contains("--guide takes a measurement directory"), "{said}");
    let said = refused(&["--exact=paths", "--guide", "."], "./guided");
    assert!(said.contains("--guide takes a measurement directory"), "{said}");
    record(directory, &["-F", "0", "--exact=calls", "-o", "calls"], &["./guided"]);
    let said = refused(&["--exact=paths", "--guide", "calls"], "./guided");
    assert!(said.contains("calls has no samples, and no counts of paths or edges"), "{said}");
    record(directory, &["-F", "0", "--exact=paths", "-o", "paths"], &["./guided", "1000"]);
    let said = refused(&["--exact=calls", "--guide", "paths"], "./guided");
    assert!(said.contains("--guide places counters of paths and edges"), "{said}");
    // Another program, with the same C library.
    let said = refused(&["--exact=paths", "--guide", "paths"], "/bin/true");
    let is_said = said.contains("paths measured ") && said.contains("/guided, and has nothing of /usr/bin/true");
    assert!(is_said || said.contains("has nothing of /bin/"), "{said}");
    // Another build of the program: the libraries are guided.
    compile(directory, "-O2");
    let said = record(directory, &["-F", "0", "--exact=paths", "--guide", "paths", "-o", "new"], &["./guided", "1000"]);
    assert!(said.contains("guided is another build than the one that paths measured"), "{said}");
    let text = run_report(&directory.join("new"), &["--view", "paths"]).stdout;
    let unfolded = text.split_whitespace().collect::<Vec<&str>>().join(" ");
    assert!(unfolded.contains("its counters are placed by loop depth"), "{text}");
}
