//! What holds for any profile: random samples, and every view compared with one computed from the samples alone.
//! The expected views must not be computed by the crate's own trees and traversals.

use crate::support;

use std::collections::{BTreeMap, BTreeSet};

use std::num::NonZeroU32;

use callpath_db::{Inlined, Profile, Query, Recursion, Scope, ScopeKind, View, ViewKind};
use support::{Random, Sample, profile_of, random_samples};

const ROUNDS: u64 = 400;

/// Runs `test` on many lists of samples; a failure names the seed.
fn for_random_samples(test: impl Fn(&mut Random, &[Sample])) {
    for seed in 1..=ROUNDS {
        let mut random = Random::new(seed);
        let samples = random_samples(&mut random);
        println!("seed {seed}: {samples:?}");
        test(&mut random, &samples);
    }
}

fn total(samples: &[Sample]) -> u64 {
    samples.iter().map(|(_, cost)| cost).sum()
}

fn peak(samples: &[Sample]) -> u64 {
    samples.iter().map(|(_, cost)| *cost).max().unwrap_or(0)
}

fn spelled(scope: &Scope, profile: &Profile) -> String {
    let name = |name| profile.strings.get(name).to_string();
    let (kind, id, line) = (scope.kind, scope.discriminator, scope.line);
    format!("{kind:?} {} {:?} {:?} {line:?} {id}", name(scope.name), scope.module.map(name), scope.file.map(name))
}

fn recursion(random: &mut Random) -> Recursion {
    match NonZeroU32::new(random.below(6) as u32) {
        Some(kept) if random.below(2) == 0 => Recursion::Suffix(kept),
        Some(_) => Recursion::Full,
        None => Recursion::Collapse,
    }
}

/// Queries of every kind.
fn queries(random: &mut Random) -> Query {
    let kinds = [ScopeKind::Line, ScopeKind::Loop, ScopeKind::Inlined, ScopeKind::Thread, ScopeKind::Process];
    Query {
        view: [ViewKind::Context, ViewKind::Callers, ViewKind::Flat][random.below(3) as usize],
        per_thread: random.below(2) == 0,
        merge_processes: random.below(2) == 0,
        recursion: recursion(random),
        fold: kinds.into_iter().filter(|_| random.below(2) == 0).collect(),
        min_share: if random.below(2) == 0 { 0.0 } else { random.below(30) as f64 / 100.0 },
        max_depth: (random.below(3) == 0).then(|| random.below(6) as usize),
        flatten: random.below(3) as usize,
        ..Query::default()
    }
}

#[test]
fn totals_hold_under_every_query() {
    for_random_samples(|random, samples| {
        let profile = profile_of(samples);
        for _ in 0..8 {
            let query = queries(random);
            println!("{query:?}");
            let view = profile.view(&query).expect("an answer");
            assert_eq!(view.inclusive(0), [total(samples), peak(samples)]);
            use ScopeKind::{File, Line, Loop, Module};
            let of_one_body = |kind: ScopeKind| !matches!(kind, Loop | Line | Module | File);
            let own = (0..view.nodes.len()).filter(|&node| of_one_body(view.nodes[node].scope.kind));
            assert_eq!(own.map(|node| view.self_cost(node)[0]).sum::<u64>(), total(samples), "self adds up");
            check_order(&view, &profile);
            if view.kind != ViewKind::Flat {
                check_sums(&view);
            }
            if let Some(max_depth) = query.max_depth {
                assert!(depths(&view).into_iter().max() <= Some(max_depth + 1));
            }
            if query.min_share > 0.0 {
                let least = query.min_share * total(samples) as f64;
                let kept = view.nodes.iter().zip(0..).filter(|(node, _)| node.scope.kind != ScopeKind::Pruned);
                // Those that are asked for one by one are shown all the same.
                let is_apart = |kind| match kind {
                    ScopeKind::Process => !query.merge_processes,
                    kind => kind == ScopeKind::Thread && query.per_thread,
                };
                let kept = kept.skip(1).filter(|(node, _)| !is_apart(node.scope.kind));
                assert!(kept.map(|(_, node)| node).all(|node| view.inclusive(node)[0] as f64 >= least));
            }
        }
    });
}

fn check_sums(view: &View) {
    for node in 0..view.nodes.len() {
        let below: u64 = view.children(node).map(|child| view.inclusive(child)[0]).sum();
        assert_eq!(view.inclusive(node)[0], view.exclusive(node)[0] + below, "node {node}");
        let peak = view.children(node).map(|child| view.inclusive(child)[1]).max().unwrap_or(0);
        assert_eq!(view.inclusive(node)[1], view.exclusive(node)[1].max(peak), "node {node}");
    }
}

