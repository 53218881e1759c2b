//! Children: each is a process of the same measurement, with paths of its own.

use callpath_end_to_end::{C, Profile, Program};

const BURN: C = C { source: "burn.c", output: "burn", options: &[] };
const MS: u64 = 150;
const NS: u64 = MS * 1_000_000;

fn run(mode: &str) -> Profile {
    let burn = callpath_end_to_end::compiled(BURN).expect("burn.c compiles");
    let program = Program::nasty("processes.c").arguments([mode]).arguments([burn]).arguments([MS.to_string()]);
    let (recorded, cost_ns) = program.same_with_rusage();
    let profile = recorded.profile();
    let total = profile.total("cpu-time");
    // Shells and the wrapper are in the account, too; a few ms of each process lie before its first instruction.
    assert!(total.abs_diff(cost_ns) < cost_ns / 50 + 25_000_000, "{mode}: {total} of {cost_ns}");
    assert!(
        profile.through(&["main", "parent_work", "compute"], "cpu-time") * 10 > NS * 8,
        "{mode}: the parent's work"
    );
    profile
}

/// How many processes of a name there are that worked at least half as long as asked.
fn workers(profile: &Profile, name: &str) -> usize {
    profile.processes().iter().filter(|(called, cost)| called.starts_with(name) && cost * 2 > NS).count()
}

fn burns_as_a_process_of_its_own(mode: &str) {
    let profile = run(mode);
    assert_eq!(workers(&profile, "burn"), 1, "{mode}: {:?}", profile.processes());
    assert_eq!(workers(&profile, "processes"), 1, "{mode}: {:?}", profile.processes());
    assert!(profile.through(&["process:burn", "main", "outer", "inner"], "cpu-time") * 10 > NS * 8, "{mode}");
    assert_eq!(profile.through(&["process:processes", "outer"], "cpu-time"), 0, "{mode}");
}

#[test]
fn fork() {
    let profile = run("fork");
    assert_eq!(workers(&profile, "processes"), 2, "{:?}", profile.processes());
    assert!(profile.through(&["main", "child_work", "compute"], "cpu-time") * 10 > NS * 8);
    assert_eq!(profile.through(&["parent_work", "child_work"], "cpu-time"), 0);
}

#[test]
fn fork_and_exec() {
    burns_as_a_process_of_its_own("fork-exec");
}

#[test]
fn vfork_and_exec() {
    burns_as_a_process_of_its_own("vfork-exec");
}

#[test]
fn posix_spawn() {
    burns_as_a_process_of_its_own("spawn");
}

#[test]
fn system() {
    burns_as_a_process_of_its_own("system");
}

#[test]
fn exec_without_a_child() {
    let profile = run("exec");
    assert!(profile.through(&["main", "outer", "inner"], "cpu-time") * 10 > NS * 8, "{:?}", profile.processes());
}

#[test]
fn exec_while_a_sample_is_due() {
    // A sample that is taken inside execve is delivered to the new program, which has no handler yet: it must not die.
    let burn = callpath_end_to_end::compiled(BURN).expect("burn.c compiles");
    for _ in 0..10 {
        let program = Program::nasty("processes.c").arguments(["exec"]).arguments([burn.clone()]).arguments(["2"]);
        let ended = program.options(&["-F", "20000"]).same().ended;
        assert_eq!(ended.status, 0);
    }
}

#[test]
fn exec_that_fails_loses_nothing() {
    let profile = run("failed-exec");
    assert!(profile.through(&["main", "parent_work", "compute"], "cpu-time") * 10 > NS * 18, "twice as long");
}

#[test]
fn a_child_with_an_empty_environment_does_no_harm() {
    let burn = callpath_end_to_end::compiled(BURN).expect("burn.c compiles");
    let program = Program::nasty("processes.c").arguments(["clears"]).arguments([burn]).arguments([MS.to_string()]);
    let profile = program.same().profile();
    assert!(profile.through(&["main", "parent_work", "compute"], "cpu-time") * 10 > NS * 8);
}

#[test]
fn a_shell_script() {
    let burn = callpath_end_to_end::compiled(BURN).expect("burn.c compiles");
    let script = callpath_end_to_end::tool_path("script");
    std::fs::write(&script, format!("#!/bin/sh\nfor i in 1 2 3; do {} 60; done\nexit 9\n", burn.display())).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let recorded = Program::at(script).same();
    assert_eq!(recorded.ended.status, 9);
    let profile = recorded.profile();
    assert!(profile.through(&["main", "outer", "inner"], "cpu-time") > 130_000_000, "{:?}", profile.processes());
    let burning: Vec<_> = profile.processes().into_iter().filter(|(name, _)| name.starts_with("burn")).collect();
    assert_eq!(burning.len(), 3, "{:?}", profile.processes());
}
