//! Runs that are drawn at random from a known program: what is found, and what is not.

use super::*;
use crate::{MetricId, Name, NodeId, Scope, ScopeKind};

/// A procedure of the program: its chain of callers, and its samples a run.
struct Model {
    chain: &'static [&'static str],
    samples: f64,
}

const MODEL: [Model; 6] = [
    Model { chain: &["main"], samples: 60.0 },
    Model { chain: &["main", "solve"], samples: 12_000.0 },
    Model { chain: &["main", "solve", "dot"], samples: 7500.0 },
    Model { chain: &["main", "parse", "token"], samples: 9000.0 },
    Model { chain: &["main", "parse", "intern"], samples: 300.0 },
    Model { chain: &["main", "write"], samples: 1140.0 },
];

/// Cost of a sample.
const SAMPLE: u64 = 1_000_000;

/// Draws runs. Each differs by its samples, and by how fast the machine was.
struct Runner {
    random: fastrand::Rng,
    /// Standard deviation of the machine's speed between runs.
    drift: f64,
}

impl Runner {
    fn new(seed: u64) -> Runner {
        Runner { random: fastrand::Rng::with_seed(seed), drift: 0.005 }
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.random.f64()).sum::<f64>() - 6.0
    }

    /// A run of the program in which `change` has been at the chain and number of samples of each procedure.
    fn run(&mut self, change: impl Fn(&Model) -> Vec<(Vec<&'static str>, f64)>) -> Profile {
        let mut profile = profile();
        let speed = 1.0 + self.drift * self.normal();
        for (chain, samples) in MODEL.iter().flat_map(change) {
            let node = enter(&mut profile, &chain);
            let drawn = (samples * speed + samples.sqrt() * self.normal()).round().max(0.0) as u64;
            profile.tree.add(node, &[drawn * SAMPLE, drawn]);
        }
        profile
    }

    fn same(&mut self, count: usize) -> Vec<Profile> {
        (0..count).map(|_| self.run(as_is)).collect()
    }
}

fn as_is(model: &Model) -> Vec<(Vec<&'static str>, f64)> {
    vec![(model.chain.to_vec(), model.samples)]
}

fn profile() -> Profile {
    Profile::new(vec![Metric::of(MetricId::CPU_TIME), Metric::of(MetricId::SAMPLES)])
}

fn enter(profile: &mut Profile, chain: &[&str]) -> NodeId {
    let module = Some(profile.strings.intern("app"));
    chain.iter().fold(NodeId::ROOT, |node, name| {
        let scope = Scope { module, ..Scope::new(ScopeKind::Procedure, profile.strings.intern(name)) };
        profile.tree.child(node, scope)
    })
}

/// `name` becomes so many times as slow.
fn slower(name: &'static str, times: f64) -> impl Fn(&Model) -> Vec<(Vec<&'static str>, f64)> {
    move |model| {
        let times = if model.chain.last() == Some(&name) { times } else { 1.0 };
        vec![(model.chain.to_vec(), model.samples * times)]
    }
}

fn found(diff: &Diff) -> Vec<&str> {
    diff.procedures.iter().filter(|procedure| procedure.own.is_found).map(|procedure| &*procedure.name).collect()
}

fn compared(a: &[Profile], b: &[Profile]) -> Diff {
    Diff::of(a, b, &DiffOptions::default()).expect("an answer")
}

#[test]
fn equal_runs_raise_no_alarm() {
    let mut alarms = 0;
    for seed in 0..200 {
        let mut runner = Runner::new(seed);
        let (a, b) = (runner.same(10), runner.same(10));
        let diff = compared(&a, &b);
        let any = |procedure: &&ProcedureChange| procedure.own.is_found || procedure.inclusive.is_found;
        alarms += usize::from(diff.total.is_found || diff.procedures.iter().any(|p| any(&p)));
    }
    // One in a hundred is promised.
    assert!(alarms <= 6, "{alarms} of 200");
}

