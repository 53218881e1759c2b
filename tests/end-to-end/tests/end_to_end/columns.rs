//! What a person chooses of a report: metrics and their order, levels, procedures by their place.

use callpath_end_to_end::{Program, Recorded, run_report};

fn recorded() -> Recorded {
    let events = ["-e", "cpu-time", "-e", "page-faults"];
    Program::at("/usr/bin/perl")
        .arguments(["-e", "my %h; $h{$_ % 9000} .= $_ for 1..900000; print scalar keys %h"])
        .options(&events)
        .recorded()
}

#[test]
fn metrics_are_computed_and_chosen() {
    let recorded = recorded();
    let text = |options: &[&str]| {
        let ended = run_report(&recorded.directory, &[&["--width", "120"], options].concat());
        assert_eq!(ended.status, 0, "{}", ended.stderr);
        ended.stdout
    };
    let formula = "share=100*samples/total(samples)";
    let page = text(&["--metric", formula, "--columns", "cpu-time,share", "--view", "context"]);
    let heading = page.lines().find(|line| line.trim_start().starts_with("total ")).expect("a heading");
    let words: Vec<&str> = heading.split_whitespace().collect();
    assert_eq!(words[..4], ["total", "time", "self", "share"], "{page}");
    // All samples go through the first frame.
    let first = page.lines().skip_while(|line| *line != heading).nth(1).expect("a row");
    // Behind it the path may have numbers, too: `… 2 more`.
    let numbers = &first[..heading.find("call path").expect("a column of call paths")];
    let share: f64 = numbers.split_whitespace().next_back().expect("a share").parse().expect("a number without a unit");
    assert!((90.0..=100.0).contains(&share), "{page}");

    let json = text(&["--json", "--metric", formula, "--columns", "cpu-time,share"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["metrics"].as_array().map(Vec::len), Some(2));
    assert_eq!(json["metrics"][1]["formula"], "100*samples/total(samples)");
    assert_eq!(json["nodes"][0]["inclusive"][1].as_f64(), Some(100.0));

    let by_samples = text(&["--columns", "samples", "--view", "callers", "--order-by", "samples:self"]);
    assert!(by_samples.lines().next().is_some_and(|title| title.contains("by samples")), "{by_samples}");
}

#[test]
fn levels_and_places() {
    let recorded = recorded();
    let total = |options: &[&str]| {
        let ended = run_report(&recorded.directory, &[&["--json"], options].concat());
        let json: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
        let nodes = json["nodes"].as_array().expect("nodes").clone();
        let kinds: Vec<String> =
            nodes.iter().map(|node| node["kind"].as_str().unwrap_or_default().to_owned()).collect();
        (nodes[0]["inclusive"][0].as_u64().expect("a cost"), kinds)
    };
    let (all, kinds) = total(&["--view", "flat"]);
    assert!(kinds.iter().any(|kind| kind == "module"));
    let (flattened, kinds) = total(&["--view", "flat", "--flatten", "2"]);
    assert_eq!(flattened, all);
    assert!(!kinds.iter().any(|kind| kind == "module" || kind == "file"), "{kinds:?}");
    let (through, _) = total(&["--focus", "module:perl"]);
    assert!(through > all / 2 && through <= all);
    // Whatever perl calls counts for perl; the loader's part is not called by it.
    let (pruned, _) = total(&["--prune-from", "module:perl"]);
    assert_eq!(pruned, all);
}

#[test]
fn what_makes_no_sense_is_an_error() {
    let recorded = recorded();
    let cases: [(&[&str], &str); 6] = [
        (&["--metric", "a=cputime"], "failed to find a metric \"cputime\"; there are: cpu-time"),
        (&["--metric", "a=1+"], "expected a number, a metric or `(` at character 3"),
        (&["--metric", "a"], "it must be NAME=FORMULA"),
        (&["--metric", "a=1", "--columns", "a"], "failed to show shares of \"a\""),
        (&["--focus", "module:nothing-like-it"], "failed to find a module"),
        (&["--flatten", "1"], "--flatten is for --view flat"),
    ];
    for (options, expected) in cases {
        let ended = run_report(&recorded.directory, options);
        assert_eq!(ended.status, 1, "{options:?}");
        assert!(ended.stderr.contains(expected), "{options:?}: {}", ended.stderr);
    }
}
