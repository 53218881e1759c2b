//! Programs of large runtimes (Java, Node, Go): paths whole or honestly a part, and no name but the right one.
//! Each is run where its runtime is, one after the other: the runtimes' own threads write code meanwhile, and their
//! timing decides how much of it has names. `cargo xtask company` installs all of them.

mod traces;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use callpath_end_to_end::{Profile, Program, callpath, run_report, skip, tool_path};

use crate::outside::is_allowed;

const JAVA: Runtime = Runtime { name: "a JDK", commands: &["/usr/bin/javac", "/usr/bin/java"] };
const NODE: Runtime = Runtime { name: "Node", commands: &["/usr/bin/node"] };
const GO: Runtime = Runtime { name: "Go", commands: &["/usr/bin/go"] };

/// What a test needs beyond the packages that all tests use.
struct Runtime {
    name: &'static str,
    commands: &'static [&'static str],
}

impl Runtime {
    /// Whether it is here. If not, the test counts as skipped.
    fn is_here(&self, test: &str) -> bool {
        let is_here = self.commands.iter().all(|command| Path::new(command).exists());
        if !is_here {
            skip(test, &format!("needs {}: cargo xtask company", self.name));
        }
        is_here
    }
}

fn nasty(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../nasty").join(name)
}

/// The procedures of the source on each path, the outermost first.
fn known(profile: &Profile, procedure_of: fn(&str) -> Option<&str>) -> Vec<Vec<String>> {
    let paths = profile.paths().into_iter();
    let own = paths.map(|path| path.into_iter().filter_map(procedure_of).map(str::to_owned).collect::<Vec<_>>());
    own.filter(|path| !path.is_empty()).collect()
}

/// Each path is a part of one that the source allows: frames may lack at both ends, and where a callee is inlined.
fn assert_possible(paths: &[Vec<String>]) {
    const CHAINS: [&[&str]; 2] = [&["main", "top", "middle", "leaf"], &["main", "beside", "other"]];
    for path in paths {
        let is_part = |chain: &[&str]| {
            let mut rest = chain.iter();
            path.iter().all(|name| rest.any(|allowed| allowed == name))
        };
        assert!(CHAINS.into_iter().any(is_part), "no such call in the source: {path:?}");
    }
}

/// The share of the work that stands in methods with their names, in percent. Which of them a compiler inlines into its
/// caller is its own choice: where there is one compiler only, `leaf` is a part of `middle`.
fn percent_in_methods(profile: &Profile) -> f64 {
    let named = profile.exclusive_in("[jit]").into_iter().filter(|(name, _)| name.starts_with("int Calls."));
    100.0 * named.map(|(_, ns)| ns).sum::<u64>() as f64 / profile.total("cpu-time") as f64
}

fn java(options: &[&str], rounds: &str) -> Profile {
    java_with(&[], options, rounds)
}

/// Some seconds each: names are believed of code that was the same at two looks, a second apart.
fn java_with(of_callpath: &[&str], options: &[&str], rounds: &str) -> Profile {
    let classes = tempfile::tempdir().expect("the temp directory can be written");
    let compiled = Command::new(JAVA.commands[0]).arg("-d").arg(classes.path()).arg(nasty("Calls.java")).status();
    assert!(compiled.expect("javac can be run").success());
    let java = Program::at(JAVA.commands[1]).arguments(["-XX:+UnlockDiagnosticVMOptions", "-XX:+DumpPerfMapAtExit"]);
    let java =
        java.arguments(options).arguments(["-cp".as_ref(), classes.path().as_os_str()]).arguments(["Calls", rounds]);
    let recorded = java.options(of_callpath).same();
    assert_eq!(recorded.ended.status, 5);
    let profile = recorded.profile();
    // `int Calls.leaf(int)`
    let paths = known(&profile, |name| name.split_once("Calls.")?.1.split('(').next());
    assert_possible(&paths);
    profile
}

#[test]
#[ignore = "has a step of its own"]
fn java_compiled() {
    if !JAVA.is_here("runtimes::java_compiled") {
        return;
    }
    // Its libraries' tables are built now; while they are, samples of code that comes and goes find no room.
    Program::at(JAVA.commands[1]).arguments(["-version"]).recorded();
    for options in [&[][..], &["-XX:+PreserveFramePointer"], &["-XX:TieredStopAtLevel=1"]] {
        let profile = java(options, "120");
        let named = percent_in_methods(&profile);
        assert!(named > 30.0, "{named}% in the methods that do the work, {options:?}");
    }
}

/// Its code is written while samples of it come, and analysed as far as the time for that goes.
#[test]
#[ignore = "has a step of its own"]
fn java_from_outside() {
    if !JAVA.is_here("runtimes::java_from_outside") || !is_allowed("runtimes::java_from_outside") {
        return;
    }
    let profile = java_with(&["--outside"], &[], "120");
    profile.assert_full(800);
    let named = percent_in_methods(&profile);
    assert!(named > 30.0, "{named}% in the methods that do the work");
}

