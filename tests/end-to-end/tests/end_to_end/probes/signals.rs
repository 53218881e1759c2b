//! Signal handlers that call, while what they interrupt calls.

use callpath_end_to_end::{C, Counts, Program};

use super::truth;

const ALL: [&str; 6] = ["leaf", "work", "down", "caught", "queued", "inside"];

/// Of functions that handlers do not call, all paths are without one; of the others, with one.
fn assert_apart(counts: &Counts) {
    for path in counts.values().flat_map(|calls| calls.keys()) {
        let in_handler = path.contains("caught") || path.contains("queued");
        let last = path.rsplit(';').next().unwrap_or_default();
        assert_eq!(in_handler, matches!(last, "caught" | "queued" | "inside"), "{path}");
        if !in_handler {
            assert!(path.starts_with("main;work"), "{path}");
        }
    }
}

fn weathers(functions: &[&str], metric: &str) {
    weathers_in(&Program::nasty("barrage.c"), functions, metric);
}

fn weathers_in(program: &Program, functions: &[&str], metric: &str) {
    let recorded = program.clone().options(&["-m", metric]).same_probed(functions);
    assert_eq!(recorded.ended.status, 8, "{recorded:?}");
    let (profile, truth) = (recorded.profile(), truth(&recorded));
    for function in functions {
        let (counted, called) = (profile.calls_of(function), truth.calls_of(function));
        assert_eq!(counted, called, "{function} of {functions:?} with {metric}: {:?}", profile.quality);
    }
    // All paths are whole, whatever a handler has interrupted: a copy, what a copy calls, a jump that leads there.
    let module = program.path().file_name().and_then(|name| name.to_str()).expect("it has a name");
    let (counts, parts) = profile.with_parts("calls", &[module]);
    assert_eq!(parts, Counts::new());
    assert_apart(&counts);
}

#[test]
fn a_storm_over_functions_and_handlers() {
    weathers(&ALL, "calls");
    weathers(&ALL, "wall-time");
}

#[test]
fn a_storm_over_handlers_alone() {
    weathers(&["caught", "queued", "inside"], "calls");
}

#[test]
fn a_storm_over_functions_alone() {
    weathers(&["leaf", "down"], "wall-time");
}

/// Where the caller's frame is found by rbp, which is restored before a probe's exit, from where the probe then writes.
#[test]
fn a_storm_in_a_program_with_frame_pointers() {
    let program = C { source: "barrage.c", output: "barrage_framed", options: &["-O0", "-pthread"] };
    weathers_in(&Program::compiled(program), &ALL, "wall-time");
}