#[test]
fn a_procedure_that_is_slower_is_found_first_by_its_name() {
    for (name, times) in [("token", 1.05), ("intern", 1.2)] {
        let mut missed = 0;
        for seed in 0..40 {
            let mut runner = Runner::new(seed);
            let a = runner.same(10);
            let b: Vec<Profile> = (0..10).map(|_| runner.run(slower(name, times))).collect();
            missed += usize::from(found(&compared(&a, &b)).first() != Some(&name));
        }
        assert!(missed <= 1, "{name}: {missed} of 40 missed");
    }
}

#[test]
fn one_run_a_side_is_judged_by_its_samples() {
    let mut runner = Runner::new(3);
    let a = runner.same(1);
    assert!(found(&compared(&a, &runner.same(1))).is_empty());
    let diff = compared(&a, &[runner.run(slower("solve", 1.3))]);
    assert_eq!((diff.test, found(&diff)), (Test::Sampling, vec!["solve"]));
}

/// Speed of the machine that changes from round to round hides a change from Welch's test, and not from pairs.
/// Counts of one run on a side have no error: a call more is a change, as many are none.
#[test]
fn what_was_counted_has_no_error_of_sampling() {
    let counted = |calls: [u64; 3]| {
        let mut profile = Profile::new(vec![Metric::of(MetricId::CALLS), Metric::of(MetricId::SAMPLES)]);
        for (name, calls) in ["often", "seldom", "once"].into_iter().zip(calls) {
            let node = enter(&mut profile, &["main", name]);
            profile.tree.add(node, &[calls, calls]);
        }
        profile
    };
    let diff = compared(&[counted([1_000_000, 40, 1])], &[counted([1_000_001, 40, 3])]);
    assert_eq!(diff.test, Test::Counted);
    let mut names = found(&diff);
    names.sort_unstable();
    assert_eq!(names, ["often", "once"]);
    assert!(diff.procedures.iter().all(|procedure| procedure.own.half_width == 0.0));
    let same = compared(&[counted([1_000_000, 40, 1])], &[counted([1_000_000, 40, 1])]);
    assert!(found(&same).is_empty() && !same.total.is_found);
}

#[test]
fn pairs_see_through_a_machine_that_drifts() {
    let mut runner = Runner { drift: 0.0, ..Runner::new(5) };
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for round in 0..10 {
        let speed = 1.0 + 0.04 * f64::from(round);
        a.push(runner.run(|model| vec![(model.chain.to_vec(), model.samples * speed)]));
        b.push(runner.run(|model| vec![(model.chain.to_vec(), slower("token", 1.08)(model)[0].1 * speed)]));
    }
    assert!(!found(&compared(&a, &b)).contains(&"token"));
    let paired = Diff::of(&a, &b, &DiffOptions { paired: true, ..DiffOptions::default() }).expect("an answer");
    assert_eq!(found(&paired), ["token"]);
    let uneven = Diff::of(&a[1..], &b, &DiffOptions { paired: true, ..DiffOptions::default() });
    assert!(matches!(uneven, Err(DiffError::NoPairs { a: 9, b: 10 })));
}

#[test]
fn only_what_is_slower_by_more_than_allowed_is_a_regression() {
    let mut runner = Runner::new(11);
    let a = runner.same(10);
    let mut regressions = |times: f64, allowed: f64| {
        let b: Vec<Profile> = (0..10).map(|_| runner.run(slower("token", times))).collect();
        let options = DiffOptions { fail_above: Some(allowed), ..DiffOptions::default() };
        let diff = Diff::of(&a, &b, &options).expect("an answer");
        let names = diff.procedures.iter().filter(|p| p.is_regression).map(|p| p.name.clone());
        (names.collect::<Vec<_>>(), diff.total_is_regression)
    };
    assert_eq!(regressions(1.2, 0.1), (vec!["token".to_owned(), "parse".to_owned()], false));
    assert_eq!(regressions(1.08, 0.1), (vec![], false));
    assert_eq!(regressions(0.5, 0.1), (vec![], false));
    assert!(regressions(1.5, 0.05).1);
}

