//! Paths that are counted exactly: as a program counts its own, and as gcov's counters count the blocks of the same run.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use callpath_end_to_end::{callpath, run_report};
use serde_json::Value;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../nasty/ways.c");

/// Runs a program, which has to succeed. Gives its output.
fn done(command: &mut Command) -> String {
    let output = command.output().expect("it can be run");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Compiles the program into a directory and records its paths in `m` there. Gives the program's output.
fn recorded(directory: &Path, options: &[&str]) -> String {
    std::fs::copy(SOURCE, directory.join("ways.c")).expect("a copy");
    done(Command::new("gcc").args(options).args(["-g", "-o", "ways", "ways.c"]).current_dir(directory));
    let words = ["record", "--exact=paths", "-o", "m", "--", "./ways"];
    done(Command::new(callpath()).args(words).current_dir(directory))
}

/// Compiles `counted.cpp` into a directory and records it in `m` there. Gives how bare and recorded runs ended, with their output.
fn counted(directory: &Path, level: &str) -> [(Option<i32>, String); 2] {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../nasty/counted.cpp");
    let program = directory.join("counted");
    done(Command::new("g++").args([level, "-g", "-pthread", "-o"]).arg(&program).arg(source));
    let run = |command: &mut Command| {
        let output = command.output().expect("it can be run");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let bare = run(Command::new("sh").args(["-c", "./counted; exit $?"]).current_dir(directory));
    let words = ["record", "-q", "--exact=paths", "-o", "m", "--", "./counted"];
    [bare, run(Command::new(callpath()).args(words).current_dir(directory))]
}

#[test]
fn nothing_is_lost_in_threads_forks_handlers_exceptions_and_at_a_kill() {
    for level in ["-O1", "-O2"] {
        let directory = tempfile::tempdir().expect("room");
        let [bare, recorded] = counted(directory.path(), level);
        assert_eq!(bare, recorded, "{level}");
        assert_eq!(bare.0, Some(137));
        let files = std::fs::read_dir(directory.path().join("m")).expect("a measurement").filter_map(Result::ok);
        let counts = files.filter(|file| file.file_name().to_string_lossy().starts_with("paths-"));
        // Of the program and of its child; the one that it executed counts nothing.
        assert_eq!(counts.count(), 2, "{level}");
        let json = view(directory.path(), "paths");
        let nodes = json["nodes"].as_array().expect("nodes");
        let of = |name: &str| -> Vec<u64> {
            let is_it =
                |node: &Value| node["kind"] == "procedure" && node["module"] == "counted" && node["name"] == name;
            let at = nodes.iter().position(is_it).unwrap_or_else(|| panic!("{name}: {}", json["quality"]));
            let mut all: Vec<u64> = nodes.iter().filter(|node| node["parent"] == at).map(executions).collect();
            all.sort_unstable();
            all
        };
        // 40 threads, 500 signals, and the child.
        assert_eq!(of("unit"), [40 * 100_000 + 500 * 3 + 777], "{level}");
        assert_eq!(of("works"), [40, 40, 40 * 99_998], "{level}");
        assert_eq!(of("throws"), [100, 900], "{level}");
        assert_eq!(of("jumps"), [250, 750], "{level}");
        // As often by the handler as a path was cut short.
        assert_eq!((of("catches"), &json["quality"]["exact"]["cut_short"]), (vec![100, 900], &100.into()), "{level}");
        assert_eq!(of("recurses").iter().sum::<u64>(), 10_001, "{level}");
        // They come back to where setjmp was called in the original.
        let refused = json["quality"]["exact"]["refused"].as_array().expect("a list");
        assert!(refused.iter().any(|refused| refused["function"] == "comes_back"), "{refused:?}");
    }
}

#[test]
fn what_cannot_be_counted_is_said() {
    let directory = tempfile::tempdir().expect("room");
    recorded(directory.path(), &["-O1"]);
    let run = |options: &[&str], program: &str| {
        let words = [&["record", "--exact=paths", "-o", "n"], options, &["--", program]].concat();
        let output =
            Command::new(callpath()).args(words).current_dir(directory.path()).output().expect("it can be run");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned(), output.stdout)
    };
    let (status, said, written) = run(&["--only", "chooss"], "./ways");
    let expected =
        "callpath: failed to find these functions: chooss: no function has this name; similar names: chooses";
    assert!(said.starts_with(expected), "{said}");
    assert_eq!((status, &written[..], directory.path().join("n").exists()), (Some(125), &b""[..], false));
    done(Command::new("gcc").args(["-static", "-o", "static", "ways.c"]).current_dir(directory.path()));
    let (status, said, _) = run(&[], "./static");
    assert_eq!(status, Some(126));
    assert!(said.contains("statically linked"), "{said}");
}

#[test]
fn exact_counts_without_samples() {
    let directory = tempfile::tempdir().expect("room");
    std::fs::copy(SOURCE, directory.path().join("ways.c")).expect("a copy");
    done(Command::new("gcc").args(["-O1", "-g", "-o", "ways", "ways.c"]).current_dir(directory.path()));
    let run = |words: &[&str]| {
        let output =
            Command::new(callpath()).args(words).current_dir(directory.path()).output().expect("it can be run");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (status, own, said) = run(&["record", "-q", "--exact=paths", "-F", "0", "-o", "m", "--", "./ways"]);
    assert_eq!(status, Some(0), "{said}");
    let mut own: Vec<u64> = own.lines().filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
    let paths = view(directory.path(), "paths");
    let mut counted: Vec<u64> = below(&paths, "chooses").1.iter().map(|path| executions(path)).collect();
    own.sort_unstable();
    counted.sort_unstable();
    assert_eq!(counted, own);
    // Samples there are none, and a report of them says so.
    let json = view(directory.path(), "flat");
    assert_eq!((&json["quality"]["taken"], &json["metrics"][0]["name"]), (&0.into(), &"samples".into()));
    assert_eq!((&json["metrics"][1], &json["nodes"][0]["inclusive"]), (&Value::Null, &serde_json::json!([0])));
    assert_eq!(json["quality"]["exact"], paths["quality"]["exact"]);
    let (_, text, _) = run(&["report", "m"]);
    assert!(text.contains("No samples were taken (-F 0).") && text.contains("--view paths"), "{text}");
    for words in
        [&["export", "m", "--format", "folded", "-o", "x"][..], &["merge", "m", "-o", "x"], &["annotate", "main", "m"]]
    {
        let (status, _, said) = run(words);
        assert!(status == Some(1) && said.contains("none were taken (-F 0)"), "{words:?}: {said}");
    }
    for (words, part) in [
        (&["--", "./ways"][..], "nothing would be measured: say what is counted instead (--exact=paths)"),
        (&["--probe", "main", "--", "./ways"], "use callpath probe"),
        (&["--exact=paths", "-e", "page-faults", "--", "./ways"], "event `page-faults` needs them"),
    ] {
        let (status, _, said) = run(&[&["record", "-F", "0", "-o", "n"], words].concat());
        assert!(status == Some(125) && said.contains(part), "{words:?}: {said}");
    }
}

/// A view of what was recorded.
fn view(directory: &Path, name: &str) -> Value {
    let report = run_report(&directory.join("m"), &["--view", name, "--json"]);
    serde_json::from_str(&report.stdout).unwrap_or_else(|error| panic!("{error}: {}", report.stderr))
}

/// The nodes below the program's procedure of this name, and the procedure.
fn below<'j>(json: &'j Value, procedure: &str) -> (&'j Value, Vec<&'j Value>) {
    let nodes = json["nodes"].as_array().expect("nodes");
    let is_it = |node: &Value| node["kind"] == "procedure" && node["module"] == "ways" && node["name"] == procedure;
    let at = nodes.iter().position(is_it).unwrap_or_else(|| panic!("{procedure}: {}", json["quality"]));
    (&nodes[at], nodes.iter().filter(|node| node["parent"] == at).collect())
}

/// How often it was executed.
fn executions(node: &Value) -> u64 {
    node["inclusive"][1].as_u64().expect("a number")
}

#[test]
fn paths_are_counted_as_the_program_counts_them() {
    for options in [&["-O0"], &["-O1"], &["-O2"]] {
        let directory = tempfile::tempdir().expect("room");
        let said = recorded(directory.path(), options);
        let mut own: Vec<u64> = said.lines().filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
        own.sort_unstable();
        assert!(own.len() == 8 && own.iter().sum::<u64>() == 20_000 && own[0] > 0, "{said}");
        let paths = view(directory.path(), "paths");
        let (procedure, chosen) = below(&paths, "chooses");
        let mut counted: Vec<u64> = chosen.iter().map(|path| executions(path)).collect();
        counted.sort_unstable();
        assert_eq!(counted, own, "{options:?}");
        assert_eq!((&procedure["possible"], &procedure["entries"]), (&8.into(), &20_000.into()), "{options:?}");
        assert!(chosen.iter().all(|path| path["category"] == "entry-exit"));
    }
}

/// By function, the counters of a run of a program that was compiled with --coverage, as gcov-dump reads them.
fn gcov_counters(directory: &Path) -> BTreeMap<String, Vec<u64>> {
    let with_extension = |extension: &str| {
        let files = std::fs::read_dir(directory).expect("a directory").filter_map(Result::ok).map(|entry| entry.path());
        files.into_iter().find(|path| path.extension().is_some_and(|its| its == extension)).expect("what gcov reads")
    };
    let ident = |line: &str| line.split("ident=").nth(1)?.split(',').next().map(str::to_owned);
    // `FUNCTION ident=1, lineno_checksum=0x2, cfg_checksum=0x3, `loops' ways.c:29:1`
    let notes = done(Command::new("gcov-dump").arg(with_extension("gcno")));
    let name = |line: &str| line.split('`').nth(1)?.split('\'').next().map(str::to_owned);
    let names: BTreeMap<String, String> = notes.lines().filter_map(|line| Some((ident(line)?, name(line)?))).collect();
    let mut counters: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut function = String::new();
    for line in done(Command::new("gcov-dump").arg("-l").arg(with_extension("gcda"))).lines() {
        if let Some(ident) = ident(line) {
            function.clone_from(&names[&ident]);
            continue;
        }
        // `F:   8: 1 20 300`: eight and more.
        let mut parts = line.split(':').skip(1);
        let (Some(first), Some(values), None) = (parts.next(), parts.next(), parts.next()) else { continue };
        let numbers: Option<Vec<u64>> = values.split_whitespace().map(|number| number.parse().ok()).collect();
        if first.trim().parse::<u64>().is_ok() {
            counters.entry(function.clone()).or_default().extend(numbers.into_iter().flatten());
        }
    }
    counters
}

/// The instructions of a program that count for gcov: address, function, and number of the counter.
fn counting_instructions(program: &Path) -> Vec<(u64, String, usize)> {
    let text = done(Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(program));
    let counting = |line: &str| {
        let (address, instruction) = line.split_once(":\t")?;
        let (words, symbol) = instruction.split_once("<__gcov0.")?;
        let symbol = symbol.split('>').next()?;
        let (function, offset) = symbol.split_once("+0x").unwrap_or((symbol, "0"));
        // `addq $0x1,0x501a(%rip)`, or the last of `mov`, `add`, `mov %rax,0x501a(%rip)`.
        let writes = words.starts_with("addq   $0x1,") || words.starts_with("mov    %r");
        let number = usize::from_str_radix(offset, 16).ok()? / 8;
        writes.then_some((u64::from_str_radix(address.trim(), 16).ok()?, function.to_owned(), number))
    };
    text.lines().filter_map(counting).collect()
}

#[test]
fn blocks_are_executed_as_often_as_gcov_counts() {
    for options in [&["-O0", "--coverage"], &["-O1", "--coverage"]] {
        let directory = tempfile::tempdir().expect("room");
        recorded(directory.path(), options);
        let truth = gcov_counters(directory.path());
        let json = view(directory.path(), "blocks");
        let hex = |value: &Value| u64::from_str_radix(&value.as_str().expect("an address")[2..], 16).expect("a number");
        // Copies of an instruction count in the same place.
        let mut counted: BTreeMap<(String, usize), u64> = BTreeMap::new();
        for (address, function, number) in counting_instructions(&directory.path().join("ways")) {
            let (_, blocks) = below(&json, &function);
            let holds = |block: &&&Value| (hex(&block["address"])..hex(&block["end"])).contains(&address);
            // A block that is not there was not executed.
            *counted.entry((function, number)).or_default() +=
                blocks.iter().find(holds).map_or(0, |block| executions(block));
        }
        assert!(counted.len() > 25, "{counted:?}");
        for ((function, number), executions) in counted {
            assert_eq!(executions, truth[&function][number], "{function}, counter {number}, {options:?}");
        }
    }
}
