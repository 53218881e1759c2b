//! `record --exact=calls`: what was counted is what the program has counted itself (tests/nasty/truth.h), by call path, of all
//! procedures at once, and the program does what it does bare.

use std::collections::BTreeMap;

use callpath_end_to_end::{C, Profile, Program, Recorded, Truth, callpath, compiled, run_report};

/// Runs it bare and recorded.
#[track_caller]
fn counted(program: Program, status: i32) -> (Recorded, Profile) {
    let recorded = program.options(&["--exact=calls"]).same();
    assert_eq!(recorded.ended.status, status, "{recorded:?}");
    let profile = recorded.profile();
    (recorded, profile)
}

/// Asserts that these functions were called where the program says that they were.
#[track_caller]
fn assert_counted(program: Program, (functions, modules): (&[&str], &[&str]), status: i32) -> Profile {
    let (recorded, profile) = counted(program, status);
    let truth = Truth::in_directory(recorded.surroundings()).of(functions);
    truth.assert_counted(&profile.calls_among_all(functions, modules));
    profile
}

#[test]
fn all_call_sites_and_recursion() {
    const ALL: [&str; 12] =
        ["leaf", "other_leaf", "thin", "thick", "twice", "by_pointer", "down", "even", "odd", "fib", "tree", "places"];
    assert_counted(Program::nasty("sites.c"), (&ALL, &["sites"]), 5);
}

/// Landing pads of calls that have pushed arguments are entered with another stack pointer.
#[test]
fn exceptions_that_leave_calls_with_arguments_on_the_stack() {
    for kind in ["calls", "paths", "calls,paths"] {
        let program = Program::nasty("pushes.cpp").options(&["-F", "0", "--exact", kind, "--only", "pushes!*"]);
        let recorded = program.same();
        if kind != "paths" {
            let profile = recorded.profile();
            let counted =
                ["catches_eight", "catches_ten", "cleans", "twelve", "note"].map(|name| profile.calls_of(name));
            // note: half of the times by cleans, each time by its destructor, and a third of the times by either that catches.
            assert_eq!(counted, [600, 600, 600, 600, 300 + 600 + 200 + 200], "{kind}");
        }
    }
}

#[test]
fn without_samples() {
    let sites = Program::nasty("sites.c").options(&["-F", "0"]);
    let profile = assert_counted(sites, (&["leaf", "fib"], &["sites"]), 5);
    assert_eq!((profile.calls_of("fib"), profile.quality.dropped.values().sum::<u64>()), (1219, 0));
}

#[test]
fn threads() {
    let crew = |how| Program::nasty("crew.c").arguments([how]);
    // Each is one thread, though the C library's code counts in it before ours, which makes records of threads, has begun there.
    for options in [&[][..], &["-F", "0"], &["-F", "0", "--only", "known_leaf,known_step"]] {
        let functions = &["known_leaf", "known_step"];
        let eight = assert_counted(crew("eight").options(options), (functions, &["crew"]), 0);
        assert_eq!(eight.threads, 9, "{options:?}");
    }
    let eight = assert_counted(crew("eight"), (&["works"], &["crew"]), 0);
    // Where the C library has names for them. A new thread's first code is a part of the procedure that makes it.
    for name in ["clone3", "start_thread"] {
        assert!([0, 8].contains(&eight.calls_of(name)), "{name}: {}", eight.calls_of(name));
    }
    let functions = ["known_leaf", "known_step", "is_brief"];
    for options in [&[][..], &["-F", "0"]] {
        let brief = assert_counted(crew("brief").options(options), (&functions, &["crew"]), 0);
        assert_eq!(brief.threads, 201, "{options:?}");
    }
}