#[test]
fn a_split_procedure_has_moved_and_a_new_one_beside_a_faster_one_has_not() {
    let mut runner = Runner::new(2);
    let a = runner.same(10);
    let split = |share: f64| {
        move |model: &Model| match model.chain.last() {
            Some(&"token") => vec![
                (vec!["main", "parse", "token"], model.samples * 0.4),
                (vec!["main", "parse", "token", "scan"], model.samples * share),
            ],
            _ => as_is(model),
        }
    };
    let b: Vec<Profile> = (0..10).map(|_| runner.run(split(0.6))).collect();
    let diff = compared(&a, &b);
    let moved = |diff: &Diff| -> Vec<(String, Vec<String>)> {
        let moved = diff.procedures.iter().filter(|procedure| !procedure.moved.is_empty());
        moved.map(|procedure| (procedure.name.clone(), procedure.moved.clone())).collect()
    };
    let mut pairs = moved(&diff);
    pairs.sort();
    assert_eq!(pairs, [("scan".into(), vec!["token".to_owned()]), ("token".into(), vec!["scan".to_owned()])]);
    // More came than went.
    let b: Vec<Profile> = (0..10).map(|_| runner.run(split(0.9))).collect();
    let diff = compared(&a, &b);
    assert!(moved(&diff).is_empty() && diff.procedures.iter().any(|p| p.name == "parse" && p.inclusive.is_found));
}

#[test]
fn another_build_is_matched_by_its_source() {
    /// A build of one program: names of its file and of a library, how `dot` is called, and lines that move.
    fn build(program: &str, library: &str, dot: (ScopeKind, &str), shift: u32) -> Profile {
        let mut profile = profile();
        profile.info.program = program.into();
        let mut intern = |text: &str| profile.strings.intern(text);
        let (app, library) = (intern(program), intern(library));
        let scope = |kind, name: Name, module| Scope { module: Some(module), ..Scope::new(kind, name) };
        let main = scope(ScopeKind::Procedure, intern("main"), app);
        let line = |line| Some(line + shift);
        let dot = Scope { line: line(10), ..scope(dot.0, intern(dot.1), app) };
        let address = u64::from(shift);
        let inner = Scope { line: line(12), address: Some(address), ..Scope::new(ScopeKind::Loop, Name::EMPTY) };
        let process = Scope::process(app, 0, 17 + shift);
        let copy = scope(ScopeKind::Procedure, intern("memcpy"), library);
        let process = profile.tree.child(NodeId::ROOT, process);
        let main = profile.tree.child(process, main);
        let dot = profile.tree.child(main, dot);
        // Called from a loop in one build, from beside it in the other.
        let inner = profile.tree.child(dot, inner);
        let copy = profile.tree.child(if shift == 0 { inner } else { dot }, copy);
        for (node, samples) in [(main, 10), (dot, 20), (inner, 60), (copy, 30)] {
            profile.tree.add(node, &[samples * SAMPLE, samples]);
        }
        profile
    }
    let a = build("old", "libc-2.31.so", (ScopeKind::Procedure, "dot.constprop.0"), 0);
    let b = build("new", "libc.so.6", (ScopeKind::Inlined, "dot"), 40);
    let diff = compared(std::slice::from_ref(&a), std::slice::from_ref(&b));
    assert_eq!(diff.matched.both, [1.0; 2]);
    assert_eq!(diff.total.difference(), 0.0);
    let contexts: Vec<(&str, f64, f64)> = diff
        .contexts
        .iter()
        .map(|c| (&*c.name, c.inclusive.a / SAMPLE as f64, c.inclusive.b / SAMPLE as f64))
        .collect();
    let expected = [
        ("", 120.0, 120.0),
        ("new", 120.0, 120.0),
        ("main", 120.0, 120.0),
        ("dot", 110.0, 110.0),
        ("memcpy", 30.0, 30.0),
        ("loop at line 52", 60.0, 60.0),
    ];
    assert_eq!(contexts, expected);
    // A procedure that was renamed is another one, unless it is said.
    let c = build("new", "libc.so.6", (ScopeKind::Inlined, "product"), 40);
    let renamed = DiffOptions { renames: vec![("dot".into(), "product".into())], ..DiffOptions::default() };
    let b = std::slice::from_ref(&b);
    assert!(compared(b, std::slice::from_ref(&c)).matched.both[0] < 0.1);
    assert_eq!(Diff::of(b, &[c], &renamed).expect("an answer").matched.both, [1.0; 2]);
}

