//! Many processes and threads at the same time, or that end soon: all are counted, and all their time has its place.

use callpath_end_to_end::{C, Program, Recorded, run_report};

const START: &str = "gap:start of the process: exec, loader";
const OWN_START: &str = "gap:start of callpath in the process";
const NEVER: &str = "gap:ended before the first sample";
pub(crate) const NO_ROOM: &str = "gap:no room for the sample";
const CROWD: C = C { source: "crowd.c", output: "crowd", options: &["-O1", "-pthread"] };

fn crowd(mode: &str, count: u64, micros: u64) -> Program {
    Program::compiled(CROWD).arguments([mode.to_owned(), count.to_string(), micros.to_string()])
}

fn head(recorded: &Recorded) -> String {
    let said = run_report(&recorded.directory, &[]);
    assert_eq!(said.status, 0, "{}", said.stderr);
    let words: Vec<&str> = said.stdout.lines().take(10).flat_map(str::split_whitespace).collect();
    words.join(" ")
}

#[test]
fn five_hundred_processes_at_once() {
    let (recorded, cost_ns) = crowd("processes", 500, 4000).same_with_rusage();
    let profile = recorded.profile();
    assert_eq!(profile.quality.dropped.get("no-memory"), None, "{:?}", profile.quality);
    let work = profile.through(&["main", "work"], "cpu-time");
    assert!(work * 10 > 500 * 4_000_000 * 9, "{work} of {cost_ns}");
    let total = profile.total("cpu-time");
    assert!(total.abs_diff(cost_ns) < cost_ns / 10 + 20_000_000, "{total} of {cost_ns}");
    // With `rusage`, which executes nothing but the program.
    let head = head(&recorded);
    assert!(head.contains("502 processes, 502 threads"), "{head}");
}

#[test]
fn processes_that_there_is_no_memory_for() {
    // 16 MiB for the measurement (in units of 512 bytes): a chunk each for less than 256 threads.
    let limited = ["/bin/sh", "-c", "ulimit -f 32768; exec \"$@\"", "sh"];
    let (recorded, cost_ns) = crowd("processes", 400, 4000).through(&limited).same_with_rusage();
    let profile = recorded.profile();
    let lost = profile.through(&[NO_ROOM], "cpu-time");
    assert!(lost * 10 > 100 * 4_000_000 * 9, "{lost} of {cost_ns}");
    let total = profile.total("cpu-time");
    assert!(total.abs_diff(cost_ns) < cost_ns / 10 + 20_000_000, "{total} of {cost_ns}");
    let head = head(&recorded);
    assert!(head.contains("402 processes, 402 threads"), "{head}");
    assert!(head.contains("% of cpu-time HAS NO CALL PATH"), "{head}");
}

#[test]
fn the_start_of_a_process_is_not_its_program() {
    let (recorded, cost_ns) = crowd("exec", 100, 300).same_with_rusage();
    let profile = recorded.profile();
    let [start, own, never] = [START, OWN_START, NEVER].map(|row| profile.through(&[row], "cpu-time"));
    // Exec and the loader take some hundred microseconds; what follows is too short for a sample.
    assert!(start > 100 * 100_000, "{start} of {cost_ns}");
    assert!(own > 0 && own < start, "{own}, start {start}");
    assert!(profile.quality.overhead_ns >= own, "{own} of {:?}", profile.quality);
    assert!(never * 10 > 100 * 300_000 * 5, "{never} of {cost_ns}");
    // What callpath costs the loader's call of its start is its own. A sample may come just behind it.
    let behind = profile.through(&["call_init"], "cpu-time");
    assert!(behind * 20 < own, "{behind} of {own}");
    let total = profile.total("cpu-time");
    assert!(total < cost_ns + cost_ns / 20 + 20_000_000 && total * 100 > cost_ns * 80, "{total} of {cost_ns}");
}

#[test]
fn a_thread_that_is_sampled_as_it_begins_is_one() {
    let mut twice = Vec::new();
    for _ in 0..4 {
        let recorded = crowd("threads", 400, 1000).options(&["-F", "5000"]).same();
        let head = head(&recorded);
        if !head.contains(" 401 threads") {
            twice.push(head);
        }
        let profile = recorded.profile();
        let unnamed = profile.of_kind("thread").into_iter().filter(|(name, _)| !name.starts_with("worker-")).count();
        assert!(unnamed <= 1, "{:?}", profile.of_kind("thread"));
    }
    assert!(twice.is_empty(), "{twice:?}");
}
