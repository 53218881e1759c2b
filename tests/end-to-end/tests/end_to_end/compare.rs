//! `callpath compare` and `callpath diff` on builds of one program: what is slower is named, and statuses are for scripts.

use std::path::Path;
use std::process::{Command, Output};

use callpath_end_to_end::{C, Program, callpath};

fn build(output: &'static str, options: &'static [&'static str]) -> String {
    let program = Program::compiled(C { source: "portions.c", output, options });
    program.path().to_str().expect("a plain name").to_owned()
}

fn run(arguments: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(callpath());
    command.args(arguments).current_dir(directory).output().expect("callpath can be run")
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text") + &String::from_utf8_lossy(&output.stderr)
}

fn json(arguments: &[&str], directory: &Path) -> serde_json::Value {
    let output = run(arguments, directory);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn record(output: &str, command: &[&str], directory: &Path) {
    let recorded = run(&[&["record", "-q", "-F", "2000", "-o", output, "--"], command].concat(), directory);
    assert!(recorded.status.success(), "{}", text(&recorded));
}

#[test]
fn a_procedure_of_another_build_that_is_slower_is_named_first() {
    let base = build("portions", &["-g", "-O2"]);
    // Half as slow again, so that few runs on a busy machine tell.
    let slower = build("portions-token", &["-g", "-O3", "-DTOKEN=1500"]);
    let here = tempfile::tempdir().expect("a directory");
    let compare = ["compare", "-n", "5", "-o", "runs", "--fail-above", "5%", "--", &base, "30", ":::", &slower, "30"];
    let compared = run(&compare, here.path());
    let said = text(&compared);
    assert_eq!(compared.status.code(), Some(1), "{said}");
    let first = said.lines().skip_while(|line| !line.starts_with("Procedures by")).nth(2).unwrap_or_default();
    assert!(first.ends_with(" token"), "{said}");
    assert!(said.contains("Slower by more than 5% beyond noise:"), "{said}");

    let files = ["1", "2", "3", "4", "5"].map(|round| ["a", "b"].map(|side| format!("runs/{side}-{round}")));
    let side = |side: usize| files.iter().map(move |pair| &*pair[side]);
    let sides = |first: usize| -> Vec<&str> {
        ["diff", "--json", "--a"].into_iter().chain(side(first)).chain(["--b"]).chain(side(1 - first)).collect()
    };
    let json = |arguments: &[&str]| -> (Option<i32>, serde_json::Value) {
        let output = run(arguments, here.path());
        (output.status.code(), serde_json::from_slice(&output.stdout).expect("JSON"))
    };
    let (status, answer) = json(&sides(0));
    assert_eq!((status, &answer["test"], &answer["runs"]), (Some(0), &"welch".into(), &serde_json::json!([5, 5])));
    assert_eq!(answer["procedures"][0]["name"], "token");
    for share in answer["matched"].as_array().expect("both sides") {
        assert!(share.as_f64().is_some_and(|share| share >= 0.95), "{share}");
    }
    // What is faster is no failure.
    let reversed = [&sides(1)[..], &["--fail-above", "5%"]].concat();
    assert_eq!(json(&reversed).0, Some(0));

    let missing = run(&["diff", "runs/a-1", "nowhere"], here.path());
    assert_eq!(missing.status.code(), Some(2), "{}", text(&missing));
    let failing = run(&["compare", "-n", "2", "--", "false", ":::", &base, "1"], here.path());
    assert!(failing.status.code() == Some(2) && text(&failing).contains("false ended with"), "{}", text(&failing));
}

/// Twice as many threads share the work of one procedure; each does all work of the other, which is the loss.
#[test]
fn what_does_not_scale_is_named_first() {
    let program = Program::compiled(C { source: "scaling.c", output: "scaling", options: &["-O2", "-g", "-pthread"] });
    let program = program.path().to_str().expect("a plain name").to_owned();
    let here = tempfile::tempdir().expect("a directory");
    record("one", &[&program, "1", "40"], here.path());
    record("two", &[&program, "2", "40"], here.path());
    let strong = json(&["diff", "--json", "--expect", "strong:2", "one", "two"], here.path());
    assert_eq!(strong["expectation"], "strong:2");
    let first = &strong["procedures"][0];
    assert!(first["name"] == "repeat" && first["self"]["found"] == true, "{first}");
    // Half of A's is expected, and all of it is there.
    let times = |procedure: &serde_json::Value| {
        let of = |side: &str| procedure["self"][side].as_f64().expect("a number");
        of("b") / of("a")
    };
    assert!(times(first) > 1.5, "{first}");
    // A thread does less than before of what is shared, and is expected to do as much.
    let weak = json(&["diff", "--json", "--expect", "weak", "one", "two"], here.path());
    let procedures = weak["procedures"].as_array().expect("a list");
    let share = procedures.iter().find(|procedure| procedure["name"] == "share").expect("the procedure");
    assert!(share["self"]["found"] == true && times(share) < 0.8, "{share}");
}

/// A C++ program at several levels: what is inlined or called otherwise is matched by its source.
#[test]
fn builds_of_a_program_of_templates_are_matched() {
    let here = tempfile::tempdir().expect("a directory");
    let builds: [(&str, &[&str]); 2] = [("templates-o2", &["-g", "-O2"]), ("templates-o3", &["-g", "-O3"])];
    for (output, options) in builds {
        let program = Program::compiled(C { source: "templates.cpp", output, options });
        // A second of work: with few samples many contexts are met once, and by chance in one build only.
        record(output, &[program.path().to_str().expect("a plain name"), "20"], here.path());
    }
    let answer = json(
        &["diff", "--json", "--view", "flat", "--flamegraph", "diff.svg", "templates-o2", "templates-o3"],
        here.path(),
    );
    let share = |key: &str, side: usize| answer[key][side].as_f64().expect("a share");
    for side in [0, 1] {
        let explained = share("matched", side) + share("compared_at_caller", side) + share("unmatched_by_chance", side);
        assert!(share("matched", side) >= 0.9 && explained >= 0.95, "{} {explained}", answer["matched"]);
    }
    let rows = answer["flat"].as_array().expect("rows");
    let kinds = ["root", "module", "file", "procedure", "loop"];
    assert!(kinds.iter().all(|kind| rows.iter().any(|row| row["kind"] == *kind)));
    let picture = std::fs::read_to_string(here.path().join("diff.svg")).expect("a picture");
    assert!(picture.contains("data-name=\"main\"") && picture.trim_end().ends_with("</svg>"));
}
