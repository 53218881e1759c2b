//! The sentinel: whatever becomes of a marked frame, the program does what it does alone, and returns are counted.

use callpath_end_to_end::{C, Profile, Program, Recorded};

const ALWAYS: [&str; 4] = ["--sentinel", "always", "-F", "10000"];
const AUTO: [&str; 4] = ["--sentinel", "auto", "-F", "10000"];

/// Some hundred frames deep, at ten samples a millisecond.
fn marked(mode: &str) -> Profile {
    let [(_, deep), (_, always)] = recorded(mode);
    deep.assert_walked(4);
    always.assert_walked(4);
    always
}

/// With marks on deep stacks, and on all.
fn recorded(mode: &str) -> [(Recorded, Profile); 2] {
    let program = Program::nasty("marked.c").arguments([mode]);
    let recorded = [AUTO, ALWAYS].map(|options| {
        let recorded = program.clone().options(&options).same();
        let profile = recorded.profile();
        (recorded, profile)
    });
    let [_, (_, profile)] = &recorded;
    let (returns, samples) = (profile.total("returns"), profile.total("samples"));
    assert!(returns * 50 > samples, "{mode}: {returns} returns at {samples} samples: nothing was marked");
    recorded
}

#[test]
fn registers_and_flags_survive() {
    marked("registers").assert_full(990);
}

#[test]
fn values_of_every_kind_come_back() {
    marked("values").assert_full(990);
}

#[test]
fn jumps_over_marked_frames() {
    marked("jumps").assert_full(990);
}

#[test]
fn stacks_within_stacks() {
    marked("contexts").assert_full(980);
}

#[test]
fn handlers_that_return_and_that_do_not() {
    marked("handlers").assert_full(980);
}

#[test]
fn forked_with_marks() {
    let profile = marked("forks");
    // A child's own returns are counted from its own samples on, its parent's never twice.
    assert!(profile.processes().len() > 5, "{:?}", profile.processes());
}

#[test]
fn vfork_from_deep_down() {
    for (recorded, profile) in recorded("vforks") {
        let calls: u64 = recorded.ended.stdout.trim().rsplit_once("vforks ").unwrap().1.parse().unwrap();
        let [samples, cpu_ns] = ["samples", "cpu-time"].map(|metric| profile.through(&["vfork_here"], metric));
        // What the clock counts during one system call is delivered once, behind it: a call gives a sample, however long it takes.
        let due = calls.min(cpu_ns / 100_000);
        assert!(
            samples >= due.div_ceil(4).max(1),
            "{samples} samples of {due} due, {calls} calls: {:?}",
            profile.quality
        );
    }
}

/// A path that meets another's trampoline is a partial one; the program continues as it does alone.
#[test]
fn return_addresses_that_somebody_else_replaces_too() {
    marked("replaces");
}

/// From the one that lies within the thread's own stack the way out leads
/// downwards, which no walk goes: half of the paths.
#[test]
fn a_stack_that_the_code_itself_has_put_elsewhere() {
    marked("switches").assert_full(450);
}

#[test]
fn data_behind_calls() {
    marked("inlines").assert_full(900);
}

/// Each of the two is where it is, though both use the same memory.
#[test]
fn stacks_that_are_copied_away_and_back() {
    for options in [ALWAYS, AUTO, ["--sentinel", "never", "-F", "10000"]] {
        let profile = Program::nasty("marked.c").arguments(["copies"]).options(&options).same().profile();
        profile.assert_full(700);
        let (first, second) =
            (profile.through(&["copies", "wander"], "samples"), profile.through(&["stray"], "samples"));
        let samples = profile.total("samples");
        assert!(first * 8 > samples && second * 8 > samples, "{first} {second} of {samples}");
        assert_eq!(profile.through(&["copies", "stray"], "samples"), 0);
        assert_eq!(profile.through(&["begin_second", "wander"], "samples"), 0);
    }
}

#[test]
fn frames_that_are_put_back_below_another_caller() {
    for options in [ALWAYS, AUTO] {
        let profile = Program::nasty("marked.c").arguments(["delimited"]).options(&options).same().profile();
        profile.assert_full(900);
        for (via, inside, other) in [("via_first", "in_first", "in_second"), ("via_second", "in_second", "in_first")] {
            assert!(profile.percent_through(&[via, inside]) > 10.0, "{via}");
            assert_eq!(profile.through(&[via, other], "samples"), 0, "{via}");
        }
    }
}

