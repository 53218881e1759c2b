//! Databases: what goes in comes out; merging is associative to the byte, and loses nothing; any bytes are refused or
//! read.

use crate::support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use callpath_db::database::{Database, DatabaseError, Source, Statistics, StatisticsQuery, merge};
use callpath_db::{CodeFile, Metric, MetricType, NodeId, Profile, Query, ScopeKind, Value, ViewKind};
use support::{InMemory, Random, Sample, add, encoded, loaded, merged, profile_of, random_samples};

const ROUNDS: u64 = 300;

struct InFile(PathBuf);

impl Source for InFile {
    type Error = DatabaseError;

    fn open(&self) -> Result<Database, DatabaseError> {
        Database::open(&self.0)
    }
}

/// Every path with a cost, over all runs, processes and threads of one name, with its values by metric.
fn content(profile: &Profile) -> BTreeMap<(Vec<String>, String), u64> {
    let (tree, name) = (&profile.tree, |name| profile.strings.get(name));
    let mut paths: Vec<Vec<String>> = Vec::new();
    let mut content = BTreeMap::new();
    for node in tree.nodes() {
        let scope = tree.scope(node);
        let mut path = tree.parent(node).map_or(Vec::new(), |parent: NodeId| paths[parent.index()].clone());
        let id = if matches!(scope.kind, ScopeKind::Process) { scope.unit_id() } else { scope.discriminator };
        let module = scope.module.map(name);
        path.push(format!(
            "{:?} {} {module:?} {:?} {:?} {id}",
            scope.kind,
            name(scope.name),
            scope.line,
            scope.call_site
        ));
        for (metric, value) in profile.metrics.iter().zip(tree.values(node).iter()).filter(|(_, value)| *value != 0) {
            let sum: &mut u64 = content.entry((path.clone(), metric.name.clone())).or_default();
            *sum = metric.rule().combine(*sum, value);
        }
        paths.push(path);
    }
    content
}

fn for_random_samples(mut test: impl FnMut(&mut Random, &[Sample])) {
    for seed in 1..=ROUNDS {
        let mut random = Random::new(seed);
        let samples = random_samples(&mut random);
        println!("seed {seed}: {samples:?}");
        test(&mut random, &samples);
    }
}

#[test]
fn what_goes_in_comes_out() {
    for_random_samples(|_, samples| {
        let profile = profile_of(samples);
        let there = loaded(&encoded(&profile));
        assert_eq!(content(&there), content(&profile));
        assert_eq!((&there.metrics, &there.info, &there.quality), (&profile.metrics, &profile.info, &profile.quality));
        for view in [ViewKind::Context, ViewKind::Callers, ViewKind::Flat] {
            let query = Query { view, ..Query::default() };
            let total = |profile: &Profile| profile.view(&query).expect("a view").inclusive(0).to_vec();
            assert_eq!(total(&there), total(&profile));
        }
    });
}

#[test]
fn merging_is_associative_to_the_byte_and_loses_nothing() {
    for_random_samples(|random, samples| {
        let mut parts = [Vec::new(), Vec::new(), Vec::new()];
        for sample in samples {
            parts[random.below(3) as usize].push(sample.clone());
        }
        let of = |part: usize| {
            let mut profile = profile_of(&parts[part]);
            profile.info.program = format!("program {part}");
            // Of one part a metric is its own.
            if part == 1 {
                let mut other = Profile::new(vec![Metric::sum("faults", "count"), profile.metrics[0].clone()]);
                for (path, cost) in &parts[part] {
                    let path: Vec<&str> = path.iter().map(String::as_str).collect();
                    add(&mut other, &path, &[*cost + 1, *cost]);
                }
                return encoded(&other);
            }
            encoded(&profile)
        };
        let flat = merged(&[of(0), of(1), of(2)]);
        let left = merged(&[merged(&[of(0), of(1)]), of(2)]);
        let right = merged(&[of(0), merged(&[of(1), of(2)])]);
        assert_eq!(left.0, flat.0);
        assert_eq!(right.0, flat.0);
        let mut sum = BTreeMap::new();
        for part in 0..3 {
            let profile = loaded(&of(part));
            for ((path, metric), value) in content(&profile) {
                let rule = profile.metrics.iter().find(|of| of.name == metric).expect("its metric").rule();
                let there: &mut u64 = sum.entry((path, metric)).or_default();
                *there = rule.combine(*there, value);
            }
        }
        assert_eq!(content(&loaded(&flat)), sum);
        let other_order = merged(&[of(2), of(0), of(1)]);
        assert_eq!(content(&loaded(&other_order)), sum);
        assert_eq!(loaded(&flat).process_count(), (0..3).map(|part| loaded(&of(part)).process_count()).sum::<usize>());
    });
}