#[test]
fn calls_and_cost_of_each() {
    let run = |calls: u64, each: u64| {
        let metrics = [MetricId::CPU_TIME, MetricId::RETURNS, MetricId::SAMPLES].map(Metric::of);
        let mut profile = Profile::new(metrics.to_vec());
        let node = enter(&mut profile, &["main", "work"]);
        profile.tree.add(node, &[calls * each * SAMPLE, calls, calls * each]);
        profile
    };
    let calls = |a: Profile, b: Profile| {
        let diff = compared(&[a], &[b]);
        let work = diff.procedures.iter().find(|procedure| procedure.name == "work").and_then(|work| work.calls);
        work.map(|calls| (calls.returns.a, calls.returns.b, calls.cost_each.map(|cost| cost / SAMPLE as f64)))
    };
    assert_eq!(calls(run(100, 20), run(200, 20)), Some((100.0, 200.0, [20.0, 20.0])));
    assert_eq!(calls(run(100, 20), run(100, 40)), Some((100.0, 100.0, [20.0, 40.0])));
    // Each activation met one sample: who knows how many met none.
    assert_eq!(calls(run(100, 1), run(200, 1)), None);
}

#[test]
fn scaling_is_compared_with_what_is_expected() {
    use crate::ProcessInfo;
    let run = |processes: u32, samples_each: u64| {
        let mut profile = profile();
        profile.info.processes = (0..processes).map(|pid| ProcessInfo { pid, ..ProcessInfo::default() }).collect();
        let node = enter(&mut profile, &["main"]);
        let samples = u64::from(processes) * samples_each;
        profile.tree.add(node, &[samples * SAMPLE, samples]);
        profile
    };
    let total = |expectation, a: Profile, b: Profile| {
        let diff = Diff::of(&[a], &[b], &DiffOptions { expectation, ..DiffOptions::default() }).expect("an answer");
        (diff.total.a / SAMPLE as f64, diff.total.b / SAMPLE as f64, diff.total.is_found)
    };
    assert_eq!(total(Expectation::Strong(2.0), run(2, 5000), run(4, 2500)), (2500.0, 2500.0, false));
    assert_eq!(total(Expectation::Strong(2.0), run(2, 5000), run(4, 3500)), (2500.0, 3500.0, true));
    assert_eq!(total(Expectation::Weak, run(2, 5000), run(8, 5000)), (5000.0, 5000.0, false));
}

#[test]
fn what_cannot_be_compared_is_said() {
    let one = || vec![Runner::new(1).run(as_is)];
    let error = |a: &[Profile], b: &[Profile], metric: Option<&str>| {
        let options = DiffOptions { metric: metric.map(str::to_owned), ..DiffOptions::default() };
        Diff::of(a, b, &options).expect_err("an error").to_string()
    };
    assert!(error(&[], &one(), None).contains("no run"));
    assert!(error(&one(), &one(), Some("misses")).contains("cpu-time, samples"));
    let other = Profile::new(vec![Metric::of(MetricId::WALL_TIME)]);
    assert!(error(&one(), &[other], None).contains("wall-time"));
    let peak = || vec![Profile::new(vec![Metric::max("peak", "bytes")])];
    assert!(error(&peak(), &peak(), None).contains("does not add up"));
}

