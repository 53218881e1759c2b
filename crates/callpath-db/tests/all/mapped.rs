//! What a database answers from its file is what the loaded tree answers, for random trees; damaged views are errors or other answers.

use crate::support;

use std::path::Path;

use callpath_db::database::{Database, Mapped, fuzz_database};
use callpath_db::{Answers, Inlined, Metric, Profile, Query, Recursion, ScopeKind, View, ViewKind};
use support::{Random, Sample, add, encoded, merged, random_samples};

const ROUNDS: u64 = 200;
const VIEWS: [ViewKind; 3] = [ViewKind::Context, ViewKind::Callers, ViewKind::Flat];

fn folded() -> Vec<ScopeKind> {
    vec![ScopeKind::Line, ScopeKind::SystemCall, ScopeKind::Rank, ScopeKind::Process, ScopeKind::Thread]
}

/// A database merged of two, which have a part of the samples each.
fn database(random: &mut Random, samples: &[Sample]) -> Vec<u8> {
    let metrics = || vec![Metric::sum("cost", "count"), Metric::max("peak", "count"), Metric::sum("rare", "count")];
    let mut parts = [Profile::new(metrics()), Profile::new(metrics())];
    for (path, cost) in samples {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let values = [*cost, *cost % 17, u64::from(*cost % 5 == 0)];
        add(&mut parts[random.below(2) as usize], &path, &values);
    }
    merged(&[encoded(&parts[0]), encoded(&parts[1])]).0
}

fn opened(bytes: &[u8]) -> Mapped {
    Database::of_bytes(bytes.to_vec(), Path::new("database")).and_then(Mapped::new).expect("a database")
}

/// Each row with all that is said of it, but for the number of contexts, which is greater where threads were added up.
fn rows(view: &View) -> Vec<String> {
    let row = |(at, node): (usize, &callpath_db::ViewNode)| {
        let costs = [view.inclusive(at).to_vec(), view.exclusive(at).to_vec(), view.self_cost(at).to_vec()];
        format!("{:?} {:?} {} {costs:?} {:?}", node.parent, node.scope, node.recursion, view.subtree(at))
    };
    view.nodes.iter().enumerate().map(row).collect()
}

/// The costliest path of a view.
fn hottest(view: &View) -> Vec<String> {
    let mut path = vec![0];
    while let Some(child) = view.children(path[path.len() - 1]).next() {
        path.push(child);
    }
    let step = |node: usize| {
        let costs = [view.inclusive(node).to_vec(), view.exclusive(node).to_vec()];
        format!("{:?} {} {costs:?}", view.nodes[node].scope, view.nodes[node].recursion)
    };
    path.into_iter().map(step).collect()
}

#[test]
fn answers_are_those_of_the_loaded_tree() {
    let mut pruned = 0;
    for seed in 1..=ROUNDS {
        let mut random = Random::new(seed);
        let samples = random_samples(&mut random);
        println!("seed {seed}: {samples:?}");
        let bytes = database(&mut random, &samples);
        let mapped = opened(&bytes);
        let loaded = Database::of_bytes(bytes, Path::new("database")).and_then(|all| all.to_profile()).expect("a tree");
        for view in VIEWS {
            for recursion in [Recursion::Full, Recursion::Collapse] {
                for min_share in [0.0, 0.01, 0.1, 0.3, 1.0] {
                    for max_depth in [None, Some(1), Some(3)] {
                        let query = Query { view, recursion, min_share, max_depth, fold: folded(), ..Query::default() };
                        let (there, here) = (Answers::view(&mapped, &query), loaded.view(&query));
                        let (there, here) = (there.expect("an answer"), here.expect("an answer"));
                        assert_eq!(rows(&there), rows(&here), "{query:?}");
                        pruned += usize::from(here.nodes.iter().any(|node| node.scope.kind == ScopeKind::Pruned));
                    }
                }
            }
        }
        let whole = Query { recursion: Recursion::Collapse, fold: folded(), ..Query::default() };
        let (there, here) = (mapped.hottest(&whole).expect("a path"), loaded.view(&whole).expect("a view"));
        assert_eq!(hottest(&there), hottest(&here));
        for inlined in [Inlined::InTheirProcedures, Inlined::Apart] {
            let there = Answers::procedures(&mapped, &whole, inlined).expect("procedures");
            assert_eq!(there, loaded.procedures(&whole, inlined).expect("procedures"));
        }
        let members = Query { view: ViewKind::Flat, ..Query::default() };
        assert_eq!(mapped.profile().processes(&members), loaded.processes(&members));
        assert_eq!(mapped.profile().thread_count(), loaded.thread_count());
        assert!(!mapped.is_loaded());
        // Another level needs the tree.
        let by_line = Query { fold: folded()[1..].to_vec(), ..Query::default() };
        let (there, here) = (Answers::view(&mapped, &by_line), loaded.view(&by_line));
        assert_eq!(rows(&there.expect("an answer")), rows(&here.expect("an answer")));
        assert!(mapped.is_loaded());
    }
    assert!(pruned > 100, "{pruned}");
}

