//! What is measured of calls beside their number: the program knows its arguments and results, and reads clocks inside and
//! outside of what is timed (tests/nasty/gauges.c).

use std::collections::BTreeMap;

use callpath_end_to_end::{Profile, Program, Recorded};
use serde_json::{Value, json};

use super::truth;

/// A line of what the program knows: words.
struct Known(Vec<Vec<String>>);

impl Known {
    fn of(recorded: &Recorded) -> Known {
        let text = std::fs::read_to_string(recorded.surroundings().join("known")).expect("the program has written it");
        Known(text.lines().map(|line| line.split(' ').map(str::to_owned).collect()).collect())
    }

    /// The lines that begin with these words: path and numbers behind them.
    fn lines<'k>(&'k self, words: &'k [&str]) -> impl Iterator<Item = (&'k str, &'k [String])> + 'k {
        let found =
            self.0.iter().filter(move |line| line.iter().zip(words).filter(|(a, b)| a == *b).count() == words.len());
        found.map(move |line| (line[words.len()].as_str(), &line[words.len() + 1..]))
    }

    /// By path, what JSON should have: zeros and empty histograms left out.
    fn cells(&self, words: &[&str], cell: impl Fn(&[String]) -> Value) -> BTreeMap<String, Value> {
        let cells = self.lines(words).map(|(path, numbers)| (path.to_owned(), cell(numbers)));
        cells.filter(|(_, cell)| *cell != json!(0) && *cell != json!([0])).collect()
    }
}

fn whole(number: &str) -> u64 {
    number.parse().unwrap_or_else(|_| panic!("not a number: {number}"))
}

fn gauges(what: &str, metrics: &str, functions: &[&str]) -> (Recorded, Profile, Known) {
    let program = Program::nasty("gauges.c").arguments([what]).options(&["-m", metrics]);
    let recorded = program.same_probed(functions);
    assert_eq!(recorded.ended.status, 0, "{recorded:?}");
    let (profile, known) = (recorded.profile(), Known::of(&recorded));
    (recorded, profile, known)
}

const HISTOGRAMS: &str = "arg:1,arg:2,arg:3:u32";
const EXPRESSIONS: &str = "mix=(arg2 & 0xffff) - i32(arg3) * 3,read=u32[arg1] + i16[arg1 + 4]";

#[track_caller]
fn assert_arguments(profile: &Profile, known: &Known) {
    for metric in HISTOGRAMS.split(',') {
        let expected = known.cells(&["histogram", metric], |counts| counts.iter().map(|count| whole(count)).collect());
        assert_eq!(profile.cells(metric, &["gauges"]), expected, "{metric}");
    }
    for metric in ["mix", "read", "read:unreadable"] {
        let expected = known.cells(&["sum", metric], |sum| json!(sum[0].parse::<i64>().expect("a number")));
        assert_eq!(profile.cells(metric, &["gauges"]), expected, "{metric}");
    }
}

/// On each path, with recursion, threads, a signal's handler, and calls that are left by longjmp.
#[test]
fn arguments_and_what_is_computed_of_them() {
    let (_recorded, profile, known) = gauges("values", &format!("{HISTOGRAMS},{EXPRESSIONS}"), &["takes"]);
    assert_arguments(&profile, &known);
}

/// The same while exits are probed; a call that is left by longjmp has no result.
#[test]
fn results() {
    let (_recorded, profile, known) = gauges("values", &format!("{HISTOGRAMS},ret,{EXPRESSIONS}"), &["takes"]);
    assert_arguments(&profile, &known);
    let expected = known.cells(&["histogram", "ret"], |counts| counts.iter().map(|count| whole(count)).collect());
    assert!(!expected.contains_key("main;values;leaves;takes") && expected.len() == 5, "{expected:?}");
    assert_eq!(profile.cells("ret", &["gauges"]), expected);
}

/// What the routines without results and clocks follow is followed by the general ones, too.
#[test]
fn the_calls_themselves() {
    for (program, functions) in [
        (Program::nasty("takes.c"), &["inner", "middle", "outer", "down", "beside"][..]),
        (Program::nasty("gauges.c").arguments(["times"]), &["burns", "sleeps", "both"][..]),
    ] {
        let recorded = program.options(&["-m", "cpu-time,wall-time,wall-time:max,ret:u8"]).same_probed(functions);
        let profile = recorded.profile();
        let calls = &profile.cells("calls", &["takes", "gauges"]);
        assert!(calls.len() >= 4, "{calls:?}");
        let ended = profile.cells("ret:u8", &["takes", "gauges"]);
        for (path, count) in calls {
            let bins = ended[path].as_array().expect("a histogram").iter().filter_map(Value::as_u64).sum::<u64>();
            assert_eq!(json!(bins), *count, "{path}");
        }
    }
}