/// A profile of one run: chains with their samples. A name that begins with `.` is inlined.
fn chains(all: &[(&[&str], u64)]) -> Profile {
    let mut profile = profile();
    for (chain, samples) in all {
        let module = Some(profile.strings.intern("app"));
        let node = chain.iter().fold(NodeId::ROOT, |node, name| {
            let kind = if name.starts_with('.') { ScopeKind::Inlined } else { ScopeKind::Procedure };
            let name = profile.strings.intern(name.trim_start_matches('.'));
            profile.tree.child(node, Scope { module, ..Scope::new(kind, name) })
        });
        profile.tree.add(node, &[samples * SAMPLE, *samples]);
    }
    profile
}

fn paths(rows: &[RowChange]) -> Vec<(String, [f64; 2])> {
    let mut paths: Vec<String> = Vec::new();
    for row in rows {
        let above = row.parent.map_or("", |parent| &*paths[parent]);
        paths.push(if above.is_empty() { row.name.clone() } else { format!("{above} {}", row.name) });
    }
    let costs = rows.iter().map(|row| [row.own.a, row.own.b].map(|cost| cost / SAMPLE as f64));
    let mut paths: Vec<_> = paths.into_iter().zip(costs).filter(|(_, costs)| *costs != [0.0; 2]).collect();
    paths.sort_by(|a, b| a.0.cmp(&b.0));
    paths
}

fn expected(rows: &[(&str, [f64; 2])]) -> Vec<(String, [f64; 2])> {
    rows.iter().map(|(path, costs)| ((*path).to_owned(), *costs)).collect()
}

#[test]
fn a_frame_that_a_tail_call_ended_is_skipped() {
    // `bind` and `less` end by jumping to what they call.
    let a = chains(&[(&["main", "text"], 90), (&["main", "less"], 9), (&["main", "sort", "compare"], 50)]);
    let b = chains(&[
        (&["main", "bind", ".text"], 80),
        (&["main", "bind"], 5),
        (&["main", "less"], 8),
        (&["main", "sort", ".less", ".order", "compare"], 45),
    ]);
    let diff = compared(&[a], &[b]);
    let rows = [
        ("main bind", [0.0, 5.0]),
        ("main bind text", [90.0, 80.0]),
        ("main less", [9.0, 8.0]),
        ("main sort less order compare", [50.0, 45.0]),
    ];
    assert_eq!(paths(&diff.contexts), expected(&rows));
}

#[test]
fn which_of_two_frames_was_skipped_is_not_guessed() {
    let a = chains(&[(&["main", "copy"], 100)]);
    let b = chains(&[(&["main", "read", "copy"], 60), (&["main", "write", "copy"], 50), (&["main", "read"], 9)]);
    let diff = compared(&[a], &[b]);
    assert_eq!(paths(&diff.contexts), expected(&[("main copy", [100.0, 110.0]), ("main read", [0.0, 9.0])]));
    // What few samples are missing from may be missing by chance.
    let (a, b) = (chains(&[(&["main", "copy"], 4)]), chains(&[(&["main", "read", "copy"], 3)]));
    let rows = expected(&[("main copy", [4.0, 0.0]), ("main read copy", [0.0, 3.0])]);
    assert_eq!(paths(&compared(&[a], &[b]).contexts), rows);
}

#[test]
fn what_is_not_matched_is_told_by_its_cause() {
    let common: (&[&str], u64) = (&["main", "work"], 800);
    let a = chains(&[common, (&["main", "work", ".get"], 100), (&["main", "old"], 100)]);
    let b = chains(&[common, (&["main", "new"], 200)]);
    let matched = compared(&[a], &[b]).matched;
    assert_eq!((matched.both, matched.at_caller), ([0.8, 0.8], [0.1, 0.0]));
    assert!(matched.by_chance.iter().all(|share| *share < 1e-6), "{:?}", matched.by_chance);
    // A context that has one sample on either side is on one side alone in half of all cases.
    let rare: Vec<String> = (0..100).map(|number| format!("f{number}")).collect();
    let side = |from: usize| {
        let chains_of: Vec<Vec<&str>> = rare[from..from + 50].iter().map(|name| vec!["main", &**name]).collect();
        chains(&chains_of.iter().map(|chain| (&**chain, 1)).collect::<Vec<_>>())
    };
    let matched = compared(&[side(0)], &[side(50)]).matched;
    assert!((matched.by_chance[0] - 1.0).abs() < 1e-9 && matched.both == [0.0; 2], "{matched:?}");
}

