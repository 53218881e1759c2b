//! Time in which no sample could be taken has a row of its own, outside of the program's code.

use callpath_end_to_end::{C, Profile, Program, Recorded, compiled, is_root, skip};

use crate::crowds::NO_ROOM;
use crate::ordinary_user::UserDirectory;

const BLOCKED: &str = "gap:SIGTRAP blocked";
const PERIOD_NS: u64 = 1_000_000;

fn masked(mode: &str, amount: &str) -> Program {
    Program::nasty("masked.c").arguments([mode, amount])
}

/// What the program itself says that it did while SIGTRAP was blocked.
fn said(stderr: &str) -> u64 {
    let words = stderr.lines().find_map(|line| line.strip_prefix("masked: ")).expect("masked says it");
    words.parse().expect("a number")
}

/// The gap is what was blocked, and the total is the kernel's. `slack_ns`: how far the ends of the gap may be off.
fn assert_gap(profile: &Profile, metric: &str, blocked: u64, slack: u64) {
    let gap = profile.through(&[BLOCKED], metric);
    assert!(gap.abs_diff(blocked) <= slack, "{gap} in the gap, {blocked} blocked; {:?}", profile.quality);
    let inside = profile.through(&["masked"], metric);
    assert!(inside <= slack, "{inside} in masked()");
}

fn recorded(mode: &str, amount: &str, options: &[&str]) -> Recorded {
    let recorded = masked(mode, amount).options(options).recorded();
    assert_eq!(recorded.ended.status, 0, "{}", recorded.ended.stderr);
    recorded
}

#[test]
fn sigtrap_blocked_by_a_system_call() {
    let (recorded, cost_ns) = masked("middle", "300").recorded_with_rusage();
    let blocked = said(&recorded.ended.stderr);
    let profile = recorded.profile();
    assert_gap(&profile, "cpu-time", blocked, 3 * PERIOD_NS);
    let later = profile.through(&["later"], "cpu-time");
    assert!(later <= cost_ns - blocked + 2 * PERIOD_NS, "{later} in later()");
    let total = profile.total("cpu-time");
    assert!(total.abs_diff(cost_ns) < cost_ns / 50 + 6_000_000, "{total} ns measured, {cost_ns} by the kernel");
}

#[test]
fn sigtrap_blocked_until_the_end() {
    for mode in ["end", "thread"] {
        let recorded = recorded(mode, "100", &[]);
        assert_gap(&recorded.profile(), "cpu-time", said(&recorded.ended.stderr), 3 * PERIOD_NS);
    }
}

#[test]
fn page_faults_with_sigtrap_blocked() {
    for event in ["page-faults", "page-faults@1"] {
        let recorded = recorded("touches", "3000", &["-e", event]);
        let pages = said(&recorded.ended.stderr);
        // What the thread touched between its last sample before and the mask is not distinguished.
        assert_gap(&recorded.profile(), "page-faults", pages, pages / 10);
    }
}

#[test]
fn every_view_shows_a_gap() {
    let recorded = recorded("middle", "100", &[]);
    for view in ["context", "callers", "flat"] {
        let report = callpath_end_to_end::run_report(&recorded.directory, &["--view", view]);
        assert!(report.stdout.contains("not sampled (SIGTRAP blocked)"), "{view}: {}", report.stdout);
    }
}

#[test]
fn sigtrap_blocked_where_timers_take_samples() {
    if !is_root() {
        return skip("gaps::sigtrap_blocked_where_timers_take_samples", "the tests run as an ordinary user anyway");
    }
    let place = UserDirectory::new();
    let copy = place.copy(masked("middle", "500").path());
    for event in ["cpu-time", "wall-time"] {
        let ended = place.run(&["record", "-e", event, "-o", event, "--", copy.to_str().unwrap(), "middle", "500"]);
        let blocked = said(&ended.stderr);
        let profile = place.profile(event);
        let gap = profile.through(&[BLOCKED], event);
        // More of time that passes than of the CPU's; a timer fires at the kernel's tick.
        assert!(gap + 30_000_000 > blocked, "{event}: {gap} in the gap, {blocked} blocked; {:?}", profile.quality);
        let inside = profile.through(&["masked"], event);
        assert!(inside < blocked / 5, "{event}: {inside} in masked()");
        let later = profile.through(&["later"], event);
        assert!(event == "wall-time" || later < blocked / 2, "{later} in later()");
    }
}

