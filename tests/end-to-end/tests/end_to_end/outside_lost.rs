//! Records that were lost: nothing is guessed of that time, and it stands where it belongs.

use std::process::Command;
use std::time::{Duration, Instant};

use callpath_end_to_end::{C, compiled, is_root, skip};

use crate::crowds::NO_ROOM;
use crate::outside::{Attached, Running, is_allowed};

/// The recorder stands still until the kernel has no room for what it would have to know: then it says nothing about that time, and
/// nothing wrong about what comes after.
#[test]
fn what_was_lost_is_not_guessed() {
    if !is_allowed("what_was_lost_is_not_guessed") {
        return;
    }
    const ONE: C =
        C { source: "replaced.c", output: "replaced_one", options: &["-O1", "-static", "-no-pie", "-DNAME=one"] };
    const TWO: C =
        C { source: "replaced.c", output: "replaced_two", options: &["-O1", "-static", "-no-pie", "-DNAME=two"] };
    let [one, two] = [ONE, TWO].map(|what| compiled(what).expect("it compiles").display().to_string());
    // One processor has one ring, which is full soon.
    let mut running = Running::start(Command::new("taskset").args(["-c", "0", &one, "2500", &two, "1500"]));
    let mut attached = Attached::to(&["-F", "20000", "-p", &running.pid()]);
    signal(&attached, "-STOP");
    let used_by_one_ms: u64 = running.line().parse().expect("milliseconds");
    std::thread::sleep(Duration::from_millis(300));
    signal(&attached, "-CONT");
    let used_ms: u64 = running.line().parse().expect("milliseconds");
    let ended = attached.ended();
    assert_eq!(ended.status, 0, "{ended:?}");
    let profile = attached.profile(&[]);
    assert!(profile.quality.taken > profile.quality.full + profile.quality.partial, "nothing was lost: {profile:?}");
    let of = |name: &str| profile.through(&[name], "cpu-time") / 1_000_000;
    // What the other did is not called the first one's: a clock's ticks are as exact as a twentieth.
    assert!(of("mid_one") <= used_by_one_ms + used_by_one_ms / 20, "{} of {used_by_one_ms} ms", of("mid_one"));
    assert!(of("mid_two") <= (used_ms - used_by_one_ms) * 21 / 20 && of("mid_two") > 0, "{profile:?}");
    for path in profile.paths() {
        let at = path.iter().position(|name| name.starts_with("spin_"));
        assert!(
            at.is_none_or(|at| at == 0 || path[at - 1][4..] == path[at][5..]),
            "no such call in the source: {path:?}"
        );
    }
}

/// Who waits when records are lost waits on, and may not go on before the end: that time is there, from when the kernel has room again.
#[test]
fn a_wait_that_outlasts_lost_records() {
    if !is_allowed("a_wait_that_outlasts_lost_records") {
        return;
    }
    let sleeper = Running::start(Command::new("sleep").arg("1000"));
    // Each hands the processor to the other, some ten thousand times a second.
    let mut crowd = Running::start(Command::new("taskset").args([
        "-c",
        "0",
        "sh",
        "-c",
        "read x; timeout 2 yes | cat > /dev/null",
    ]));
    let pids = format!("{},{}", sleeper.pid(), crowd.pid());
    let mut attached = Attached::to(&["-e", "off-cpu", "-p", &pids, "--duration", "5"]);
    signal(&attached, "-STOP");
    crowd.tell("go");
    std::thread::sleep(Duration::from_millis(1500));
    signal(&attached, "-CONT");
    let since = Instant::now();
    std::thread::sleep(Duration::from_millis(200));
    drop(crowd);
    let ended = attached.ended();
    let most = since.elapsed();
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(ended.stderr.contains("samples were lost"), "{ended:?}");
    let slept = attached.profile(&[]).through(&["process:sleep", "clock_nanosleep"], "off-cpu");
    let slept = Duration::from_nanos(slept);
    // It began more than a second before the loss ended, and goes on for as long after it.
    assert!(slept > Duration::from_secs(1) && slept <= most, "{slept:?} of {most:?}: {ended:?}");
}

/// Where all is sampled, the kernel does not say whose records were lost. The clocks of processes that go on tell how many were theirs, also of one
/// that had no sample before. What is left is that of processes that have ended meanwhile.
#[test]
fn whose_lost_samples_are() {
    if !is_allowed("whose_lost_samples_are") {
        return;
    }
    if !is_root() {
        return skip("whose_lost_samples_are", "only root samples all processes");
    }
    let start = |program: &str, option: &str, script: &str| {
        let mut running = Running::start(Command::new("taskset").args(["-c", "0", program, option, script]));
        assert_eq!(running.line(), "ready");
        running
    };
    let dash = start("dash", "-c", "echo ready; while :; do :; done");
    let mut bash = start("bash", "-c", "echo ready; read x; while :; do :; done");
    let leaving = start("perl", "-e", "$| = 1; print \"ready\\n\"; 1 while 1");
    let used = |running: &Running| {
        let said = std::fs::read_to_string(format!("/proc/{}/schedstat", running.pid())).expect("it is there");
        said.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).expect("nanoseconds")
    };
    let before = [&dash, &bash, &leaving].map(used);
    let begun = Instant::now();
    let mut attached = Attached::to(&["-F", "20000", "-a"]);
    attached.until(100);
    signal(&attached, "-STOP");
    let at_stop = used(&leaving);
    bash.tell("go");
    std::thread::sleep(Duration::from_millis(2500));
    let by_leaving = [at_stop - before[2], used(&leaving) - at_stop];
    drop(leaving);
    signal(&attached, "-CONT");
    std::thread::sleep(Duration::from_millis(300));
    let ended = attached.interrupt();
    let lasted_ns = begun.elapsed().as_nanos() as u64;
    let (by_dash, by_bash) = (used(&dash) - before[0], used(&bash) - before[1]);
    assert!(ended.status == 0 && ended.stderr.contains("samples were lost"), "{ended:?}");
    let profile = attached.profile(&[]);
    let of = |process: &str| profile.through(&[process], "cpu-time");
    for (process, used) in [("process:dash", by_dash), ("process:bash", by_bash)] {
        let (all, lost) = (of(process), profile.through(&[process, NO_ROOM], "cpu-time"));
        // Some of what it has used is before the first sample or behind the last one.
        assert!(lost > 0 && all <= used + used / 20 && all * 5 > used * 4, "{process}: {all}, {lost} lost, of {used}");
    }
    let [sampled, stopped] = by_leaving;
    // Also what others of the machine did that have ended meanwhile.
    let (lost, all) = (of("process:[lost samples]"), of("process:perl"));
    assert!(all <= sampled + stopped, "{all} of {by_leaving:?}");
    assert!(lost * 2 > stopped && (lost + all) * 5 > (sampled + stopped) * 4, "{lost} lost, {all} of {by_leaving:?}");
    let said = std::fs::read_to_string("/proc/stat").expect("the kernel's account");
    let processors = said.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count() as u64;
    // Nothing stands there twice.
    let total = profile.total("cpu-time");
    assert!(total <= processors * lasted_ns, "{total} of {processors} times {lasted_ns}");
    assert!(profile.quality.taken > profile.quality.full + profile.quality.partial, "{:?}", profile.quality);
}

/// Sends the recorder a signal.
fn signal(attached: &Attached, name: &str) {
    let pid = attached.recorder.id().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().expect("kill is there").success());
}
