//! Events that the kernel counts: how many, and where, against what a program and the kernel's own account say.

use callpath_end_to_end::{C, Ended, Profile, Program, Recorded, callpath, is_root, skip};

use crate::ordinary_user::UserDirectory;

fn program(words: &[&str], events: &str) -> Program {
    Program::nasty("events.c").arguments(words).options(&["-e", events])
}

fn profile(recorded: &Recorded) -> Profile {
    assert_eq!(recorded.ended.status, 0, "{:?}", recorded.ended);
    recorded.profile()
}

/// Page faults, context switches, major page faults and switches in pause_once that the
/// program says it had, by the kernel's account.
fn kernel_counts(ended: &Ended) -> [u64; 4] {
    let numbers = ended.stderr.lines().find_map(|line| {
        let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().ok()).collect::<Option<_>>()?;
        numbers.try_into().ok()
    });
    numbers.unwrap_or_else(|| panic!("no account in {:?}", ended.stderr))
}

fn assert_near(found: u64, expected: u64, slack: u64, what: &str) {
    assert!(found.abs_diff(expected) <= slack, "{what}: {found}, not {expected}");
}

/// What the C library does between the program's last account and its end, and the other way round.
const FEW: u64 = 20;

/// All page faults are at least those that the program had unrecorded, `alone`, and at most those that
/// the kernel counted while it was recorded, `kernel_counts`: those of samples themselves, which are
/// not the program's, are counted there only.
fn assert_all_faults(found: u64, alone: &Ended, recorded: &Ended, what: &str) {
    let (least, most) = (kernel_counts(alone)[0].saturating_sub(FEW), kernel_counts(recorded)[0] + FEW);
    assert!((least..=most).contains(&found), "{what}: {found}, not from {least} to {most}");
}

#[test]
fn each_page_fault_is_where_it_happened() {
    let program = program(&["touch", "3000", "2"], "page-faults@1");
    let recorded = program.recorded();
    let profile = profile(&recorded);
    // A thread's first faults come before its first sample.
    assert_near(profile.through(&["happen", "touch"], "page-faults"), 6000, 10, "in touch");
    assert_all_faults(profile.total("page-faults"), &program.bare(), &recorded.ended, "in all");
    // A thread begins with all signals blocked: what comes meanwhile is late, and counted with the next sample.
    let quality = &profile.quality;
    let late = quality.dropped.get("late").copied().unwrap_or(0);
    assert!(quality.full >= 6000 && late <= 10 && quality.taken == quality.full + late, "{quality:?}");
}

#[test]
fn page_faults_by_period_and_by_rate_add_up_to_the_kernels() {
    for event in ["page-faults@100", "page-faults@f500", "faults", "minor-faults"] {
        let program = program(&["touch", "20000"], event);
        let recorded = program.recorded();
        let profile = profile(&recorded);
        let name = event.split('@').next().unwrap_or_default();
        assert_all_faults(profile.total(name), &program.bare(), &recorded.ended, event);
        assert!(profile.quality.taken < 4000, "{event}: {:?}", profile.quality);
    }
    let recorded = program(&["touch", "20000"], "page-faults@100").recorded();
    assert_near(profile(&recorded).through(&["main", "happen", "touch"], "page-faults"), 20_000, 300, "in touch");
}

/// The kernel raises one signal for all that one system call faulted; a thread reads how many they were.
#[test]
fn page_faults_inside_of_a_system_call_are_not_lost() {
    let profile = profile(&program(&["fill", "2000"], "page-faults@1").recorded());
    assert_near(profile.through(&["main", "happen", "fill", "read"], "page-faults"), 2000, 5, "in read");
}

/// In a file system that has no disk there is none.
#[test]
fn major_page_faults() {
    let directory = callpath_end_to_end::tool_path("");
    let directory = directory.to_str().expect("a path");
    let on_disk = ["env", "-C", directory];
    let recorded = program(&["reread", "100"], "major-faults@1,page-faults@1").through(&on_disk).recorded();
    let profile = profile(&recorded);
    let [_, _, major, _] = kernel_counts(&recorded.ended);
    if major < 100 {
        return skip("events::major_page_faults", "the kernel does not forget files here");
    }
    let found = profile.through(&["happen", "reread"], "major-faults");
    assert!((100..=major).contains(&found), "{found} of {major}");
    assert_near(profile.total("major-faults"), major, FEW, "in all");
    assert!(profile.through(&["happen", "reread"], "page-faults") >= found);
}

