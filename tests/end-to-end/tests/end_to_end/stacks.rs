//! Stacks of every shape: the whole path, or honestly a part of it.

use callpath_end_to_end::{C, Profile, Program};

fn stacks(mode: &str) -> Profile {
    Program::nasty("stacks.c").arguments([mode]).same().profile()
}

#[test]
fn two_threads_1500_deep() {
    let recorded = Program::nasty("deep.c").arguments(["2", "1500", "300"]).same();
    let profile = recorded.profile();
    profile.assert_full(1000);
    assert!(profile.depth() > 1500, "only {} deep", profile.depth());
    assert!(profile.percent_through(&["work", "descend", "bottom"]) > 98.0);
}

#[test]
fn one_thread_100_000_deep() {
    let recorded = Program::nasty("deep.c").arguments(["1", "100000", "700"]).same();
    let profile = recorded.profile();
    // Some tens of samples are taken before all of the stack is known.
    profile.assert_full(800);
    let quality = &profile.quality;
    // Now and then one comes late, or hits our own code.
    let others =
        quality.dropped.iter().filter(|(reason, _)| *reason != "throttled").map(|(_, count)| count).sum::<u64>();
    assert!(others * 100 <= quality.taken, "{quality:?}");
    assert!(profile.depth() > 100_000, "only {} deep", profile.depth());
    assert!(profile.percent_through(&["work", "descend", "bottom"]) > 75.0, "{quality:?}");
    assert!(profile.percent_through(&["descend", "descend", "bottom"]) > 90.0, "{quality:?}");
}

#[test]
fn recursion_that_is_not_kept() {
    let kept = |recursion: &'static str, sentinel: &'static str| {
        let options = ["--recursion", recursion, "--sentinel", sentinel];
        let recorded = Program::nasty("deep.c").arguments(["2", "30000", "300"]).options(&options).same();
        let profile = recorded.profile();
        // Some samples are taken before all of the stack is known; now and then one hits our own code.
        profile.assert_full(900);
        assert_eq!(
            profile.total("samples"),
            profile.quality.full + profile.quality.partial,
            "{recursion}: {:?}",
            profile.quality
        );
        profile
    };
    for sentinel in ["never", "auto", "always"] {
        let collapsed = kept("collapse", sentinel);
        assert!(collapsed.nodes() < 200, "{sentinel}: {} nodes", collapsed.nodes());
        assert!(collapsed.percent_through(&["work", "descend", "bottom"]) > 85.0, "{sentinel}");
    }
    // 1,500: more than one part of a walk.
    for frames in [3, 1_500] {
        for sentinel in ["never", "auto"] {
            let suffix = kept(if frames == 3 { "suffix:3" } else { "suffix:1500" }, sentinel);
            // Root, process, thread, what is left out, the frames, and a loop.
            let deepest = suffix.depth();
            assert!((frames + 3..frames + 8).contains(&deepest), "{frames} frames are {deepest} nodes");
            let cut = suffix.percent_through(&["truncated:outer frames left out", "descend", "descend", "bottom"]);
            assert!(cut > 90.0, "{frames}: {cut}%");
        }
    }
}

#[test]
fn a_handler_on_an_alternate_stack() {
    let profile = stacks("alternate");
    profile.assert_full(990);
    assert!(profile.percent_through(&["main", "run_alternate", "interrupted", "on_alternate_stack", "work"]) > 90.0);
}

#[test]
fn a_stack_overflow_that_is_survived() {
    stacks("overflow").assert_full(900);
}

#[test]
fn coroutines() {
    let profile = stacks("coroutine");
    profile.assert_full(990);
    for routine in ["first_routine", "second_routine"] {
        let share = profile.percent_through(&[routine, "work"]);
        assert!(share > 40.0, "{routine}: {share}%");
        assert_eq!(profile.through(&["main", routine], "samples"), 0, "{routine} is not main's");
    }
}

#[test]
fn longjmp_out_of_depth() {
    let profile = stacks("jumps");
    profile.assert_full(990);
    assert!(profile.percent_through(&["main", "jump_from", "jump_from", "work"]) > 70.0);
}

#[test]
fn time_in_the_vdso() {
    let profile = stacks("vdso");
    profile.assert_full(990);
    assert!(profile.percent_through(&["main", "ask_time", "[vdso]!"]) > 60.0);
}

#[test]
fn exceptions() {
    let profile = Program::compiled(C { source: "throws.cpp", output: "throws", options: &[] }).same().profile();
    // Where an exception lands the path is a partial one: a fortieth of the samples here.
    profile.assert_full(900);
    assert!(profile.percent_through(&["main", "thrower(int)"]) > 70.0);
}

#[test]
fn exceptions_while_they_land() {
    let program = C { source: "lands.cpp", output: "lands", options: &["-O2"] };
    let profile = Program::compiled(program).options(&["-F", "10000"]).same().profile();
    profile.assert_full(900);
    // It looks as if the landing frame had been called by what threw.
    assert_eq!(profile.through(&["outer(int)", "work(int)", "outer(int)"], "samples"), 0, "{:?}", profile.paths());
    assert!(profile.percent_through(&["main", "outer(int)", "work(int)", "__cxa_throw"]) > 60.0);
}

#[test]
fn handlers_and_retpolines_are_where_calls_lead() {
    for (output, options) in [
        ("handles", &["-O2"][..]),
        ("handles_stripped", &["-O2", "-s"]),
        ("handles_retpolines", &["-O2", "-fcf-protection=none", "-mindirect-branch=thunk"]),
        ("handles_inline", &["-O2", "-fcf-protection=none", "-mindirect-branch=thunk-inline"]),
    ] {
        let profile = Program::compiled(C { source: "handles.cpp", output, options }).same().profile();
        profile.assert_full(980);
        if !options.contains(&"-s") {
            assert!(profile.percent_through(&["main", "handles(int)", "work(unsigned long)"]) > 25.0, "{output}");
            assert!(profile.percent_through(&["main", "chooses"]) > 25.0, "{output}");
        }
    }
}

#[test]
fn every_descriptor_closed() {
    let profile = stacks("closes");
    profile.assert_full(990);
    assert!(profile.percent_through(&["main", "run_closes", "work"]) > 90.0);
}
