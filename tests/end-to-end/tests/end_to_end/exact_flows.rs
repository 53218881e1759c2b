//! `record --exact=calls,paths`: each path in each calling context, as the program counts its own, as `--exact=paths` counts the sums, and as
//! `calls` count how often a context was entered; and the program does what it does bare.

use std::collections::{BTreeMap, BTreeSet};

use callpath_end_to_end::{C, Program, Recorded, run_report};
use serde_json::Value;

/// How often something was executed, by the names of the callers, the outermost first.
type ByCallers = BTreeMap<Vec<String>, u64>;

/// A view does not say more of deeper callers.
const MOST_CALLERS: usize = 128;

/// A path that was executed.
#[derive(Debug)]
struct Path {
    procedure: String,
    /// The procedure is one of the program's own.
    is_own: bool,
    /// What makes it the same one in another measurement.
    blocks: String,
    /// It begins where the procedure was entered.
    is_from_entry: bool,
    executions: u64,
    contexts: ByCallers,
}

fn json_of(recorded: &Recorded, options: &[&str]) -> Value {
    let said = run_report(&recorded.directory, &[options, &["--json"]].concat());
    serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {}", said.stderr))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// All paths of a measurement. `module`: the program's.
fn paths_of(recorded: &Recorded, module: &str) -> Vec<Path> {
    let json = json_of(recorded, &["--view", "paths"]);
    let nodes = json["nodes"].as_array().expect("nodes");
    let of_path = |node: &Value| {
        let procedure = &nodes[number(&node["parent"]) as usize];
        let mut contexts = ByCallers::new();
        for context in node["contexts"].as_array().into_iter().flatten() {
            let callers: Vec<String> = context["callers"].as_array().expect("callers").iter().map(text).collect();
            let is_whole = context["is_partial"] != true || callers.len() == MOST_CALLERS;
            assert!(is_whole || procedure["module"] != module, "{procedure} {context}");
            *contexts.entry(callers).or_default() += number(&context["executions"]);
        }
        Path {
            procedure: text(&procedure["name"]),
            is_own: procedure["module"] == module,
            blocks: format!("{} {} {}", procedure["address"], node["category"], node["blocks"]),
            is_from_entry: text(&node["category"]).starts_with("entry"),
            executions: number(&node["inclusive"][1]),
            contexts,
        }
    };
    nodes.iter().filter(|node| node["kind"] == "path").map(of_path).collect()
}

/// The paths of a procedure of the program.
fn of<'p>(paths: &'p [Path], procedure: &'p str) -> impl Iterator<Item = &'p Path> {
    paths.iter().filter(move |path| path.is_own && path.procedure == procedure)
}

/// How often a procedure was called, by its callers' names: the metric of the tree.
fn calls_of(recorded: &Recorded, procedure: &str) -> ByCallers {
    let json = json_of(recorded, &[]);
    let metrics = json["metrics"].as_array().expect("metrics");
    let calls = metrics.iter().position(|metric| metric["name"] == "calls").expect("calls are a metric");
    let nodes = json["nodes"].as_array().expect("nodes");
    let mut chains: Vec<Vec<String>> = Vec::with_capacity(nodes.len());
    let mut found = ByCallers::new();
    for node in nodes {
        let above = node["parent"].as_u64().map(|parent| chains[parent as usize].clone());
        let mut chain = above.unwrap_or_default();
        if node["kind"] == "procedure" {
            let called = number(&node["exclusive"][calls]);
            if node["name"] == procedure && called > 0 {
                let known = chain.len().saturating_sub(MOST_CALLERS);
                *found.entry(chain[known..].to_vec()).or_default() += called;
            }
            chain.push(text(&node["name"]));
        }
        chains.push(chain);
    }
    found
}

/// Adds up by callers.
fn summed<'p>(paths: impl Iterator<Item = &'p Path>) -> ByCallers {
    let mut sums = ByCallers::new();
    for (callers, executions) in paths.flat_map(|path| &path.contexts) {
        *sums.entry(callers.clone()).or_default() += executions;
    }
    sums
}

