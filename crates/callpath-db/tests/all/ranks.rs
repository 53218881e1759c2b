//! Ranks: a database keeps them, merging adds them up, and what each costs is right.

use std::path::Path;

use callpath_db::database::{Database, DatabaseError, Source, merge};
use callpath_db::{JobInfo, Metric, NodeId, OverRanks, Profile, Query, QueryError, RankInfo, Scope, ScopeKind};

struct InMemory(Vec<u8>);

impl Source for InMemory {
    type Error = DatabaseError;

    fn open(&self) -> Result<Database, DatabaseError> {
        Database::of_bytes(self.0.clone(), Path::new("input"))
    }
}

/// Paths with their cost in each rank, whose processes have the same id.
fn profile(job: &str, ranks: &[u32], paths: &[(&[&str], &[u64])]) -> Profile {
    let mut profile = Profile::new(vec![Metric::sum("cost", "count")]);
    for (place, rank) in ranks.iter().enumerate() {
        let name = profile.strings.intern(&rank.to_string());
        let of_rank = profile.tree.child(NodeId::ROOT, Scope::rank(name, *rank));
        let app = profile.strings.intern("app");
        let process = profile.tree.child(of_rank, Scope::process(app, 0, 77));
        let thread = profile.tree.child(process, Scope { discriminator: 77, ..Scope::new(ScopeKind::Thread, app) });
        for (path, costs) in paths {
            let mut node = thread;
            for name in *path {
                let kind = if name.starts_with("loop") { ScopeKind::Loop } else { ScopeKind::Procedure };
                let scope = Scope::new(kind, profile.strings.intern(name));
                node = profile.tree.child(node, scope);
            }
            profile.tree.add(node, &[costs[place]]);
        }
    }
    let info = |&rank: &u32| RankInfo { rank, host: format!("host {rank}"), duration_ns: 5, exit: Some("well".into()) };
    let id = job.to_owned();
    let jobs =
        vec![JobInfo { run: 0, launcher: "test".into(), id, size: Some(4), ranks: ranks.iter().map(info).collect() }];
    profile.info.jobs = jobs;
    profile.info.program = "app".into();
    profile
}

fn one() -> Profile {
    profile(
        "one",
        &[0, 1, 3],
        &[
            (&["main"], &[1, 1, 1]),
            (&["main", "solve", "loop", "dot"], &[10, 20, 30]),
            (&["main", "solve", "solve", "dot"], &[1, 0, 0]),
            (&["main", "store"], &[0, 6, 0]),
            (&["main", "store", "dot"], &[0, 100, 0]),
        ],
    )
}

fn over(profile: &Profile, query: &Query) -> OverRanks {
    OverRanks::of(profile, query, 0).expect("an answer").expect("ranks")
}

fn every(over: &OverRanks, profile: &Profile, procedure: &str) -> (Vec<u64>, Vec<u64>) {
    let is_it = |scope: &Scope| profile.strings.get(scope.name) == procedure;
    let row = over.procedures.iter().find(|row| is_it(&row.scope)).expect("the procedure");
    (over.every(&row.self_cost), over.every(&row.inclusive))
}