/// Calls of each path, exactly, with all kinds of ways out.
#[test]
fn calls_of_functions_that_are_left_in_other_ways() {
    let program = callpath_end_to_end::C { source: "tails.c", output: "tails", options: &["-foptimize-sibling-calls"] };
    let all = ["leaf", "first", "second", "ping", "pong", "by_pointer", "maybe", "chooses", "calls"];
    let recorded = Program::compiled(program).options(&["-m", "wall-time:histogram,arg:1"]).same_probed(&all);
    assert_eq!(recorded.ended.status, 6, "{recorded:?}");
    let profile = super::assert_counted(&recorded, &all, &["tails"]);
    let total = truth(&recorded).of(&all).total();
    assert_eq!((profile.total("wall-time:histogram"), profile.total("arg:1")), (total, total));
}

/// The counter's rate is known to a thousandth.
const MORE: u64 = 1001;
const LESS: u64 = 999;

#[test]
fn the_shortest_and_the_longest_and_all_between() {
    let metrics = "wall-time,wall-time:min,wall-time:max,wall-time:histogram";
    let (_recorded, profile, known) = gauges("times", metrics, &["burns", "sleeps", "both"]);
    let mut spans: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for (path, numbers) in known.lines(&["wall"]) {
        let [_, least, most] = numbers else { panic!("not a span: {numbers:?}") };
        spans.entry(path).or_default().push((whole(least) * LESS / 1000, whole(most) * MORE / 1000));
    }
    let cells = |metric| profile.cells(metric, &["gauges"]);
    let (shortest, longest, all) = (cells("wall-time:min"), cells("wall-time:max"), cells("wall-time:histogram"));
    assert_eq!(all.keys().map(String::as_str).collect::<Vec<_>>(), spans.keys().copied().collect::<Vec<_>>());
    for (path, spans) in spans {
        let least = |of: fn(&(u64, u64)) -> u64| spans.iter().map(of).min().expect("there are calls");
        let most = |of: fn(&(u64, u64)) -> u64| spans.iter().map(of).max().expect("there are calls");
        let ns = |cells: &BTreeMap<String, Value>| cells[path].as_u64().expect("a time");
        let (shortest, longest) = (ns(&shortest), ns(&longest));
        assert!((least(|span| span.0)..=least(|span| span.1)).contains(&shortest), "{path}: {shortest}, {spans:?}");
        assert!((most(|span| span.0)..=most(|span| span.1)).contains(&longest), "{path}: {longest}, {spans:?}");
        let bins: Vec<u64> = all[path].as_array().expect("a histogram").iter().filter_map(Value::as_u64).collect();
        let mut below = 0;
        for (bin, count) in bins.iter().enumerate() {
            below += count;
            let fewer =
                |of: fn(&(u64, u64)) -> u64| spans.iter().filter(|span| of(span) < 1 << (bin + 1)).count() as u64;
            let possible = fewer(|span| span.1)..=fewer(|span| span.0);
            assert!(possible.contains(&below), "{path}: {below} below 2^{}, {possible:?}", bin + 1);
        }
        assert_eq!(below, spans.len() as u64, "{path}");
    }
    // What a function takes with all that it calls is never less than its longest call.
    let both = profile.through(&["main", "both"], "wall-time");
    assert!(
        both >= longest["main;times;both"].as_u64().expect("a time")
            && both > profile.through(&["both", "burns"], "wall-time")
    );
}

#[test]
fn cpu_time_of_each_function_without_those_it_calls() {
    let (_recorded, profile, known) = gauges("times", "cpu-time", &["burns", "sleeps", "both"]);
    let cells = profile.cells("cpu-time", &["gauges"]);
    assert_eq!(cells.len(), 4, "{cells:?}");
    for (path, numbers) in known.lines(&["cpu"]) {
        let [least, most] = numbers else { panic!("not a span: {numbers:?}") };
        let cpu_ns = cells[path].as_u64().expect("a time");
        assert!((whole(least)..=whole(most)).contains(&cpu_ns), "{path}: {cpu_ns} ns, {least} to {most}");
    }
}

