//! Programs that forbid themselves system calls by seccomp: samples do without, and the program never notices.

use std::path::Path;

use callpath_end_to_end::{Program, Recorded, is_root, run_report, skip, stolen_ns};

use crate::ordinary_user::UserDirectory;

fn filters(words: &[&str]) -> Program {
    Program::nasty("filters.c").arguments(words)
}

fn notes(directory: &Path) -> String {
    let said = run_report(directory, &[]);
    assert_eq!(said.status, 0, "{said:?}");
    // Lines are broken anywhere.
    said.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// It is still sampled, and its time is the kernel's, as far as that can be known.
fn is_measured(words: &[&str], refused: &str) -> Recorded {
    let stolen_before_ns = stolen_ns();
    let (recorded, cost_ns) = filters(words).same_with_rusage();
    let stolen_ns = stolen_ns() - stolen_before_ns;
    assert_eq!((recorded.ended.status, recorded.ended.stdout.as_str()), (6, "worked\n"), "{words:?}: {recorded:?}");
    let profile = recorded.profile();
    let total = profile.total("cpu-time");
    // Two clocks that fire in one handler are one sample. Where samples count as periods they are the event's, which
    // goes on while a virtual machine is denied its processors.
    let most_ns = cost_ns / 10 * 11 + stolen_ns;
    assert!(total * 10 > cost_ns * 7 && total < most_ns, "{words:?}: {total} of {cost_ns}, {stolen_ns} stolen");
    profile.assert_full(950);
    let after = profile.through(&["after", "work"], "cpu-time");
    // Twice the work of before the filter. A sample that counts as a period lacks what its timer fired too late for, where
    // the machine was denied its processors; before the filter, the clock has it: what is missing can be of after.
    let missing = cost_ns.saturating_sub(total);
    assert!((after + missing) * 5 > cost_ns * 2, "{words:?}: {after} of {total} after the filter, {cost_ns} in all");
    assert!(after * 5 > total, "{words:?}: {after} of {total} after the filter");
    let notes = notes(&recorded.directory);
    assert!(notes.contains("a seccomp filter of filters refuses") && notes.contains(refused), "{words:?}: {notes}");
    recorded
}

#[test]
fn that_refuse_all_but_what_the_program_needs() {
    for (action, by) in [("trap", "prctl"), ("errno", "prctl"), ("kill", "syscall")] {
        is_measured(&[action, by, "all"], "a sample counts as one period of cpu-time");
    }
}

#[test]
fn that_look_at_arguments() {
    for action in ["trap", "errno", "kill"] {
        is_measured(&[action, "syscall", "clocks"], "refuses clock_gettime, getrusage: a sample counts as one period");
    }
}

#[test]
fn that_bind_threads_at_work_and_threads_to_come() {
    for action in ["trap", "errno"] {
        is_measured(&[action, "syscall", "samples", "threads"], "gettid");
    }
}

/// A filter is only seen when it refuses: the sample is kept as well as those before, and a note says so.
#[test]
fn that_is_installed_unseen() {
    for action in ["errno", "success"] {
        is_measured(&[action, "itself", "clocks"], "refuses clock_gettime, getrusage: a sample counts as one period");
        is_measured(&[action, "itself", "samples", "threads"], "gettid");
    }
}

#[test]
fn that_stay_in_force_when_another_program_is_executed() {
    let itself = filters(&[]).path().to_str().unwrap().to_owned();
    is_measured(&["kill", "prctl", "clocks", "exec", &itself, "work"], "refuses clock_gettime, getrusage");
}

#[test]
fn that_forbid_to_return_from_signals() {
    let recorded = filters(&["kill", "prctl", "sigreturn"]).same();
    assert_eq!(recorded.ended.status, 6, "{recorded:?}");
    let profile = recorded.profile();
    assert!(profile.through(&["before", "work"], "cpu-time") > 0, "{profile:?}");
    let notes = notes(&recorded.directory);
    assert!(notes.contains("refuses rt_sigreturn: it is not sampled from there on"), "{notes}");
}

#[test]
fn that_the_recorder_inherits() {
    let itself = filters(&[]).path().to_str().unwrap().to_owned();
    // The filter is there before callpath is: a prefix that installs it.
    let recorded = filters(&["work"]).through(&[&itself, "trap", "prctl", "clocks", "exec"]).recorded();
    assert_eq!((recorded.ended.status, recorded.ended.stdout.as_str()), (6, "worked\n"), "{recorded:?}");
    let profile = recorded.profile();
    profile.assert_full(950);
    assert!(profile.through(&["after", "work"], "cpu-time") * 2 > profile.total("cpu-time"));
    assert!(notes(&recorded.directory).contains("refuses clock_gettime, getrusage"), "{recorded:?}");
}

#[test]
fn of_an_ordinary_user() {
    if !is_root() {
        return skip("filters::of_an_ordinary_user", "the tests run as an ordinary user anyway");
    }
    let place = UserDirectory::new();
    let program = place.copy(filters(&[]).path());
    for action in ["trap", "errno", "kill"] {
        let measurement = format!("m-{action}");
        let said = place.run(&["record", "-o", &measurement, "--", program.to_str().unwrap(), action, "prctl", "all"]);
        assert_eq!((said.status, said.stdout.as_str()), (6, "worked\n"), "{said:?}");
        let profile = place.profile(&measurement);
        let total = profile.total("cpu-time");
        let after = profile.through(&["after", "work"], "cpu-time");
        assert!(after * 2 > total && total > 0, "{action}: {after} of {total}; {:?}", profile.quality);
    }
}
