//! `callpath export --format parquet` and `callpath query` as a shell sees them: what they say, what is left, and that SQL over several
//! exports finds the numbers of `callpath merge`.

use crate::duckdb;
use crate::measurement;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use callpath_db::database::Database;
use callpath_db::{Metric, NodeId, Profile, Scope, ScopeKind};
use measurement::measurement;
use serde_json::Value;

const TABLES: [&str; 7] = [
    "file.parquet",
    "function.parquet",
    "metric.parquet",
    "module.parquet",
    "node.parquet",
    "profile.parquet",
    "value.parquet",
];

fn callpath(words: &[&str], directory: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_callpath")).args(words).current_dir(directory).output().unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn listed(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A directory with the database `one` of so many procedures, each called by the one before.
fn with_one(procedures: u64) -> (tempfile::TempDir, PathBuf) {
    let mut profile = Profile::new(vec![Metric::sum("cost", "count")]);
    let mut node = NodeId::ROOT;
    for number in 0..procedures {
        let name = profile.strings.intern(&format!("procedure_{number}"));
        node = profile.tree.child(node, Scope::new(ScopeKind::Procedure, name));
        profile.tree.add(node, &[number * 1_000_003 + 1]);
    }
    let directory = tempfile::tempdir().unwrap();
    let one = directory.path().join("one");
    fs::write(&one, profile.to_database().unwrap()).unwrap();
    (directory, one)
}

#[test]
fn a_measurement_and_a_database_become_a_directory_of_tables() {
    let (directory, one) = with_one(3);
    let measured = measurement(2, true);
    for (input, said) in [(&*one, "4 contexts and 3 values"), (measured.path(), "2 contexts and 4 values")] {
        let output =
            callpath(&["export", "--format", "parquet", input.to_str().unwrap(), "-o", "out"], directory.path());
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        assert!(err(&output).starts_with(&format!("callpath: exported: out has {said} (")), "{}", err(&output));
        assert!(output.stdout.is_empty());
        assert_eq!(listed(&directory.path().join("out")), TABLES);
        fs::remove_dir_all(directory.path().join("out")).unwrap();
    }
}

#[test]
fn an_export_that_fails_says_why_and_leaves_nothing() {
    let (directory, _) = with_one(20_000);
    fs::create_dir(directory.path().join("there")).unwrap();
    let export = ["export", "--format", "parquet", "one"];
    for (more, status, expected) in [
        (&[][..], 1, "parquet is a directory of tables: name a new one with -o\n"),
        (
            &["-o", "there"],
            1,
            "failed to write there: it is there already, and nothing is overwritten; name another file, or remove it\n",
        ),
        (&["-o", "none/out"], 1, "failed to write none/out: No such file or directory\n"),
        (&["-o", "one/out"], 1, "failed to write one/out: Not a directory\n"),
        (&["-o", "out", "--metric", "cost"], 1, "select with SQL (docs/engines.md), not with options\n"),
        (&["-o", "out", "--focus", "main"], 1, "select with SQL (docs/engines.md), not with options\n"),
    ] {
        let output = callpath(&[&export[..], more].concat(), directory.path());
        assert_eq!(output.status.code(), Some(status), "{more:?}");
        assert!(err(&output).starts_with("callpath: ") && err(&output).ends_with(expected), "{}", err(&output));
    }
    let script = "ulimit -f 8; exec \"$0\" export --format parquet one -o out";
    let output =
        Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_callpath")]).current_dir(directory.path()).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let expected = "callpath: failed to write out: File too large; nothing of it is left. Raise the limit (ulimit -f), or name a file on another disk\n";
    assert_eq!(err(&output), expected);
    assert_eq!(listed(directory.path()), ["one", "there"]);
    assert!(listed(&directory.path().join("there")).is_empty());
}

#[test]
fn a_disk_that_fills_is_named_and_nothing_is_left_on_it() {
    let (directory, one) = with_one(20_000);
    let disk = directory.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let script = "mount -t tmpfs -o size=64k tmpfs \"$1\" 2>&1 || exit 99
        \"$2\" export --format parquet \"$3\" -o \"$1/out\"; echo status $?; ls -A \"$1\"";
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", script, "sh"]).arg(&disk).arg(env!("CARGO_BIN_EXE_callpath")).arg(&one);
    let output = command.output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.code() == Some(99) || err(&output).starts_with("unshare:") {
        println!("skipped: no file system can be mounted here: {out}{}", err(&output));
        return;
    }
    let expected =
        "out: No space left on device; nothing of it is left. Free some room, or name a file on another disk\n";
    assert!(err(&output).ends_with(expected), "{}", err(&output));
    assert_eq!(out.split_whitespace().collect::<Vec<_>>(), ["status", "1"]);
}

#[test]
fn without_duckdb_a_query_says_where_it_is() {
    let (directory, _) = with_one(3);
    let mut command = Command::new(env!("CARGO_BIN_EXE_callpath"));
    let output =
        command.args(["query", "one", "FROM node"]).env("PATH", "/none").current_dir(directory.path()).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).starts_with("callpath: there is no program duckdb, which answers queries: install it ("));
}