#[test]
fn context_switches_stand_where_the_thread_waited() {
    let recorded = program(&["sleep", "200", "2"], "context-switches@1").recorded();
    let profile = profile(&recorded);
    let waiting = profile.through(&["happen", "pause_once"], "context-switches");
    // All threads' of the process, up to the account.
    let [_, switches, _, paused] = kernel_counts(&recorded.ended);
    assert!(paused > 200 && (paused..=switches).contains(&waiting), "{waiting} in pause_once, {paused} by the account");
    assert_near(profile.total("context-switches"), switches, FEW, "in all");
}

#[test]
fn several_events_have_each_their_own_metric() {
    let program = program(&["both", "2000"], "cpu-time,page-faults@1,context-switches@1");
    let recorded = program.recorded();
    let profile = profile(&recorded);
    let of = |names: &[&str], metric| profile.through(names, metric);
    assert_near(of(&["happen", "touch"], "page-faults"), 2000, 2, "faults in touch");
    assert!(of(&["happen", "work"], "page-faults") < 5);
    let [_, switches, _, paused] = kernel_counts(&recorded.ended);
    let waiting = of(&["happen", "pause_once"], "context-switches");
    assert!(paused > 100 && (paused..=switches).contains(&waiting), "{waiting} in pause_once, {paused} by the account");
    // Work is 2 ms by the thread's own clock; a clock's time does not go to where pages fault.
    let (work, all) = (of(&["happen", "work"], "cpu-time"), profile.total("cpu-time"));
    assert!(work > 500_000 && all > work, "{work} ns in work, {all} in all");
    assert_all_faults(profile.total("page-faults"), &program.bare(), &recorded.ended, "page faults");
    assert_near(profile.total("context-switches"), switches, FEW, "context switches");
}

/// More than the 32 that layouts once had room for, by names that mean the same
/// and by what a software event does not mind.
#[test]
fn forty_six_events_at_once() {
    let names = [
        ["page-faults", "faults"].as_slice(),
        &["context-switches", "cs"],
        &["minor-faults"],
        &["major-faults"],
        &["cpu-migrations", "migrations"],
        &["alignment-faults"],
        &["emulation-faults"],
        &["cgroup-switches"],
    ];
    let precisions = ["", ":p", ":pp", ":ppp"];
    let named = |name: &&str| precisions.map(|precision| format!("{name}{precision}@1"));
    let counted: Vec<String> = names.concat().iter().flat_map(named).collect();
    let events = &format!("cpu-time,wall-time,{}", counted.join(","));
    assert_eq!(events.split(',').count(), 46);
    let program = program(&["both", "2000"], events);
    let recorded = program.recorded();
    let profile = profile(&recorded);
    profile.assert_sound();
    let of = |names: &[&str], metric| profile.through(names, metric);
    for precision in precisions {
        for name in ["page-faults", "faults"].map(|name| format!("{name}{precision}")) {
            assert_near(profile.through(&["happen", "touch"], &name), 2000, 2, &name);
        }
    }
    let [_, switches, _, paused] = kernel_counts(&recorded.ended);
    let waiting = of(&["happen", "pause_once"], "context-switches");
    assert!(paused > 100 && (paused..=switches).contains(&waiting), "{waiting} in pause_once, {paused} by the account");
    assert_all_faults(profile.total("page-faults"), &program.bare(), &recorded.ended, "page faults");
    assert_near(profile.total("context-switches"), switches, FEW, "context switches");
    assert_eq!(["alignment-faults", "emulation-faults"].map(|metric| profile.total(metric)), [0; 2]);
    assert!(profile.total("wall-time") < 60_000_000_000, "{} ns", profile.total("wall-time"));
}

