//! A procedure's source and instructions, with what each costs.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use callpath_end_to_end::{C, Program, Recorded, callpath, run_report};
use serde_json::Value;

fn recorded(output: &'static str, options: &'static [&'static str]) -> Recorded {
    Program::compiled(C { source: "annotated.c", output, options }).recorded()
}

fn annotate(recorded: &Recorded, options: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(callpath());
    command.arg("annotate").args(&options[..1]).arg(&recorded.directory).args(&options[1..]);
    let output = command.stdin(Stdio::null()).output().expect("callpath can be run");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("a status"), text(&output.stdout), text(&output.stderr))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn lines_add_up_to_the_procedure() {
    let recorded = recorded("annotated", &["-O2", "-finline"]);
    let (status, said, error) = annotate(&recorded, &["work", "--json"]);
    assert_eq!(status, 0, "{error}");
    let said = json(&said);
    let own = |row: &Value| row["self"].as_u64().expect("a number");
    let lines = said["lines"].as_array().expect("lines");
    let sum: u64 = lines.iter().map(own).sum::<u64>() + own(&said["without_line"]);
    // Work calls nothing: all of it is its own and that of what is inlined.
    let report = run_report(&recorded.directory, &["--json", "--procedure", "work"]);
    let total = json(&report.stdout)["nodes"][0]["inclusive"][0].as_u64().expect("a cost");
    assert_eq!((sum, said["total"].as_u64()), (total, Some(total)));
    // The statement in the inner loop is the costliest, and it has its text.
    let costliest = lines.iter().max_by_key(|row| own(row)).expect("a line");
    assert_eq!(costliest["text"].as_str().map(str::trim), Some("return x * x + seed / (x | 1); /* costly */"));
    assert_eq!(costliest["inlined"], "step");

    let (_, page, _) = annotate(&recorded, &["work", "--width", "120"]);
    let row =
        |needle: &str| page.lines().find(|row| row.contains(needle)).unwrap_or_else(|| panic!("{needle}: {page}"));
    // Two loops, one in the other.
    assert!(row("for (unsigned i").contains("┌"), "{page}");
    assert!(row("for (unsigned j").contains("│┌"), "{page}");
    assert!(page.contains("step (inlined)"), "{page}");
}

#[test]
fn instructions_add_up_to_the_procedure() {
    let recorded = recorded("annotated", &["-O2", "-finline"]);
    let (status, page, error) = annotate(&recorded, &["work", "--asm", "--width", "120"]);
    assert_eq!(status, 0, "{error}");
    let code: Vec<&str> = page.lines().skip_while(|row| !row.ends_with("instruction")).skip(1).collect();
    let share = |row: &&&str| row.split_once('%').and_then(|(share, _)| share.trim().parse::<f64>().ok());
    let sum: f64 = code.iter().filter_map(|row| share(&row)).sum();
    // Each share is rounded.
    assert!((sum - 100.0).abs() < 0.06 * code.len() as f64, "{sum}: {page}");
    let division = code.iter().position(|row| row.contains(" div ")).unwrap_or_else(|| panic!("no division: {page}"));
    // The processor's divider is slow: the instruction behind it waits.
    let around: f64 = code[division..].iter().take(4).filter_map(|row| share(&row)).sum();
    assert!(around > 20.0, "{around}: {page}");
}

/// What `annotate work --asm --json` says of a measurement or database.
fn code_of(measured: &Path) -> Value {
    let mut command = Command::new(callpath());
    let output =
        command.args(["annotate", "work", "--asm", "--json"]).arg(measured).output().expect("callpath can be run");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    json(&String::from_utf8_lossy(&output.stdout))
}

fn merged(inputs: &[&Path], output: &Path) {
    let merged = Command::new(callpath()).arg("merge").args(inputs).arg("-o").arg(output).output();
    let merged = merged.expect("callpath can be run");
    assert!(merged.status.success(), "{}", String::from_utf8_lossy(&merged.stderr));
}

#[test]
fn instructions_as_json_say_loops_and_where_inlined_code_came_from() {
    let said = code_of(&recorded("annotated", &["-O2", "-finline"]).directory);
    let list = |value: &Value| value.as_array().expect("an array").clone();
    let own = |row: &Value| row["self"].as_u64().expect("a number");
    let code = list(&said["code"]);
    let instructions: Vec<(Value, Value)> =
        code.iter().flat_map(|part| list(&part["instructions"]).into_iter().map(|its| (part.clone(), its))).collect();
    let sum = instructions.iter().map(|(_, its)| own(its)).sum::<u64>();
    assert_eq!((Some(sum), list(&said["missing"])), (said["total"].as_u64(), vec![]));
    // The same by lines.
    let mut lines: BTreeMap<(String, u64), u64> = BTreeMap::new();
    let place = |row: &Value| (row["file"].as_str().expect("a file").to_owned(), row["line"].as_u64().expect("a line"));
    for (_, its) in instructions.iter().filter(|(_, its)| own(its) > 0 && its["line"].is_u64()) {
        *lines.entry(place(its)).or_default() += own(its);
    }
    let by_source = list(&said["lines"]);
    for row in by_source.iter().filter(|row| own(row) > 0) {
        assert_eq!(lines.remove(&place(row)), Some(own(row)), "{row}");
    }
    assert!(lines.is_empty(), "{lines:?}");
    // The division is inlined, in two loops.
    let (part, division) = instructions
        .iter()
        .find(|(_, its)| its["text"].as_str().is_some_and(|text| text.starts_with("div ")))
        .expect("a division");
    let scopes = list(&part["scopes"]);
    let mut around = Vec::new();
    let mut next = &division["scope"];
    while let Some(scope) = next.as_u64().map(|number| &scopes[number as usize]) {
        around.push((scope["kind"].as_str().expect("a kind"), scope));
        next = &scope["parent"];
    }
    let kinds: Vec<&str> = around.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, ["inlined", "loop", "loop"]);
    assert_eq!((&around[0].1["name"], around[0].1["call_site"]["line"].as_u64()), (&"step".into(), Some(14)));
    let of_loops: Vec<Option<u64>> = around[1..].iter().map(|(_, scope)| scope["place"]["line"].as_u64()).collect();
    assert_eq!(of_loops, [Some(13), Some(12)]);
    let loops = list(&said["loops"]);
    assert!(loops.iter().any(|its| (its["first"].as_u64(), its["last"].as_u64()) == (Some(13), Some(14))), "{loops:?}");
}