#[test]
#[ignore = "has a step of its own"]
fn java_interpreted() {
    if !JAVA.is_here("runtimes::java_interpreted") {
        return;
    }
    let profile = java(&["-Xint"], "12");
    assert!(profile.percent_through(&["Interpreter"]) > 50.0);
}

#[test]
#[ignore = "has a step of its own"]
fn node() {
    if !NODE.is_here("runtimes::node") {
        return;
    }
    let script = nasty("calls.js");
    let node = Program::at(NODE.commands[0]).arguments(["--perf-basic-prof".as_ref(), script.as_os_str()]);
    let recorded = node.arguments(["20"]).same();
    assert_eq!(recorded.ended.status, 5);
    let profile = recorded.profile();
    profile.assert_full(800);
    // `JS:*leaf /where/calls.js:2:14`; at the script's own level it is `JS:~ /where/calls.js`.
    let paths = known(&profile, |name| {
        let name = name.strip_prefix("JS:")?.split_once("calls.js").map(|(name, _)| name)?;
        name.split(' ').next()?.strip_prefix(['*', '~', '^', '+']).filter(|name| !name.is_empty())
    });
    assert_possible(&paths);
    let work =
        paths.iter().filter(|path| path.last().is_some_and(|name| ["leaf", "middle", "top"].contains(&name.as_str())));
    assert!(work.count() > 0, "no path has a name: {paths:?}");
    let bare = Program::at(NODE.commands[0]).arguments([script.as_os_str()]).arguments(["2"]).same();
    assert!(bare.profile().percent_through(&["[jit]!"]) > 5.0, "without a map there are no names");
}

