//! Programs that are started past all hooks, as Go starts them, by programs that are measured from inside.

use callpath_end_to_end::{C, Program, compiled};

use crate::outside::is_allowed;

const PAST_HOOKS: C = C { source: "past_hooks.c", output: "past_hooks", options: &["-O1", "-pthread"] };
const STATIC: C = C { source: "burn.c", output: "started_static", options: &["-O2", "-static"] };
const DYNAMIC: C = C { source: "burn.c", output: "started_dynamic", options: &["-O2"] };

const FROM_OUTSIDE: &str = "were sampled from outside";

fn starts(threads: u32, times: u32, program: C, milliseconds: u32) -> Program {
    let program = compiled(program).expect("it compiles").display().to_string();
    let arguments = [threads.to_string(), times.to_string(), program, milliseconds.to_string(), "_exit".to_owned()];
    Program::compiled(PAST_HOOKS).arguments(arguments)
}

/// A static program is sampled from outside, also if the starting process itself executes it. One that loads our object is measured from
/// inside, and once.
#[test]
fn programs_that_are_started_past_the_c_library() {
    if !is_allowed("programs_that_are_started_past_the_c_library") {
        return;
    }
    for (threads, program, is_from_outside) in
        [(1, STATIC, true), (1, DYNAMIC, false), (0, STATIC, true), (0, DYNAMIC, false)]
    {
        let (recorded, cost_ns) = starts(threads, 1, program, 200).same_with_rusage();
        let profile = recorded.profile();
        profile.assert_sound();
        profile.assert_full(900);
        let (work, total) = (profile.through(&["main", "outer"], "cpu-time"), profile.total("cpu-time"));
        assert!(work > 160_000_000 && total < cost_ns + cost_ns / 10, "{work} and {total} of {cost_ns}");
        assert_eq!(recorded.ended.stderr.contains(FROM_OUTSIDE), is_from_outside, "{:?}", recorded.ended);
    }
}

/// What is between is measured from inside, and asks for samples of what it starts: those programs have inherited events already, and are
/// counted once.
#[test]
fn programs_that_a_shell_starts_that_was_started_past_the_c_library() {
    if !is_allowed("programs_that_a_shell_starts_that_was_started_past_the_c_library") {
        return;
    }
    let burn = compiled(STATIC).expect("it compiles").display().to_string();
    let script = format!("{burn} 150 _exit; {burn} 150 _exit & wait; exec {burn} 150 _exit");
    let program = Program::compiled(PAST_HOOKS).arguments(["1", "1", "/bin/sh", "-c", &script]);
    let (recorded, cost_ns) = program.same_with_rusage();
    let profile = recorded.profile();
    profile.assert_sound();
    profile.assert_full(900);
    let (work, total) = (profile.through(&["main", "outer"], "cpu-time"), profile.total("cpu-time"));
    assert!(work > 380_000_000 && total < cost_ns + cost_ns / 10, "{work} and {total} of {cost_ns}");
}

/// Copies of stacks become shorter meanwhile, for which all threads get other events, those too that have started nothing yet.
#[test]
fn many_programs_that_threads_start_past_the_c_library() {
    if !is_allowed("many_programs_that_threads_start_past_the_c_library") {
        return;
    }
    let (recorded, cost_ns) = starts(3, 8, STATIC, 120).same_with_rusage();
    let profile = recorded.profile();
    profile.assert_sound();
    profile.assert_full(900);
    let work = profile.through(&["main", "outer"], "cpu-time");
    assert!(work > cost_ns / 10 * 9 && work < cost_ns + cost_ns / 20, "{work} of {cost_ns}");
}