/// Two events at the same moment are one signal to the kernel.
#[test]
fn events_that_happen_together_are_both_counted() {
    let faults = profile(&program(&["touch", "2000"], "minor-faults@1,page-faults@1").recorded());
    for metric in ["minor-faults", "page-faults"] {
        assert_near(faults.through(&["happen", "touch"], metric), 2000, 2, metric);
    }
    let recorded = program(&["sleep", "200"], "wall-time,context-switches").recorded();
    let waits = profile(&recorded);
    // A wait that is over before the processor is given up leads to no switch.
    let [_, _, _, paused] = kernel_counts(&recorded.ended);
    let waiting = waits.through(&["happen", "pause_once"], "context-switches");
    assert!(paused > 100 && waiting >= paused, "{waiting} in pause_once, {paused} by the account");
    assert!(waits.through(&["happen", "pause_once"], "wall-time") >= 20_000_000);
}

#[test]
fn usage_goes_on_over_exec() {
    let program = program(&["exec", "touch", "1000"], "page-faults@1");
    let recorded = program.recorded();
    let profile = profile(&recorded);
    assert_near(profile.through(&["touch"], "page-faults"), 2000, 4, "in touch of both");
    assert_all_faults(profile.total("page-faults"), &program.bare(), &recorded.ended, "in all");
}

#[test]
fn migrations_are_counted_one_by_one() {
    if std::thread::available_parallelism().is_ok_and(|n| n.get() < 2) {
        return skip("events::migrations_are_counted_one_by_one", "there is one processor");
    }
    let profile = profile(&program(&["move", "100"], "cpu-migrations@1").recorded());
    let moved = profile.through(&["happen", "move_once"], "cpu-migrations");
    assert!((90..120).contains(&moved), "{moved}");
}

/// An event that a thread cannot read its own count of: each sample stands for the event's period.
#[test]
fn calls_are_counted_by_a_breakpoint() {
    let made = C { source: "events.c", output: "events-at-fixed-addresses", options: &["-no-pie", "-fno-pie"] };
    let program = Program::compiled(made);
    let symbols = std::process::Command::new("nm").arg(program.path()).output().expect("nm can be run");
    let symbols = String::from_utf8(symbols.stdout).expect("nm writes text");
    let line = symbols.lines().find(|line| line.ends_with(" counted")).expect("there is `counted`");
    let address = line.split(' ').next().expect("an address");
    let name = format!("mem:0x{address}:x");
    let calls = |suffix: &str, words: &[&str]| {
        let event = format!("{name}{suffix}");
        let recorded = program.clone().arguments(words).options(&["-e", &event]).recorded();
        if recorded.ended.stderr.contains("no free breakpoint register") {
            return None;
        }
        let profile = profile(&recorded);
        Some((profile.through(&["happen", "counted"], &name), profile.total(&name), profile.quality.taken))
    };
    let Some(each) = calls("", &["call", "500", "2"]) else {
        return skip("events::calls_are_counted_by_a_breakpoint", "no breakpoint register is free");
    };
    assert_eq!((each.0, each.1), (1000, 1000), "each call");
    let tenth = calls("@10", &["call", "500", "2"]).expect("as before");
    // A sample that is dropped takes the period with it.
    assert_near(tenth.1, 1000, 20, "each tenth call");
    assert!(tenth.2 < 110, "{tenth:?}");
    // By rate the period is found on the way; the whole is made to fit the kernel's count.
    let rate = calls("@f200", &["call", "30000"]).expect("as before");
    assert_near(rate.1, 30_000, 300, "by rate");
}

#[test]
fn tracepoints() {
    if !is_root() {
        return skip("events::tracepoints", "tracepoints are root's");
    }
    // A name space of its own: nothing is left mounted.
    let mounts = ["unshare", "--mount", "sh", "-c", "mount -t tracefs none /sys/kernel/tracing && exec \"$0\" \"$@\""];
    let program = |events: &str| program(&["write", "500", "2"], events).through(&mounts);
    if program("cpu-time").bare().status != 0 {
        return skip("events::tracepoints", "tracefs cannot be mounted here");
    }
    let written = profile(&program("syscalls:sys_enter_write").recorded());
    assert_near(written.through(&["happen", "write_once", "write"], "syscalls:sys_enter_write"), 1000, 0, "writes");
    let said = program("syscalls:sys_enter_nowhere").recorded().ended;
    assert_eq!(said.status, 125);
    assert!(said.stderr.contains("no tracepoint of that name under /sys/kernel/tracing/events"), "{}", said.stderr);
}

