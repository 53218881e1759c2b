//! Exact counts of libraries that come while the program runs: from their constructors on, however they come, and whoever has them.

use callpath_end_to_end::{C, Program, Recorded, compiled, run_report};
use serde_json::Value;

const PROGRAM: C = C { source: "comes.cpp", output: "comes", options: &["-O1", "-g", "-pthread"] };
/// Without optimizing calls in tail position, which would leave no frame.
const ONE: C = C {
    source: "comes_library.cpp",
    output: "libcomes_one.so",
    options: &["-O1", "-g", "-fno-optimize-sibling-calls", "-shared", "-fPIC", "-DUNIT=plugged"],
};
const OTHER: C = C {
    source: "comes_library.cpp",
    output: "libcomes_other.so",
    options: &["-O1", "-g", "-fno-optimize-sibling-calls", "-shared", "-fPIC", "-DUNIT=plucked"],
};

/// Runs it bare and recorded: its output is the same.
#[track_caller]
fn recorded(mode: &str, options: &[&str]) -> Recorded {
    let libraries = [ONE, OTHER].map(|what| compiled(what).expect("it compiles"));
    let arguments = [mode.into(), libraries[0].clone(), libraries[1].clone()];
    let recorded = Program::compiled(PROGRAM).arguments(arguments).options(options).same();
    assert_eq!(recorded.ended.status, 0, "{mode}: {recorded:?}");
    recorded
}

/// How often these functions were entered, as `--view blocks` has it.
fn entries(recorded: &Recorded, names: [&str; 2]) -> [u64; 2] {
    let report = run_report(&recorded.directory, &["--view", "blocks", "--json"]);
    let json: Value = serde_json::from_str(&report.stdout).unwrap_or_else(|error| panic!("{error}: {}", report.stderr));
    assert_eq!(json["quality"]["exact"]["lost"], 0);
    let nodes = json["nodes"].as_array().expect("nodes");
    names.map(|name| {
        let is_it = |node: &&Value| node["kind"] == "procedure" && node["name"] == name;
        nodes.iter().filter(is_it).map(|node| node["entries"].as_u64().expect("a number")).sum()
    })
}

#[test]
fn calls_in_libraries_that_come() {
    // Of both libraries' functions the calls, one of each by a constructor.
    for (mode, plugged, plucked) in [
        // Loaded three times, at the same place or another.
        ("again", 3 * 1001, 0),
        // In each of four children that load it, and in theirs.
        ("forks", 4 * (1 + 100 + 7), (1 + 10) + 2 * 10),
        ("threads", 1 + 1 + 4 * 10 * 50, 0),
        ("elsewhere", (1 + 100) + (1 + 10), 0),
        ("throws", 1 + 100 * 6, 0),
    ] {
        let only = "plugged,plucked,deep,run,back,throws,_Unwind_RaiseException";
        let recorded = recorded(mode, &["--exact=calls,paths", "-F", "2000", "--only", only]);
        let profile = recorded.profile();
        let calls = ["plugged", "plucked"].map(|name| profile.calls_of(name));
        assert_eq!(calls, [plugged, plucked], "{mode}: {:?}", profile.quality);
        assert_eq!(entries(&recorded, ["plugged", "plucked"]), calls, "{mode}");
    }
}

#[test]
fn all_of_a_program_and_of_its_libraries() {
    for kind in ["calls", "edges"] {
        let recorded = recorded("throws", &["--exact", kind, "-F", "0"]);
        let profile = recorded.profile();
        match kind {
            "calls" => assert_eq!((profile.calls_of("plugged"), profile.calls_of("throws")), (601, 600)),
            // An exception ends the activation.
            _ => assert_eq!(entries(&recorded, ["plugged", "run"]), [601, 100]),
        }
    }
}

/// The program has no such function at its beginning.
#[test]
fn a_function_of_a_library_alone() {
    let recorded = recorded("again", &["--exact=calls", "-F", "0", "--only", "libcomes_one.so!plugged"]);
    assert_eq!(recorded.profile().calls_of("plugged"), 3 * 1001);
}

/// Before the loader has bound a library's closed linkage table, its words may look like addresses of the program.
#[test]
fn a_library_whose_linkage_table_is_not_bound_yet() {
    const PROGRAM: C = C { source: "closed.c", output: "closed", options: &["-O1", "-no-pie", "-fno-pie"] };
    const LIBRARY: C = C {
        source: "closed_library.c",
        output: "libclosed.so",
        options: &[
            "-O1",
            "-fno-optimize-sibling-calls",
            "-shared",
            "-fPIC",
            "-Wl,-z,now,-z,relro,-Ttext-segment=0x400000",
        ],
    };
    let library = compiled(LIBRARY).expect("it compiles");
    let recorded = Program::compiled(PROGRAM).arguments([library]).options(&["--exact=calls", "-F", "0"]).same();
    assert_eq!(recorded.ended.status, 0, "{recorded:?}");
    let profile = recorded.profile();
    assert_eq!(["sum_of", "more", "scaled"].map(|name| profile.calls_of(name)), [1, 1000, 1000]);
}

/// What a pointer led to has gone, and another library lies there: its procedures are called, at the same addresses, not the copies of the first.
#[test]
fn a_library_at_the_address_of_another_one_is_called_itself() {
    const HOST: C = C { source: "swaps.c", output: "swaps", options: &["-O1", "-g"] };
    const ONE: C = C {
        source: "plug.c",
        output: "libplug_exact_one.so",
        options: &["-O1", "-g", "-shared", "-fPIC", "-DNAME=one_works"],
    };
    const OTHER: C =
        C { output: "libplug_exact_two.so", options: &["-O1", "-g", "-shared", "-fPIC", "-DNAME=two_works"], ..ONE };
    const ROUNDS: u64 = 4;
    let libraries = [ONE, OTHER].map(|what| compiled(what).expect("it compiles"));
    for only in ["*", "main,plug_run,two_works"] {
        let options = ["--exact=calls", "-F", "0", "--only", only];
        let recorded = Program::compiled(HOST)
            .arguments(libraries.clone())
            .arguments([ROUNDS.to_string()])
            .options(&options)
            .same();
        assert_eq!(recorded.ended.stdout, "at the same address each time\n");
        let profile = recorded.profile();
        let calls = ["one_works", "two_works"].map(|name| profile.calls_of(name));
        assert_eq!(calls, if only == "*" { [ROUNDS; 2] } else { [0, ROUNDS] }, "{only}: {:?}", profile.quality);
    }
}
