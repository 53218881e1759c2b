//! Small trees with every view computed by hand.

mod support;

use callpath_db::{Query, QueryError, Recursion, ScopeKind, ViewKind};
use support::{dedent, profile, shown};

#[track_caller]
fn check(samples: &str, query: Query, expected: &str) {
    let profile = profile(samples);
    let view = profile.view(&query).expect("an answer");
    assert_eq!(shown(&view, &profile), dedent(expected));
}

fn query(view: ViewKind) -> Query {
    Query { view, ..Query::default() }
}

/// Callees come by cost, then by name; self of a procedure has its loops, and not what it inlines.
const PLAIN: &str = "
    x!main > x!a = 3
    x!main > x!b = 3
    x!main > x!a > y!c = 10
    x!main = 1
    x!main > @7 = 4
    x!main > @7 > @8 = 5
    x!main > @7 > ~x!i = 6
    x!main > @7 > ~x!i > @9 = 7
";

#[test]
fn context() {
    check(
        PLAIN,
        query(ViewKind::Context),
        "
        all 39 0 0
          main 39 1 10
            @7 22 4 9
              ~i 13 6 13
                @9 7 7 7
              @8 5 5 5
            a 13 3 3
              c 10 10 10
            b 3 3 3
        ",
    );
}

#[test]
fn flat() {
    check(
        PLAIN,
        query(ViewKind::Flat),
        "
        all 39 0 0
          x 39 0 29
            main 39 1 10
              @7 22 4 9
                ~i 13 6 13
                  @9 7 7 7
                @8 5 5 5
            a 13 3 3
            b 3 3 3
          y 10 0 10
            c 10 10 10
        ",
    );
}

#[test]
fn callers() {
    check(
        PLAIN,
        query(ViewKind::Callers),
        "
        all 39 0 0
          ~i 13 0 13
            @7 13 0 0
              main 13 13 0
          c 10 0 10
            a 10 0 0
              main 10 10 0
          main 10 10 10
          a 3 0 3
            main 3 3 0
          b 3 0 3
            main 3 3 0
        ",
    );
}

/// f calls itself; 8 is counted once for f, though it is in three activations.
const RECURSION: &str = "
    main > f = 1
    main > f > f = 2
    main > f > f > f = 4
    main > f > f > f > g = 8
";

#[test]
fn recursion_counts_a_sample_once() {
    check(
        RECURSION,
        query(ViewKind::Flat),
        "
        all 15 0 0
           15 0 15
            f 15 7 7
            main 15 0 0
            g 8 8 8
        ",
    );
    check(
        RECURSION,
        query(ViewKind::Callers),
        "
        all 15 0 0
          g 8 0 8
            f 8 0 0
              f 8 0 0
                f 8 0 0
                  main 8 8 0
          f 7 0 7
            f 6 0 0
              f 4 0 0
                main 4 4 0
              main 2 2 0
            main 1 1 0
        ",
    );
}

#[test]
fn recursion_folds_into_its_outermost_activation() {
    check(
        RECURSION,
        Query { recursion: Recursion::Collapse, ..Query::default() },
        "
        all 15 0 0
          main 15 0 0
            f 15 7 7 x 3
              g 8 8 8
        ",
    );
    check(
        RECURSION,
        Query { recursion: Recursion::Collapse, ..query(ViewKind::Callers) },
        "
        all 15 0 0
          g 8 0 8
            f 8 0 0 x 3
              main 8 8 0
          f 7 0 7 x 3
            main 7 7 0
        ",
    );
}

/// a and b call each other: what a costs below b moves out to the outer a.
const MUTUAL: &str = "
    main > a = 1
    main > a > b = 2
    main > a > b > a = 4
    main > a > b > a > b = 8
    main > b > a = 16
";

#[test]
fn mutual_recursion() {
    check(
        MUTUAL,
        query(ViewKind::Callers),
        "
        all 31 0 0
          a 21 0 21
            b 20 0 0
              main 16 16 0
              a 4 0 0
                main 4 4 0
            main 1 1 0
          b 10 0 10
            a 10 0 0
              b 8 0 0
                a 8 0 0
                  main 8 8 0
              main 2 2 0
        ",
    );
    check(
        MUTUAL,
        query(ViewKind::Context),
        "
        all 31 0 0
          main 31 0 0
            b 16 0 0
              a 16 16 16
            a 15 1 1
              b 14 2 2
                a 12 4 4
                  b 8 8 8
        ",
    );
}