#[test]
fn each_rank_has_its_costs() {
    let profile = one();
    let ranks = over(&profile, &Query::default());
    assert_eq!(ranks.ranks, [0, 1, 3]);
    assert_eq!(ranks.every(&ranks.contexts[0].inclusive), [12, 127, 31]);
    assert_eq!(every(&ranks, &profile, "dot"), (vec![11, 120, 30], vec![11, 120, 30]));
    for query in [Query::default(), Query { focus: vec!["store".into()], ..Query::default() }] {
        let whole = OverRanks::of_whole(&profile, &query, 0).expect("an answer").expect("ranks");
        assert_eq!(whole.contexts[0].inclusive, over(&profile, &query).contexts[0].inclusive);
    }
    // Recursion counts once.
    assert_eq!(every(&ranks, &profile, "solve"), (vec![0, 0, 0], vec![11, 20, 30]));
    assert_eq!(every(&ranks, &profile, "main"), (vec![1, 1, 1], vec![12, 127, 31]));
    let spread = ranks.spread(&ranks.contexts[0].inclusive);
    assert_eq!((spread.min, spread.max), ((12, 0), (127, 1)));
    assert!((spread.mean - 170.0 / 3.0).abs() < 1e-9 && (spread.excess() - 211.0 / 3.0).abs() < 1e-9);
    assert!((spread.deviation - 50.334).abs() < 0.001, "{}", spread.deviation);

    let along = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        ranks.along(&profile, &names).map(|costs| ranks.every(&costs))
    };
    assert_eq!(along(&["solve", "dot"]), Ok(vec![11, 20, 30]));
    assert_eq!(along(&["store", "dot"]), Ok(vec![0, 100, 0]));
    assert_eq!(along(&["main", "dot"]), Ok(vec![0, 0, 0]));
    assert_eq!(along(&["solve"]), Ok(vec![11, 20, 30]));
    assert!(matches!(along(&["main", "nowhere"]), Err(QueryError::NoSuchProcedure { .. })));

    let of_store = over(&profile, &Query { procedure: Some("store".into()), ..Query::default() });
    assert_eq!(of_store.every(&of_store.contexts[0].inclusive), [0, 106, 0]);
    assert!(
        OverRanks::of(&Profile::new(vec![Metric::sum("cost", "count")]), &Query::default(), 0)
            .expect("an answer")
            .is_none()
    );
}

#[test]
fn ranks_are_a_level_unless_they_are_folded() {
    let profile = one();
    let names = |query: &Query| -> Vec<String> {
        let view = profile.view(query).expect("a view");
        view.children(0).map(|node| format!("{} {}", view.name(node, &profile), view.inclusive(node).get(0))).collect()
    };
    let fold = vec![ScopeKind::Thread];
    assert_eq!(names(&Query { fold, ..Query::default() }), ["1 127", "3 31", "0 12"]);
    assert_eq!(names(&Query::default()), ["app 170"]);
    let processes = profile.processes(&Query::default()).expect("processes");
    assert_eq!(processes.iter().map(|process| process.rank).collect::<Vec<_>>(), [Some(1), Some(3), Some(0)]);
}

#[test]
fn databases_keep_ranks_and_merging_adds_them_up() {
    let one = one();
    let other = profile("other", &[0, 2], &[(&["main", "store"], &[1000, 1])]);
    let encoded = |profile: &Profile| profile.to_database().expect("a database");
    let there = InMemory(encoded(&one)).open().and_then(|database| database.to_profile()).expect("a profile");
    assert_eq!(there.info, one.info);
    let ranks = over(&there, &Query::default());
    assert_eq!(ranks.every(&ranks.contexts[0].inclusive), [12, 127, 31]);
    assert_eq!(encoded(&there), encoded(&one));

    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("both");
    merge(&[InMemory(encoded(&one)), InMemory(encoded(&other))], &path, |_| {}).expect("a merge");
    let both = Database::open(&path).expect("the database");
    let members: Vec<_> = both.profiles().iter().map(|profile| (profile.member.run, profile.member.rank)).collect();
    assert_eq!(members, [(0, Some(0)), (0, Some(1)), (0, Some(3)), (1, Some(0)), (1, Some(2))]);
    let both = both.to_profile().expect("a profile");
    let jobs: Vec<_> = both.info.jobs.iter().map(|job| (job.run, job.id.as_str(), job.missing())).collect();
    assert_eq!(jobs, [(0, "one", vec![(2, 2)]), (1, "other", vec![(1, 1), (3, 3)])]);
    let ranks = over(&both, &Query::default());
    assert_eq!(ranks.ranks, [0, 1, 2, 3]);
    assert_eq!(ranks.every(&ranks.contexts[0].inclusive), [1012, 127, 1, 31]);
}

#[test]
fn a_database_of_the_version_before_ranks_is_refused_with_a_sentence() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/version-01/database");
    let error = Database::open(&path).expect_err("an error");
    assert!(matches!(&error, DatabaseError::Version { found, .. } if found == "01"), "{error}");
}
