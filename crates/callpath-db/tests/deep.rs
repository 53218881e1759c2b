//! Trees as deep as recursion goes, through everything, without a deep stack. What is quadratic would take minutes.
//! Of the views, only the totals are compared.

mod support;

use std::num::NonZeroU32;
use std::time::Instant;

use callpath_db::{Inlined, Metric, NodeId, Profile, Query, QueryError, Recursion, Scope, ScopeKind, ViewKind};

const DEPTH: u64 = 100_000;
const SHORT: NonZeroU32 = NonZeroU32::new(12).unwrap();

/// A path of `DEPTH` procedures with a cost in each; `name` says which procedure is where.
fn deep(name: impl Fn(u64) -> u64) -> Profile {
    let mut profile = Profile::new(vec![Metric::sum("cost", "count")]);
    let mut node = NodeId::ROOT;
    for depth in 0..DEPTH {
        let name = profile.strings.intern(&format!("f{}", name(depth)));
        node = profile.tree.child(node, Scope::new(ScopeKind::Procedure, name));
        profile.tree.add(node, &[1]);
    }
    profile
}

#[track_caller]
fn check(profile: &Profile) {
    let began = Instant::now();
    for view in [ViewKind::Context, ViewKind::Callers, ViewKind::Flat] {
        for recursion in [Recursion::Full, Recursion::Collapse, Recursion::Suffix(SHORT)] {
            for min_share in [0.0, 0.01] {
                let query = Query { view, recursion, min_share, ..Query::default() };
                let view = profile.view(&query).expect("an answer");
                assert_eq!(view.inclusive(0), [DEPTH]);
                let of_root: u64 = view.children(0).map(|child| view.self_cost(child)[0]).sum();
                assert!(view.kind == ViewKind::Context || of_root == DEPTH);
                println!("{:?} {} nodes, at {:?}", query, view.nodes.len(), began.elapsed());
            }
        }
    }
    let own: u64 =
        profile.procedures(&Query::default(), Inlined::Apart).expect("an answer").iter().map(|p| p.self_cost[0]).sum();
    assert_eq!(own, DEPTH);
    let merged = support::merged(&[support::encoded(profile), support::encoded(profile)]);
    let twice = support::loaded(&merged);
    let view = twice.view(&Query { merge_processes: true, ..Query::default() }).expect("an answer");
    assert_eq!(view.inclusive(0), [2 * DEPTH]);
}

#[test]
fn suffixes_that_do_not_fit_into_memory() {
    let long = Recursion::Suffix(NonZeroU32::new(5_000).expect("not 0"));
    let answer = deep(|depth| depth).view(&Query { recursion: long, ..Query::default() });
    assert!(matches!(answer, Err(QueryError::TooManyFrames { kept: 5_000 })));
}

#[test]
fn one_procedure() {
    check(&deep(|_| 0));
}

#[test]
fn a_cycle_of_procedures() {
    check(&deep(|depth| depth % 7));
}

#[test]
fn all_procedures_different() {
    check(&deep(|depth| depth));
}

#[test]
fn procedures_in_random_order() {
    check(&deep(|depth| support::Random::new(depth).below(10)));
}