#[test]
fn every_view_has_the_same_costs() {
    let a = chains(&[(&["main", "read", "copy"], 100), (&["main", "write", "copy"], 100), (&["main"], 10)]);
    let b = chains(&[(&["main", "read", "copy"], 200), (&["main", "write", "copy"], 100), (&["main"], 10)]);
    let view = |view| {
        let options = DiffOptions { view: Some(view), ..DiffOptions::default() };
        Diff::of(std::slice::from_ref(&a), std::slice::from_ref(&b), &options).expect("an answer")
    };
    let callers = view(ViewKind::Callers).callers;
    let rows = [
        ("copy", [200.0, 300.0]),
        ("copy read", [100.0, 200.0]),
        ("copy read main", [100.0, 200.0]),
        ("copy write", [100.0, 100.0]),
        ("copy write main", [100.0, 100.0]),
        ("main", [10.0, 10.0]),
    ];
    let found: Vec<_> = paths(&callers);
    assert_eq!(found, expected(&rows));
    let is_found = |name: &str| callers.iter().find(|row| row.name == name).is_some_and(|row| row.own.is_found);
    assert!(is_found("copy") && is_found("read") && !is_found("write"));
    let flat = view(ViewKind::Flat).flat;
    let kinds: Vec<(ScopeKind, &str)> = flat.iter().map(|row| (row.kind, &*row.name)).collect();
    assert_eq!(
        kinds[..4],
        [(ScopeKind::Root, ""), (ScopeKind::Module, "app"), (ScopeKind::File, ""), (ScopeKind::Procedure, "copy")]
    );
    // `main` holds all, and is counted once in its module.
    let module = flat[1].inclusive;
    assert_eq!((module.a, module.b), (210.0 * SAMPLE as f64, 310.0 * SAMPLE as f64));
}

#[test]
fn what_has_nothing_in_common_is_compared_too() {
    let empty = || vec![profile()];
    let diff = compared(&empty(), &empty());
    assert_eq!((diff.matched.both, diff.total.difference(), diff.total.is_found), ([1.0; 2], 0.0, false));
    let some = || vec![chains(&[(&["main"], 100)])];
    assert_eq!(compared(&empty(), &some()).matched.both, [1.0, 0.0]);
    let diff = compared(&some(), &[chains(&[(&["start"], 100)])]);
    assert_eq!((diff.matched.both, diff.total.is_found), ([0.0; 2], false));
}

#[test]
fn threads_that_wait_share_no_work() {
    use crate::ProcessInfo;
    let run = |threads: &[u64]| {
        let mut profile = profile();
        let count = threads.len() as u32;
        profile.info.processes = vec![ProcessInfo { pid: 1, threads: count, ..ProcessInfo::default() }];
        let [app, name, work] = ["app", "worker", "work"].map(|text| profile.strings.intern(text));
        let process = profile.tree.child(NodeId::ROOT, Scope::process(app, 0, 1));
        for (tid, &samples) in (1..).zip(threads) {
            let thread = Scope { discriminator: tid, ..Scope::new(ScopeKind::Thread, name) };
            let thread = profile.tree.child(process, thread);
            let node =
                profile.tree.child(thread, Scope { module: Some(app), ..Scope::new(ScopeKind::Procedure, work) });
            profile.tree.add(node, &[samples * SAMPLE, samples]);
        }
        profile
    };
    let options = DiffOptions { expectation: Expectation::Strong(2.0), ..DiffOptions::default() };
    // The first of each waits for the others.
    let diff = Diff::of(&[run(&[2, 8000])], &[run(&[2, 4000, 4000])], &options).expect("an answer");
    assert!(!diff.total.is_found && (diff.total.relative().unwrap_or(1.0)).abs() < 0.01, "{:?}", diff.total);
}
