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

/// Where all is sampled, the kernel does not say whose records were lost. The processes' clocks do, also of one that ended before there was
/// room again, and of one that had not had a sample before.
#[test]
fn whose_lost_samples_are() {
    if !is_allowed("whose_lost_samples_are") {
        return;
    }
    if !is_root() {
        return skip("whose_lost_samples_are", "only root samples all processes");
    }
    let busy =
        |shell: &str, script: &str| Running::start(Command::new("taskset").args(["-c", "0", shell, "-c", script]));
    let (dash, mut bash) = (busy("dash", "while :; do :; done"), busy("bash", "read x; while :; do :; done"));
    let pids = [dash.pid(), bash.pid()];
    let used = |pid: &String| {
        let said = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).expect("it is there");
        said.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).expect("nanoseconds")
    };
    let before = pids.each_ref().map(used);
    let mut attached = Attached::to(&["-F", "20000", "-a"]);
    attached.until(100);
    signal(&attached, "-STOP");
    bash.tell("go");
    std::thread::sleep(Duration::from_millis(1500));
    signal(&attached, "-CONT");
    std::thread::sleep(Duration::from_millis(300));
    let ended = attached.interrupt();
    let used = [0, 1].map(|index| used(&pids[index]) - before[index]);
    assert!(ended.status == 0 && ended.stderr.contains("samples were lost"), "{ended:?}");
    let profile = attached.profile(&[]);
    for (name, used) in ["process:dash", "process:bash"].into_iter().zip(used) {
        let (all, lost) = (profile.through(&[name], "cpu-time"), profile.through(&[name, NO_ROOM], "cpu-time"));
        // What it has used from its start to the end, of which some is before the first sample or behind the last one.
        assert!(lost > 0 && all <= used + used / 20 && all * 5 > used * 4, "{name}: {all}, {lost} lost, of {used}");
    }
    // How many they were is known, not whose: that is no process's time.
    assert_eq!(profile.through(&["process:[lost samples]"], "cpu-time"), 0, "{profile:?}");
    assert!(profile.quality.taken > profile.quality.full + profile.quality.partial, "{:?}", profile.quality);
    assert!(profile.processes().iter().any(|(name, _)| name == "[lost samples]"), "{profile:?}");
}

/// Sends the recorder a signal.
fn signal(attached: &Attached, name: &str) {
    let pid = attached.recorder.id().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().expect("kill is there").success());
}