#[test]
fn what_is_not_there_is_said_with_what_is() {
    let offered = Ended::of(&std::process::Command::new(callpath()).arg("list").output().expect("callpath can be run"));
    assert_eq!(offered.status, 0, "{offered:?}");
    let (here, elsewhere) = offered.stdout.split_once("Events that cannot").unwrap_or((&offered.stdout, ""));
    assert!(here.contains("page-faults, or faults") && here.contains("cpu-time"), "{here}");
    if elsewhere.contains("cycles,") {
        for event in ["cycles", "instructions:u@1000000", "branch-misses:pp", "LLC-load-misses", "r1a8"] {
            let said = program(&["touch", "1"], event).recorded().ended;
            assert_eq!(said.status, 125, "{event}: {said:?}");
            let name = event.split('@').next().unwrap_or_default();
            assert!(
                said.stderr.contains(&format!("failed to sample {name}: this machine has no such counter")),
                "{said:?}"
            );
            assert!(
                said.stderr.contains("what can be sampled here: cpu-time, wall-time, off-cpu, page-faults"),
                "{said:?}"
            );
        }
    } else {
        skip("events::what_is_not_there_is_said_with_what_is", "this machine has hardware counters");
    }
    let too_many = (1..=498).map(|number| format!("r{number}")).collect::<Vec<_>>().join(",");
    for (event, words) in [
        ("cycels", "unknown event `cycels`; similar names: cycles, "),
        ("page-faults:x", "`x` is not a modifier"),
        ("page-faults@0", "`0` is not a period"),
        ("page-faults@f0", "a rate of 0 samples a second is out of range"),
        ("cpu-time@x", "`x` is not a period"),
        ("page-faults,page-faults", "asked for twice"),
        (too_many.as_str(), "498 events are too many; 497 can be recorded at once"),
        ("nowhere/event=1/", "has no unit `nowhere`"),
        ("mem:here:x", "no address"),
    ] {
        let said = program(&["touch", "1"], event).recorded().ended;
        assert!(said.status == 125 && said.stderr.contains(words), "{event}: {said:?}");
    }
}

#[test]
fn an_ordinary_user_samples_page_faults() {
    if !is_root() {
        return skip("events::an_ordinary_user_samples_page_faults", "the tests run as an ordinary user anyway");
    }
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let level: i32 = level.trim().parse().expect("the kernel says what it allows");
    let place = UserDirectory::new();
    let copy = place.copy(Program::nasty("events.c").path());
    let record = |event: &str, directory: &str| {
        place.run(&["record", "-o", directory, "-e", event, "--", copy.to_str().expect("a path"), "touch", "3000"])
    };
    let said = record("page-faults@1", "m");
    if said.status != 0 {
        // Debian's own kernels know a level 3 that shuts out everything.
        assert!(level > 2 && said.stderr.contains("what can be sampled here: cpu-time, wall-time"), "{said:?}");
        return;
    }
    let report = place.run(&["report", "m", "--json"]);
    let profile = Profile::of_json(&report.stdout);
    profile.assert_sound();
    assert_near(profile.through(&["happen", "touch"], "page-faults"), 3000, 2, "in touch");
    let alone = program(&["touch", "3000"], "page-faults").bare();
    assert_all_faults(profile.total("page-faults"), &alone, &said, "in all");
    let switches = record("context-switches", "n");
    if level > 1 {
        assert_eq!(switches.status, 125);
        assert!(
            switches.stderr.contains("failed to sample context-switches: it happens in the kernel"),
            "{switches:?}"
        );
        assert!(said.stderr.contains("page-faults is sampled in user mode only"), "{said:?}");
    } else {
        assert_eq!(switches.status, 0, "{switches:?}");
    }
}