/// Threads with numbers from 21,801 on (0x5529): some are the upper half of an address of the program, which the C library keeps for each
/// thread, beside its number.
#[test]
fn threads_with_numbers_like_parts_of_addresses() {
    const SOURCE: C = C { source: "descends.c", output: "descends-numbers", options: &["-O1", "-pthread"] };
    let program = compiled(SOURCE).expect("it compiles");
    let directory = tempfile::tempdir().expect("room");
    let first = "echo 21800 > /proc/sys/kernel/ns_last_pid || exit 99";
    let record = "exec \"$0\" record -q -F 0 --exact=calls --only brief -o m -- \"$1\"";
    let output = std::process::Command::new("unshare")
        .args(["-Urpf", "--mount-proc", "sh", "-c", &format!("{first}; {record}")])
        .args([callpath(), program.as_path()])
        .current_dir(directory.path())
        .output()
        .expect("unshare can be run");
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(99) || said.contains("unshare failed") {
        println!("not tested: no namespace of one's own for processes ({said})");
        return;
    }
    assert_eq!(output.status.code(), Some(7), "{said}");
    let profile = Profile::of_json(&run_report(&directory.path().join("m"), &["--json"]).stdout);
    assert_eq!((profile.calls_of("brief"), profile.threads), (10_000, 10_003), "{:?}", profile.quality);
}

#[test]
fn several_stacks() {
    let all = ["leaf", "pauses", "deep", "routine", "weaves", "handler", "raises"];
    assert_counted(Program::nasty("weaves.c"), (&all, &["weaves"]), 0);
}

#[test]
fn a_storm_of_signals() {
    let (recorded, profile) = counted(Program::nasty("barrage.c"), 8);
    let truth = Truth::in_directory(recorded.surroundings());
    for function in ["leaf", "work", "down", "caught", "queued", "inside"] {
        assert_eq!(profile.calls_of(function), truth.calls_of(function), "{function}: {:?}", profile.quality);
    }
    // Whatever a handler has interrupted, its path is whole.
    let counts = profile.calls_among_all(&["leaf", "work", "down", "caught", "queued", "inside"], &["barrage"]);
    for path in counts.values().flat_map(|calls| calls.keys()) {
        let last = path.rsplit(';').next().unwrap_or_default();
        assert!(!matches!(last, "leaf" | "down") || path.starts_with("main;work"), "{path}");
    }
}

#[test]
fn exceptions_long_jumps_and_ends() {
    const LIBRARY: C = C { source: "leaves_library.cpp", output: "libleaves.so", options: &["-shared", "-fPIC"] };
    const LEAVES: C = C { source: "leaves.cpp", output: "leaves", options: &["@libleaves.so", "-Wl,-rpath,$ORIGIN"] };
    compiled(LIBRARY).expect("the library compiles");
    for (how, functions, status) in [
        ("throws", &["leaf", "thrower", "middle", "rethrower", "catcher"][..], 4),
        ("jumps", &["leaf", "jumper", "handler", "deep", "lands"], 4),
        ("exits", &["leaf", "ends", "goes_to_end", "at_the_end"], 9),
        ("aborts", &["leaf", "ends", "goes_to_end", "main"], 134),
    ] {
        assert_counted(Program::compiled(LEAVES).arguments([how]), (functions, &["leaves"]), status);
    }
}

#[test]
fn tail_calls() {
    const TAILS: C = C { source: "tails.c", output: "tails", options: &["-foptimize-sibling-calls"] };
    let all = ["leaf", "first", "second", "ping", "pong", "by_pointer", "maybe", "chooses", "calls"];
    assert_counted(Program::compiled(TAILS), (&all, &["tails"]), 6);
}

#[test]
fn children_count_their_own() {
    let functions = ["leaf", "work", "child"];
    let profile = assert_counted(Program::nasty("forks.c").arguments(["fork"]), (&functions, &["forks"]), 3);
    assert_eq!(profile.processes().len(), 8);
}

