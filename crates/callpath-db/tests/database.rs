//! Databases: what goes in comes out; merging is associative to the byte, and loses nothing; any bytes are refused or
//! read.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use callpath_db::database::{Database, DatabaseError, Source, merge};
use callpath_db::{Metric, NodeId, Profile, Query, ScopeKind, ViewKind};
use support::{Random, Sample, add, encoded, loaded, merged, profile_of, random_samples};

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
