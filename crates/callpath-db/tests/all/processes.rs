//! Views of several processes and threads, computed by hand: what merges, what is
//! selected, and partial roots beside them.

use crate::support;

use callpath_db::{Query, QueryError, ScopeKind, ViewKind};
use support::{check, profile, query};

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
    assert_eq!(asked(Some("r"), None), Err("failed to find a process \"r\"; there are: p ×2, q (3)".into()));
    assert_eq!(asked(Some("q"), Some("v")), Err("failed to find a thread \"v\"; there are: w (5)".into()));
    assert_eq!(asked(None, Some("v")), Ok(()));
    assert!(matches!(
        profile.view(&Query { process: Some("0".into()), ..Query::default() }),
        Err(QueryError::NoSuchProcess { .. })
    ));
}