fn check_order(view: &View, profile: &Profile) {
    for (index, node) in view.nodes.iter().enumerate() {
        assert_eq!(node.parent.is_none(), index == 0);
        assert!(node.parent.is_none_or(|parent| parent < index));
        let children: Vec<usize> = view.children(index).collect();
        assert!(children.iter().all(|&child| view.nodes[child].parent == Some(index)));
        let key = |child: usize| {
            let pruned = view.nodes[child].scope.kind == ScopeKind::Pruned;
            (std::cmp::Reverse(view.inclusive(child)[0]), pruned, view.name(child, profile))
        };
        assert!(children.windows(2).all(|pair| key(pair[0]) <= key(pair[1])), "children of {index}");
    }
    let listed: usize = (0..view.nodes.len()).map(|node| view.children(node).count()).sum();
    assert_eq!(listed, view.nodes.len() - 1);
}

fn depths(view: &View) -> Vec<usize> {
    let mut depths: Vec<usize> = Vec::new();
    for node in &view.nodes {
        depths.push(node.parent.map_or(0, |parent| depths[parent] + 1));
    }
    depths
}

/// The frames of a sample's path, outermost first; loops and lines are no frames.
fn frames(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).filter(|step| step.contains('!')).collect()
}

fn name_of(scope: &Scope, profile: &Profile) -> String {
    let mark = if scope.kind == ScopeKind::Inlined { "~" } else { "" };
    let module = scope.module.map_or("", |module| profile.strings.get(module));
    format!("{mark}{module}!{}", profile.strings.get(scope.name))
}

/// What the root costs under a query, and under the same query of each thread alone.
fn of_threads(profile: &Profile, query: &Query) -> Vec<Vec<u64>> {
    let threads = (0..3).filter_map(|thread| {
        let one = Query { thread: Some(thread.to_string()), ..query.clone() };
        Some(profile.view(&one).ok()?.inclusive(0).to_vec())
    });
    let whole = profile.view(query).expect("an answer").inclusive(0).to_vec();
    std::iter::once(whole).chain(threads).collect()
}

#[test]
fn recursion_leaves_each_metric_and_thread_its_sum() {
    for_random_samples(|random, samples| {
        let profile = profile_of(samples);
        let mut query = queries(random);
        query.recursion = Recursion::Full;
        let full = of_threads(&profile, &query);
        for kept in 1..14 {
            let kept = NonZeroU32::new(kept).expect("not 0");
            for recursion in [Recursion::Collapse, Recursion::Suffix(kept)] {
                let query = Query { recursion, ..query.clone() };
                assert_eq!(of_threads(&profile, &query), full, "{query:?}");
            }
        }
    });
}

#[test]
fn a_suffix_is_the_innermost_procedures_and_what_is_in_them() {
    for_random_samples(|random, samples| {
        let kept = 1 + random.below(8) as usize;
        let cut = |path: &[String]| {
            let roots = path.iter().take_while(|step| step.starts_with(['$', '%', '?'])).count();
            let is_procedure = |step: &String| step.contains('!') && !step.starts_with('~');
            let procedures: Vec<usize> = (roots..path.len()).filter(|&at| is_procedure(&path[at])).collect();
            match procedures.len().checked_sub(kept) {
                None | Some(0) => path.to_vec(),
                Some(left_out) => [&path[..roots], &["^".to_owned()], &path[procedures[left_out]..]].concat(),
            }
        };
        let expected: Vec<Sample> = samples.iter().map(|(path, cost)| (cut(path), *cost)).collect();
        let content = |samples: &[Sample], recursion| {
            let profile = profile_of(samples);
            let query = Query { fold: Vec::new(), per_thread: true, recursion, ..Query::default() };
            let view = profile.view(&query).expect("an answer");
            let mut paths: Vec<Vec<String>> = Vec::new();
            for node in &view.nodes {
                let mut path = node.parent.map_or(Vec::new(), |parent| paths[parent].clone());
                path.push(spelled(&node.scope, &profile));
                paths.push(path);
            }
            let costs = (0..view.nodes.len()).map(|node| view.inclusive(node).to_vec());
            paths.into_iter().zip(costs).collect::<BTreeMap<_, _>>()
        };
        let suffix = Recursion::Suffix(NonZeroU32::new(kept as u32).expect("not 0"));
        assert_eq!(content(samples, suffix), content(&expected, Recursion::Full));
        // What was cut when it was recorded is cut no further than it is asked for, and once.
        assert_eq!(content(&expected, suffix), content(&expected, Recursion::Full));
    });
}