/// By path of `choose`, how often it was executed below each innermost caller.
fn chosen(paths: &[Path]) -> BTreeSet<BTreeMap<String, u64>> {
    let ways = of(paths, "choose").map(|path| {
        let mut way = BTreeMap::new();
        for (callers, executions) in &path.contexts {
            *way.entry(callers.last().expect("a caller").clone()).or_default() += executions;
        }
        way
    });
    ways.collect()
}

/// The same as the program has counted it.
fn truth(output: &str) -> BTreeSet<BTreeMap<String, u64>> {
    let mut ways: BTreeMap<u64, BTreeMap<String, u64>> = BTreeMap::new();
    for line in output.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [caller, way, count] = words[..] else { continue };
        let (Ok(way), Ok(count)) = (way.parse(), count.parse::<u64>()) else { continue };
        *ways.entry(way).or_default().entry(caller.to_owned()).or_default() += count;
    }
    ways.into_values().collect()
}

/// Runs `flows` bare and recorded, and asserts that what is said of `choose` is true.
fn counted(how: &str, status: i32) -> (Recorded, Vec<Path>) {
    let recorded = Program::nasty("flows.c").arguments([how]).options(&["--exact=calls,paths", "-F", "0"]).same();
    assert_eq!(recorded.ended.status, status, "{recorded:?}");
    let paths = paths_of(&recorded, "flows");
    assert_eq!(chosen(&paths), truth(&recorded.ended.stdout), "{how}");
    (recorded, paths)
}

/// Asserts that each of these procedures began as many paths in each context as it was called there.
#[track_caller]
fn assert_entered(recorded: &Recorded, paths: &[Path], procedures: &[&str]) {
    for procedure in procedures {
        let entered = summed(of(paths, procedure).filter(|path| path.is_from_entry));
        assert!(!entered.is_empty(), "{procedure}");
        assert_eq!(entered, calls_of(recorded, procedure), "{procedure}");
    }
}

/// By path of the program's own procedures, how often it was executed.
fn executions(paths: &[Path]) -> BTreeMap<(&str, &str), u64> {
    let own = paths.iter().filter(|path| path.is_own);
    own.map(|path| ((&*path.procedure, &*path.blocks), path.executions)).collect()
}

/// The same without procedures whose frames cannot grow, which count none in contexts.
fn executions_alone<'p>(paths: &'p [Path], recorded: &Recorded) -> BTreeMap<(&'p str, &'p str), u64> {
    let json = json_of(recorded, &["--view", "paths"]);
    let refused = json["quality"]["exact"]["refused"].as_array().expect("a list");
    let calls_alone = |refused: &&Value| text(&refused["reason"]).starts_with("its calls were, its paths were not: ");
    let refused: Vec<String> = refused.iter().filter(calls_alone).map(|refused| text(&refused["function"])).collect();
    let mut all = executions(paths);
    let before = all.len();
    all.retain(|(procedure, _), _| !refused.iter().any(|refused| refused == procedure));
    // It is `_start`, and little else.
    assert!(all.len() + 3 > before, "{refused:?}");
    all
}

/// The same by contexts.
fn in_contexts(paths: &[Path]) -> BTreeMap<(&str, &str), u64> {
    let own = paths.iter().filter(|path| path.is_own);
    own.map(|path| ((&*path.procedure, &*path.blocks), path.contexts.values().sum())).collect()
}

