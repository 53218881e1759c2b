//! Each kind of view of small trees, computed by hand: costs, lines that are folded, nodes that are pruned.

use crate::support;

use callpath_db::{ColumnError, Inlined, Metric, Order, Profile, Query, ScopeKind, View, ViewKind};
use support::{check, profile, query};

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
fn system_calls_are_scopes_where_they_are_asked_for() {
    let samples = "
        main > :3 > read > :8 > #read = 7
        main > :3 > read = 1
        main > @5 > read > #read = 2
    ";
    let with_calls = |view| Query { fold: vec![ScopeKind::Line], ..query(view) };
    check(
        samples,
        query(ViewKind::Context),
        "
        all 10 0 0
          main 10 0 0
            read 8 8 8 from :3
            @5 2 0 0
              read 2 2 2
        ",
    );
    check(
        samples,
        with_calls(ViewKind::Context),
        "
        all 10 0 0
          main 10 0 0
            read 8 1 1 from :3
              #read 7 7 7
            @5 2 0 0
              read 2 0 0
                #read 2 2 2
        ",
    );
    check(
        samples,
        with_calls(ViewKind::Callers),
        "
        all 10 0 0
          #read 9 0 9
            read 9 0 0
              main 7 7 0 from :3
              @5 2 0 0
                main 2 2 0
          read 1 0 1
            main 1 1 0 from :3
        ",
    );
    check(
        samples,
        with_calls(ViewKind::Flat),
        "
        all 10 0 0
           10 0 10
            main 10 0 0
              @5 2 0 0
            read 10 1 1
              #read 9 9 9
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
    let list = profile.procedures(&Query::default(), Inlined::Apart).expect("an answer");
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

const FILES: &str = "
    x!main/m.c > x!a/m.c = 3
    x!main/m.c > x!b/b.c = 4
    x!main/m.c = 1
    x!main/m.c > @7 = 5
    x!main/m.c > y!plt = 6
    x!main/m.c > x!a/m.c > x!main/m.c = 10
";

/// Inclusive cost is of the outermost activations whatever vanishes; procedures without a file stand in their module.
#[test]
fn levels_of_the_flat_view_vanish() {
    let flat = |flatten| Query { flatten, ..query(ViewKind::Flat) };
    check(
        FILES,
        flat(1),
        "
        all 29 0 0
          m.c 29 0 19
            main 29 11 16
              @7 5 5 5
            a 13 3 3
          plt 6 6 6
          b.c 4 0 4
            b 4 4 4
        ",
    );
    check(
        FILES,
        flat(2),
        "
        all 29 0 0
          main 29 11 16
            @7 5 5 5
          a 13 3 3
          plt 6 6 6
          b 4 4 4
        ",
    );
    // What main costs besides its loop stays.
    let inside = "
        all 29 0 0
          a 13 3 3
          main 11 11 11
          plt 6 6 6
          @7 5 5 5
          b 4 4 4
        ";
    check(FILES, flat(3), inside);
    check(FILES, flat(9), inside);
    // Equal procedures of two files stay two.
    check("f/a.c = 1\nf/b.c = 2", flat(2), "all 3 0 0\n  f 2 2 2\n  f 1 1 1");
}

#[test]
fn siblings_come_in_the_order_asked_for() {
    let profile = two_metrics();
    let names = |metric: usize, by_self: bool, view: ViewKind| {
        let view = profile.view(&Query { order: Some(Order { metric, by_self }), ..query(view) }).expect("an answer");
        (1..view.nodes.len()).map(|node| view.name(node, &profile).into_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(0, false, ViewKind::Context), "main g h f h");
    assert_eq!(names(0, true, ViewKind::Context), "main f g h h");
    assert_eq!(names(1, false, ViewKind::Context), "main f g h h");
    // Of 30/10, 2/9 and 3/20.
    assert_eq!(names(2, false, ViewKind::Context), "main f h g h");
    assert_eq!(names(2, true, ViewKind::Callers), "f main g main h g main main");
}

/// Costs and misses of main's callees, and misses per cost.
fn two_metrics() -> Profile {
    let mut profile = Profile::new(vec![Metric::sum("cost", "count"), Metric::sum("misses", "count")]);
    support::add(&mut profile, &["main", "f"], &[10, 30]);
    support::add(&mut profile, &["main", "g"], &[9, 2]);
    support::add(&mut profile, &["main", "g", "h"], &[11, 1]);
    support::add(&mut profile, &["main", "h"], &[9, 2]);
    profile.define("ratio = misses / cost").expect("a formula");
    profile
}

fn reals(view: &View, metric: usize) -> Vec<f64> {
    (0..view.nodes.len()).map(|node| f64::from_bits(view.inclusive(node).get(metric))).collect()
}

#[test]
fn metrics_are_computed_of_others() {
    let mut profile = two_metrics();
    profile.define("percent = 100 * cost / total(cost)").expect("a formula");
    profile.define("above = ratio - 0.5 * total(ratio)").expect("a formula");
    let view = profile.view(&query(ViewKind::Context)).expect("an answer");
    let total = 35.0 / 39.0;
    assert_eq!(reals(&view, 2), [total, total, 3.0 / 20.0, 1.0 / 11.0, 3.0, 2.0 / 9.0]);
    assert_eq!(reals(&view, 3)[..3], [100.0, 100.0, 2000.0 / 39.0]);
    assert_eq!(reals(&view, 4)[4], 3.0 - 0.5 * total);
    let procedures = profile.procedures(&Query::default(), Inlined::Apart).expect("an answer");
    let of_g = procedures.iter().find(|procedure| profile.strings.get(procedure.scope.name) == "g").expect("g");
    assert_eq!(of_g.self_cost[2], (2.0f64 / 9.0).to_bits());
    assert_eq!(of_g.inclusive[2], (3.0f64 / 20.0).to_bits());
    // A file keeps the formula.
    let again = callpath_db::database::Database::of_bytes(profile.to_database().unwrap(), std::path::Path::new("m"));
    let again = again.and_then(|database| database.to_profile()).expect("a database");
    assert_eq!(again.metrics, profile.metrics);
}

#[test]
fn columns_are_chosen() {
    let mut profile = two_metrics();
    assert_eq!(profile.put_first(&["misses", "ratio", "misses"]), Ok(2));
    let names: Vec<&str> = profile.metrics.iter().map(|metric| metric.name.as_str()).collect();
    assert_eq!(names, ["misses", "ratio", "cost"]);
    let view = profile.view(&query(ViewKind::Context)).expect("an answer");
    assert_eq!((view.inclusive(0).get(0), view.inclusive(0).get(2)), (35, 39));
    assert_eq!(reals(&view, 1)[0], 35.0 / 39.0);
    assert_eq!(view.name(2, &profile), "f", "in order of misses");

    let mut profile = two_metrics();
    let of = |name: &str| name.to_owned();
    assert_eq!(profile.put_first(&["ratio"]), Err(ColumnError::NoShares { name: of("ratio") }));
    let there = vec![of("misses"), of("cost"), of("ratio")];
    assert_eq!(profile.put_first(&["mises"]), Err(ColumnError::NoSuchMetric { wanted: of("mises"), there }));
    assert_eq!(profile.define("misses=cost"), Err(ColumnError::NameTaken { name: of("misses") }));
    assert!(matches!(profile.define("x"), Err(ColumnError::NoDefinition { .. })));
    assert!(matches!(profile.define("x=y"), Err(ColumnError::NoSuchMetric { .. })));
    assert!(matches!(profile.define("x=x"), Err(ColumnError::NoSuchMetric { .. })));
    assert!(matches!(profile.define("x=1+"), Err(ColumnError::NoFormula { .. })));
}
