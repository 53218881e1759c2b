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
    recorded_of(directory, options, "paths")
}

/// The same with what `kind` says.
fn recorded_of(directory: &Path, options: &[&str], kind: &str) -> String {
    std::fs::copy(SOURCE, directory.join("ways.c")).expect("a copy");
    done(Command::new("gcc").args(options).args(["-g", "-o", "ways", "ways.c"]).current_dir(directory));
    let words = ["record", "--exact", kind, "-o", "m", "--", "./ways"];
    done(Command::new(callpath()).args(words).current_dir(directory))
}

/// Compiles `counted.cpp` into a directory and records it in `m` there. Gives how bare and recorded runs ended, with their output.
fn counted(directory: &Path, level: &str, kind: &str) -> [(Option<i32>, String); 2] {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../nasty/counted.cpp");
    let program = directory.join("counted");
    done(Command::new("g++").args([level, "-g", "-pthread", "-o"]).arg(&program).arg(source));
    let run = |command: &mut Command| {
        let output = command.output().expect("it can be run");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let bare = run(Command::new("sh").args(["-c", "./counted; exit $?"]).current_dir(directory));
    let words = ["record", "-q", "--exact", kind, "-o", "m", "--", "./counted"];
    [bare, run(Command::new(callpath()).args(words).current_dir(directory))]
}

#[test]
fn nothing_is_lost_in_threads_forks_handlers_exceptions_and_at_a_kill() {
    for level in ["-O1", "-O2"] {
        let directory = tempfile::tempdir().expect("room");
        let [bare, recorded] = counted(directory.path(), level, "paths");
        assert_eq!(bare, recorded, "{level}");
        assert_eq!(bare.0, Some(137));
        let files = std::fs::read_dir(directory.path().join("m")).expect("a measurement").filter_map(Result::ok);
        let counts = files.filter(|file| file.file_name().to_string_lossy().starts_with("paths-"));
        // Of the program, of its child, and of what it executes.
        assert_eq!(counts.count(), 3, "{level}");
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
        assert_eq!(of("catches"), [100, 900], "{level}");
        // Each fourth time it is left by `longjmp`.
        let is_it = |node: &&Value| node["kind"] == "procedure" && node["name"] == "passes";
        let passes = nodes.iter().find(is_it).expect("it was executed");
        assert_eq!((&passes["entries"], &passes["cut_short"]), (&1000.into(), &250.into()), "{level}");
        assert_eq!(of("passes"), [750], "{level}");
        let cut_short = json["quality"]["exact"]["cut_short"].as_u64().expect("a number");
        assert!(cut_short >= 100 + 250, "{level}: {cut_short}");
        let text = run_report(&directory.path().join("m"), &["--view", "blocks", "--procedure", "passes"]).stdout;
        assert!(text.contains("entered 1,000 times, cut short 250 times, 1 of 1 path"), "{level}: {text}");
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
        (&["--", "./ways"][..], "nothing would be measured: say what is counted instead (--exact=paths or calls)"),
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
    let ways = [(["-O0", "--coverage"], "paths"), (["-O1", "--coverage"], "paths")];
    let edges = ways.map(|(options, _)| (options, "edges"));
    for (options, kind) in ways.into_iter().chain(edges) {
        let directory = tempfile::tempdir().expect("room");
        recorded_of(directory.path(), &options, kind);
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
            assert_eq!(executions, truth[&function][number], "{function}, counter {number}, {options:?}, {kind}");
        }
    }
}

/// By procedure of a program and address of a block: how often it was executed, and how often control left it to each block.
type Flow = BTreeMap<(String, String), (u64, BTreeMap<String, u64>)>;

/// Those of `ways` of the procedures that are `chosen`.
fn flow_of(json: &Value, chosen: impl Fn(&Value) -> bool) -> Flow {
    let nodes = json["nodes"].as_array().expect("nodes");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let mut flow = Flow::new();
    for block in nodes.iter().filter(|node| node["kind"] == "block") {
        let procedure = &nodes[block["parent"].as_u64().expect("a number") as usize];
        if procedure["module"] != "ways" || !chosen(&procedure["name"]) {
            continue;
        }
        assert_eq!(block["most"], Value::Null, "{block}");
        let edges = block["edges"].as_array().expect("edges").iter();
        // Where a path ends, or behind a table, several edges may be one.
        let edges = edges.map(|edge| (edge["to"].to_string(), edge["executions"].as_u64().expect("a number")));
        flow.insert((text(&procedure["name"]), text(&block["address"])), (executions(block), edges.collect()));
    }
    flow
}

#[test]
fn edges_and_paths_tell_the_same_of_blocks_and_edges() {
    for level in ["-O0", "-O1", "-O2"] {
        let [by_paths, by_edges] = ["paths", "edges"].map(|kind| {
            let directory = tempfile::tempdir().expect("room");
            recorded_of(directory.path(), &[level], kind);
            let json = view(directory.path(), "blocks");
            if kind == "edges" {
                let words = ["report", "m", "--view", "paths"];
                let output = Command::new(callpath()).args(words).current_dir(directory.path()).output();
                let output = output.expect("it can be run");
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(!output.status.success() && said.contains("--view blocks shows them"), "{said}");
            }
            json
        });
        let by_paths = flow_of(&by_paths, |_| true);
        let of_both = |name: &Value| by_paths.keys().any(|(procedure, _)| name == procedure);
        let by_edges = flow_of(&by_edges, of_both);
        assert!(by_paths.len() > 30, "{by_paths:?}");
        let mut compared = 0;
        assert_eq!(by_edges.keys().collect::<Vec<_>>(), by_paths.keys().collect::<Vec<_>>(), "{level}");
        for (block, (executions, edges)) in &by_paths {
            let (found, found_edges) = &by_edges[block];
            assert_eq!(found, executions, "{block:?} {level}");
            assert_eq!(found_edges.values().sum::<u64>(), edges.values().sum::<u64>(), "{block:?} {level}");
            // Paths do not tell some back edges from another; most edges are told apart by both.
            for (to, passed) in edges.iter().filter(|(to, _)| found_edges.contains_key(*to)) {
                assert_eq!(&found_edges[to], passed, "{block:?} to {to} {level}");
                compared += 1;
            }
        }
        assert!(compared > 40, "{compared} {level}");
    }
}

/// Code behind calls that do not come back, a second procedure in one without call frame information, and code that a jump table and a
/// call lead to: all are counted.
#[test]
fn edges_of_odd_procedures() {
    for level in ["-O1", "-O2"] {
        let directory = tempfile::tempdir().expect("room");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../nasty/unended.c");
        let program = directory.path().join("unended");
        done(Command::new("gcc").args([level, "-g", "-w", "-pthread", "-o"]).arg(&program).arg(source));
        let words = ["record", "-q", "-F", "0", "--exact=edges", "-o", "m", "--", "./unended"];
        let status = Command::new(callpath()).args(words).current_dir(directory.path()).status();
        assert_eq!(status.expect("it can be run").code(), Some(3), "{level}");
        let json = view(directory.path(), "blocks");
        let refused = json["quality"]["exact"]["refused"].as_array().expect("a list");
        for name in ["deep", "runs", "chooses", "comes_back", "deregister_tm_clones"] {
            assert!(!refused.iter().any(|refused| refused["function"] == name), "{name} {level}: {refused:?}");
        }
        let nodes = json["nodes"].as_array().expect("nodes");
        // Entries, and for each block, how often it was executed and how often control left it.
        let of = |name: &str| -> (u64, Vec<(u64, u64)>) {
            let is_it =
                |node: &Value| node["kind"] == "procedure" && node["module"] == "unended" && node["name"] == name;
            let at = nodes.iter().position(is_it).unwrap_or_else(|| panic!("{name}: {}", json["quality"]));
            let left = |node: &Value| -> u64 {
                let edges = node["edges"].as_array().expect("edges").iter();
                edges.map(|edge| edge["executions"].as_u64().expect("a number")).sum()
            };
            let blocks = nodes.iter().filter(|node| node["parent"] == at).map(|block| (executions(block), left(block)));
            (nodes[at]["entries"].as_u64().expect("a number"), blocks.collect())
        };
        let (entries, blocks) = of("chooses");
        assert_eq!(entries, 36, "{level}");
        for executed in [1, 1 + 2, 3, 3 + 4, 5, 5 + 6, 7, 7 + 8] {
            assert!(blocks.contains(&(executed, executed)), "{executed} {level}: {blocks:?}");
        }
        if level == "-O1" {
            // At -O2 it is a loop.
            let (entries, blocks) = of("deep");
            assert!(entries == 6 && [6, 5, 1].iter().all(|&n| blocks.contains(&(n, n))), "{blocks:?}");
        }
        // What left a block was in it, though a call that returns twice leaves more than came.
        let (entries, blocks) = of("comes_back");
        assert!(entries == 1 && blocks.len() >= 4, "{level}: {blocks:?}");
        assert!(blocks[1..].iter().all(|&(executed, left)| executed >= left), "{level}: {blocks:?}");
    }
}

#[test]
fn edges_of_what_is_cut_short_are_bounded() {
    let directory = tempfile::tempdir().expect("room");
    let [bare, recorded] = counted(directory.path(), "-O1", "edges");
    assert_eq!(bare, recorded);
    let json = view(directory.path(), "blocks");
    let nodes = json["nodes"].as_array().expect("nodes");
    // The procedure, and for each of its blocks the least and the greatest number.
    let of = |name: &str| -> (&Value, Vec<(u64, Option<u64>)>) {
        let is_it = |node: &Value| node["kind"] == "procedure" && node["module"] == "counted" && node["name"] == name;
        let at = nodes.iter().position(is_it).unwrap_or_else(|| panic!("{name}: {}", json["quality"]));
        let bounds = |node: &Value| {
            let least = executions(node);
            (least, if node.get("most").is_some() { node["most"].as_u64() } else { Some(least) })
        };
        let mut all: Vec<_> = nodes.iter().filter(|node| node["parent"] == at).map(bounds).collect();
        all.sort_unstable();
        (&nodes[at], all)
    };
    let exactly = |counts: &[u64]| counts.iter().map(|&count| (count, Some(count))).collect::<Vec<_>>();
    // 40 threads, 500 signals, and the child, whose activations of `unit` are its own.
    assert_eq!(of("unit").1, exactly(&[40 * 100_000 + 500 * 3 + 777]));
    assert_eq!(of("works").1, exactly(&[40, 40, 40 * 100_000]));
    assert_eq!(of("throws").1, exactly(&[100, 100, 900, 1000]));
    assert_eq!(of("recurses").1, exactly(&[1, 10_000, 10_001]));
    // An exception ends the call in each tenth activation, and control goes on at the landing pad.
    let (catches, blocks) = of("catches");
    assert_eq!((&catches["cut_short"], &catches["entries"]), (&100.into(), &1000.into()));
    assert!(blocks.contains(&(1000, Some(1000))) && blocks.contains(&(100, Some(100))), "{blocks:?}");
    assert!(blocks.contains(&(900, Some(1000))), "behind the call: {blocks:?}");
    assert!(json["quality"]["exact"]["cut_short"].as_u64() >= Some(100), "{}", json["quality"]["exact"]["cut_short"]);
    // The child goes on in `main` where its parent began, which is entered again by what is executed in the end; and `setjmp`
    // returns twice in `comes_back`, which jumps 250 times.
    for (name, entered) in [("main", 2), ("comes_back", 1000)] {
        let (procedure, blocks) = of(name);
        assert_eq!((&procedure["cut_short"], &procedure["entries"]), (&Value::Null, &entered.into()), "{name}");
        assert!(blocks.iter().any(|(_, most)| most.is_none()), "{name}: {blocks:?}");
    }
    let text = run_report(&directory.path().join("m"), &["--view", "blocks", "--procedure", "catches"]).stdout;
    for part in [
        "entered 1,000 times, cut short 100 times",
        " (up to 1,000)",
        "activations were cut short: they came",
        "went on in a fork",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Control comes there past the entry, where the path's register is set.
#[test]
fn procedures_that_others_enter_in_the_middle() {
    let directory = tempfile::tempdir().expect("room");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../nasty/middle.c");
    done(Command::new("gcc").args(["-O1", "-g", "-o", "middle", source]).current_dir(directory.path()));
    let bare = done(Command::new("./middle").current_dir(directory.path()));
    for kind in ["paths", "edges", "calls", "calls,paths"] {
        let words = ["record", "-q", "--exact", kind, "-F", "0", "-o", kind, "--", "./middle"];
        assert_eq!(done(Command::new(callpath()).args(words).current_dir(directory.path())), bare, "{kind}");
    }
    let said = run_report(&directory.path().join("paths"), &["--view", "paths", "--json"]);
    let json: Value = serde_json::from_str(&said.stdout).expect("JSON");
    let refused = json["quality"]["exact"]["refused"].as_array().expect("a list");
    let why = refused.iter().find(|refused| refused["function"] == "sums").expect("it is not counted");
    assert!(why["reason"].as_str().is_some_and(|reason| reason.contains("entered in the middle")), "{why}");
}
