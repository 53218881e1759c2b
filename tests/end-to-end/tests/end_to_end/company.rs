//! What else may be at work on the program: debuggers, tracers, other preloaded objects, sanitizers, interpreters that
//! load native code. They work together, or a message says what does not.

use std::path::Path;
use std::process::Command;

use callpath_end_to_end::{C, Ended, Program, Recorded, compiled, skip, tool_path};

const COMPANY: C = C { source: "company.c", output: "company", options: &["-rdynamic", "-ldl"] };
const COMPANION: C = C { source: "companion.c", output: "libcompanion.so", options: &["-shared", "-fPIC", "-ldl"] };
const DEEP_BIND: C = C { source: "deep_bind.c", output: "libdeep_bind.so", options: &["-shared", "-fPIC"] };

/// A Debian library by its file's name, or the word that the test did not run.
fn library(name: &str, test: &str) -> Option<String> {
    let path = format!("/usr/lib/x86_64-linux-gnu/{name}");
    if !std::path::Path::new(&path).exists() {
        skip(test, &format!("{path} is not installed"));
        return None;
    }
    Some(path)
}

fn is_there(command: &str, test: &str) -> bool {
    let path = format!("/usr/bin/{command}");
    let there = std::path::Path::new(&path).exists();
    if !there {
        skip(test, &format!("{path} is not installed"));
    }
    there
}

/// gdb as it is for everybody: no settings, no questions.
const GDB: [&str; 8] =
    ["/usr/bin/gdb", "-q", "-nx", "-batch", "-return-child-result", "-ex", "set debuginfod enabled off", "-ex"];

