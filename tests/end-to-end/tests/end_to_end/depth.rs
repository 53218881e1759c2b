//! Stacks so deep that no sample walks them whole: what is found out of them is right, and no sample takes long.

use callpath_end_to_end::{C, Profile, Program};

/// A thread pays for a handler with four times its time, before the next one. So all but the last, which is no longer than
/// the longest, are paid for, less 10 ms that a thread has to its credit.
#[track_caller]
fn assert_a_fifth(profile: &Profile) {
    const CREDIT_NS: u64 = 10_000_000;
    let (quality, total) = (&profile.quality, profile.total("cpu-time"));
    let paid = quality.overhead_ns.saturating_sub(quality.longest_ns);
    assert!(paid * 5 <= total + CREDIT_NS, "{} ns of {total}: {quality:?}", quality.overhead_ns);
}

/// A tenth of a second, 300,000 frames deep: walking over 131,072 of them twice took a good part of that.
#[test]
fn generated_code_300_000_deep() {
    let program = Program::compiled(C { source: "jit.c", output: "jit", options: &["-z", "execstack"] });
    for sentinel in ["auto", "never"] {
        let options = ["--sentinel", sentinel];
        let profile = program.clone().arguments(["deep"]).options(&options).same().profile();
        // Four of five may be throttled, by handlers that each last some periods.
        profile.assert_walked(20);
        assert!(profile.percent_through(&["[jit]!"]) > 80.0);
        assert_a_fifth(&profile);
        let quality = &profile.quality;
        assert!(quality.longest_ns * 10 <= profile.total("cpu-time"), "{quality:?}");
    }
}

/// Without marks each sample compares all that is known of the stack: a twentieth of what walking it twice takes.
#[test]
fn without_marks_100_000_deep() {
    let program = Program::nasty("deep.c").arguments(["1", "100000", "700"]).options(&["--sentinel", "never"]);
    let profile = program.same().profile();
    let quality = &profile.quality;
    assert!(quality.full * 5 >= quality.taken, "{quality:?}");
    assert!(profile.depth() > 100_000, "only {} deep", profile.depth());
    assert_a_fifth(&profile);
}

#[test]
fn two_stacks_that_differ_in_their_outermost_frames() {
    for sentinel in ["never", "auto"] {
        let options = ["--sentinel", sentinel];
        let program = Program::nasty("turns.c").arguments(["60000", "200"]).options(&options);
        let profile = program.same().profile();
        profile.assert_walked(10);
        for (caller, other) in [("first", "work_of_second"), ("second", "work_of_first")] {
            assert_eq!(profile.through(&[caller, other], "samples"), 0, "{sentinel}: {caller} never called {other}");
        }
        // As long as it takes to learn them again and again, paths are partial; in the last turns they are whole.
        for whole in [["first", "work_of_first"], ["second", "work_of_second"]] {
            let samples = profile.through(&whole, "samples");
            assert!(samples > 0, "{sentinel}: {whole:?}: {:?}", profile.quality);
        }
    }
}