#[test]
fn folded_mutual_recursion() {
    check(
        MUTUAL,
        Query { recursion: Recursion::Collapse, ..Query::default() },
        "
        all 31 0 0
          main 31 0 0
            b 16 0 0
              a 16 16 16
            a 15 5 5 x 2
              b 10 10 10 x 2
        ",
    );
}

/// The same procedure twice on a path, with another between, in one module.
#[test]
fn a_module_counts_a_sample_once() {
    check(
        "
        x!main > y!f/y.c > x!main > y!f/y.c = 5
        x!main > y!g/z.c = 2
        x!main > y!h = 1
        ",
        query(ViewKind::Flat),
        "
        all 8 0 0
          x 8 0 0
            main 8 0 0
          y 8 0 8
            y.c 5 0 5
              f 5 5 5
            z.c 2 0 2
              g 2 2 2
            h 1 1 1
        ",
    );
}

#[test]
fn lines_fold_into_the_call_sites_of_calls() {
    let samples = "
        main > :3 = 1
        main > :3 > f = 2
        main > :4 > f = 4
        main > :4 > g = 8
        main > :4 > @5 > :6 > g = 16
    ";
    check(
        samples,
        query(ViewKind::Context),
        "
        all 31 0 0
          main 31 1 1
            @5 16 0 0
              g 16 16 16 from :6
            g 8 8 8 from :4
            f 6 6 6
        ",
    );
    check(
        samples,
        Query { fold: Vec::new(), ..Query::default() },
        "
        all 31 0 0
          main 31 0 1
            :4 28 0 0
              @5 16 0 0
                :6 16 0 0
                  g 16 16 16
              g 8 8 8
              f 4 4 4
            :3 3 1 1
              f 2 2 2
        ",
    );
    check(
        samples,
        Query { fold: vec![ScopeKind::Line, ScopeKind::Loop], ..Query::default() },
        "
        all 31 0 0
          main 31 1 1
            g 24 24 24
            f 6 6 6
        ",
    );
    // A caller is where the call was made from.
    check(
        "main > :3 > f > :9 = 2",
        query(ViewKind::Callers),
        "
        all 2 0 0
          f 2 0 2
            main 2 2 0 from :3
        ",
    );
}

#[test]
fn pruned_children_are_one_node_with_all_their_cost() {
    let samples = "
        x!main > x!a = 50
        x!main > x!b = 4
        x!main > x!c > x!d = 3
        x!main > @7 = 2
        x!main = 41
    ";
    check(
        samples,
        Query { min_share: 0.05, ..Query::default() },
        "
        all 100 0 0
          main 100 41 43
            a 50 50 50
            (3 more) 9 9 7
        ",
    );
    check(
        samples,
        Query { max_depth: Some(1), ..Query::default() },
        "
        all 100 0 0
          main 100 41 43
            (4 more) 59 59 57
        ",
    );
    check(
        samples,
        Query { min_share: 0.05, ..query(ViewKind::Flat) },
        "
        all 100 0 0
          x 100 0 100
            main 100 41 43
              (1 more) 0 0 0
            a 50 50 50
            (3 more) 7 7 7
        ",
    );
    check(
        samples,
        Query { min_share: 0.04, max_depth: Some(1), ..query(ViewKind::Callers) },
        "
        all 100 0 0
          a 50 0 50
            (1 more) 50 50 0
          main 43 43 43
          b 4 0 4
            (1 more) 4 4 0
          (1 more) 3 3 3
        ",
    );
}

const THREADS: &str = "
    $p.1 > %w.1 > f = 1
    $p.1 > %w.2 > f = 2
    $p.1 > %v.3 > g = 4
    $p.2 > %w.4 > f = 8
    $q.3 > %w.5 > f = 16
    $p.1 > %w.1 > ? > h = 32
    $p.1 > %w.2 > ? = 64