#[test]
fn each_context_has_its_paths_and_together_they_are_all() {
    let (recorded, paths) = counted("plain", 6);
    assert_entered(&recorded, &paths, &["choose", "evens", "odds", "deep", "by_pointer"]);
    assert_eq!(in_contexts(&paths), executions(&paths));
    let alone = Program::nasty("flows.c").arguments(["plain"]).options(&["--exact=paths", "-F", "0"]).same();
    let alone = paths_of(&alone, "flows");
    assert!(alone.iter().all(|path| path.contexts.is_empty()));
    assert_eq!(in_contexts(&paths), executions_alone(&alone, &recorded));
    // Whoever calls it decides which way it goes.
    let ways = chosen(&paths);
    assert_eq!(ways.iter().filter(|way| way.contains_key("evens")).count(), 2);
    assert_eq!(ways.iter().filter(|way| way.contains_key("odds")).count(), 1);
    assert!(ways.iter().all(|way| !(way.contains_key("evens") && way.contains_key("odds"))), "{ways:?}");
    // The text names the callers in which a path was executed most often.
    let text = run_report(&recorded.directory, &["--view", "paths", "--procedure", "choose", "--width", "140"]).stdout;
    assert!(text.contains(" > main > odds\n") && text.contains(" > main > evens\n"), "{text}");
    // 30 of a recursion are one line, and what is above the innermost 128 is an ellipsis.
    assert!(text.contains(" > main > deep (20 times)\n") && text.contains("% … > deep (128 times)\n"), "{text}");
}

#[test]
fn call_sites_that_one_path_leads_to() {
    let (recorded, _) = counted("plain", 6);
    let json = json_of(&recorded, &["--view", "contexts"]);
    let sites = &json["shape"]["call_sites"];
    let [used, one_path, unknown] = ["used", "one_path", "unknown_paths"].map(|field| number(&sites[field]));
    assert!(one_path > 0 && one_path + unknown < used, "{sites}");
    let text = run_report(&recorded.directory, &["--view", "contexts"]).stdout;
    assert!(text.contains("% of those used"), "{text}");
}

#[test]
fn threads_count_together() {
    for how in ["threads", "brief"] {
        let (recorded, paths) = counted(how, 6);
        assert_entered(&recorded, &paths, &["choose", "works", "evens", "odds"]);
        assert_eq!(in_contexts(&paths), executions(&paths), "{how}");
    }
}

#[test]
fn handlers_stand_below_what_they_interrupt() {
    let (recorded, paths) = counted("signals", 6);
    assert_entered(&recorded, &paths, &["choose", "handler", "evens", "odds"]);
    // 50 times it was interrupted by itself.
    let handled = summed(of(&paths, "handler"));
    let nested = handled.iter().filter(|(callers, _)| callers.iter().any(|caller| caller == "handler"));
    assert_eq!((handled.values().sum::<u64>(), nested.map(|(_, count)| count).sum::<u64>()), (150, 50));
}

#[test]
fn children_count_their_own() {
    let (recorded, paths) = counted("fork", 6);
    assert_entered(&recorded, &paths, &["choose", "evens", "odds"]);
    let files = std::fs::read_dir(&recorded.directory).expect("a measurement").filter_map(Result::ok);
    let counts = files.filter(|file| file.file_name().to_string_lossy().starts_with("paths-"));
    assert_eq!(counts.count(), 3);
}

#[test]
fn a_kill_loses_nothing() {
    let (recorded, paths) = counted("killed", 137);
    assert_entered(&recorded, &paths, &["choose", "evens", "odds"]);
}

#[test]
fn what_jumps_away_is_cut_short() {
    let (recorded, paths) = counted("jumps", 6);
    assert_entered(&recorded, &paths, &["choose", "evens", "odds", "jumper"]);
    let calls = calls_of(&recorded, "passes");
    let ended = summed(of(&paths, "passes"));
    // Each third time `jumper` does not return to it.
    assert_eq!(ended.keys().collect::<Vec<_>>(), calls.keys().collect::<Vec<_>>());
    assert_eq!((calls.values().sum::<u64>(), ended.values().sum::<u64>()), (300, 200));
}