/// What instructions cost, by file, build, address and metric.
fn code(database: &InMemory) -> BTreeMap<(CodeFile, u64, String), u64> {
    let database = database.open().expect("a database");
    let code = database.code().expect("instructions").expect("instructions");
    let mut costs = BTreeMap::new();
    for (column, metric) in database.metrics().iter().enumerate() {
        for (file, instructions) in code.by_file(column) {
            for (address, cost) in instructions {
                assert_eq!(costs.insert((file.clone(), address, metric.name.clone()), cost), None);
            }
        }
    }
    costs
}

#[test]
fn costs_of_instructions_are_kept_and_added_up() {
    for_random_samples(|random, samples| {
        let (one, other): (Vec<Sample>, Vec<Sample>) = samples.iter().cloned().partition(|_| random.below(2) == 0);
        let [one, other] = [one, other].map(|samples| encoded(&profile_of(&samples)));
        let mut sum = code(&one);
        for (instruction, cost) in code(&other) {
            let there = sum.entry(instruction.clone()).or_default();
            *there = if instruction.2 == "peak" { cost.max(*there) } else { cost + *there };
        }
        let total: u64 = samples.iter().map(|(_, cost)| cost).sum();
        assert_eq!(sum.iter().filter(|(key, _)| key.2 == "cost").map(|(_, cost)| cost).sum::<u64>(), total);
        let both = merged(&[one, other]);
        assert_eq!(code(&both), sum);
        assert!(!both.open().unwrap().code().unwrap().unwrap().lacks_some());
        // Merged once more, twice the same.
        let doubled = code(&merged(&[InMemory(both.0.clone()), both]));
        assert!(doubled.iter().all(|(key, cost)| *cost == sum[key] * if key.2 == "peak" { 1 } else { 2 }));
        assert_eq!(doubled.len(), sum.len());
    });
}

#[test]
fn a_file_without_instructions_is_said_to_lack_them() {
    let old = || InFile(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/version-02-without-views/database"));
    assert!(old().open().unwrap().code().unwrap().is_none());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("merged");
    merge(&[old(), old()], &path, |_| {}).unwrap();
    assert!(Database::open(&path).unwrap().code().unwrap().is_none());
    let new = directory.path().join("new");
    std::fs::write(&new, encoded(&profile_of(&random_samples(&mut Random::new(3)))).0).unwrap();
    let both = directory.path().join("both");
    merge(&[InFile(path), InFile(new)], &both, |_| {}).unwrap();
    let both = Database::open(&both).unwrap();
    let code = both.code().unwrap().expect("those of the new one");
    let cost = both.metrics().iter().position(|metric| metric.name == "cost").unwrap();
    assert!(code.lacks_some() && !code.by_file(cost).is_empty());
}

#[test]
fn metrics_of_one_side_only_become_columns() {
    for_random_samples(|_, samples| {
        let whole = profile_of(samples);
        let mut other = Profile::new(vec![Metric::sum("faults", "count"), whole.metrics[1].clone()]);
        for (path, cost) in samples {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            add(&mut other, &path, &[7, *cost + 1]);
        }
        let both = loaded(&merged(&[encoded(&whole), encoded(&other)]));
        let view = both.view(&Query::default()).expect("an answer");
        let (total, peak) = (samples.iter().map(|(_, cost)| cost).sum(), samples.iter().map(|(_, cost)| *cost).max());
        assert_eq!(both.metrics.len(), 3);
        assert_eq!(view.inclusive(0), [total, peak.unwrap_or(0) + 1, 7 * samples.len() as u64]);
    });
}

#[test]
fn damaged_bytes_are_refused_and_never_panic() {
    let mut random = Random::new(7);
    let samples = (1..200).map(|seed| random_samples(&mut Random::new(seed))).max_by_key(Vec::len).expect("samples");
    let whole = encoded(&profile_of(&samples)).0;
    let read = |bytes: Vec<u8>| Database::of_bytes(bytes, Path::new("damaged"))?.to_profile().map(drop);
    assert!(read(whole.clone()).is_ok());
    for len in 0..whole.len() {
        let error = read(whole[..len].to_vec()).expect_err("a cut database").to_string();
        assert!(error.starts_with("read damaged: "), "{error}");
    }
    let mut unnoticed = Vec::new();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << random.below(8);
        if read(bytes).is_ok() {
            unnoticed.push(at);
        }
    }
    // Padding between sections, fewer than eight bytes before each, means nothing.
    assert!(unnoticed.len() < 8 * 20, "{unnoticed:?}");
}

