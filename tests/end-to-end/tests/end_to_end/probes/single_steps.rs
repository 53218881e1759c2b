//! A program that is interrupted after each instruction, also of copies and of our own code, by a handler that calls a
//! probed function: each time the path is whole.

use callpath_end_to_end::{Counts, Program};

fn weathers(metric: &str, status: i32) {
    let recorded = Program::nasty("single_steps.c").options(&["-m", metric]).probed(&["leaf", "inner"]);
    assert_eq!(recorded.ended.status, status, "{recorded:?}");
    let profile = recorded.profile();
    let (_, parts) = profile.with_parts("calls", &["single_steps"]);
    assert_eq!((parts, profile.quality.partial), (Counts::new(), 0), "{:?}", profile.quality);
    let said = recorded.ended.stdout.lines().filter_map(|line| line.strip_prefix("inner "));
    let said: u64 = said.map(|count| count.parse::<u64>().expect("a number")).sum();
    assert!(profile.calls_of("inner") >= said, "{said}: {recorded:?}");
    // In the copy itself, and in what it calls.
    let ours = profile.through(&["leaf", "[callpath's probes]", "inner"], "calls");
    let all = profile.through(&["leaf", "inner"], "calls");
    assert!(ours > 100 && all > ours, "{ours} of {all}");
}

#[test]
fn each_instruction_of_counting() {
    weathers("calls", 8);
}

/// In a program that callpath starts, each thread's record is there before its first call.
#[test]
fn each_instruction_of_timing() {
    weathers("wall-time", 8);
}