#[test]
fn queries_are_listed_and_printed() {
    let directory = tempfile::tempdir().unwrap();
    let list = callpath(&["query", "--list"], directory.path());
    let names = String::from_utf8(list.stdout).unwrap();
    let names: Vec<&str> = names.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, ["nodes", "metrics", "members", "merge", "parts", "inclusive", "imbalance"]);
    for name in names {
        let printed = callpath(&["query", "--print", name], directory.path());
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../sql/{name}.sql"));
        assert_eq!(printed.stdout, fs::read(file).unwrap());
    }
    let output = callpath(&["query", "--print", "all"], directory.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).starts_with("callpath: there is no query all; there are nodes, "), "{}", err(&output));
    for (words, status) in [(&["query"][..], 2), (&["query", "--list", "one"], 2)] {
        assert_eq!(callpath(words, directory.path()).status.code(), Some(status), "{words:?}");
    }
    fs::write(directory.path().join("input"), "").unwrap();
    let output = callpath(&["query", "input"], directory.path());
    assert_eq!(err(&output), "callpath: input is an input; behind the inputs stands a SQL statement\n");
}

/// The rows of a query over inputs.
fn rows(inputs: &[&str], sql: &str, directory: &Path) -> Vec<Value> {
    let output = callpath(&[&["query", "--json"], inputs, &[sql]].concat(), directory);
    assert_eq!((output.status.code(), err(&output)), (Some(0), String::new()), "{sql}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["schema"], &answer["kind"]), (&1.into(), &"query".into()));
    answer["rows"].as_array().unwrap().clone()
}

#[test]
fn what_goes_wrong_with_duckdb_is_said() {
    if !duckdb::is_there("what goes wrong with duckdb") {
        return;
    }
    let (directory, _) = with_one(3);
    for sql in ["SELEC", "FROM nowhere"] {
        let output = callpath(&["query", "one", sql], directory.path());
        assert_eq!(output.status.code(), Some(1));
        assert!(err(&output).contains("Error: "), "{}", err(&output));
    }
    let output = callpath(&["query", "--json", "one", "SELECT 'nan'::DOUBLE AS number"], directory.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).starts_with("callpath: duckdb's answer is not one list of rows"), "{}", err(&output));
    let output = callpath(&["query", "none", "FROM node"], directory.path());
    assert!(err(&output).starts_with("callpath: failed to find a measurement in none"), "{}", err(&output));
    let output = callpath(&["query", "one", "SELECT count(*) AS contexts FROM node"], directory.path());
    assert!(String::from_utf8_lossy(&output.stdout).contains("contexts"));
    assert!(rows(&["one"], "FROM node WHERE depth > 9", directory.path()).is_empty());
}