#[test]
fn nothing_is_overwritten_and_nothing_half_remains() {
    let directory = tempfile::tempdir().expect("a directory");
    let profile = support::profile("main > f = 5\nmain > g = 7");
    let (one, all) = (directory.path().join("one"), directory.path().join("all"));
    std::fs::write(&one, encoded(&profile).0).expect("a file");
    let there = || std::fs::read_dir(directory.path()).expect("a directory").count();
    let inputs = [InFile(one.clone()), InFile(one.clone())];
    let what = merge(&inputs, &all, |_| {}).expect("a merge");
    assert_eq!((what.runs, what.profiles, what.facts, there()), (2, 2, 4, 2));
    assert!(matches!(merge(&inputs, &all, |_| {}), Err(DatabaseError::Exists { .. })));
    let missing = [InFile(one), InFile(directory.path().join("none"))];
    assert!(matches!(merge(&missing, &directory.path().join("b"), |_| {}), Err(DatabaseError::Read { .. })));
    assert_eq!(there(), 2);
}

/// Another database each time.
struct Changing(std::cell::Cell<u64>);

impl Source for Changing {
    type Error = DatabaseError;

    fn open(&self) -> Result<Database, DatabaseError> {
        self.0.set(self.0.get() + 1);
        encoded(&support::profile(&format!("main > f = {}", self.0.get()))).open()
    }
}

#[test]
fn an_input_that_is_another_when_it_is_read_again_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let all = directory.path().join("all");
    assert!(matches!(merge(&[Changing(0.into())], &all, |_| {}), Err(DatabaseError::Changed { .. })));
    assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 0);
}