#[test]
fn a_database_has_lines_and_instructions() {
    let recorded = recorded("annotated", &["-O2", "-finline"]);
    let place = tempfile::tempdir().expect("a directory");
    let (one, two) = (place.path().join("one"), place.path().join("two"));
    merged(&[&recorded.directory], &one);
    // A database of databases and measurements.
    merged(&[&one, &recorded.directory], &two);
    let measured = code_of(&recorded.directory);
    assert_eq!(code_of(&one), measured);
    let doubled = code_of(&two);
    let costs = |said: &Value, by: u64| -> Vec<(Value, u64)> {
        let code = said["code"].as_array().expect("code").iter();
        let all = code.flat_map(|part| part["instructions"].as_array().expect("instructions"));
        all.map(|its| (its["address"].clone(), its["self"].as_u64().expect("a cost") * by)).collect()
    };
    assert_eq!(costs(&doubled, 1), costs(&measured, 2));
    assert_eq!(doubled["total"].as_u64(), measured["total"].as_u64().map(|total| 2 * total));
    assert_eq!(doubled["code"][0]["scopes"], measured["code"][0]["scopes"]);
}

#[test]
fn source_that_is_elsewhere_or_missing() {
    let recorded = recorded("annotated_elsewhere", &["-O2", "-finline", "-ffile-prefix-map=/=/nowhere/"]);
    let (status, page, _) = annotate(&recorded, &["work"]);
    assert_eq!(status, 0);
    assert!(page.contains("--source-dir DIRECTORY") && !page.contains("costly"), "{page}");
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../nasty");
    let (_, page, _) = annotate(&recorded, &["work", "--source-dir", sources]);
    assert!(page.contains("costly"), "{page}");
    // Without debug information there are instructions.
    let (_, page, _) = annotate(&self::recorded("annotated_bare", &["-O2", "-finline", "-g0"]), &["work", "--asm"]);
    assert!(page.contains("no debug information") && page.contains("div "), "{page}");
    let (status, _, error) = annotate(&recorded, &["nowork"]);
    assert!(status == 1 && error.contains("failed to find a procedure \"nowork\""), "{error}");
}