/// Whatever is asked of these bytes ends.
fn ask(bytes: Vec<u8>) -> Result<Vec<Vec<String>>, String> {
    let mapped = Database::of_bytes(bytes, Path::new("damaged")).and_then(Mapped::new).map_err(|e| e.to_string())?;
    let mut answers = Vec::new();
    for view in VIEWS {
        for recursion in [Recursion::Full, Recursion::Collapse] {
            let query = Query { view, recursion, min_share: 0.05, fold: folded(), ..Query::default() };
            answers.push(rows(&Answers::view(&mapped, &query).map_err(|e| e.to_string())?));
            if view == ViewKind::Context && recursion == Recursion::Collapse {
                let whole = Query { min_share: 0.0, ..query.clone() };
                answers.push(hottest(&mapped.hottest(&whole).map_err(|e| e.to_string())?));
            }
        }
    }
    for inlined in [Inlined::InTheirProcedures, Inlined::Apart] {
        let found = Answers::procedures(&mapped, &Query { fold: folded(), ..Query::default() }, inlined);
        answers.push(found.map_err(|e| e.to_string())?.iter().map(|procedure| format!("{procedure:?}")).collect());
    }
    Ok(answers)
}

#[test]
fn damaged_bytes_never_panic_and_never_change_an_answer() {
    let mut random = Random::new(11);
    let samples = (1..200).map(|seed| random_samples(&mut Random::new(seed))).max_by_key(Vec::len).expect("samples");
    let whole = database(&mut random, &samples);
    let expected = ask(whole.clone()).expect("answers");
    let mut noticed = 0;
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << random.below(8);
        match ask(bytes) {
            Err(error) => {
                assert!(error.contains("damaged"), "{error}");
                noticed += 1;
            }
            // It was in what no answer needs.
            Ok(answers) => assert_eq!(answers, expected, "{at}"),
        }
    }
    assert!(noticed * 3 > whole.len(), "{noticed} of {}", whole.len());
}

/// What checksums would refuse is no danger either: whoever writes a file can make them right.
#[test]
fn nonsense_with_right_checksums_never_panics() {
    for seed in 1..=20 {
        let mut random = Random::new(seed);
        let samples = random_samples(&mut random);
        let whole = database(&mut random, &samples);
        for _ in 0..300 {
            let mut bytes = whole.clone();
            for _ in 0..=random.below(4) {
                // Behind the header and what is no number of views: most of a small file is views.
                let at = 32 + random.below(bytes.len() as u64 - 32) as usize;
                bytes[at] = [0, 1, 0x7f, 0xff, random.next() as u8][random.below(5) as usize];
            }
            fuzz_database(&bytes);
        }
    }
}

/// A file that was written before there were views in it answers all the same.
#[test]
fn a_file_without_views_is_loaded() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/version-02-without-views/database");
    let mapped = Database::open(&path).and_then(Mapped::new).expect("a database");
    let loaded = Database::open(&path).and_then(|all| all.to_profile()).expect("a tree");
    for view in VIEWS {
        let query = Query { view, fold: folded(), ..Query::default() };
        let there = Answers::view(&mapped, &query).expect("an answer");
        assert!(there.nodes.len() > 10);
        assert_eq!(rows(&there), rows(&loaded.view(&query).expect("an answer")));
    }
    assert!(mapped.is_loaded());
}