#[test]
fn the_callers_view_is_every_path_read_from_the_inside() {
    for_random_samples(|_, samples| {
        let mut expected: BTreeMap<Vec<String>, u64> = BTreeMap::new();
        for (path, cost) in samples {
            let path = path.iter().map(String::as_str).filter(|step| !step.starts_with(':'));
            // Threads and processes are no callers, but where the cost is if there is nothing else.
            let mut inwards: Vec<String> = path.skip(2).map(String::from).collect();
            inwards.reverse();
            // What a loop costs itself is its procedure's.
            let loops = inwards.iter().take_while(|step| step.starts_with('@')).count();
            inwards.drain(..loops);
            if inwards.is_empty() {
                inwards.push("%t".into());
            }
            for length in 1..=inwards.len() {
                *expected.entry(inwards[..length].to_vec()).or_default() += cost;
            }
        }
        let profile = profile_of(samples);
        let view = profile.view(&Query { view: ViewKind::Callers, ..Query::default() }).expect("an answer");
        let mut paths: Vec<Vec<String>> = Vec::new();
        let mut found = BTreeMap::new();
        for (index, node) in view.nodes.iter().enumerate() {
            let mut path = node.parent.map_or(Vec::new(), |parent| paths[parent].clone());
            match node.scope.kind {
                ScopeKind::Root => {}
                ScopeKind::Partial => path.push("?".into()),
                ScopeKind::Thread => path.push("%t".into()),
                ScopeKind::Loop => path.push(format!("@{}", node.scope.line.unwrap_or(0))),
                _ => path.push(name_of(&node.scope, &profile)),
            }
            if index > 0 {
                assert_eq!(found.insert(path.clone(), view.inclusive(index)[0]), None);
            }
            paths.push(path);
        }
        assert_eq!(found, expected);
    });
}

#[test]
fn flat_and_procedures_count_each_sample_once() {
    for_random_samples(|_, samples| {
        let mut inclusive: BTreeMap<String, u64> = BTreeMap::new();
        let mut own: BTreeMap<String, u64> = BTreeMap::new();
        for (path, cost) in samples {
            let frames = frames(path);
            let names = frames.iter().map(|frame| frame.to_string());
            let modules = frames.iter().filter(|f| !f.starts_with('~')).map(|frame| frame[..2].to_string());
            for code in names.chain(modules).collect::<BTreeSet<_>>() {
                *inclusive.entry(code).or_default() += cost;
            }
            if let Some(last) = frames.last() {
                *own.entry(last.to_string()).or_default() += cost;
            }
        }
        let profile = profile_of(samples);
        let view = profile.view(&Query { view: ViewKind::Flat, ..Query::default() }).expect("an answer");
        let mut own_found: BTreeMap<String, u64> = BTreeMap::new();
        for (index, node) in view.nodes.iter().enumerate() {
            let code = match node.scope.kind {
                ScopeKind::Procedure => name_of(&node.scope, &profile),
                ScopeKind::Module => profile.strings.get(node.scope.name).into(),
                // In one of several places: only its own cost adds up.
                ScopeKind::Inlined => {
                    *own_found.entry(name_of(&node.scope, &profile)).or_default() += view.self_cost(index)[0];
                    continue;
                }
                _ => continue,
            };
            assert_eq!(view.inclusive(index)[0], inclusive[&code], "{code}");
            if node.scope.kind == ScopeKind::Procedure {
                *own_found.entry(code).or_default() += view.self_cost(index)[0];
            }
        }
        own_found.retain(|_, cost| *cost > 0);
        assert_eq!(own_found, own);

        for procedure in profile.procedures(&Query::default(), Inlined::Apart).expect("an answer") {
            let name = name_of(&procedure.scope, &profile);
            assert_eq!(procedure.self_cost[0], own.get(&name).copied().unwrap_or(0), "{name}");
            assert_eq!(procedure.inclusive[0], inclusive[&name], "{name}");
        }
    });
}

#[test]
fn the_context_view_is_every_prefix() {
    for_random_samples(|_, samples| {
        let mut expected: BTreeMap<Vec<String>, u64> = BTreeMap::new();
        for (path, cost) in samples {
            for length in 0..=path.len() {
                *expected.entry(path[..length].to_vec()).or_default() += cost;
            }
        }
        let profile = profile_of(samples);
        let query = Query { fold: Vec::new(), per_thread: true, ..Query::default() };
        let view = profile.view(&query).expect("an answer");
        let mut costs: Vec<u64> = (0..view.nodes.len()).map(|node| view.inclusive(node)[0]).collect();
        let mut wanted: Vec<u64> = expected.into_values().collect();
        costs.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(costs, wanted);
    });
}
