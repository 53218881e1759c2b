//! `callpath report --view paths`, `--view blocks` and `--view contexts`: what they show, and what they say where there is nothing to show.

use crate::measurement;

use std::path::Path;
use std::process::Command;

use measurement::{measurement, with_calls, with_calls_in_one, with_paths, with_times};
use serde_json::Value;

/// Status, output and errors of `callpath`.
fn callpath(words: &[&str], measured: &Path) -> (i32, String, String) {
    let words = words.iter().map(|word| if *word == "M" { measured.to_str().expect("UTF-8") } else { word });
    let output = Command::new(env!("CARGO_BIN_EXE_callpath")).args(words).output().expect("it can be run");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("a status"), text(&output.stdout), text(&output.stderr))
}

fn error(words: &[&str], measured: &Path) -> String {
    let (status, _, said) = callpath(words, measured);
    assert_eq!(status, 1, "{words:?}: {said}");
    said
}

#[test]
fn paths_and_blocks_are_shown() {
    let measured = with_paths();
    let (status, text, said) = callpath(&["report", "M", "--view", "paths", "--threshold", "0%"], measured.path());
    assert_eq!(status, 0, "{said}");
    for part in [
        "2 of 4 paths of 1 procedure were executed",
        "app+0x1000  #0 entry-back",
        "0x1000 -> 0x1010",
        "/gone/app cannot be read",
        "1 path was begun and not ended",
        "1 procedure was not counted: app+0x2000 (it changes its own code).",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (_, text, said) = callpath(&["report", "M", "--view", "blocks", "--threshold", "0"], measured.path());
    assert!(text.contains("entered at least 10 times, 2 of 4 paths") && text.contains("-> 0x1010 10"), "{text}{said}");
    let (_, text, said) = callpath(&["report", "M", "--view", "paths", "--json"], measured.path());
    let json: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!(
        (&json["quality"]["exact"]["refused"][0]["function"], &json["nodes"][2]["path"]),
        (&"app+0x2000".into(), &0.into())
    );
    assert_eq!(json["nodes"][0]["inclusive"][1], 19);
    // No sample of the process whose paths were counted is in its procedures, or anywhere.
    assert_eq!((&json["sampled"]["name"], &json["sampled"]["samples"]), (&"cpu-time".into(), &0.into()));
    let (_, text, said) = callpath(&["report", "M", "--json"], measured.path());
    let sampled: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!(sampled["quality"]["exact"], json["quality"]["exact"]);
    // The report says that there is more to see.
    let (_, text, said) = callpath(&["report", "M"], measured.path());
    assert!(text.contains("--view paths"), "{text}{said}");
}

#[test]
fn what_paths_take_is_shown() {
    let measured = with_times();
    let shown = |words: &[&str]| {
        let words = [&["report", "M", "--view", "paths"], words].concat();
        let (status, text, said) = callpath(&words, measured.path());
        assert_eq!(status, 0, "{words:?}: {said}");
        text
    };
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = shown(&["--threshold", "0"]);
    for part in [
        "Paths by wall-time: 2 of 4 paths",
        "takes 25.0 ns (95%: 20.0 ns to 30.0 ns), by all of them",
        "wall-time: 225 ns on paths, by 9 executions that were measured",
        "Nothing was measured of 1 path with 52.6% of the executions: they have no time here. 2 times found no room.",
    ] {
        assert!(words(&text).contains(part), "{part}: {text}");
    }
    // The path that was measured is first by time, the other one by its number.
    let first = |text: &str| text.find("#3 head-exit") < text.find("#0 entry-back");
    assert!(first(&text) && first(&shown(&["--threshold", "0", "--order-by", "wall-time"])), "{text}");
    let by_instructions = shown(&["--threshold", "0", "--order-by", "instructions"]);
    assert!(!first(&by_instructions) && by_instructions.starts_with("Paths by instructions"), "{by_instructions}");
    let json = |words: &[&str]| -> Value { serde_json::from_str(&shown(words)).expect("JSON") };
    let all = json(&["--json"]);
    let unmeasured = serde_json::json!({ "paths": 1, "executions": 10 });
    let timed = serde_json::json!({ "name": "wall-time", "unit": "ns", "estimate": 225, "unmeasured": unmeasured, "lost": 2, "clock": 20 });
    assert_eq!(all["timed"], timed);
    assert_eq!((&all["nodes"][2]["path"], &all["nodes"][2]["wall_time"]), (&0.into(), &Value::Null));
    let time = serde_json::json!({ "measured": 9, "interrupted": 0, "mean": 25.0, "estimate": 225, "interval": 45.0 });
    assert_eq!((&all["nodes"][3]["path"], &all["nodes"][3]["wall_time"]), (&3.into(), &time));
    let half = json(&["--json", "--order-by", "wall-time", "--threshold", "50"]);
    assert_eq!((&half["nodes"][2]["path"], &half["nodes"][3]), (&3.into(), &Value::Null));
    let error = error(&["report", "M", "--view", "paths", "--order-by", "cycles"], measured.path());
    assert!(error.contains("there are instructions, wall-time, cpu-time"), "{error}");
}

#[test]
fn what_cannot_be_shown_is_said_with_what_to_do() {
    let sampled = measurement(1, true);
    let said = error(&["report", "M", "--view", "paths"], sampled.path());
    assert!(said.contains("callpath record --exact=paths PROGRAM"), "{said}");
    let measured = with_paths();
    for (words, part) in [
        (&["report", "M", "--view", "paths", "--focus", "x"][..], "is for other views"),
        (&["report", "M", "--view", "blocks", "--lines"], "--lines is for other views"),
        (&["report", "M", "--hot", "2"], "--hot is for --view paths"),
        (&["report", "M", "--view", "blocks", "--order-by", "cpu-time"], "--order-by is for other views"),
        (&["report", "M", "--view", "paths", "--order-by", "cycles"], "there are instructions, cpu-time"),
        (&["report", "M", "--view", "paths", "--order-by", "wall-time"], "there are instructions, cpu-time"),
        (&["report", "M", "--view", "paths", "--order-by", "cpu-time"], "no sample is in a procedure that was counted"),
        (
            &["report", "M", "--view", "paths", "--procedure", "app+0x2000"],
            "it was not counted: it changes its own code",
        ),
    ] {
        let said = error(words, measured.path());
        assert!(said.contains(part), "{words:?}: {said}");
    }
    // Damage costs what it hits.
    let file = measured.path().join("paths-0-100");
    let mut bytes = std::fs::read(&file).expect("a file");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&file, bytes).expect("room");
    let said = error(&["report", "M", "--view", "blocks"], measured.path());
    assert!(said.contains("paths-0-100: what follows byte 32 does not match its checksum"), "{said}");
}

