//! Calls by whole paths.

use std::collections::BTreeMap;

use callpath_end_to_end::Program;

use super::assert_counted;

const ALL: [&str; 12] =
    ["leaf", "other_leaf", "thin", "thick", "twice", "by_pointer", "down", "even", "odd", "fib", "tree", "places"];

#[test]
fn one_function_by_all_paths_that_lead_to_it() {
    for metric in ["calls", "wall-time"] {
        let recorded = Program::nasty("sites.c").options(&["-m", metric]).same_probed(&["leaf"]);
        assert_eq!(recorded.ended.status, 5, "{recorded:?}");
        let profile = assert_counted(&recorded, &["leaf"], &["sites"]);
        // Those in its loop stand below the loop.
        let in_loop = profile.through(&["places", "loop:", "leaf"], "calls");
        assert_eq!((in_loop, profile.through(&["places", "leaf"], "calls")), (2000, 2300));
    }
}

#[test]
fn all_functions_at_once_and_their_recursion() {
    for metric in ["calls", "wall-time"] {
        let recorded = Program::nasty("sites.c").options(&["-m", metric]).same_probed(&ALL);
        assert_eq!(recorded.ended.status, 5, "{recorded:?}");
        let profile = assert_counted(&recorded, &ALL, &["sites"]);
        let totals: BTreeMap<&str, u64> = ALL.into_iter().map(|name| (name, profile.calls_of(name))).collect();
        assert_eq!((totals["even"] + totals["odd"], totals["places"], totals["fib"]), (32 + 58, 200, 1219));
    }
}