";

#[test]
fn equal_threads_merge_and_processes_do_not() {
    check(
        THREADS,
        query(ViewKind::Context),
        "
        all 127 0 0
          $p 103 0 0
            %w 99 0 0
              ? 96 64 64
                h 32 32 32
              f 3 3 3
            %v 4 0 0
              g 4 4 4
          $q 16 0 0
            %w 16 0 0
              f 16 16 16
          $p 8 0 0
            %w 8 0 0
              f 8 8 8
        ",
    );
    check(
        THREADS,
        Query { per_thread: true, process: Some("1".into()), ..Query::default() },
        "
        all 103 0 0
          $p 103 0 0
            %w 66 0 0
              ? 64 64 64
              f 2 2 2
            %w 33 0 0
              ? 32 0 0
                h 32 32 32
              f 1 1 1
            %v 4 0 0
              g 4 4 4
        ",
    );
    check(
        THREADS,
        Query { merge_processes: true, process: Some("p".into()), thread: Some("w".into()), ..Query::default() },
        "
        all 107 0 0
          $p 107 0 0
            %w 107 0 0
              ? 96 64 64
                h 32 32 32
              f 11 11 11
        ",
    );
}

#[test]
fn partial_roots_stand_beside_code_and_end_callers() {
    check(
        THREADS,
        query(ViewKind::Callers),
        "
        all 127 0 0
          ? 64 64 64
          h 32 0 32
            ? 32 32 0
          f 27 27 27
          g 4 4 4
        ",
    );
    check(
        "a > ? > x!f = 2",
        Query { fold: vec![ScopeKind::Partial], ..query(ViewKind::Callers) },
        "
        all 2 0 0
          f 2 0 2
            a 2 2 0
        ",
    );
}

#[test]
fn what_is_not_there_is_said() {
    let profile = profile(THREADS);
    let asked = |process: Option<&str>, thread: Option<&str>| {
        let query = Query { process: process.map(Into::into), thread: thread.map(Into::into), ..Query::default() };
        profile.view(&query).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(asked(Some("r"), None), Err("failed to find a process \"r\"; there are: p (1), p (2), q (3)".into()));
    assert_eq!(asked(Some("q"), Some("v")), Err("failed to find a thread \"v\"; there are: w (5)".into()));
    assert_eq!(asked(None, Some("v")), Ok(()));
    assert!(matches!(
        profile.view(&Query { process: Some("0".into()), ..Query::default() }),
        Err(QueryError::NoSuchProcess { .. })
    ));
}

#[test]
fn procedures_and_their_inlined_copies_are_one() {
    let profile = profile(
        "
        x!main > x!f = 2
        x!main > ~x!f = 3
        x!main > ~x!f > x!f = 4
        x!main > y!f > @3 = 5
        x!main = 1
        ",
    );
    let list = profile.procedures(&Query::default()).expect("an answer");
    let shown: Vec<_> = list
        .iter()
        .map(|procedure| {
            let module = procedure.scope.module.map_or("", |module| profile.strings.get(module));
            let name = profile.strings.get(procedure.scope.name);
            format!("{module}!{name} {} {}", procedure.self_cost[0], procedure.inclusive[0])
        })
        .collect();
    assert_eq!(shown, ["x!f 9 9", "y!f 5 5", "x!main 1 15"]);
    assert_eq!(list[0].scope.kind, ScopeKind::Procedure);
}

#[test]
fn innermost_frames_alone() {
    let two = Recursion::Suffix(std::num::NonZeroU32::new(2).expect("not 0"));
    check(
        RECURSION,
        Query { recursion: two, ..Query::default() },
        "
        all 15 0 0
          ^ 14 0 0
            f 14 0 0
              g 8 8 8
              f 6 6 6
          main 1 0 0
            f 1 1 1
        ",
    );
    check(
        RECURSION,
        Query { recursion: two, ..query(ViewKind::Callers) },
        "
        all 15 0 0
          g 8 0 8
            f 8 0 0
              ^ 8 8 0
          f 7 0 7
            f 6 0 0
              ^ 6 6 0
            main 1 1 0
        ",
    );
}
