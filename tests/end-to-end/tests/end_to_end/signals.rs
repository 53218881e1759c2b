//! Programs with signals of their own: they see what they would have seen, and are measured all the same.

use callpath_end_to_end::{Program, is_root, skip};

use crate::ordinary_user::UserDirectory;
use crate::outside::is_allowed;

fn traps(mode: &str) -> callpath_end_to_end::Profile {
    let (recorded, cost_ns) = Program::nasty("traps.c").arguments([mode]).same_with_rusage();
    let profile = recorded.profile();
    let total = profile.total("cpu-time");
    assert!(total.abs_diff(cost_ns) < cost_ns / 50 + 15_000_000, "{mode}: {total} of {cost_ns}; {:?}", profile.quality);
    profile
}

#[test]
fn its_own_handler_for_sigtrap() {
    let profile = traps("handler");
    // While the program's handler is at work SIGTRAP is blocked, as it would be: the sample that was due is dropped.
    profile.assert_full(850);
    assert_eq!(profile.quality.partial, 0, "{:?}", profile.quality);
}

/// callpath stands between the kernel and the program's handlers, and the program must not see that.
#[test]
fn handlers_set_in_every_way() {
    Program::nasty("handlers.c").same();
}

#[test]
fn sigtrap_blocked() {
    let profile = traps("masks");
    assert!(profile.percent_through(&["main", "work"]) > 90.0, "samples continue under a mask: {:?}", profile.quality);
    profile.assert_full(980);
}

#[test]
fn masks_that_are_put_back_without_a_call() {
    Program::nasty("masks.c").same();
}

#[test]
fn sigtrap_sent_while_blocked() {
    traps("pending").assert_full(900);
}

#[test]
fn sigtrap_ignored_and_inherited_so() {
    traps("ignore").assert_full(980);
}

#[test]
fn sigtrap_kills_as_it_should() {
    let recorded = Program::nasty("traps.c").arguments(["default"]).same();
    assert_eq!(recorded.ended.status, 128 + 5);
    recorded.profile().assert_full(980);
}

#[test]
fn profiling_timers_of_its_own_and_errno() {
    traps("prof").assert_full(980);
}

#[test]
fn nothing_is_interrupted() {
    for options in [&["-e", "cpu-time"][..], &["-e", "cpu-time", "-F", "5000"]] {
        let recorded = Program::nasty("traps.c").arguments(["sleeps"]).options(options).same();
        recorded.profile().assert_full(980);
    }
}

#[test]
fn nothing_is_interrupted_by_wall_time() {
    Program::nasty("traps.c").arguments(["sleeps"]).options(&["-e", "wall-time"]).same().profile();
}

/// The frame of a handler's caller is the restorer's, not what stands before it.
#[test]
fn a_restorer_of_its_own() {
    for options in [&[][..], &["--outside"]] {
        if !options.is_empty() && !is_allowed("a_restorer_of_its_own") {
            return;
        }
        let profile = Program::nasty("own_restorer.c").arguments(["400"]).options(options).same().profile();
        profile.assert_full(950);
        let path = ["main", "interrupted", "own_restorer", "handler", "work"];
        assert!(profile.percent_through(&path) > 80.0, "{options:?}: {profile:?}");
        assert!(!profile.names().contains("stands_before"), "{options:?}: {:?}", profile.names());
    }
}

/// Nothing that the program sends itself is lost because a sample is on its
/// way, and nothing comes that it has not sent.
#[test]
fn sigtraps_in_a_storm_of_samples() {
    let program = Program::nasty("storm.c").arguments(["3000"]).options(&["-F", "10000"]);
    let recorded = program.same();
    assert_eq!(recorded.ended.stdout.matches(": 0 wrong").count(), 12, "{}", recorded.ended.stdout);
    recorded.profile();
    if !is_root() {
        return skip("signals::sigtraps_in_a_storm_of_samples by timers", "the tests run as an ordinary user anyway");
    }
    let place = UserDirectory::new();
    let copy = place.copy(program.path());
    for event in ["cpu-time", "wall-time"] {
        let all = "raise kill thread both nested blocked killed waited suspended polled reset".split(' ');
        // A breakpoint and a timer's signal at the same moment are one to the kernel: see docs/manual.md, Limits.
        let ways: Vec<&str> = all.chain((event == "cpu-time").then_some("int3")).collect();
        let mut words = vec!["record", "-e", event, "-F", "10000", "-o", event, "--", copy.to_str().unwrap(), "3000"];
        words.extend(&ways);
        let said = place.run(&words);
        assert_eq!(said.stdout.matches(": 0 wrong").count(), ways.len(), "{event}: {said:?}");
        place.profile(event);
    }
}
