//! Samples from outside of many processes, of many threads, and of a process that has another number for itself.

use std::process::Command;
use std::time::{Duration, Instant};

use callpath_end_to_end::{C, Program, compiled, is_root, run_report, skip};

use crate::outside::{OUTSIDE, Running, is_allowed, profile, run};

const CROWD: C = C { source: "crowd.c", output: "crowd", options: &["-O1", "-pthread"] };
const SLEEPERS: C = C { source: "sleepers.c", output: "sleepers", options: &["-O1", "-pthread"] };

/// Children that work for two milliseconds each, so that each is worth two samples.
#[test]
fn a_storm_of_forks() {
    const CHILDREN: u64 = 1500;
    const WORK_NS: u64 = 2_000_000;
    if !is_allowed("a_storm_of_forks") {
        return;
    }
    let program = Program::compiled(CROWD).arguments(["processes".to_owned(), CHILDREN.to_string(), "2000".to_owned()]);
    let (recorded, cost_ns) = program.options(&["--outside"]).same_with_rusage();
    let profile = recorded.profile();
    profile.assert_sound();
    let (work, total) = (profile.through(&["main", "work"], "cpu-time"), profile.total("cpu-time"));
    assert!(work > 0 && work < cost_ns && total < cost_ns + cost_ns / 10, "{work} and {total} of {cost_ns}");
    // The kernel's rings may be too small for so many at once.
    if !recorded.ended.stderr.contains("rings were full") {
        // Each child begins a new period, of which the rest is in no sample: half of one on average.
        assert!(work > CHILDREN * WORK_NS / 2, "{work} of {cost_ns}");
        let said = run_report(&recorded.directory, &[]);
        let words: Vec<&str> = said.stdout.lines().take(10).flat_map(str::split_whitespace).collect();
        assert!(words.join(" ").contains(&format!("{} processes", CHILDREN + 2)), "{}", said.stdout);
    }
}

#[test]
fn ten_thousand_threads() {
    const THREADS: usize = 10_000;
    if !is_allowed("ten_thousand_threads") {
        return;
    }
    let program = compiled(SLEEPERS).expect("it compiles");
    let running = Running::start(Command::new(program).args(["9990", "10", "120"]));
    let tasks = format!("/proc/{}/task", running.pid());
    let begun = Instant::now();
    while std::fs::read_dir(&tasks).map_or(0, Iterator::count) <= THREADS {
        if begun.elapsed() > Duration::from_secs(60) {
            return skip("ten_thousand_threads", "this machine does not allow so many");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let (ended, place) = run(&["record", "-o", "m", "-p", &running.pid(), "--duration", "4"]);
    assert_eq!(ended.status, 0, "{ended:?}");
    let profile = profile(&place.path().join("m"), &[]);
    assert!(profile.total("cpu-time") > 2_000_000_000, "{:?}", profile.quality);
    // The busy ones are the last; each thread takes a descriptor for each processor.
    if !ended.stderr.contains("threads were not sampled") {
        assert!(profile.percent_through(&["worker"]) > 50.0, "{:?}", profile.quality);
    }
}

#[test]
fn a_process_of_another_pid_name_space() {
    if !is_allowed("a_process_of_another_pid_name_space") {
        return;
    }
    if !is_root() {
        return skip("a_process_of_another_pid_name_space", "needs root");
    }
    let program = compiled(OUTSIDE).expect("it compiles");
    let mut unshare = Command::new("unshare");
    let mut running = Running::start(unshare.args(["--pid", "--fork", "--kill-child"]).arg(program).args(["2", "5"]));
    assert_eq!(running.line(), "ready");
    let children =
        std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", running.pid())).expect("it has a child");
    let (ended, place) = run(&["record", "-q", "-o", "m", "-p", children.trim(), "--duration", "0.5"]);
    assert_eq!(ended.status, 0, "{ended:?}");
    let profile = profile(&place.path().join("m"), &[]);
    profile.assert_full(990);
    assert!(profile.through(&["down", "work"], "samples") >= 100, "{:?}", profile.quality);
}
