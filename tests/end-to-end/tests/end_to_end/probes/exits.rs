//! Functions that are left otherwise than by a return.

use callpath_end_to_end::{C, Program, Recorded, compiled};

use super::assert_counted;

const METRICS: [&str; 2] = ["calls", "wall-time"];
const LIBRARY: C = C { source: "leaves_library.cpp", output: "libleaves.so", options: &["-shared", "-fPIC"] };
const LEAVES: C = C { source: "leaves.cpp", output: "leaves", options: &["@libleaves.so", "-Wl,-rpath,$ORIGIN"] };
const MODULES: [&str; 2] = ["leaves", "libleaves.so"];

fn leaves(how: &str, metric: &str) -> Program {
    compiled(LIBRARY).expect("the library compiles");
    Program::compiled(LEAVES).arguments([how]).options(&["-m", metric])
}

/// All of them probed, and then some.
fn are_counted(how: &str, functions: &[&str], status: i32) {
    for metric in METRICS {
        let counted = |functions: &[&str]| {
            let recorded = leaves(how, metric).same_probed(functions);
            assert_eq!(recorded.ended.status, status, "{how}: {recorded:?}");
            assert_counted(&recorded, functions, &MODULES[..1]);
            is_bounded(&recorded, metric);
        };
        counted(functions);
        counted(&["leaf"]);
        counted(&functions[..2]);
    }
}

/// All time that activations took is time that has passed.
fn is_bounded(recorded: &Recorded, metric: &str) {
    if metric == "wall-time" {
        let profile = recorded.profile();
        let (total, most) = (profile.total("wall-time"), profile.duration_ns("leaves"));
        assert!(total <= most, "{total} ns of {most} that the process lived");
    }
}

#[test]
fn by_exceptions() {
    are_counted("throws", &["leaf", "thrower", "middle", "rethrower", "catcher"], 4);
    let recorded = leaves("throws", "calls").same_probed(&["leaf", "passes_on"]);
    let profile = recorded.profile();
    assert_eq!(profile.calls_of("passes_on"), 1500);
    assert!(profile.through(&["middle", "passes_on", "thrower", "leaf"], "calls") > 1500);
}

#[test]
fn by_long_jumps() {
    are_counted("jumps", &["leaf", "jumper", "handler", "deep", "lands"], 4);
}

#[test]
fn by_the_end_of_the_program() {
    are_counted("exits", &["leaf", "ends", "goes_to_end", "at_the_end"], 9);
    are_counted("aborts", &["leaf", "ends", "goes_to_end", "main"], 134);
}

#[test]
fn by_tail_calls() {
    const TAILS: C = C { source: "tails.c", output: "tails", options: &["-foptimize-sibling-calls"] };
    let all = ["leaf", "first", "second", "ping", "pong", "by_pointer", "maybe", "chooses", "calls"];
    for metric in METRICS {
        let recorded = Program::compiled(TAILS).options(&["-m", metric]).same_probed(&all);
        assert_eq!(recorded.ended.status, 6, "{recorded:?}");
        assert_counted(&recorded, &all, &["tails"]);
    }
}
