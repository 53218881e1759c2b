//! cpu-time is what the kernel accounts, user and kernel time, within 2%.

use callpath_end_to_end::{Profile, Program, stolen_ns};

/// What a process costs before and after callpath can see it, at most.
const SLACK_NS: u64 = 6_000_000;

fn compared_with_kernel(program: &Program) -> (Profile, u64) {
    let stolen_before_ns = stolen_ns();
    let (recorded, cost_ns) = program.same_with_rusage();
    // The kernel's work at a process's end is known by its event alone, which counts what the host denied.
    let slack_ns = SLACK_NS + stolen_ns() - stolen_before_ns;
    let profile = recorded.profile();
    let total = profile.total("cpu-time");
    let difference = total.abs_diff(cost_ns);
    assert!(
        difference < cost_ns / 50 + slack_ns,
        "{total} ns measured, {cost_ns} by the kernel; {:?}",
        profile.quality
    );
    (profile, cost_ns)
}

/// The programs, as they are run for any user.
pub(crate) fn programs() -> Vec<(&'static str, Program)> {
    let text = callpath_end_to_end::tool_path("text-for-xz");
    let words: String = (0..400_000u32).map(|i| format!("{} ", i.wrapping_mul(2_654_435_761) >> 18)).collect();
    let fresh = callpath_end_to_end::tool_path(&format!("text-for-xz.{}", std::process::id()));
    std::fs::write(&fresh, words).unwrap();
    std::fs::rename(&fresh, &text).unwrap();
    vec![
        ("xz", Program::at("/usr/bin/xz").arguments(["-6", "-T1", "-k", "-c"]).arguments([text])),
        (
            "dd",
            Program::at("/usr/bin/dd").arguments([
                "if=/dev/zero",
                "of=/dev/null",
                "bs=64k",
                "count=300000",
                "status=none",
            ]),
        ),
        ("reads", Program::nasty("reads.c").arguments(["300000"])),
    ]
}

#[test]
fn of_xz() {
    let (profile, _) = compared_with_kernel(&programs()[0].1);
    profile.assert_full(995);
}

#[test]
fn of_dd() {
    let (profile, _) = compared_with_kernel(&programs()[1].1);
    profile.assert_full(990);
}

#[test]
fn of_a_read_loop() {
    let (profile, cost_ns) = compared_with_kernel(&programs()[2].1);
    profile.assert_full(990);
    // The kernel's time stands at the context that entered it.
    let reading = profile.through(&["main", "read_all", "read"], "cpu-time");
    assert!(reading * 100 > cost_ns * 80, "{reading} of {cost_ns} in read");
}

/// A virtual machine may stand still for a tenth of a second without saying so: its clocks go on, no tick comes. That does not
/// happen each time.
#[test]
fn at_other_rates() {
    const ATTEMPTS: usize = 3;
    for rate in ["99", "4000"] {
        let mut seen = Vec::new();
        let is_kept = (0..ATTEMPTS).any(|_| {
            let stolen_before_ns = stolen_ns();
            let (profile, cost_ns) =
                compared_with_kernel(&Program::nasty("burn.c").arguments(["500"]).options(&["-F", rate]));
            let rate: u64 = rate.parse().unwrap();
            let expected = |ns: u64| ns * rate / 1_000_000_000;
            let (least, taken) = (expected(cost_ns), profile.quality.taken);
            // The event's clock continues while the host runs others, the thread's does not.
            let most = expected(cost_ns + stolen_ns() - stolen_before_ns);
            seen.push(format!("{taken} of {least} to {most} samples"));
            // More than that is never right.
            assert!(taken * 100 < most * 110 + 500, "{seen:?}");
            taken * 100 > least * 85
        });
        assert!(is_kept, "{seen:?}");
    }
}

#[test]
fn of_wall_time_while_it_sleeps() {
    const ASLEEP_NS: u64 = 500_000_000;
    let program = Program::at("/bin/sleep").arguments(["0.5"]).options(&["-e", "wall-time", "-e", "cpu-time"]);
    let stolen_before_ns = stolen_ns();
    let (recorded, cost_ns) = program.same_with_rusage();
    // The kernel may count what the host took from the machine for the thread, or not.
    let stolen_ns = stolen_ns() - stolen_before_ns;
    let profile = recorded.profile();
    let (wall, cpu) = (profile.through(&["process:sleep"], "wall-time"), profile.total("cpu-time"));
    // Up to the sample of the last wait at least, and no more than the process lasted, by the recorder's clock.
    let lasted_ns = profile.duration_ns("sleep");
    assert!((ASLEEP_NS * 9 / 10..lasted_ns + SLACK_NS).contains(&wall), "{wall} ns of wall time, lasted {lasted_ns}");
    let most = cost_ns + cost_ns / 50 + SLACK_NS + stolen_ns;
    assert!(cpu < most, "{cpu} ns of CPU time, {cost_ns} by the kernel, {stolen_ns} stolen");
}
