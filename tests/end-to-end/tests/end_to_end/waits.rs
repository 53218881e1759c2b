//! Calls that wait: nothing ends them that would not have ended them without callpath, and what should end them does.

use callpath_end_to_end::{Profile, Program, is_root, skip};

use crate::ordinary_user::UserDirectory;
use crate::outside::is_allowed;

/// Recorded by the kernel's clock where that is allowed, and as an ordinary user, for whom timers interrupt everything.
fn undisturbed(mode: &str) {
    let rate = "5000";
    let program = Program::nasty("waits.c").arguments([mode]).options(&["-e", "wall-time", "-F", rate]);
    let recorded = program.same();
    let by_clock = recorded.profile();
    assert_sampled(&by_clock, mode);
    if !is_root() {
        return skip("waits as an ordinary user", "the tests run as an ordinary user anyway");
    }
    let place = UserDirectory::new();
    let copy = place.copy(program.path());
    let said = place.run(&["record", "-e", "wall-time", "-F", rate, "-o", "m", "--", copy.to_str().unwrap(), mode]);
    assert_eq!((recorded.ended.stdout, recorded.ended.status), (said.stdout, said.status), "{mode}: {}", said.stderr);
    let by_timer = place.profile("m");
    assert_sampled(&by_timer, mode);
}

/// The thread that never waits is sampled a good part of the time that the first one, which starts it, is in `main`.
fn assert_sampled(profile: &Profile, mode: &str) {
    let [busy_ns, main_ns] = ["busy", "main"].map(|name| profile.through(&[name], "wall-time"));
    assert!(main_ns > 0 && busy_ns * 2 > main_ns, "{mode}: {busy_ns} of {main_ns} ns; {:?}", profile.quality);
}

#[test]
fn until_their_time() {
    undisturbed("calls");
}

#[test]
fn until_something_comes() {
    undisturbed("sent");
}

#[test]
fn until_a_handler_of_the_programs_own() {
    undisturbed("handler");
}

/// A sample may come just when the handler has returned, and must not be taken for what has ended the wait.
#[test]
fn until_a_handler_at_any_moment() {
    undisturbed("sudden");
}

#[test]
fn for_signals() {
    undisturbed("wanted");
}

#[test]
fn that_open_the_mask() {
    undisturbed("opened");
}

/// Time off the processor is that which passed less that on it, in each row; sleeping is all of that.
#[test]
fn off_the_processor() {
    let times = 60;
    let mut ways = vec!["--outside=never"];
    ways.extend(is_allowed("off-cpu, from outside").then_some("--outside=always"));
    for way in ways {
        let count = times.to_string();
        let program = Program::nasty("rests.c").arguments([count.as_str()]).options(&["-e", "off-cpu", way]);
        let profile = program.same().profile();
        for path in [&[][..], &["works"], &["sleeps"], &["main", "sleeps", "nanosleep"]] {
            let [wall, cpu, off] = ["wall-time", "cpu-time", "off-cpu"].map(|metric| profile.through(path, metric));
            assert!(off.abs_diff(wall.saturating_sub(cpu)) <= 1, "{way} {path:?}: {off} is not {wall} - {cpu}");
        }
        let slept_ns = times * 10_000_000;
        let [off, cpu] = ["off-cpu", "cpu-time"].map(|metric| profile.through(&["sleeps"], metric));
        assert!(off * 20 >= slept_ns * 19 && cpu * 4 < slept_ns, "{way}: {off} and {cpu} of {slept_ns}");
        assert!(profile.through(&["works"], "cpu-time") > 0, "{way}");
    }
}