/// Two threads on each processor do nothing but take time: the table of node's own code, a second's work, is late, and comes all
/// the same.
#[test]
#[ignore = "has a step of its own"]
fn node_first_recorded_on_a_busy_machine() {
    if !NODE.is_here("runtimes::node_first_recorded_on_a_busy_machine") {
        return;
    }
    let place = tempfile::tempdir().expect("the temp directory can be written");
    let measurement = place.path().join("m");
    let is_done = AtomicBool::new(false);
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let ended = std::thread::scope(|scope| {
        for _ in 0..2 * processors {
            scope.spawn(|| {
                while !is_done.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let mut record = Command::new(callpath());
        record
            .args(["record", "-o"])
            .arg(&measurement)
            .arg("--")
            .arg(NODE.commands[0])
            .arg(nasty("calls.js"))
            .arg("20");
        let ended = record.env("CALLPATH_CACHE_DIR", place.path().join("cache")).output().expect("callpath can be run");
        is_done.store(true, Relaxed);
        ended
    });
    assert_eq!(ended.status.code(), Some(5), "{ended:?}");
    let said = run_report(&measurement, &["--width", "1000"]).stdout;
    assert!(!said.contains("were not complete"), "{said}");
    Profile::of_json(&run_report(&measurement, &["--json"]).stdout).assert_full(800);
}

#[test]
#[ignore = "has a step of its own"]
fn go_with_c() {
    if !GO.is_here("runtimes::go_with_c") {
        return;
    }
    let output = tool_path("calls_go");
    let mut build = Command::new(GO.commands[0]);
    build.args(["build", "-o"]).arg(&output).arg(nasty("calls.go")).env("GOCACHE", tool_path("go-cache"));
    assert!(build.env("GO111MODULE", "off").status().expect("go can be run").success());
    let recorded = Program::at(&output).same();
    assert!(recorded.ended.stdout.starts_with("got user defined signal 1\n"), "{:?}", recorded.ended);
    assert_eq!(recorded.ended.status, 3);
    let profile = recorded.profile();
    // Goroutines begin where they return to.
    profile.assert_full(900);
    assert!(profile.percent_through(&["runtime.goexit.abi0", "main.outer", "main.work"]) > 20.0);
    assert!(profile.percent_through(&["runtime.goexit.abi0", "main.cOuter", "c_work"]) > 5.0);
    for path in profile.paths() {
        // The procedure that does main's work was called by main's own.
        let at = path.iter().position(|name| *name == "main.work");
        assert!(at.is_none_or(|at| at == 0 || path[at - 1] == "main.outer"), "no such call in the source: {path:?}");
    }
}

/// C code below the Go code that calls it, and Go code below the C code that calls that, in nested calls.
#[test]
#[ignore = "has a step of its own"]
fn go_calls_c_calls_go() {
    if !GO.is_here("runtimes::go_calls_c_calls_go") {
        return;
    }
    const BUILDS: [(&str, &[&str], &str); 4] = [
        ("switches_go", &[], "-O2 -g"),
        ("switches_go_frames", &[], "-O1 -fno-omit-frame-pointer"),
        ("switches_go_pie", &["-buildmode=pie"], "-O2"),
        ("switches_go_stripped", &["-ldflags", "-s -w"], "-O2"),
    ];
    for (name, options, c_options) in BUILDS {
        let output = tool_path(name);
        let mut build = Command::new(GO.commands[0]);
        build.arg("build").args(options).arg("-o").arg(&output).arg(nasty("switches.go"));
        build.env("GOCACHE", tool_path("go-cache")).env("GO111MODULE", "off").env("CGO_CFLAGS", c_options);
        assert!(build.status().expect("go can be run").success());
        let recorded = Program::at(&output).same();
        assert_eq!((recorded.ended.status, recorded.ended.stdout.as_str()), (0, "done\n"), "{:?}", recorded.ended);
        let profile = recorded.profile();
        profile.assert_full(970);
        let is_stripped = name.ends_with("stripped");
        let mut leaves = [0; 4];
        for path in profile.paths() {
            let times = |name: &str| path.iter().filter(|its| **its == name).count();
            let below = |name: &str| path.contains(&name);
            // main.main.func2 is the closure that begins a goroutine, main.main.func2.1 the one that it starts.
            let is_inner = below("main.main.func2.1");
            let back = if is_inner { 4 } else { 3 };
            // In front of them: what begins a goroutine.
            let is_of_goroutine = path.iter().any(|name| name.starts_with("runtime.goexit"));
            let (is_right, leaf) = match path.last().copied() {
                Some("c_leaf_a") => (times("main.goA") == 51 && !below("main.goB") && !below("main.goC"), 0),
                Some("c_leaf_b") => (times("main.goB") == 61 && is_inner && !below("main.goA"), 1),
                Some("c_leaf_c") => {
                    let is_nested = times("c_back") == back && times("main.goBack") == back;
                    (is_nested && times("main.goC") == 1 && times("main.goDeeper") == back - 1, 2)
                }
                Some("main.goBackWork") => {
                    let times_back = times("main.goBack");
                    let is_nested = (1..=back).contains(&times_back) && times("main.goDeeper") == times_back - 1;
                    (is_nested && times("main.goC") == 1 && (is_stripped || times("c_back") == times_back), 3)
                }
                _ => continue,
            };
            leaves[leaf] += 1;
            assert!(is_right && is_of_goroutine, "{name}: no such path in the source: {path:?}");
        }
        let expected = if is_stripped { &leaves[3..] } else { &leaves[..] };
        assert!(expected.iter().all(|paths| *paths > 0), "{name}: {leaves:?}, {profile:?}");
        for below in [&["main.goA"][..], &["main.goB"], &["main.goC", "main.goBack"], &["main.goTime", "time.now"]] {
            let share = profile.percent_of_samples_through(below);
            assert!(share > 2.0, "{name}: {share}% below {below:?}");
        }
    }
}

#[test]
#[ignore = "has a step of its own"]
fn go_without_c() {
    if !GO.is_here("runtimes::go_without_c") || !is_allowed("runtimes::go_without_c") {
        return;
    }
    for (name, options) in [("pure_go", ""), ("pure_go_stripped", "-s -w")] {
        let output = tool_path(name);
        let mut build = Command::new(GO.commands[0]);
        build.args(["build", "-ldflags", options, "-o"]).arg(&output).arg(nasty("pure.go"));
        build.env("GOCACHE", tool_path("go-cache")).env("GO111MODULE", "off").env("CGO_ENABLED", "0");
        assert!(build.status().expect("go can be run").success());
        let recorded = Program::at(&output).same();
        assert_eq!((recorded.ended.status, recorded.ended.stdout.as_str()), (5, "true\n"), "{:?}", recorded.ended);
        assert!(recorded.ended.stderr.contains("sampled from outside"), "{:?}", recorded.ended);
        let profile = recorded.profile();
        profile.assert_full(990);
        assert!(profile.percent_through(&["main.outer", "main.middle", "main.work"]) > 80.0, "{name}: {profile:?}");
        for path in profile.paths() {
            let at = path.iter().position(|name| *name == "main.work");
            assert!(
                at.is_none_or(|at| at == 0 || path[at - 1] == "main.middle"),
                "no such call in the source: {path:?}"
            );
        }
        // Lines, from Go's own table if there is no other.
        let lines = run_report(&recorded.directory, &["--lines", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&lines.stdout).expect("JSON");
        let nodes = json["nodes"].as_array().expect("nodes");
        let is_in_work = |node: &serde_json::Value| {
            let file = node["file"].as_str().unwrap_or_default();
            file.ends_with("pure.go") && (13..=16).contains(&node["line"].as_u64().unwrap_or(0))
        };
        assert!(nodes.iter().any(is_in_work), "{name}: {nodes:?}");
        // Inlined calls, from the same table.
        let of_half = |node: &&serde_json::Value| node["kind"] == "inlined" && node["name"] == "main.half";
        let half = nodes.iter().find(of_half).unwrap_or_else(|| panic!("{name}: no inlined call in {nodes:?}"));
        assert_eq!(half["call_site"]["line"], 14, "{name}: {half}");
    }
}