#[test]
fn a_program_inside_an_emulator_is_the_emulators() {
    let emulator = std::path::Path::new("/usr/bin/qemu-x86_64");
    if !emulator.exists() {
        return skip("gaps::a_program_inside_an_emulator_is_the_emulators", "there is no qemu-x86_64 (qemu-user)");
    }
    let burn = Program::nasty("burn.c");
    let (recorded, cost_ns) = Program::at(emulator).arguments([burn.path()]).arguments(["300"]).same_with_rusage();
    assert!(recorded.ended.stderr.contains("it runs in an emulator"), "{}", recorded.ended.stderr);
    let profile = recorded.profile();
    // Samples are taken in the emulator's own code and in what it makes, all the time.
    let quality = &profile.quality;
    assert!(quality.taken * 2 * PERIOD_NS > cost_ns, "{cost_ns} ns, {quality:?}");
}

/// How long the threads of hangs.c say that they had waited.
fn waited(stderr: &str) -> u64 {
    let words = stderr.lines().find_map(|line| line.strip_prefix("waited: ")).expect("hangs says it");
    words.parse().expect("a number")
}

#[test]
fn waits_that_go_on_when_the_program_ends() {
    for (mode, status, place) in
        [("end", 0, "wait_for_ever"), ("deadlock", 128 + 2, "lock_both"), ("killed", 128 + 9, "wait_for_ever")]
    {
        let program = Program::nasty("hangs.c").arguments([mode, "1200"]).options(&["-e", "wall-time"]);
        let recorded = program.recorded();
        assert_eq!(recorded.ended.status, status, "{mode}: {}", recorded.ended.stderr);
        let (waited, profile) = (waited(&recorded.ended.stderr), recorded.profile());
        let found = profile.through(&[place], "wall-time");
        // They do not begin to wait at the same moment, nor does the program end at once; and the recorder, which asks
        // them, must get a processor before the program ends.
        assert!(found * 10 > waited * 8, "{mode}: {found} of {waited} ns; {:?}", profile.quality);
        // Once each, and not once more when the wait is over.
        let total = profile.total("wall-time");
        assert!(total >= found && found < waited * 3 / 2, "{mode}: {found} of {waited} ns");
    }
}

#[test]
fn names_of_threads_in_a_short_run() {
    let recorded = Program::nasty("hangs.c").arguments(["names", "100"]).recorded();
    assert_eq!(recorded.ended.status, 0, "{}", recorded.ended.stderr);
    let threads: Vec<String> = recorded.profile().of_kind("thread").into_iter().map(|(name, _)| name).collect();
    for name in ["by itself", "by main", "by prctl", "hangs"] {
        assert!(threads.iter().any(|thread| thread == name), "{name}: {threads:?}");
    }
}

#[test]
fn processes_that_end_before_a_sample() {
    // A sample each 10 ms, of processes that run for 3.
    let program = Program::nasty("brief.c").arguments(["40", "3000"]).options(&["-F", "100"]);
    let (recorded, cost_ns) = program.same_with_rusage();
    let profile = recorded.profile();
    let total = profile.total("cpu-time");
    // Of a process's end the kernel's clocks of newer releases see only the first part.
    assert!(total * 100 > cost_ns * 80, "{total} ns measured, {cost_ns} by the kernel; {:?}", profile.quality);
    assert!(total < cost_ns + cost_ns / 20 + 20_000_000, "{total} ns measured, {cost_ns} by the kernel");
}

const PLUG: C =
    C { source: "plug.c", output: "libplug_gap.so", options: &["-shared", "-fPIC", "-DNAME=a_work", "-DPADDING=0"] };

/// A recorder that does not run makes no room for samples of code that is not known
/// yet. Their time is not what comes later.
#[test]
fn samples_without_room() {
    let library = compiled(PLUG).expect("plug.c compiles");
    let program = Program::compiled(C { source: "stopped.c", output: "stopped", options: &["-ldl"] });
    let recorded = program.arguments([library.as_os_str()]).arguments(["600"]).recorded();
    let said: Vec<u64> = recorded.ended.stdout.split_whitespace().map(|ns| ns.parse().expect("a number")).collect();
    let [unknown_ns, later_ns] = said[..] else { panic!("{}", recorded.ended.stdout) };
    let profile = recorded.profile();
    let dropped = profile.quality.dropped.get("raw-full").copied().unwrap_or(0);
    assert!(dropped * PERIOD_NS * 8 > unknown_ns, "the test tests nothing: {:?}", profile.quality);
    let gap = profile.through(&[NO_ROOM], "cpu-time");
    let later = profile.through(&["later"], "cpu-time");
    let inside = profile.through(&["a_work"], "cpu-time");
    // What is walked late, or not at all, is the next sample's: some periods.
    let slack = 5 * PERIOD_NS + unknown_ns / 50;
    assert!(later <= later_ns + slack, "{later} in later(), which ran {later_ns}: {:?}", profile.quality);
    assert!(gap >= dropped * PERIOD_NS * 9 / 10, "{gap} in the gap: {:?}", profile.quality);
    assert!((gap + inside).abs_diff(unknown_ns) <= slack, "{gap} and {inside} of {unknown_ns}: {:?}", profile.quality);
}