/// A profile of two threads with a metric that adds up and a high-water mark; procedures, loops and lines, some of them recursive.
fn profile(seed: u64) -> Profile {
    let mut profile = Profile::new(vec![Metric::sum("cost", "count"), Metric::max("peak", "bytes")]);
    profile.info.host = format!("host {seed}");
    let name = profile.strings.intern("it's");
    let process = profile.tree.child(NodeId::ROOT, Scope::process(name, 0, 7));
    let mut state = seed;
    let mut random = |below: u64| {
        // Knuth's generator: the upper bits are good enough here.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..400 {
        let thread = Scope { discriminator: 1 + random(2), ..Scope::new(ScopeKind::Thread, name) };
        let mut node = profile.tree.child(process, thread);
        for _ in 0..random(12) {
            let number = random(3);
            let name = profile.strings.intern(&format!("procedure {number}"));
            let kinds = [ScopeKind::Procedure, ScopeKind::Procedure, ScopeKind::Loop, ScopeKind::Line];
            let scope = Scope { line: Some(number as u32), ..Scope::new(kinds[random(4) as usize], name) };
            node = profile.tree.child(node, scope);
        }
        profile.tree.add(node, &[random(1 << 30), random(1 << 30)]);
    }
    profile
}

#[test]
fn sql_over_exports_finds_the_numbers_of_merge() {
    if !duckdb::is_there("SQL over exports") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let inputs = ["first", "second", "third"];
    for (seed, input) in inputs.iter().enumerate() {
        fs::write(directory.path().join(input), profile(seed as u64).to_database().unwrap()).unwrap();
    }
    // One that was exported before is taken as it is.
    let export = callpath(&["export", "--format", "parquet", "third", "-o", "tables [*]"], directory.path());
    assert_eq!(export.status.code(), Some(0), "{}", err(&export));
    let merge = callpath(&["merge", "first", "second", "third", "-o", "all"], directory.path());
    assert_eq!(merge.status.code(), Some(0), "{}", err(&merge));

    // From the merged database, by its own code: what each context costs itself, and then with all below.
    let all = Database::open(&directory.path().join("all")).unwrap();
    let content = all.content().unwrap();
    let mut own = vec![[0u64; 2]; content.len()];
    for entry in all.profiles() {
        for (metric, facts) in all.values(entry).unwrap() {
            for (place, value) in facts {
                let cost = &mut own[place as usize][metric as usize];
                *cost = if metric == 0 { *cost + value } else { (*cost).max(value) };
            }
        }
    }
    let mut inclusive = own.clone();
    for place in (1..content.len()).rev() {
        let parent = content.context(place).parent.unwrap() as usize;
        let [cost, peak] = inclusive[place];
        inclusive[parent] = [inclusive[parent][0] + cost, inclusive[parent][1].max(peak)];
    }
    let expected = |costs: &[[u64; 2]]| -> BTreeMap<(i64, &str), u64> {
        let row = |(place, costs): (usize, &[u64; 2])| {
            let id = content.context(place).id as i64;
            [((id, "cost"), costs[0]), ((id, "peak"), costs[1])]
        };
        costs.iter().enumerate().flat_map(row).filter(|(_, value)| *value != 0).collect()
    };
    for (query, costs) in [("merge", &own), ("inclusive", &inclusive)] {
        let sql = format!("SELECT node, name, value FROM {query} JOIN metrics ON metrics.id = metric");
        let rows = rows(&["first", "second", "tables [*]"], &sql, directory.path());
        let name = |row: &Value| if row["name"] == "cost" { "cost" } else { "peak" };
        let found = rows.iter().map(|row| ((row["node"].as_i64().unwrap(), name(row)), row["value"].as_u64().unwrap()));
        assert_eq!(found.collect::<BTreeMap<_, _>>(), expected(costs), "{query}");
    }
    // Who takes the most, of all: the thread with the greatest sum.
    let totals = all.profiles().iter().map(|entry| entry.columns[0].total);
    let whole = "SELECT total, present, CAST(greatest AS BIGINT) AS greatest FROM imbalance
        JOIN metrics ON metrics.id = metric WHERE node = 0 AND name = 'cost'";
    let row = &rows(&["first", "second", "third"], whole, directory.path())[0];
    assert_eq!(row["greatest"].as_u64(), totals.clone().max());
    assert_eq!((row["total"].as_u64(), row["present"].as_u64()), (Some(totals.sum()), Some(6)));
}
