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