#[test]
fn commands_that_take_no_exact_counts_say_so() {
    let measured = with_paths();
    let database = measured.path().join("new.cpdb");
    let database = database.to_str().expect("UTF-8");
    let (status, _, said) = callpath(&["merge", "M", "-o", database], measured.path());
    assert!(status == 0 && said.contains("are not merged"), "{said}");
    let said = error(&["report", database, "--view", "paths"], measured.path());
    assert!(said.contains("is a database, which has none"), "{said}");
    let sampled = measurement(1, true);
    let folded = measured.path().join("folded");
    let words = ["export", "M", "--format", "folded", "-o", folded.to_str().expect("UTF-8")];
    let (_, _, said) = callpath(&words, measured.path());
    assert!(said.contains("are not exported"), "{said}");
    let (_, _, said) = callpath(&["diff", "M", sampled.path().to_str().expect("UTF-8")], measured.path());
    assert!(said.contains("are not compared"), "{said}");
}

#[test]
fn the_shape_of_a_tree_is_shown() {
    let measured = with_calls();
    let (status, text, said) = callpath(&["report", "M", "--view", "contexts"], measured.path());
    assert_eq!(status, 0, "{said}");
    for part in [
        "Calling contexts: 3 of 2 procedures, called 12 times",
        "max replication                2  app+0x2000 [app]",
        "apart                          3       216 B",
        "together                       2       144 B",
        "/gone/app cannot be read: the call sites of its procedures are not counted here",
        "1 procedure was not counted: app+0x3000 (it calls setjmp).",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (_, text, said) = callpath(&["report", "M", "--view", "contexts", "--json"], measured.path());
    let json: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {said}"));
    let shape = &json["shape"];
    assert_eq!(
        (&shape["without_call_sites"], &shape["max_height"], &shape["leaves"]),
        (&3.into(), &2.into(), &2.into())
    );
    assert_eq!((&json["nodes"][1]["name"], &json["nodes"][1]["call_sites"]), (&"app+0x2000".into(), &Value::Null));
    assert_eq!(json["nodes"][1]["inclusive"], serde_json::json!([2, 11]));
    // Other views say that there is more to see.
    let (_, text, _) = callpath(&["report", "M"], measured.path());
    assert!(text.contains("--view contexts"), "{text}");
    let said = error(&["report", "M", "--view", "contexts", "--hot", "1"], measured.path());
    assert!(said.contains("--hot is for other views"), "{said}");
}

#[test]
fn without_counts_of_calls_there_is_no_tree() {
    for measured in [measurement(1, true), with_paths()] {
        let said = error(&["report", "M", "--view", "contexts"], measured.path());
        assert!(said.contains("record them with: callpath record --exact=calls PROGRAM"), "{said}");
    }
    let measured = with_calls();
    let database = measured.path().join("new.cpdb");
    let database = database.to_str().expect("UTF-8");
    let (status, _, said) = callpath(&["merge", "M", "-o", database], measured.path());
    assert_eq!(status, 0, "{said}");
    let said = error(&["report", database, "--view", "contexts"], measured.path());
    assert!(said.contains("name the measurement that it was merged from"), "{said}");
}

#[test]
fn calls_are_a_metric_as_any_other() {
    let counted = with_calls_in_one();
    let (status, text, said) = callpath(&["report", "M"], counted.path());
    assert_eq!(status, 0, "{said}");
    for part in [
        "counted calls, all with their whole call path; the recorder took",
        "Calls of 2 procedures were counted exactly, in their contexts: the metric calls. --view contexts shows the tree's shape. \
         1 procedure was not counted",
        "programs that were executed later: app.",
    ] {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&text).contains(part), "{part}: {text}");
    }
    assert!(!text.contains("samples") && !text.contains("measuring cost"), "{text}");
    let (_, text, said) = callpath(&["report", "M", "--quality"], counted.path());
    assert!(text.contains("\nCounted calls\n"), "{text}{said}");
    let said = error(&["report", "M", "--view", "blocks"], counted.path());
    assert!(said.contains("failed to show blocks:") && said.contains("has counts of calls"), "{said}");
    let [database, folded] = ["new.cpdb", "folded"].map(|name| counted.path().join(name).display().to_string());
    for words in [
        &["merge", "M", "-o", &database][..],
        &["export", "M", "--format", "folded", "-o", &folded],
        &["diff", "M", counted.path().to_str().expect("UTF-8")],
    ] {
        let (status, _, said) = callpath(words, counted.path());
        assert!(status == 0 && !said.contains("exact counts"), "{words:?}: {said}");
    }
}

#[test]
fn views_that_there_are_not_are_not_offered() {
    let measured = with_paths();
    let text = callpath(&["report", "M"], measured.path()).1;
    assert!(text.contains("see them with --view paths and --view blocks."), "{text}");
}

#[test]
fn copies_have_no_marked_return_addresses() {
    let directory = tempfile::tempdir().expect("room");
    for kind in ["calls", "edges", "paths"] {
        let words = ["record", &format!("--exact={kind}"), "--sentinel=always", "-o", "M/new", "true"];
        let (status, _, said) = callpath(&words, directory.path());
        assert!(status == 125 && said.contains("it cannot be used with --exact"), "{kind}: {said}");
    }
}
