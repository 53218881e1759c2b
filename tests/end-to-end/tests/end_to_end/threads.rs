//! Threads of every kind: each is measured from its start to its end, and none is disturbed.

use callpath_end_to_end::{C, Program, stolen_ns};

#[test]
fn made_before_main_by_a_library() {
    let library = C { source: "early.c", output: "libearly.so", options: &["-shared", "-fPIC"] };
    callpath_end_to_end::compiled(library).expect("early.c compiles");
    let options = &["@libearly.so", "-Wl,-rpath,$ORIGIN"];
    let program = Program::compiled(C { source: "early_main.c", output: "early_main", options });
    let (recorded, cost_ns) = program.same_with_rusage();
    let profile = recorded.profile();
    profile.assert_full(990);
    let early = profile.through(&["early_start", "early_work"], "cpu-time");
    let main = profile.through(&["main", "main_work"], "cpu-time");
    assert!(early * 100 > cost_ns * 25 && main * 100 > cost_ns * 25, "early {early}, main {main} of {cost_ns}");
    assert_eq!(profile.through(&["main", "early_work"], "cpu-time"), 0, "the early thread is not main's");
}

#[test]
fn three_thousand_asleep() {
    let profile = Program::nasty("sleepers.c").arguments(["3000", "0", "1"]).same().profile();
    assert_eq!(profile.quality.dropped.get("no-memory"), None, "{:?}", profile.quality);
    let recorded = Program::nasty("sleepers.c").arguments(["3000", "0", "8", "parent"]).recorded();
    let said = &recorded.ended;
    assert_eq!((&*said.stdout, said.status), ("3000 threads\n", 0), "{}", said.stderr);
    let numbers = said.stderr.lines().find_map(|line| {
        let (recorder, looks) = line.split_once(' ')?;
        Some((recorder.parse::<u64>().ok()?, looks.parse::<u64>().ok()?))
    });
    let (recorder_ns, ten_looks_ns) = numbers.expect("what its parent has used");
    // The program measures in the same seconds what a look of the kernel's at all threads takes: both grow alike on a slow or
    // busy machine. A second of the recorder's first thread, which does not build recipe tables, costs 8 to 14 of them. It was
    // 37 to 48 when the recorder asked for each thread's life and for the sum of their times as often as for few threads.
    let most_ns = ten_looks_ns * 8 * 5 / 2;
    assert!(recorder_ns < most_ns, "{recorder_ns} ns in 8 seconds, ten looks at all threads take {ten_looks_ns} ns");
}

#[test]
fn five_hundred_at_work() {
    let stolen_before_ns = stolen_ns();
    let (recorded, cost_ns) = Program::nasty("sleepers.c").arguments(["0", "500", "2"]).same_with_rusage();
    let slack_ns = 30_000_000 + stolen_ns() - stolen_before_ns;
    let profile = recorded.profile();
    let total = profile.total("cpu-time");
    assert!(total.abs_diff(cost_ns) < cost_ns / 20 + slack_ns, "{total} of {cost_ns}; {:?}", profile.quality);
    assert_eq!(profile.quality.dropped.get("no-memory"), None, "{:?}", profile.quality);
    assert!(profile.percent_through(&["worker"]) > 80.0, "{:?}", profile.quality);
}

#[test]
fn five_thousand_one_after_the_other() {
    let (recorded, cost_ns) = Program::nasty("threads.c").arguments(["short"]).recorded_with_rusage();
    assert_eq!((&*recorded.ended.stdout, recorded.ended.status), ("5000 threads\n", 0), "{}", recorded.ended.stderr);
    let profile = recorded.profile();
    // Most end before their first sample is due; their time is theirs all the same. The program's own account of it ends before
    // their last instructions.
    let threads = profile.through(&["short_one"], "cpu-time");
    let own_account_ns: u64 = recorded.ended.stderr.lines().find_map(|line| line.parse().ok()).expect("what they took");
    assert!(threads * 100 > own_account_ns * 90, "{threads} of {own_account_ns}; {:?}", profile.quality);
    // A thread's birth and death in the kernel lie before its first and after its last instruction.
    let total = profile.total("cpu-time");
    assert!(total.abs_diff(cost_ns) < cost_ns / 4 + 15_000_000, "{total} of {cost_ns}");
    // Slots and chunks come back: nothing is dropped for want of them, and the files stay small.
    assert_eq!(profile.quality.dropped.get("no-memory"), None, "{:?}", profile.quality);
    let bytes: u64 =
        recorded.directory.read_dir().expect("a directory").map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes < 4_000_000, "{bytes} bytes for a few contexts");
}

#[test]
fn two_hundred_at_once() {
    let (recorded, cost_ns) = Program::nasty("threads.c").arguments(["many"]).same_with_rusage();
    let profile = recorded.profile();
    profile.assert_full(990);
    assert!(profile.through(&["many_one", "work"], "cpu-time") * 10 > cost_ns * 8);
}

#[test]
fn ended_by_pthread_exit() {
    let profile = Program::nasty("threads.c").arguments(["exits"]).same().profile();
    profile.assert_full(980);
    assert!(profile.percent_through(&["exits_one", "nested", "nested", "work"]) > 50.0);
}

#[test]
fn ended_by_cancellation() {
    let profile = Program::nasty("threads.c").arguments(["cancel"]).same().profile();
    profile.assert_full(990);
    assert!(profile.percent_through(&["cancelled_one", "work"]) > 25.0);
}

#[test]
fn at_work_when_the_process_exits() {
    for (mode, own) in [("detached", "main"), ("live", "exits_process")] {
        let (recorded, cost_ns) = Program::nasty("threads.c").arguments([mode]).same_with_rusage();
        let profile = recorded.profile();
        profile.assert_full(990);
        assert!(profile.percent_through(&["forever", "work"]) > 25.0, "{mode}");
        assert!(profile.percent_through(&[own, "work"]) > 5.0, "{mode}");
        assert!(profile.total("cpu-time") * 100 > cost_ns * 95, "{mode}: {} of {cost_ns}", profile.total("cpu-time"));
    }
}

#[test]
fn made_by_clone_without_the_c_library() {
    let (recorded, cost_ns) = Program::nasty("threads.c").arguments(["raw"]).same_with_rusage();
    let profile = recorded.profile();
    let (main, raw) = (profile.through(&["main", "work"], "cpu-time"), profile.through(&["raw_work"], "cpu-time"));
    assert!(main * 100 > cost_ns * 15, "main {main} of {cost_ns}");
    // It shares its creator's thread pointer: what it did may go unmeasured, but never to another's account.
    assert_eq!(profile.through(&["main", "raw_work"], "samples"), 0);
    assert!(raw == 0 || raw * 100 > cost_ns * 30, "raw {raw} of {cost_ns}");
}

#[test]
fn of_a_rust_program() {
    // While a panic lands the path is a partial one: a hundredth of the samples, of which there have to be enough to tell that from three.
    let profile = Program::nasty("panics.rs").options(&["-F", "10000"]).same().profile();
    profile.assert_full(970);
    assert!(
        profile.percent_through(&["panics::main", "panics::compute::<u8>"]) > 10.0,
        "{:?}",
        profile.of_kind("procedure")
    );
}
