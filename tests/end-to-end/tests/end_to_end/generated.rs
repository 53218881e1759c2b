//! Generated code as language runtimes write it: with frame pointers, jumps that cannot be
//! followed, shared memory. Until it has been analysed, paths are partial: the shares that are
//! asked for are lower than what is usual (990 of 1000).

use callpath_end_to_end::{C, Profile, Program, Recorded, run_report};

fn generated(mode: &str) -> (Recorded, Profile) {
    let recorded =
        Program::compiled(C { source: "generated.c", output: "generated", options: &[] }).arguments([mode]).same();
    let profile = recorded.profile();
    (recorded, profile)
}

#[test]
fn what_is_jumped_to_returns_where_no_call_stands_before() {
    let (_, profile) = generated("interpreted");
    profile.assert_full(900);
    assert!(profile.percent_through(&["main", "run_interpreted", "[jit]!", "in_c"]) > 15.0);
    assert!(profile.percent_through(&["main", "run_interpreted", "[jit]!"]) > 90.0);
}

#[test]
fn a_register_that_looks_like_a_frame_pointer_is_none() {
    let (_, profile) = generated("bait");
    assert_eq!(profile.through(&["decoy"], "samples"), 0, "a procedure that was not called is on a path");
    assert!(profile.percent_through(&["[jit]!"]) > 90.0);
}

#[test]
fn code_that_is_jumped_into_returns_for_its_procedure() {
    let (_, profile) = generated("apart");
    profile.assert_full(900);
    assert_eq!(profile.through(&["decoy"], "samples"), 0, "a procedure that was not called is on a path");
    assert!(profile.percent_through(&["main", "run_apart", "[jit]!", "in_c"]) > 15.0);
    assert!(profile.percent_through(&["main", "run_apart", "[jit]!"]) > 90.0);
}

#[test]
fn what_follows_a_call_that_does_not_come_back_is_another_procedure() {
    let (_, profile) = generated("never");
    assert_eq!(profile.through(&["decoy_by_pointer"], "samples"), 0, "a procedure that was not called is on a path");
    assert!(profile.percent_through(&["[jit]!", "does_not_come_back", "in_c"]) > 80.0);
}

#[test]
fn arguments_that_are_taken_off_the_stack_are_no_return_addresses() {
    let (_, profile) = generated("arguments");
    assert_eq!(profile.through(&["decoy_by_pointer"], "samples"), 0, "a procedure that was not called is on a path");
    assert!(profile.percent_through(&["[jit]!"]) > 90.0);
    // Those of `ret $16`: as many of them as of the others, whose way back is not known.
    assert!(profile.percent_through(&["main", "run_arguments", "[jit]!"]) > 30.0);
}

#[test]
fn a_thunk_hands_over_without_a_frame() {
    let (_, profile) = generated("thunk");
    profile.assert_full(900);
    assert!(profile.percent_through(&["main", "run_thunk", "[jit]!"]) > 15.0);
    assert!(profile.percent_through(&["main", "run_thunk", "in_c"]) > 15.0);
}

#[test]
fn code_like_a_thunk_in_another_procedure_is_none() {
    let (_, profile) = generated("baited-thunk");
    assert_eq!(profile.through(&["decoy_by_pointer"], "samples"), 0, "a procedure that was not called is on a path");
    assert!(profile.percent_through(&["[jit]!"]) > 90.0);
}

#[test]
fn code_that_goes_on_by_a_word_of_memory_is_as_high_as_its_interpreter() {
    let (_, profile) = generated("dispatched");
    profile.assert_full(900);
    assert!(profile.percent_through(&["main", "run_dispatched", "[jit]!"]) > 90.0);
}

#[test]
fn code_in_shared_memory() {
    for mode in ["zero", "memory-file"] {
        let (recorded, profile) = generated(mode);
        profile.assert_full(900);
        let share = profile.percent_of_samples_through(&["main", "run_shared", "[jit]!", "in_c"]);
        assert!(share > 15.0, "{mode}: {share}%, {:?}, {:?}", profile.quality, profile.paths());
        // Two procedures, and what was not looked at before the end.
        let names: Vec<String> = profile.names().into_iter().filter(|name| name.contains("[jit]")).collect();
        assert!((2..=3).contains(&names.len()), "{mode}: {names:?}");
        let report = run_report(&recorded.directory, &[]).stdout;
        assert!(!report.contains("can no longer be read"), "{mode}: {report}");
        assert!(!report.contains("/dev/zero") && !report.contains("memfd"), "{mode}: {report}");
    }
}
