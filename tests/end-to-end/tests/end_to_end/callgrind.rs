//! Exact counts against callgrind's: another tool counts the same run of a program, in an emulator.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use callpath_end_to_end::{C, Program, run_report, skip};
use serde_json::Value;

/// Whole counts by address.
type Counts = BTreeMap<u64, u64>;

/// What callgrind has counted of one module's code, by link-time address.
struct Callgrind {
    /// Calls of what begins there, whatever called it.
    calls: Counts,
    /// Executions of the instruction there.
    instructions: Counts,
}

impl Callgrind {
    /// Runs a program in it. Its status is the program's.
    fn of(program: &Program, status: i32) -> Callgrind {
        let directory = tempfile::tempdir().expect("room");
        // Names and addresses are written in full each time.
        let options = ["--compress-strings=no", "--compress-pos=no", "--dump-instr=yes", "--callgrind-out-file=counts"];
        let mut command = Command::new("valgrind");
        command.args(["-q", "--tool=callgrind"]).args(options).arg(program.path()).args(program.words());
        let output = command.current_dir(directory.path()).output().expect("valgrind can be run");
        assert_eq!(output.status.code(), Some(status), "{}", String::from_utf8_lossy(&output.stderr));
        let counts = std::fs::read_to_string(directory.path().join("counts")).expect("callgrind's counts");
        Callgrind::parsed(&counts, program.path().to_str().expect("UTF-8"))
    }

    /// What a file of callgrind's says of a module: <https://valgrind.org/docs/manual/cl-format.html>.
    fn parsed(text: &str, module: &str) -> Callgrind {
        let mut counts = Callgrind { calls: Counts::new(), instructions: Counts::new() };
        let address =
            |word: &str| u64::from_str_radix(word.strip_prefix("0x").expect("an address"), 16).expect("hexadecimal");
        let (mut object, mut called) = (String::new(), None);
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(its) = line.strip_prefix("ob=") {
                object = its.to_owned();
            } else if let Some(its) = line.strip_prefix("cob=") {
                called = Some(its.to_owned());
            } else if let Some(call) = line.strip_prefix("calls=") {
                let (count, to) = call.split_once(' ').expect("a count and a target");
                let to = to.split(' ').next().expect("a target");
                if called.take().unwrap_or_else(|| object.clone()) == module {
                    *counts.calls.entry(address(to)).or_default() += count.parse::<u64>().expect("a number");
                }
                // What the call cost.
                lines.next();
            } else if line.starts_with("0x") && object == module {
                let words: Vec<&str> = line.split(' ').collect();
                let [at, _, executions] = words[..] else { panic!("{line}") };
                *counts.instructions.entry(address(at)).or_default() += executions.parse::<u64>().expect("a number");
            }
        }
        counts
    }
}

/// A view of a measurement.
fn view(measurement: &Path, options: &[&str]) -> Value {
    let report = run_report(measurement, &[options, &["--json"]].concat());
    serde_json::from_str(&report.stdout).unwrap_or_else(|error| panic!("{error}: {}", report.stderr))
}

/// The address of a node, if it has one.
fn address(node: &Value) -> Option<u64> {
    u64::from_str_radix(node["address"].as_str()?.strip_prefix("0x")?, 16).ok()
}

/// The nodes of a kind that are of the program's own source, not of what the linker adds to it; a block is of its procedure's.
fn own<'j>(json: &'j Value, kind: &'j str, module: &'j str) -> impl Iterator<Item = &'j Value> {
    let nodes = json["nodes"].as_array().expect("nodes");
    nodes.iter().filter(move |node| {
        let above = node["parent"].as_u64().and_then(|parent| nodes.get(parent as usize));
        let procedure = if kind == "block" { above } else { Some(*node) };
        let is_own = procedure.is_some_and(|its| its["module"] == module && its["file"].is_string());
        node["kind"] == kind && is_own
    })
}

/// Asserts that all own procedures of a program have as many calls as callgrind counts, and their blocks as many executions.
fn assert_counted(program: Program, status: i32) {
    let callgrind = Callgrind::of(&program, status);
    let module = program.path().file_name().expect("a name").to_string_lossy().into_owned();
    let recorded = |kind: &str| {
        let recorded = Program::at(program.path()).arguments(program.words()).options(&["-F", "0", kind]).same();
        assert_eq!(recorded.ended.status, status, "{recorded:?}");
        recorded
    };
    let calls = recorded("--exact=calls");
    let flat = view(&calls.directory, &["--view", "flat", "--no-loops", "--no-inlines"]);
    let column = flat["metrics"].as_array().expect("metrics").iter().position(|metric| metric["name"] == "calls");
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value} is no number"));
    let procedures: Vec<&Value> = own(&flat, "procedure", &module).collect();
    assert!(procedures.len() > 3, "{flat}");
    for procedure in &procedures {
        let counted = number(&procedure["exclusive"][column.expect("calls")]);
        let expected = address(procedure).and_then(|at| callgrind.calls.get(&at));
        assert_eq!(Some(&counted), expected, "{module}: {procedure}");
    }
    // What was not counted is not of the program's source.
    let refused = flat["quality"]["exact"]["refused"].as_array().expect("what was not counted");
    for refused in refused.iter().filter(|refused| refused["module"] == module) {
        let name = refused["function"].as_str().unwrap_or_default();
        assert!(name.starts_with('_') || name.contains("+0x") || name.ends_with("_tm_clones"), "{refused}");
    }
    let paths = recorded("--exact=paths");
    let blocks = view(&paths.directory, &["--view", "blocks"]);
    let (mut compared, mut begun) = (0, Counts::new());
    for block in own(&blocks, "block", &module) {
        let executed = address(block).and_then(|at| callgrind.instructions.get(&at));
        assert_eq!(Some(&number(&block["inclusive"][1])), executed, "{module}: {block}");
        compared += 1;
    }
    for procedure in own(&blocks, "procedure", &module) {
        begun.extend(address(procedure).map(|at| (at, number(&procedure["entries"]))));
    }
    assert!(compared > procedures.len(), "{blocks}");
    // Each procedure that was called is there, and was entered as often.
    for procedure in &procedures {
        let at = address(procedure).expect("an address");
        assert_eq!(begun.get(&at), callgrind.calls.get(&at), "{module}: {procedure}");
    }
}

#[test]
fn calls_and_blocks_are_as_many_as_callgrind_counts() {
    if !Path::new("/usr/bin/valgrind").exists() {
        return skip("callgrind::calls_and_blocks_are_as_many_as_callgrind_counts", "valgrind is not installed");
    }
    let compiled = |source, output, options| Program::compiled(C { source, output, options });
    assert_counted(Program::nasty("sites.c"), 5);
    assert_counted(compiled("sites.c", "sites-O0", &["-O0"]), 5);
    assert_counted(Program::nasty("ways.c"), 0);
    assert_counted(compiled("tails.c", "tails", &["-foptimize-sibling-calls"]), 6);
    assert_counted(Program::nasty("flows.c").arguments(["plain"]), 6);
}