/// What a thread waits for, that another one has seen: by call path, without what callees wait, and each wait once.
#[test]
fn time_that_is_waited() {
    let functions = ["locks", "waits", "reads", "sleeps", "mixed", "deep", "left", "interrupted", "works"];
    let metrics = "wait-time,io-time";
    let recorded = Program::nasty("waiting.c").options(&["-m", metrics]).same_probed(&functions);
    assert_eq!(recorded.ended.status, 0, "{recorded:?}");
    let (profile, known) = (recorded.profile(), Known::of(&recorded));
    let mut waits = 0;
    for metric in metrics.split(',') {
        let cells = profile.cells(metric, &["waiting"]);
        for (path, numbers) in known.lines(&[metric]) {
            let [least, most] = numbers else { panic!("not a span: {numbers:?}") };
            let (least, most) = (whole(least) * LESS / 1000, whole(most) * MORE / 1000);
            let waited = cells.get(path).and_then(Value::as_u64).unwrap_or(0);
            assert!((least..=most).contains(&waited), "{metric} {path}: {waited} ns, {least} to {most}");
            waits += 1;
        }
    }
    assert_eq!(waits, 9);
    // Hidden probes have no contexts, and count no calls. Each of three rounds makes 14 calls.
    assert_eq!(profile.total("calls"), 3 * 14, "{:?}", profile.cells("calls", &["waiting"]));
    let hidden = ["pthread_mutex_lock", "read", "usleep", "nanosleep", "clock_nanosleep"];
    assert!(hidden.iter().all(|name| profile.calls_of(name) == 0));
    let list = callpath_end_to_end::run_report(&recorded.directory, &["--quality", "--json"]);
    assert!(list.stdout.contains("\"refused\":[]"), "{}", list.stdout);
}

/// A function may be probed and wait itself.
#[test]
fn functions_that_wait_themselves() {
    let functions = ["reads", "libc.so*!read", "libc.so*!usleep"];
    let recorded = Program::nasty("waiting.c").options(&["-m", "wait-time,io-time"]).same_probed(&functions);
    let (profile, known) = (recorded.profile(), Known::of(&recorded));
    let least = |path: &str| {
        let mut lines = known.0.iter().filter(|line| line[1] == path);
        whole(&lines.next().unwrap_or_else(|| panic!("no {path}"))[2]) * LESS / 1000
    };
    let of = |names: &[&str], metric: &str| profile.through(names, metric);
    assert!(of(&["main", "reads", "read"], "io-time") >= least("main;reads"));
    assert!(of(&["main", "sleeps", "usleep"], "wait-time") >= least("main;sleeps"));
    assert_eq!(of(&["main", "sleeps", "usleep"], "io-time"), 0);
    assert!(profile.calls_of("read") >= 3 * 5 && profile.calls_of("usleep") > 3);
}

/// The same where time alone is measured, by routines that keep no flags elsewhere.
#[test]
fn functions_that_return_flags_have_a_time() {
    for metric in ["wall-time", "context"] {
        let recorded = Program::nasty("flags.c").options(&["-m", metric]).same_probed(&["compares", "asks"]);
        assert!(recorded.ended.stdout.starts_with("10000 called, 0 wrong"), "{recorded:?}");
        let profile = recorded.profile();
        assert_eq!([profile.calls_of("compares"), profile.calls_of("asks")], [10_000; 2], "{recorded:?}");
        assert!(metric != "wall-time" || profile.total("wall-time") > 0);
    }
}

/// Where flags and the result are both read by the caller, nothing is free to save flags in: routines keep them.
#[test]
fn functions_that_return_flags() {
    let recorded = Program::nasty("flags.c").options(&["-m", "ret,arg:1,cpu-time"]).same_probed(&["compares"]);
    assert!(recorded.ended.stdout.starts_with("10000 called, 0 wrong"), "{recorded:?}");
    let profile = recorded.profile();
    assert_eq!(profile.calls_of("compares"), 10_000);
    // 0 and 1; 2 and 3; up to 127; 128 to 199.
    let expected = [2, 2, 4, 8, 16, 32, 64, 72].map(|count| json!(50 * count));
    for metric in ["ret", "arg:1"] {
        // The caller moves the stack pointer without saying so: its path is a part.
        let cells: Vec<Value> = profile.cells(metric, &["flags"]).into_values().collect();
        assert_eq!(cells, [json!(expected)], "{metric}");
    }
}
