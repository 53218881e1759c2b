//! Stacks from outside: deep ones, those with pages that are not in memory, and what lies below the stack pointer.

use callpath_end_to_end::{C, Program, skip};

use crate::outside::{Attached, Running, is_allowed, may_load_programs};

const HOLES: C = C { source: "holes.c", output: "holes", options: &["-O1", "-static", "-pthread"] };

#[test]
fn deep_stacks_are_whole() {
    if !is_allowed("deep_stacks_are_whole") {
        return;
    }
    // 1,500 frames of 64 bytes at most: the longest copy has room for them.
    let running = Running::nasty(&["2", "900"]);
    let mut attached = Attached::to(&["-p", &running.pid()]);
    attached.until(500);
    attached.interrupt();
    let profile = attached.profile(&[]);
    profile.assert_full(1000);
    assert!(profile.depth() > 900, "{}", profile.depth());
}

/// Some 200 KB, of which the kernel copies 63 KB into a record.
#[test]
fn stacks_beyond_a_record_are_whole_for_root() {
    if !is_allowed("stacks_beyond_a_record_are_whole_for_root") {
        return;
    }
    if !may_load_programs() {
        return skip("stacks_beyond_a_record_are_whole_for_root", "needs root, and the machine's own process numbers");
    }
    let running = Running::nasty(&["1", "3000"]);
    let mut attached = Attached::to(&["-p", &running.pid()]);
    attached.until(1500);
    attached.interrupt();
    let profile = attached.profile(&[]);
    // It is copied from when callpath has read the first samples on. On a busy machine rings may be full: such samples are dropped.
    let quality = &profile.quality;
    assert!(quality.full > 500 && quality.partial * 20 < quality.full, "{quality:?}");
    assert!(profile.depth() > 3000, "{}", profile.depth());
}

/// The kernel's copy of a stack ends at the first page that nobody has touched, and each frame of each thread has some.
#[test]
fn stacks_with_pages_that_are_not_in_memory_are_whole_for_root() {
    let name = "stacks_with_pages_that_are_not_in_memory_are_whole_for_root";
    if !is_allowed(name) {
        return;
    }
    if !may_load_programs() {
        return skip(name, "needs root, and the machine's own process numbers");
    }
    // Of a new thread's stack, a part is copied until callpath has seen it: three frames of 600 KB are not whole before.
    for (arguments, least, share) in [(&["20"][..], 500, 20), (&["20", "one"], 500, 20), (&["20", "far"], 400, 1)] {
        let recorded = Program::compiled(HOLES).arguments(arguments.iter().copied()).same();
        let profile = recorded.profile();
        profile.assert_sound();
        // On a busy machine the ring of copies may be full for a while.
        let quality = &profile.quality;
        assert!(quality.full > least && quality.partial * share < quality.full, "{arguments:?}: {quality:?}");
    }
    // The first 45 ms alone, by a thread that nobody has seen before.
    for arguments in [&["1"][..], &["1", "one"]] {
        let profile = Program::compiled(HOLES).arguments(arguments.iter().copied()).same().profile();
        let quality = &profile.quality;
        assert!(quality.full > 20 && quality.partial * 4 < quality.full, "{arguments:?}: {quality:?}");
    }
}

/// At this rate, the ring of copies is full now and then: a sample whose copies were lost has a partial path, and none that is wrong.
#[test]
fn copies_of_one_sample_are_not_taken_for_anothers() {
    let name = "copies_of_one_sample_are_not_taken_for_anothers";
    if !is_allowed(name) {
        return;
    }
    let alternates = C { source: "alternates.c", output: "alternates", options: &["-O1"] };
    let program = Program::compiled(alternates).arguments(["2000"]).options(&["--outside", "-F", "5000"]);
    let profile = program.same().profile();
    for (caller, other) in [("first", "work_of_second"), ("second", "work_of_first")] {
        let percent = profile.percent_through(&[caller, other]);
        assert!(percent == 0.0, "{percent}% of all samples are in {other}, called by {caller}");
    }
    if may_load_programs() {
        let percent = profile.percent_through(&["first", "work_of_first"]);
        assert!(percent > 5.0, "{percent}% of all samples are whole: {:?}", profile.quality);
    }
}

/// What a leaf has popped is in its register; what lies below the stack pointer is in no copy, and may be something else.
#[test]
fn a_leaf_that_has_popped_its_callers_frame_pointer() {
    let name = "a_leaf_that_has_popped_its_callers_frame_pointer";
    let program = || Program::compiled(C { source: "pops.c", output: "pops", options: &["-O1"] }).arguments(["500"]);
    for program in [Some(program()), is_allowed(name).then(|| program().options(&["--outside"]))].into_iter().flatten()
    {
        let profile = program.same().profile();
        profile.assert_full(980);
        let percent = profile.percent_through(&["main", "hold", "leaf"]);
        assert!(percent > 95.0, "{percent}%");
    }
}

#[test]
fn a_stack_beyond_the_longest_copy_is_a_partial_path() {
    if !is_allowed("a_stack_beyond_the_longest_copy_is_a_partial_path") {
        return;
    }
    let running = Running::nasty(&["1", "40000"]);
    let mut attached = Attached::to(&["-p", &running.pid()]);
    attached.until(100);
    let ended = attached.interrupt();
    assert!(ended.stderr.contains("beyond the 63 KB that the kernel copies"), "{ended:?}");
    let profile = attached.profile(&[]);
    // Rings may be full: to see that all that may be copied is not enough, root's first samples are copied whole.
    let quality = &profile.quality;
    assert!(quality.full == 0 && quality.partial > 50, "{quality:?}");
}