#[test]
fn tail_calls() {
    marked("tails").assert_full(990);
}

#[test]
fn threads_that_end_deep_down() {
    marked("exits");
}

#[test]
fn backtraces_lead_through() {
    marked("traces");
}

#[test]
fn callers_that_are_known_by_their_return_addresses() {
    marked("lookups");
}

/// Not all who read a return address read all of it.
#[test]
fn callers_that_are_known_by_a_part_of_their_return_addresses() {
    for sentinel in [ALWAYS, AUTO] {
        let recorded = Program::nasty("hashes.c").options(&sentinel).same();
        assert_eq!(recorded.ended.stdout, "0 other addresses\n");
    }
}

/// What reads a return address may have come by a jump from the procedure whose it is.
#[test]
fn callers_of_who_jumps_to_dlsym() {
    let library = C { source: "asks.c", output: "libasks.so", options: &["-shared", "-fPIC", "-DLIBRARY"] };
    callpath_end_to_end::compiled(library).unwrap();
    let program = Program::compiled(C { source: "asks.c", output: "asks", options: &["@libasks.so"] });
    for sentinel in [ALWAYS, AUTO] {
        let recorded = program.clone().options(&sentinel).same();
        assert_eq!(recorded.ended.stdout, "0 found\n");
        recorded.profile().assert_full(900);
    }
    // Where nothing tells that it is dlsym, frames are left alone by default only:
    // else their returns would not be counted.
    let recorded = program.arguments(["through"]).options(&AUTO).same();
    assert_eq!(recorded.ended.stdout, "0 found\n");
    recorded.profile().assert_full(900);
}

#[test]
fn gdb_sees_through() {
    if !std::path::Path::new("/usr/bin/gdb").exists() {
        return callpath_end_to_end::skip("gdb_sees_through", "gdb is not there");
    }
    let program = Program::nasty("marked.c").arguments(["debugger"]);
    let bare = program.bare();
    if !bare.stdout.contains("gdb: 301 levels, main 1") {
        return callpath_end_to_end::skip("gdb_sees_through", &format!("gdb may not attach here: {}", bare.stdout));
    }
    for sentinel in [ALWAYS, AUTO] {
        program.clone().options(&sentinel).same();
    }
}

#[test]
fn exceptions_through_marked_frames() {
    for options in [&[][..], &["-static-libgcc", "-static-libstdc++"]] {
        let output = if options.is_empty() { "throws" } else { "throws-static" };
        let program = Program::compiled(C { source: "throws.cpp", output, options });
        for sentinel in [ALWAYS, AUTO] {
            program.clone().options(&sentinel).same().profile().assert_full(950);
        }
    }
}

/// Thrown and caught at every level of a deep stack, whose frames are marked even so.
fn caught(source: &'static str, output: &'static str, options: &'static [&'static str]) {
    let program = Program::compiled(C { source, output, options }).arguments(["8000"]);
    program.clone().options(&AUTO).same().profile().assert_full(900);
    let profile = program.options(&ALWAYS).same().profile();
    profile.assert_full(900);
    let name = |name: &str| if source.ends_with(".rs") { format!("catches::{name}") } else { name.to_owned() };
    for name in ["base", "level", "work"].map(name) {
        let signature = profile.names().into_iter().find(|is| is.split('(').next() == Some(&name)).unwrap_or_default();
        let (returns, samples) = (profile.returns_of(&signature), profile.total("samples"));
        assert!(returns * 100 > samples, "{name} ({signature}): {returns} returns at {samples} samples");
    }
}

#[test]
fn exceptions_caught_at_every_level() {
    caught("catches.cpp", "catches", &[]);
    caught("catches.cpp", "catches-O0", &["-O0"]);
    caught("catches.cpp", "catches-static", &["-static-libgcc", "-static-libstdc++"]);
    caught("catches.cpp", "catches-static-O0", &["-static-libgcc", "-static-libstdc++", "-O0"]);
}

