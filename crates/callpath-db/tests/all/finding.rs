//! Finding things: processes and threads by glob, paths by the procedures on them, and regions of workers. Computed by
//! hand.

use crate::support;

use callpath_db::{Query, QueryError, ScopeKind, ViewKind};
use support::{check, profile, query};

const PATHS: &str = "
    main > :3 > sort > @7 > compare = 1
    main > :3 > sort > @7 > compare > strcmp = 2
    main > :4 > load > read = 4
    main > :5 > load > parse > strcmp = 8
    main > :5 > load > parse > ~skip > strcmp = 16
    main > load > load > read = 32
    main = 64
";

fn context() -> Query {
    query(ViewKind::Context)
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

#[test]
fn focus_keeps_the_paths_through_it() {
    check(
        PATHS,
        Query { focus: names(&["parse"]), ..context() },
        "
        all 24 0 0
          main 24 0 0
            load 24 0 0 from :5
              parse 24 0 0
                ~skip 16 0 0
                  strcmp 16 16 16
                strcmp 8 8 8
        ",
    );
    // Any of several; of these and not of those.
    check(
        PATHS,
        Query { focus: names(&["com*", "rea?"]), ignore: names(&["strcmp"]), ..context() },
        "
        all 37 0 0
          main 37 0 0
            load 36 0 0
              load 32 0 0
                read 32 32 32
              read 4 4 4
            sort 1 0 0 from :3
              @7 1 0 0
                compare 1 1 1
        ",
    );
    check(
        PATHS,
        Query { focus: names(&["compare"]), ..query(ViewKind::Callers) },
        "
        all 3 0 0
          strcmp 2 0 2
            compare 2 0 0
              @7 2 0 0
                sort 2 0 0
                  main 2 2 0 from :3
          compare 1 0 1
            @7 1 0 0
              sort 1 0 0
                main 1 1 0 from :3
        ",
    );
}

#[test]
fn hidden_frames_give_their_cost_to_their_callers() {
    check(
        PATHS,
        Query { hide: names(&["sort", "load", "skip"]), ..context() },
        "
        all 127 0 0
          main 127 64 64
            read 36 36 36
            parse 24 0 0 from :5
              strcmp 24 24 24
            compare 3 1 1 from :3
              strcmp 2 2 2
        ",
    );
    // The outermost frame, with nothing above it.
    check("f > g = 1\nf = 2", Query { hide: names(&["f"]), ..context() }, "all 3 2 2\n  g 1 1 1");
}

#[test]
fn a_procedure_with_its_callers_and_callees() {
    check(
        PATHS,
        Query { procedure: Some("load".into()), ..context() },
        "
        all 60 0 0
          load 60 0 0
            load 32 0 0
              read 32 32 32
            parse 24 0 0
              ~skip 16 0 0
                strcmp 16 16 16
              strcmp 8 8 8
            read 4 4 4
        ",
    );
    check(
        PATHS,
        Query { procedure: Some("strcmp".into()), ..query(ViewKind::Callers) },
        "
        all 26 0 0
          strcmp 26 0 26
            ~skip 16 0 0
              parse 16 0 0
                load 16 0 0
                  main 16 16 0 from :5
            parse 8 0 0
              load 8 0 0
                main 8 8 0 from :5
            compare 2 0 0
              @7 2 0 0
                sort 2 0 0
                  main 2 2 0 from :3
        ",
    );
    // What it costs with all that it calls, once however often it is on the path.
    check(
        PATHS,
        Query { procedure: Some("load".into()), ..query(ViewKind::Callers) },
        "
        all 60 0 0
          load 60 0 60
            main 60 60 0
        ",
    );
}

#[test]
fn what_a_procedure_calls_can_be_left_out() {
    let prune_from = |names_of: &[&str]| Query { prune_from: names(names_of), ..context() };
    check(
        "main > f = 1\nmain > f > @7 > g = 2\nmain > f > @7 > g > @9 = 4\nmain > g > h = 8\nmain > f > ~i = 16",
        prune_from(&["f"]),
        "
        all 31 0 0
          main 31 0 0
            f 23 17 23
              @7 6 6 6
            g 8 0 0
              h 8 8 8
        ",
    );
    // A call of itself is a call.
    check("f > f > g = 1\nf = 2", prune_from(&["f"]), "all 3 0 0\n  f 3 3 3");
}

const MODULES: &str = "
    x!main/m.c > y!f/src/f.c = 1
    x!main/m.c > y!f/src/f.c > ~i/inc/i.h = 2
    x!main/m.c > y!f/src/f.c > z!g = 4
    x!main/m.c > ~i/inc/i.h = 8
    x!main/m.c = 16
";

#[test]
fn procedures_are_found_by_module_and_file() {
    let total = |query: Query| profile(MODULES).view(&query).map(|view| view.inclusive(0)[0]);
    let focus = |name: &str| Query { focus: names(&[name]), ..context() };
    // What is inlined is in the module of the code around it.
    assert_eq!(total(focus("module:y")), Ok(7));
    assert_eq!(
        total(focus("module:[a-z]")),
        Err(QueryError::NoSuchPlace { kind: "module", wanted: "[a-z]".into(), near: vec![] })
    );
    assert_eq!(total(focus("module:*")), Ok(31));
    assert_eq!(total(focus("file:i.h")), Ok(10));
    assert_eq!(total(focus("file:inc/i.h")), Ok(10));
    assert_eq!(total(focus("file:*.h")), Ok(10));
    assert!(matches!(total(focus("file:nc/i.h")), Err(QueryError::NoSuchPlace { kind: "file", .. })));
    assert_eq!(total(Query { ignore: names(&["module:z", "file:*.h"]), ..context() }), Ok(17));
    // Not a module of that name, but one of C++.
    assert!(matches!(total(focus("module::run")), Err(QueryError::NoSuchProcedure { .. })));
    assert_eq!(total(focus("module:")), Err(QueryError::EmptyName));
    check(
        MODULES,
        Query { hide: names(&["module:y"]), ..context() },
        "
        all 31 0 0
          main 31 19 19
            ~i 8 8 8
            g 4 4 4
        ",
    );
    check(
        MODULES,
        Query { procedure: Some("module:y".into()), view: ViewKind::Callers, ..Query::default() },
        "
        all 7 0 0
          f 7 0 7
            main 7 7 0
        ",
    );
}

#[test]
fn an_unknown_name_is_an_error_with_near_ones() {
    let profile = profile(PATHS);
    let asked = |query: Query| profile.view(&query).map(|_| ()).map_err(|error| error.to_string());
    let error = asked(Query { focus: names(&["prase"]), ..context() }).unwrap_err();
    assert_eq!(error, "failed to find a procedure \"prase\"; similar names: parse");
    // A name that is there, but on no path that is left.
    let query = Query { focus: names(&["strcmp"]), ignore: names(&["parse", "sort"]), ..context() };
    assert!(matches!(profile.view(&query), Err(QueryError::NoPathLeft { .. })));
    assert_eq!(asked(Query { hide: names(&["load"]), ignore: names(&["sort"]), ..context() }), Ok(()));
}

const POOL: &str = "
    $p.1 > %main.1 > f = 1
    $p.1 > %worker-1.2 > g = 2
    $p.1 > %worker-2.3 > g = 4
    $gzip.5 > %gzip.5 > h = 8
    $gunzip.6 > %gunzip.6 > h = 16
";

#[test]
fn globs_select_processes_and_threads() {
    check(
        POOL,
        Query { thread: Some("worker-*".into()), fold: vec![ScopeKind::Thread], ..context() },
        "
        all 6 0 0
          $p 6 0 0
            g 6 6 6
        ",
    );
    check(
        POOL,
        Query { process: Some("g*zip".into()), fold: vec![ScopeKind::Thread], ..context() },
        "
        all 24 0 0
          $gunzip 16 0 0
            h 16 16 16
          $gzip 8 0 0
            h 8 8 8
        ",
    );
}

#[test]
fn processes_and_threads_with_their_cost() {
    let profile = profile(POOL);
    let found = |query: Query| -> Vec<String> {
        let processes = profile.processes(&query).expect("an answer");
        let of_process = |process: &callpath_db::ProcessCost| {
            let name = |name| profile.strings.get(name);
            let threads = process.threads.iter().map(|of| format!("{} {} {}", name(of.name), of.id, of.cost[0]));
            let threads = threads.collect::<Vec<_>>().join(", ");
            format!("{} {} {}: {threads}", name(process.name), process.id, process.cost[0])
        };
        processes.iter().map(of_process).collect()
    };
    assert_eq!(
        found(context()),
        ["gunzip 6 16: gunzip 6 16", "gzip 5 8: gzip 5 8", "p 1 7: worker-2 3 4, worker-1 2 2, main 1 1"]
    );
    assert_eq!(found(Query { focus: names(&["g"]), ..context() }), ["p 1 6: worker-2 3 4, worker-1 2 2"]);
}

/// The regions `r` and `s`, by gcc's runtime as it is where it has no names.
const OPENMP: &str = "
    $p.1 > %p.1 > p!_start > libc.so.6!start_main > p!main > @3 > libgomp.so.1!GOMP_parallel > p!r > p!f = 1
    $p.1 > %p.1 > p!_start > libc.so.6!start_main > p!main > libgomp.so.1!GOMP_parallel > libgomp.so.1!wait = 2
    $p.1 > %p.2 > libc.so.6!clone3 > libc.so.6!start > libgomp.so.1!+0x1 > libgomp.so.1!+0x2 > p!r > p!f > p!g = 4
    $p.1 > %p.3 > libc.so.6!clone3 > libc.so.6!start > libgomp.so.1!+0x1 > p!r = 8
    $p.1 > %p.3 > libc.so.6!clone3 > libc.so.6!start > libgomp.so.1!+0x1 > libgomp.so.1!wait = 16
";

fn one_tree() -> Query {
    Query { fold: vec![ScopeKind::Process, ScopeKind::Thread], regions_meet: true, ..context() }
}

#[test]
fn workers_regions_stand_where_they_are_called() {
    check(
        OPENMP,
        one_tree(),
        "
        all 31 0 0
          clone3 16 0 0
            start 16 0 0
              +0x1 16 0 0
                wait 16 16 16
          _start 15 0 0
            start_main 15 0 0
              main 15 0 0
                @3 13 0 0
                  GOMP_parallel 13 0 0
                    r 13 8 8
                      f 5 1 1
                        g 4 4 4
                GOMP_parallel 2 0 0
                  wait 2 2 2
        ",
    );
    // Paths of workers go through what called the region.
    check(
        OPENMP,
        Query { focus: names(&["main"]), hide: names(&["GOMP_parallel", "f", "start_main"]), ..one_tree() },
        "
        all 15 0 0
          _start 15 0 0
            main 15 0 0
              @3 13 0 0
                r 13 9 9
                  g 4 4 4
              wait 2 2 2
        ",
    );
    // A thread's cost is that of these paths as well.
    let threads = profile(OPENMP).processes(&Query { focus: names(&["main"]), ..one_tree() }).expect("an answer");
    let threads: Vec<(u64, u64)> = threads[0].threads.iter().map(|thread| (thread.id, thread.cost[0])).collect();
    assert_eq!(threads, [(3, 8), (2, 4), (1, 3)]);
    // With a thread by itself, and where nobody asked, nothing moves.
    let apart = profile(OPENMP).view(&Query { fold: vec![], ..one_tree() }).expect("a view");
    let without = profile(OPENMP).view(&Query { fold: vec![], ..context() }).expect("a view");
    assert_eq!(apart.nodes.len(), without.nodes.len());
}

/// Two contexts call it, or none, or another runtime does, or it is on a path that began in the program.
#[test]
fn regions_stay_apart_where_it_is_not_known_who_called_them() {
    let worker = "$p.1 > %p.2 > libc.so.6!clone3 > libgomp.so.1!start > p!r = 8";
    for caller in [
        "$p.1 > %p.1 > p!main > p!a > libgomp.so.1!G > p!r = 1\n$p.1 > %p.1 > p!main > p!b > libgomp.so.1!G > p!r = 1",
        "$p.1 > %p.1 > p!main > libomp.so.5!G > p!r = 1",
        "$p.1 > %p.1 > p!main > libgomp.so.1!G > p!q = 1",
        "$p.1 > %p.1 > p!main > p!r = 1",
        "$p.1 > %p.1 > ? > p!main > libgomp.so.1!G > p!r = 1",
        "$q.3 > %q.3 > p!main > libgomp.so.1!G > p!r = 1",
    ] {
        let samples = format!("{caller}\n{worker}");
        let profile = profile(&samples);
        let fold = vec![ScopeKind::Thread];
        let [met, apart] = [true, false].map(|regions_meet| {
            let view = profile.view(&Query { regions_meet, fold: fold.clone(), ..context() }).expect("a view");
            // The first has two callers: the view says what that is about.
            let several = if regions_meet && caller.contains("p!b") { 8 } else { 0 };
            assert_eq!((view.regions.met, view.regions.several_callers), (false, several), "{caller}");
            support::shown(&view, &profile)
        });
        assert_eq!(met, apart, "{caller}");
    }
    let samples = "
        $p.1 > %p.1 > p!main > libQt.so!call > p!r = 1
        $p.1 > %p.2 > libc.so.6!clone3 > libQt.so!start > p!r = 8
    ";
    check(
        samples,
        one_tree(),
        "
        all 9 0 0
          clone3 8 0 0
            start 8 0 0
              r 8 8 8
          main 1 0 0
            call 1 0 0
              r 1 1 1
        ",
    );
}

/// A region in a region has one caller once the outer one has met.
#[test]
fn nested_regions_meet_from_outside_in() {
    let samples = "
        $p.1 > %p.1 > p!main > libgomp.so.1!G > p!outer > libgomp.so.1!G > p!inner = 1
        $p.1 > %p.2 > libc.so.6!clone3 > libgomp.so.1!start > p!outer > libgomp.so.1!G > p!inner = 2
        $p.1 > %p.3 > libc.so.6!clone3 > libgomp.so.1!start > p!inner > p!f = 4
    ";
    check(
        samples,
        one_tree(),
        "
        all 7 0 0
          main 7 0 0
            G 7 0 0
              outer 7 0 0
                G 7 0 0
                  inner 7 3 3
                    f 4 4 4
        ",
    );
}

/// Of hundreds of threads each is below the threshold, but twenty are shown.
#[test]
fn the_costliest_threads_are_shown_however_little_they_are() {
    let samples: String = (1..=300).map(|tid| format!("$p.1 > %t.{tid} > f = {}\n", 1000 + tid)).collect();
    let profile = profile(&samples);
    let view = profile.view(&Query { per_thread: true, min_share: 0.01, ..context() }).expect("a view");
    let threads = view.nodes.iter().filter(|node| node.scope.kind == ScopeKind::Thread);
    let ids: Vec<u64> = threads.map(|node| node.scope.discriminator).collect();
    assert!(ids.into_iter().eq((281..=300).rev()));
    let rest = view.children(1).find(|child| view.nodes[*child].scope.kind == ScopeKind::Pruned).expect("a rest");
    assert_eq!(view.nodes[rest].scope.discriminator, 280);
}

#[test]
fn a_name_means_the_same_whatever_else_is_asked_for() {
    let paths = "
        $p.1 > %one.1 > main > a::read(int) = 1
        $p.1 > %two.2 > main > readdir = 2
        $p.1 > %two.2 > main > each(a::read) = 4
    ";
    let profile = profile(paths);
    let asked = |query: Query| profile.view(&query).map(|_| ()).map_err(|error| error.to_string());
    let in_two = Query { thread: Some("two".into()), focus: names(&["read"]), ..context() };
    let left = "failed to find a call path: none is left in thread \"two\", through \"read\"";
    assert_eq!(asked(in_two), Err(left.to_owned()));
    let both = Query { focus: names(&["main"]), ignore: names(&["main"]), ..context() };
    let left = "failed to find a call path: none is left through \"main\", not through \"main\"";
    assert_eq!(asked(both), Err(left.to_owned()));
    let hidden = Query { hide: names(&["*"]), ..context() };
    assert_eq!(asked(hidden), Err("failed to find a call path: all procedures are hidden".to_owned()));
    let every = Query { procedure: Some("*".into()), ..context() };
    assert_eq!(asked(every), Err("failed to find a procedure: all are called \"*\"".to_owned()));
    let empty = Query { focus: names(&[""]), ..context() };
    assert_eq!(asked(empty), Err("failed to find a procedure: its name is empty".to_owned()));
    let unknown = Query { thread: Some("tw".into()), ..context() };
    let error = "failed to find a thread \"tw\" (try \"*tw*\"); there are: two (2), one (1)";
    assert_eq!(asked(unknown), Err(error.to_owned()));

    let meant = |name: &str| {
        let meant = profile.meant(&Query { focus: names(&[name]), ..context() }).unwrap();
        (meant[0].way().is_exact(), meant[0].procedures(&profile.strings).join(" "))
    };
    assert_eq!(meant("read"), (true, "a::read(int)".to_owned()));
    assert_eq!(meant("a::read(…)"), (true, "a::read(int)".to_owned()));
    assert_eq!(meant("main › a::read(…) ×3"), (true, "a::read(int)".to_owned()));
    assert_eq!(meant("eaddi"), (false, "readdir".to_owned()));
}