#[test]
fn exceptions_handlers_threads_and_a_child() {
    const COUNTED: C = C { source: "counted.cpp", output: "counted-flows", options: &[] };
    let recorded = Program::compiled(COUNTED).options(&["--exact=calls,paths", "-F", "0"]).same();
    assert_eq!(recorded.ended.status, 137);
    let paths = paths_of(&recorded, "counted-flows");
    let all = |procedure: &str| {
        let mut all: Vec<u64> = of(&paths, procedure).map(|path| path.contexts.values().sum()).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(all("unit"), [40 * 100_000 + 500 * 3 + 777]);
    assert_eq!(all("works"), [40, 40, 40 * 99_998]);
    assert_eq!(all("throws"), [100, 900]);
    assert_eq!(all("jumps"), [250, 750]);
    assert_eq!(all("catches"), [100, 900]);
    assert_eq!(all("recurses").iter().sum::<u64>(), 10_001);
    assert_entered(&recorded, &paths, &["unit", "works", "throws", "jumps", "recurses"]);
}

/// All paths of all procedures of a program of many, which does the same in each run.
#[test]
fn calls_by_many_paths() {
    let recorded = Program::nasty("sites.c").options(&["--exact=calls,paths", "-F", "0"]).same();
    let paths = paths_of(&recorded, "sites");
    let returning =
        ["leaf", "other_leaf", "thin", "twice", "by_pointer", "down", "even", "odd", "fib", "tree", "places"];
    assert_entered(&recorded, &paths, &returning);
    let alone = Program::nasty("sites.c").options(&["--exact=paths", "-F", "0"]).same();
    assert_eq!(in_contexts(&paths), executions_alone(&paths_of(&alone, "sites"), &recorded));
}

#[test]
fn calls_go_along_where_paths_do_not() {
    let (recorded, _) = counted("plain", 6);
    let run = |words: &[&str]| {
        let mut command = std::process::Command::new(callpath_end_to_end::callpath());
        let output = command.args(words).output().expect("it can be run");
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
    };
    let directory = recorded.directory.to_str().expect("UTF-8");
    let database = format!("{directory}.cpdb");
    // Without samples there is nothing that could be merged but calls, which are no samples.
    let said = run(&["merge", directory, "-o", &database]);
    assert!(said.contains("its exact counts of paths are not merged"), "{said}");
    let said = run(&["report", &database, "--view", "flat", "--columns", "calls"]);
    assert!(said.contains("choose"), "{said}");
    let text = run_report(&recorded.directory, &["--columns", "calls"]).stdout;
    assert!(text.contains("--view paths the paths in each context"), "{text}");
}

/// The compiler does not know that a callee never returns, and goes on behind the call: what stands there, nobody executes.
#[test]
fn code_behind_calls_that_do_not_return() {
    for options in [&["-O2"], &["-O0"]] {
        let output = format!("gives_up{}", options[0]).leak();
        let program = Program::compiled(C { source: "gives_up.c", output, options }).arguments(["50"]);
        let recorded = program.options(&["--exact=calls,paths", "-F", "0"]).same();
        assert_eq!(recorded.ended.status, 5, "{recorded:?}");
        let json = json_of(&recorded, &["--view", "paths"]);
        let refused = json["quality"]["exact"]["refused"].as_array().expect("a list");
        let own = ["main", "checks", "takes", "leaf", "gives_up"];
        let is_own = |refused: &&Value| own.iter().any(|name| refused["function"] == *name);
        assert_eq!(refused.iter().find(is_own), None, "{options:?}");
        let paths = paths_of(&recorded, output);
        // All but the last, which is cut short.
        assert_eq!(executions_of(&paths, "leaf"), calls_of(&recorded, "leaf").values().sum::<u64>(), "{options:?}");
        assert_eq!(executions_of(&paths, "takes"), (0..50).map(|n| n % 3).sum::<u64>(), "{options:?}");
        assert_eq!(in_contexts(&paths), executions(&paths), "{options:?}");
    }
}

/// How often a procedure's paths from its entry were executed.
fn executions_of(paths: &[Path], procedure: &str) -> u64 {
    let from_entry = paths.iter().filter(|path| path.procedure == procedure && path.is_from_entry);
    from_entry.map(|path| path.executions).sum()
}
