//! Views of recursive paths, computed by hand: a sample counts once for a procedure, however many activations it has.

use crate::support;

use callpath_db::{Query, Recursion, ViewKind};
use support::{check, query};

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