#[test]
fn exceptions_caught_at_every_level_by_clang() {
    caught("catches.cpp", "catches-clang", &["compiler=clang++"]);
    caught("catches.cpp", "catches-clang-O0", &["compiler=clang++", "-O0"]);
    caught("catches.cpp", "catches-clang-static", &["compiler=clang++", "-static-libgcc", "-static-libstdc++"]);
}

#[test]
fn panics_caught_at_every_level() {
    caught("catches.rs", "catches-rust", &[]);
    caught("catches.rs", "catches-rust-O0", &["-Copt-level=0"]);
}

/// That as many returns were counted as there were; fewer only where samples were dropped, as on a busy machine.
#[track_caller]
fn check_returns(what: &str, counted: u64, truth: u64, profile: &Profile) {
    let dropped: u64 = profile.quality.dropped.values().sum();
    assert!(
        counted <= truth && truth <= counted + dropped,
        "{what}: {counted} returns of {truth}; {:?}",
        profile.quality
    );
}

#[test]
fn returns_are_those_that_there_were() {
    for recursion in ["full", "collapse"] {
        let options = ["--sentinel", "always", "-e", "wall-time", "--recursion", recursion];
        let program = Program::nasty("returns.c").arguments(["6"]).options(&options);
        let mut recorded = program.same();
        for _ in 0..3 {
            if recorded.profile().quality.dropped.is_empty() {
                break;
            }
            recorded = program.same();
        }
        let profile = recorded.profile();
        let (line, depths) = recorded.ended.stdout.split_once('\n').expect("two lines");
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.chunks(2) {
            let (name, truth) = (pair[0], pair[1].parse::<u64>().unwrap());
            check_returns(name, profile.returns_of(name), truth, &profile);
            assert_eq!(profile.returns_in_loops_of(name), 0, "{recursion}: {name}: a loop does not return");
        }
        // The same procedure at each depth; collapsed, all of them at one or two scopes.
        let truth: Vec<u64> = depths.split_whitespace().map(|word| word.parse().unwrap()).collect();
        check_returns("nested", profile.returns_of("nested"), truth.iter().sum(), &profile);
        if recursion == "full" {
            let counted = profile.returns_by_depth_of("nested");
            assert_eq!(counted.len(), truth.len(), "{counted:?}");
            counted.iter().zip(&truth).for_each(|(counted, truth)| check_returns("nested", *counted, *truth, &profile));
        }
        // No sample sees more than one of the short ones.
        let (returns, samples) = (profile.returns_of("brief"), profile.through(&["brief"], "samples"));
        assert!(0 < returns && returns <= samples, "{recursion}: {returns} returns at {samples} samples");
    }
}

#[test]
fn cost_per_return_is_that_of_one_activation() {
    let recorded = |sentinel: &'static str| {
        Program::nasty("returns.c").arguments(["6"]).options(&["--sentinel", sentinel]).same().profile()
    };
    let profile = recorded("always");
    // `again` works for 6 ms each time, `main` returns once.
    let (again, main) = (profile.per_return_of("again"), profile.per_return_of("main"));
    let whole = profile.through(&["main"], "cpu-time");
    assert!(again.iter().all(|ns| (5_000_000..9_000_000).contains(ns)) && !again.is_empty(), "{again:?}");
    assert_eq!(main, [whole]);
    assert!(!recorded("auto").has_metric("returns"), "half of them counted");
}

#[test]
fn deep_stacks_cost_less() {
    let program = Program::nasty("deep.c").arguments(["1", "20000", "300"]);
    let handlers = |sentinel: &'static str| {
        let profile = program.clone().options(&["--sentinel", sentinel]).same().profile();
        assert!(profile.depth() > 20_000, "only {} deep", profile.depth());
        assert!(profile.quality.full * 5 > profile.due(), "{} due: {:?}", profile.due(), profile.quality);
        profile.quality
    };
    let (never, auto) = (handlers("never"), handlers("auto"));
    // In truth by far more. The first walk is of the whole stack: the usual sample is not.
    assert!(auto.median_handler_log2() + 2 <= never.median_handler_log2(), "never {never:?}, auto {auto:?}");
}