#[test]
fn statistics_are_those_of_the_samples() {
    let directory = tempfile::tempdir().expect("a directory");
    let parts = [
        "%a.1 > main > f = 5\n%a.1 > main > @7 > g = 7\n%b.2 > main = 100",
        "%c.3 > main > g = 2\n%c.3 > main > f > :9 = 6\n%d.4 > other = 1",
    ];
    let all = directory.path().join("all");
    let parts: Vec<_> = parts.iter().map(|samples| encoded(&support::profile(samples))).collect();
    merge(&parts, &all, |_| {}).expect("a merge");
    let database = Database::open(&all).expect("a database");
    let table = |min_share, fold| {
        let query = StatisticsQuery { metric: 0, min_share, max_depth: 9, fold };
        let tree = database.statistics_tree(&query).expect("statistics");
        let mut text = String::new();
        for row in &tree.rows {
            let Statistics { total, mean, min, max, deviation, present, greatest } = row.statistics;
            let parent = row.parent.map_or("-".into(), |parent| parent.to_string());
            let of = greatest.and_then(|at| tree.members[at].thread.as_ref()).map_or("", |thread| &thread.name);
            let name = if row.name.is_empty() { row.kind.word() } else { &row.name };
            text += &format!("{parent} {name} {total} {mean:.3} {min} {max} {deviation:.3} {present} {of}\n");
        }
        text
    };
    // By Python: statistics.fmean, pstdev of [12, 100, 8, 1], [12, 100, 8, 0], [5, 0, 6, 0], [7, 0, 2, 0].
    let expected = "
        - root 121 30.250 1 100 40.462 4 b
        0 main 120 30.000 0 100 40.645 3 b
        1 f 11 2.750 0 6 2.773 2 c
        1 g 9 2.250 0 7 2.861 2 a
        0 other 1 0.250 0 1 0.433 1 d";
    assert_eq!(table(0.0, vec![ScopeKind::Loop, ScopeKind::Line]), support::dedent(expected));
    let expected = "
        - root 121 30.250 1 100 40.462 4 b
        0 main 120 30.000 0 100 40.645 3 b
        1 f 11 2.750 0 6 2.773 2 c
        2 line 6 1.500 0 6 2.598 1 c
        1 loop 7 1.750 0 7 3.031 1 a
        4 g 7 1.750 0 7 3.031 1 a";
    assert_eq!(table(0.03, vec![]), support::dedent(expected));
}

/// Each row of the whole tree, for random samples and each kind of metric: what the profiles say one by one.
#[test]
fn statistics_agree_with_the_profiles_one_by_one() {
    for_random_samples(|_, samples| {
        let real = Metric { value: MetricType::Real, ..Metric::sum("real", "count") };
        let signed = Metric { value: MetricType::Signed, ..Metric::sum("signed", "count") };
        let metrics = vec![Metric::sum("sum", "count"), Metric::max("peak", "count"), real, signed];
        let mut profile = Profile::new(metrics);
        for (path, cost) in samples {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            add(&mut profile, &path, &[*cost, *cost, (*cost as f64).to_bits(), (*cost as i64 - 50) as u64]);
        }
        let database = encoded(&profile).open().expect("a database");
        for metric in 0..4 {
            let query = StatisticsQuery { metric, min_share: 0.0, max_depth: 99, fold: Vec::new() };
            let tree = database.statistics_tree(&query).expect("statistics");
            let number = |bits| match profile.metrics[metric].value(bits) {
                Value::Integer(value) => value as f64,
                Value::Signed(value) => value as f64,
                Value::Real(value) => value,
            };
            let mut costs = Vec::new();
            for thread in profile.tree.nodes().filter(|node| profile.tree.scope(*node).kind == ScopeKind::Thread) {
                let is_below = |node: NodeId| {
                    std::iter::successors(Some(node), |node| profile.tree.parent(*node)).any(|node| node == thread)
                };
                let own = profile.tree.nodes().filter(|node| is_below(*node));
                let values = own.map(|node| profile.tree.values(node).get(metric)).filter(|value| *value != 0);
                costs.push(number(values.reduce(|a, b| profile.metrics[metric].rule().combine(a, b)).unwrap_or(0)));
            }
            let whole = &tree.rows[0].statistics;
            let mean = costs.iter().sum::<f64>() / costs.len() as f64;
            let variance = costs.iter().map(|cost| (cost - mean).powi(2)).sum::<f64>() / costs.len() as f64;
            let close = |a: f64, b: f64| (a - b).abs() < 1e-6 * (1.0 + b.abs());
            assert!(close(whole.mean, mean) && close(whole.deviation, variance.sqrt()), "{whole:?} {costs:?}");
            let bounds = costs.iter().fold((f64::MAX, f64::MIN), |(low, high), cost| (low.min(*cost), high.max(*cost)));
            assert_eq!((whole.min, whole.max), bounds);
            // Every context is a row, if its cost is not 0.
            assert!(metric > 0 || tree.rows.len() == database.len());
        }
    });
}
