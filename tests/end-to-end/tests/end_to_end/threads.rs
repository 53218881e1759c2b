//! Threads of every kind: each is measured from its start to its end, and none is disturbed.

use callpath_end_to_end::{C, Program, run_report, stolen_ns};

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
    // What the recorder does for them each second is in the longer run only.
    let recorder_ns = |seconds: &str| {
        let recorded = Program::nasty("sleepers.c").arguments(["3000", "0", seconds]).same();
        let profile = recorded.profile();
        assert_eq!(profile.quality.dropped.get("no-memory"), None, "{:?}", profile.quality);
        let said = run_report(&recorded.directory, &["--json"]).stdout;
        let json: serde_json::Value = serde_json::from_str(&said).expect("a report");
        json["run"]["recorder_cpu_ns"].as_u64().expect("the recorder's account")
    };
    let (short, long) = (recorder_ns("1"), recorder_ns("9"));
    // 8 seconds more: less than 5% of a processor, on a busy machine.
    assert!(long.saturating_sub(short) < 400_000_000, "{short} ns for one second, {long} for nine");
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
    let (recorded, cost_ns) = Program::nasty("threads.c").arguments(["short"]).same_with_rusage();
    let profile = recorded.profile();
    // Most end before their first sample is due; their time is theirs all the same.
    let threads = profile.through(&["short_one"], "cpu-time");
    assert!(threads * 100 > cost_ns * 25, "{threads} of {cost_ns}; {:?}", profile.quality);
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
    let profile = Program::nasty("panics.rs").same().profile();
    profile.assert_full(970);
    assert!(
        profile.percent_through(&["panics::main", "panics::compute::<u8>"]) > 10.0,
        "{:?}",
        profile.of_kind("procedure")
    );
}
