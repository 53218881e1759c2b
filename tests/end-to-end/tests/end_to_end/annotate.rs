//! A procedure's source and instructions, with what each costs.

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
    let division = code.iter().position(|row| row.contains("  div ")).unwrap_or_else(|| panic!("no division: {page}"));
    // The processor's divider is slow: the instruction behind it waits.
    let around: f64 = code[division..].iter().take(4).filter_map(|row| share(&row)).sum();
    assert!(around > 20.0, "{around}: {page}");
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
