//! Threads that are there, and threads that come and go.

use callpath_end_to_end::{C, Program};

use super::assert_counted;

const KNOWN: [&str; 2] = ["known_leaf", "known_step"];
const METRICS: [&str; 2] = ["calls", "wall-time"];

#[test]
fn eight_threads_at_once() {
    for metric in METRICS {
        let recorded = Program::nasty("crew.c").arguments(["eight"]).options(&["-m", metric]).same_probed(&KNOWN);
        assert_eq!(recorded.ended.status, 0, "{recorded:?}");
        assert_counted(&recorded, &KNOWN, &["crew"]);
    }
}

#[test]
fn two_hundred_threads_that_come_and_go() {
    for metric in METRICS {
        let crew = Program::nasty("crew.c").arguments(["brief"]).options(&["-m", metric]);
        let recorded = crew.same_probed(&["known_leaf", "known_step", "is_brief"]);
        assert_eq!(recorded.ended.status, 0, "{recorded:?}");
        assert_counted(&recorded, &["known_leaf", "known_step", "is_brief"], &["crew"]);
    }
}

#[test]
fn coroutines_and_alternate_stacks() {
    for metric in METRICS {
        let weaves = Program::nasty("weaves.c").options(&["-m", metric]);
        let all = ["leaf", "pauses", "deep", "routine", "weaves", "handler", "raises"];
        let recorded = weaves.same_probed(&all);
        assert_eq!(recorded.ended.status, 0, "{recorded:?}");
        assert_counted(&recorded, &all, &["weaves"]);
        let recorded = weaves.same_probed(&["leaf"]);
        assert_counted(&recorded, &["leaf"], &["weaves"]);
    }
}

#[test]
fn a_hundred_million_calls() {
    const MANY: C = C { source: "many.c", output: "many", options: &[] };
    for metric in METRICS {
        let recorded = Program::compiled(MANY).options(&["-m", metric]).same_probed(&["once"]);
        assert_eq!(recorded.ended.status, 2, "{recorded:?}");
        let profile = recorded.profile();
        assert_eq!((profile.calls_of("once"), profile.total("calls")), (100_000_000, 100_000_000));
    }
}