/// `--recursion=backedges`: the tree is that of a whole recording, after recursion is collapsed in it.
#[test]
fn recursion_as_back_edges() {
    const LEAVES: C = C { source: "leaves.cpp", output: "leaves", options: &["@libleaves.so", "-Wl,-rpath,$ORIGIN"] };
    const LIBRARY: C = C { source: "leaves_library.cpp", output: "libleaves.so", options: &["-shared", "-fPIC"] };
    compiled(LIBRARY).expect("the library compiles");
    let cycles = || Program::nasty("cycles.c").arguments(["300"]);
    let of_cycles =
        ["leaf", "other_leaf", "even", "odd", "fib", "first", "second", "third", "sorts", "compares", "falls", "down"];
    let sites = ["leaf", "other_leaf", "thin", "thick", "twice", "by_pointer", "down", "even", "odd", "fib", "tree"];
    let leaves = |how| Program::compiled(LEAVES).arguments([how]);
    let threw = ["leaf", "thrower", "middle", "rethrower", "catcher"];
    let only = |functions| cycles().options(&["--only", functions]);
    for (are_all, program, module, functions) in [
        (true, cycles(), "cycles", &of_cycles[..]),
        // Recursion of code that is not counted stays as it is.
        (false, only("fib,leaf,compares"), "cycles", &["fib", "leaf", "compares"]),
        (false, only("even,leaf,first,third,compares,falls"), "cycles", &["even", "leaf", "first", "compares"]),
        (true, Program::nasty("sites.c"), "sites", &sites),
        (true, leaves("throws"), "leaves", &threw),
        (true, leaves("jumps"), "leaves", &["leaf", "jumper", "deep", "lands"]),
        (true, Program::nasty("forks.c").arguments(["fork"]), "forks", &["leaf", "work", "child"]),
        (true, Program::nasty("crew.c").arguments(["eight"]), "crew", &["known_leaf", "known_step"]),
    ] {
        let exact = program.options(&["--exact=calls", "-F", "0"]);
        // Of each process, whatever its number is.
        let calls = |profile: Profile| {
            let mut calls: Vec<_> = profile.calls_among_all(functions, &[module]).into_values().collect();
            calls.sort_unstable();
            calls
        };
        let collapsed = |recorded: &Recorded| {
            let report = run_report(&recorded.directory, &["--json", "--recursion=collapse"]);
            calls(Profile::of_json(&report.stdout))
        };
        let expected = collapsed(&exact.same());
        let back_edges = exact.clone().options(&["--recursion=backedges"]).same();
        assert_eq!(collapsed(&back_edges), expected, "{module}: {functions:?}");
        if are_all {
            assert_eq!(calls(back_edges.profile()), expected, "{module}: {functions:?}");
        }
        assert!(expected.iter().any(|calls| !calls.is_empty()));
    }
    // However deep it is, and with paths.
    let deep = |options: &[&str]| {
        let program = Program::nasty("cycles.c").arguments(["50000"]).options(&["-F", "0"]).options(options);
        program.same().profile()
    };
    let backedges = deep(&["--exact=calls,paths", "--recursion=backedges"]);
    assert_eq!(backedges.calls_of("down"), 50_001);
    assert!(backedges.nodes() < 1_000, "{} nodes", backedges.nodes());
}

/// Recursion 1,000,000 deep, 10,000 threads, frames of unknown size, calls at home, a return address that is none.
#[test]
fn contexts_that_are_hard_to_find() {
    const PLAIN: C = C { source: "descends.c", output: "descends-O0", options: &["-O0", "-pthread"] };
    const FAST: C = C { source: "descends.c", output: "descends-O2", options: &["-O2", "-pthread"] };
    for descends in [PLAIN, FAST] {
        let level = descends.options[0];
        let recorded = Program::compiled(descends).options(&["--exact=calls", "-F", "0"]).same();
        assert_eq!(recorded.ended.status, 7, "{recorded:?}");
        // To read two million contexts takes as long as the rest.
        let report = run_report(&recorded.directory, &["--json", "--recursion=collapse"]);
        let profile = Profile::of_json(&report.stdout);
        let truth = std::fs::read_to_string(recorded.surroundings().join("truth")).expect("the truth");
        let truth: BTreeMap<&str, u64> = truth
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(name, calls)| (name, calls.parse().expect("a number")))
            .collect();
        assert_eq!((truth.len(), truth["deep"], truth["brief"]), (6, 2_000_000, 10_000), "{level}");
        for (name, calls) in &truth {
            assert_eq!(profile.calls_of(name), *calls, "{name}, {level}: {:?}", profile.quality);
        }
        // With the first one, and two for `deep`.
        assert_eq!(profile.threads, truth["brief"] + 3, "{level}");
    }
}