/// A process's number and where its arguments lie differ from run to run.
fn without_numbers(text: &str) -> Vec<String> {
    let has_no_number = |word: &&str| !word.contains(|c: char| c.is_ascii_digit());
    text.lines().map(|line| line.split([' ', '=', ')']).filter(has_no_number).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn gdb_runs_a_program() {
    if !is_there("gdb", "gdb_runs_a_program") {
        return;
    }
    let burn = Program::nasty("burn.c");
    let gdb = Program::at(GDB[0]).arguments(&GDB[1..]);
    let script = ["break inner", "-ex", "run", "-ex", "bt", "-ex", "delete", "-ex", "continue", "--args"];
    let gdb = gdb.arguments(script).arguments([burn.path()]).arguments(["200", "exit"]);
    // At samples that reach it gdb would stop the program, and say so.
    let (bare, recorded) = (gdb.bare(), gdb.recorded());
    assert_eq!(without_numbers(&bare.stdout), without_numbers(&recorded.ended.stdout), "{}", recorded.ended.stderr);
    assert_eq!(bare.status, recorded.ended.status);
    assert_eq!(recorded.ended.status, 3, "the program's own status: {:?}", recorded.ended);
    assert!(recorded.ended.stdout.contains("#2") && recorded.ended.stdout.contains("burnt"), "{:?}", recorded.ended);
    assert!(recorded.ended.stderr.contains("gdb traces it"), "it is not said: {:?}", recorded.ended);
    let profile = recorded.profile();
    assert!(profile.processes().iter().any(|(name, _)| name == "gdb"), "gdb itself is measured");
    assert_eq!(profile.through(&["main", "outer", "inner"], "samples"), 0, "the program is not");
}

#[test]
fn gdb_runs_callpath() {
    if !is_there("gdb", "gdb_runs_callpath") {
        return;
    }
    let burn = Program::nasty("burn.c").arguments(["200", "exit"]);
    let recorded = burn.through(&[&GDB[..], &["run", "--args"]].concat()).recorded();
    assert_eq!(recorded.ended.status, 3, "{:?}", recorded.ended);
    assert!(recorded.ended.stdout.contains("burnt, now exit"), "{:?}", recorded.ended);
    let profile = recorded.profile();
    profile.assert_full(980);
    assert!(profile.percent_through(&["main", "outer", "inner"]) > 80.0);
}

#[test]
fn strace_inside_and_outside() {
    if !is_there("strace", "strace_inside_and_outside") {
        return;
    }
    let burn = Program::nasty("burn.c").arguments(["200", "exit"]);
    let inside = Program::at("/usr/bin/strace").arguments(["-f", "-o", "/dev/null"]);
    let inside = inside.arguments([burn.path()]).arguments(burn.words());
    for recorded in [inside.same(), burn.through(&["/usr/bin/strace", "-f", "-o", "/dev/null"]).same()] {
        assert_eq!(recorded.ended.status, 3);
        let profile = recorded.profile();
        profile.assert_full(980);
        assert!(profile.percent_through(&["main", "outer", "inner"]) > 50.0);
    }
}

#[test]
fn allocators_that_are_preloaded() {
    let company = Program::compiled(COMPANY).arguments(["churn"]);
    for name in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"] {
        let Some(allocator) = library(name, "allocators_that_are_preloaded") else { continue };
        let preload = format!("LD_PRELOAD={allocator}");
        let recorded = company.clone().through(&["env", &preload]).same();
        let profile = recorded.profile();
        profile.assert_full(980);
        // The file's own name, behind its link.
        let file = std::fs::canonicalize(&allocator).expect("it is there");
        let file = format!("{}!", file.file_name().unwrap().to_str().unwrap());
        let share = profile.percent_through(&["start_thread", "churn", &file]);
        assert!(share > 20.0, "{share}% in {file}");
        assert_eq!(profile.exclusive_in("libc.so.6").get("_int_malloc"), None, "the C library's malloc is not called");
    }
}

#[test]
fn another_object_before_the_same_functions() {
    let companion = compiled(COMPANION).expect("companion.c compiles");
    let company = Program::compiled(COMPANY).arguments(["handler"]);
    let behind = format!("LD_PRELOAD={}", companion.display());
    // In a shell, since a person can put it before ours only there.
    let script = format!("LD_PRELOAD={}:$LD_PRELOAD exec {} handler", companion.display(), company.path().display());
    let before = Program::at("/bin/sh").arguments(["-c", &script]);
    for program in [company.through(&["env", &behind]), before] {
        let recorded = program.same();
        assert!(recorded.ended.stdout.starts_with("actions 1, threads 1\n"), "{:?}", recorded.ended);
        let profile = recorded.profile();
        profile.assert_full(980);
        assert!(profile.percent_through(&["start_thread", "companion_start", "spin"]) > 50.0);
    }
}

#[test]
fn a_library_that_sees_nothing_preloaded() {
    let library = compiled(DEEP_BIND).expect("deep_bind.c compiles");
    let program = Program::compiled(COMPANY).arguments(["deep".as_ref(), library.as_os_str()]);
    for options in [&["-e", "cpu-time"][..], &["-e", "cpu-time,wall-time"]] {
        let recorded = program.clone().options(options).same();
        assert!(recorded.ended.stdout.starts_with("deep 12\n"), "its handler ran: {:?}", recorded.ended);
        let profile = recorded.profile();
        profile.assert_full(950);
        let in_threads = profile.percent_through(&["clone3", "start_thread", "deep_work"]);
        assert!(in_threads > 20.0, "{in_threads}% in threads that no hook saw begin");
    }
}

/// Its own words about what is wrong, which name no address.
fn summary(ended: &Ended) -> Vec<String> {
    ended.stderr.lines().filter(|line| line.starts_with("SUMMARY: ")).map(str::to_owned).collect()
}

fn sanitized(name: &'static str, options: &'static [&'static str], say: &str) {
    let program = Program::compiled(C { source: "company.c", output: name, options });
    let clean = program.clone().arguments(["clean"]).same();
    assert_eq!(clean.ended.status, 4, "{:?}", clean.ended);
    let says = clean.ended.stderr.contains(&format!("built with {say}"));
    assert_eq!(says, !say.is_empty(), "{:?}", clean.ended);
    let profile = clean.profile();
    profile.assert_full(950);
    assert!(profile.percent_through(&["start_thread", "spin"]) > 20.0);
}

fn finds(name: &'static str, options: &'static [&'static str], status: i32) -> Recorded {
    let program = Program::compiled(C { source: "company.c", output: name, options }).arguments(["free"]);
    let (bare, recorded) = (program.bare(), program.recorded());
    assert_eq!((bare.status, recorded.ended.status), (status, status), "{:?}", recorded.ended);
    assert_eq!(bare.stdout, recorded.ended.stdout);
    assert!(summary(&bare).len() == 1 && summary(&bare)[0].contains("heap-use-after-free"), "{bare:?}");
    assert_eq!(summary(&bare), summary(&recorded.ended));
    recorded
}

#[test]
fn address_sanitizer() {
    sanitized("company_asan", &["-fsanitize=address", "-ldl"], "AddressSanitizer");
    finds("company_asan", &["-fsanitize=address", "-ldl"], 1);
    // Of a shell that knows nothing of it.
    let asan =
        Program::compiled(C { source: "company.c", output: "company_asan", options: &["-fsanitize=address", "-ldl"] });
    let script = format!("{} clean; exec true", asan.path().display());
    let recorded = Program::at("/bin/sh").arguments(["-c", &script]).same();
    assert!(recorded.ended.stdout.contains("clean, caught 10"), "{:?}", recorded.ended);
}

#[test]
fn address_sanitizer_with_options_of_the_programs_own() {
    let options = &["-fsanitize=address", "-DOWN_OPTIONS", "-ldl"];
    sanitized("company_asan_own", options, "AddressSanitizer");
    finds("company_asan_own", options, 9);
}

#[test]
fn other_sanitizers() {
    sanitized("company_asan_in", &["-fsanitize=address", "-static-libasan", "-ldl"], "");
    finds("company_asan_in", &["-fsanitize=address", "-static-libasan", "-ldl"], 1);
    sanitized("company_tsan", &["-fsanitize=thread", "-ldl"], "ThreadSanitizer");
    sanitized("company_ubsan", &["-fsanitize=undefined", "-ldl"], "");
}

#[test]
fn thread_sanitizer_names_who_creates_a_thread() {
    const TEST: &str = "company::thread_sanitizer_names_who_creates_a_thread";
    let made = C { source: "races.c", output: "races", options: &["-fsanitize=thread"] };
    if compiled(made).is_err_and(|error| error.contains("tsan")) {
        return skip(TEST, "gcc's libtsan is not installed");
    }
    let program = Program::compiled(made);
    // The frames of each stack of its reports: by name, without addresses.
    let frames = |said: &Ended| -> Vec<Vec<String>> {
        let lines: Vec<&str> = said.stderr.lines().collect();
        let stacks = lines.split(|line| !line.starts_with("    #")).filter(|stack| !stack.is_empty());
        let name = |line: &&str| line.split_whitespace().nth(1).unwrap_or("").to_owned();
        let mut stacks: Vec<Vec<String>> = stacks.map(|stack| stack.iter().map(name).collect()).collect();
        // Which of the two was first is chance.
        stacks.sort();
        stacks.dedup();
        stacks
    };
    let (bare, recorded) = (program.bare(), program.recorded());
    assert_eq!((bare.status, &bare.stdout), (recorded.ended.status, &recorded.ended.stdout), "{:?}", recorded.ended);
    let created = ["pthread_create", "starts", "main"].map(str::to_owned).to_vec();
    assert!(frames(&bare).contains(&created), "{bare:?}");
    assert!(frames(&recorded.ended).contains(&created), "{:?}", recorded.ended);
    assert!(!recorded.ended.stderr.contains("callpath-preload"), "{:?}", recorded.ended);
    let profile = recorded.profile();
    profile.assert_full(950);
    assert!(profile.through(&["adds"], "cpu-time") * 2 > profile.total("cpu-time"), "{profile:?}");
}

#[test]
fn thread_sanitizer_in_the_program_itself() {
    // clang puts it there, with its allocator, which does not work yet when our object is loaded.
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nasty/races.c");
    let made = tool_path("races_clang");
    let mut clang = Command::new("clang");
    clang.args(["-O1", "-g", "-pthread", "-fsanitize=thread", "-o"]).args([&made, &source]);
    if !clang.output().is_ok_and(|output| output.status.success()) {
        return skip(
            "company::thread_sanitizer_in_the_program_itself",
            "clang or its ThreadSanitizer is not installed",
        );
    }
    let program = Program::at(&made);
    let (bare, recorded) = (program.bare(), program.recorded());
    assert_eq!((bare.status, &bare.stdout), (recorded.ended.status, &recorded.ended.stdout), "{:?}", recorded.ended);
    // The process that names its addresses takes longer than the program.
    assert!(recorded.profile().through(&["adds"], "cpu-time") > 0, "{:?}", recorded.profile());
}

#[test]
fn python_with_an_extension() {
    let options = &["-shared", "-fPIC"];
    let module =
        compiled(C { source: "extension.c", output: "spinner.abi3.so", options }).expect("extension.c compiles");
    let script = tool_path("extension.py");
    let text = format!(
        "import sys\nsys.path.insert(0, {:?})\nimport spinner\ndef work():\n    return spinner.spin(150000000)\nprint(work())\n",
        module.parent().unwrap().to_str().unwrap()
    );
    std::fs::write(&script, text).unwrap();
    let profile = Program::at("/usr/bin/python3").arguments(["-S".as_ref(), script.as_os_str()]).same().profile();
    profile.assert_full(980);
    assert!(profile.percent_through(&["Py_RunMain", "_PyEval_EvalFrameDefault", "spin", "spin_in_c"]) > 50.0);
}

#[test]
fn perl_with_extensions() {
    let text = "use List::Util qw(shuffle sum first); use POSIX qw(floor); srand(7); my $s = 0;\
                for my $i (1 .. 500) { my @l = shuffle(1 .. 5000); $s += sum(@l); $s += first { $_ > 4990 } @l; \
                $s += floor($s / 3) for 1 .. 200; $s %= 1000003 } print \"$s\\n\" if $s >= 0; exit 6";
    // One order of hashes, one seed: two runs print the same.
    let perl = Program::at("/usr/bin/perl").arguments(["-e", text]);
    let recorded = perl.through(&["env", "PERL_HASH_SEED=0"]).same();
    assert_eq!(recorded.ended.status, 6);
    let profile = recorded.profile();
    profile.assert_full(980);
    assert!(profile.percent_through(&["__libc_start_call_main", "perl_run", "Perl_runops_standard"]) > 50.0);
    let inside: u64 = profile.exclusive_in("Util.so").values().sum();
    assert!(inside > 0, "shuffle is List::Util's own");
}
