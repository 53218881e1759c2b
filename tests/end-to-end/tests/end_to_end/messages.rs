//! What `record` and `report` say: what is true of this run, and what helps here.

use callpath_end_to_end::{C, Ended, Program, callpath, compiled, run_report};

use crate::outside::is_allowed;

#[test]
fn a_program_that_takes_no_part_is_not_recorded() {
    let options = &["-nostdlib", "-ffreestanding", "-fPIE", "-pie", "-Wl,--dynamic-linker=/lib64/ld-linux-x86-64.so.2"];
    let program = Program::compiled(C { source: "without_libc.c", output: "without_libc", options });
    let recorded = program.recorded();
    let said = &recorded.ended.stderr;
    assert_eq!(recorded.ended.status, 6, "{said}");
    assert!(said.contains("nothing was measured") && !said.contains("recorded to"), "{said}");
    assert_ne!(run_report(&recorded.directory, &[]).status, 0);
}

#[test]
fn a_program_has_the_name_of_the_link_that_was_executed() {
    let burn = compiled(C { source: "burn.c", output: "burn", options: &[] }).expect("burn.c compiles");
    let place = tempfile::tempdir().unwrap();
    let link = place.path().join("known-as");
    std::os::unix::fs::symlink(&burn, &link).unwrap();
    // By its path, and by one that is relative to where a shell is.
    let relative = format!("cd '{}' && exec ./known-as 60", place.path().display());
    for program in [Program::at(&link).arguments(["60"]), Program::at("/bin/sh").arguments(["-c", &relative])] {
        let recorded = program.same();
        let profile = recorded.profile();
        let names: Vec<String> = profile.processes().into_iter().map(|(name, _)| name).collect();
        assert!(names.iter().any(|name| name == "known-as") && !names.iter().any(|name| name == "burn"), "{names:?}");
        // So has its module.
        assert!(profile.exclusive_in("known-as").values().sum::<u64>() > 0, "{profile:?}");
        assert!(profile.exclusive_in("burn").is_empty(), "{profile:?}");
    }
}

#[test]
fn go_without_c_is_left_alone() {
    const WHY: &str = "it is built by Go without cgo, whose runtime takes every signal for its own";
    let program = Program::nasty("own_signals.c");
    // Alone it is sampled from outside; counting needs our object inside.
    let counted = program.clone().options(&["--exact=paths"]).recorded();
    assert!(counted.ended.status != 0 && counted.ended.stderr.contains(WHY), "{:?}", counted.ended);
    let script = format!("'{}'; exit $?", program.path().display());
    let started = Program::at("/bin/sh").arguments(["-c", &script]).recorded();
    assert_eq!(started.ended.status, 3, "{}", started.ended.stderr);
    let said = &started.ended.stderr;
    if is_allowed("go_without_c_is_sampled_from_outside") {
        assert!(said.contains("were sampled from outside"), "{said}");
    } else {
        assert!(said.contains(&format!("own_signals was not measured: {WHY}")), "{said}");
    }
    started.profile();
}

#[test]
fn what_was_not_measured_is_said_at_the_end() {
    let burn = C { source: "burn.c", output: "burn_static", options: &["-static"] };
    let burn = compiled(burn).expect("burn.c compiles");
    let script = format!("'{}' 10; exit 5", burn.display());
    // By events other than clocks nothing is sampled from outside.
    let recorded = Program::at("/bin/sh").arguments(["-c", &script]).options(&["-e", "page-faults"]).same();
    let line = "callpath: 1 program that it started was not measured; statically linked: burn_static";
    assert!(recorded.ended.stderr.lines().any(|said| said == line), "{:?}", recorded.ended);
}

#[test]
fn options_of_perf_that_change_nothing_are_accepted_with_a_word() {
    let options = ["-g", "--call-graph", "dwarf,16384", "-m", "512", "-sv", "-N", "--no-buildid"];
    let echo = Program::at("/bin/echo").arguments(["-a", "--", "-g"]);
    let said = echo.clone().options(&options).same().ended.stderr;
    assert_eq!(said.lines().filter(|line| line.contains(" is not needed: ")).count(), 7, "{said}");
    assert!(
        said.contains("callpath: --call-graph is not needed: call paths are always recorded, and whole\n"),
        "{said}"
    );
    assert_eq!(echo.options(&["-q", "-g"]).same().ended.stderr, "");
}

#[test]
fn the_next_command_works_where_the_first_was_typed() {
    let place = tempfile::tempdir().unwrap();
    // Not in PATH: named by a path that is relative to here.
    std::os::unix::fs::symlink(callpath(), place.path().join("own name")).unwrap();
    let shell = |line: &str| {
        let mut shell = std::process::Command::new("/bin/sh");
        Ended::of(&shell.args(["-c", line]).current_dir(place.path()).output().expect("a shell can be run"))
    };
    let burn = compiled(C { source: "burn.c", output: "burn", options: &[] }).expect("burn.c compiles");
    let recorded = shell(&format!("'./own name' record -o it -- '{}' 60", burn.display()));
    let (_, next) = recorded.stderr.split_once("see it with: ").expect("a next command");
    assert_eq!(next, "'./own name' report it\n");
    let report = shell(next);
    assert_eq!(report.status, 0, "{report:?}");
    let next = report.stdout.lines().find_map(|line| line.strip_prefix("Next: ")).expect("a next command");
    assert!(next.starts_with("'./own name' report it "), "{next}");
    assert_eq!(shell(next).status, 0, "{next}");
}