#[test]
fn what_is_not_paths_is_said() {
    let (recorded, _) = counted(Program::nasty("sites.c"), 5);
    let text = run_report(&recorded.directory, &[]).stdout;
    assert!(text.contains("were counted exactly, in their"), "{text}");
    let paths = run_report(&recorded.directory, &["--view", "paths"]);
    assert!(paths.status != 0 && paths.stderr.contains("has counts of calls, in its other views"), "{paths:?}");
    let json = run_report(&recorded.directory, &["--json"]).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let refused = json["quality"]["exact"]["refused"].as_array().expect("a list");
    let asked = refused.iter().find(|refused| refused["function"] == "_dl_find_object").expect("it is named");
    assert!(asked["reason"].as_str().is_some_and(|reason| reason.contains("tells unwinders")), "{asked}");
}

/// Procedures that depend on who calls them see the caller's module, though return addresses are those of copies; so does one that
/// is not among those that are counted.
#[test]
fn who_asks_the_loader() {
    let plug = C { source: "whose.c", output: "libwhose_plug.so", options: &["-shared", "-fPIC", "-DPLUG"] };
    let plug = compiled(plug).unwrap();
    let plugs = plug.parent().unwrap().join("plugs");
    std::fs::create_dir_all(&plugs).unwrap();
    std::fs::rename(&plug, plugs.join("libwhose_plug.so")).unwrap();
    let options = &["-shared", "-fPIC", "-DLIBRARY", "-Wl,-rpath,$ORIGIN/plugs"];
    compiled(C { source: "whose.c", output: "libwhose.so", options }).unwrap();
    let program = Program::compiled(C { source: "whose.c", output: "whose", options: &["@libwhose.so"] });
    let (recorded, profile) = counted(program.clone(), 7);
    for line in [
        "program: next the library's",
        "library: next none",
        "program: by jump the library's",
        "program: plug not found",
    ] {
        assert_eq!(recorded.ended.stdout.matches(line).count(), 3, "{line}: {}", recorded.ended.stdout);
    }
    for line in ["library: by pointer none", "library: by jump none", "library: plug the plug's"] {
        assert_eq!(recorded.ended.stdout.matches(line).count(), 3, "{line}: {}", recorded.ended.stdout);
    }
    assert_eq!((profile.calls_of("asks"), profile.calls_of("jumps")), (6, 6));
    assert_eq!((profile.calls_of("dlopen"), profile.calls_of("dlmopen"), profile.calls_of("dlvsym")), (6, 6, 6));
    for kind in ["--exact=calls", "--exact=paths", "--exact=edges"] {
        program.clone().options(&[kind, "--only", "asks"]).same();
    }
}

/// Nobody has looked at the library's code when it calls for the first time.
#[test]
fn out_of_libraries_that_were_just_loaded() {
    const LIBRARIES: [C; 2] = [
        C { source: "calls_back.c", output: "libcalls_back.so", options: &["-DLIBRARY", "-shared", "-fPIC"] },
        C { source: "calls_back.c", output: "libcalls_back-O0.so", options: &["-DLIBRARY", "-shared", "-fPIC", "-O0"] },
    ];
    let libraries = LIBRARIES.map(|library| compiled(library).expect("it compiles"));
    let program = Program::compiled(C { source: "calls_back.c", output: "calls_back", options: &["-ldl"] });
    for recursion in ["full", "backedges"] {
        let program = program.clone().arguments(&libraries).options(&["-F", "0", "--recursion", recursion]);
        let (_, profile) = counted(program, 3);
        let calls = profile.calls_among_all(&["leaf", "back"], &["calls_back"]);
        let expected = [("main;loads;back".to_owned(), 20), ("main;loads;back;leaf".to_owned(), 40)];
        assert_eq!(calls.into_values().collect::<Vec<_>>(), [BTreeMap::from(expected)], "{recursion}");
    }
}
