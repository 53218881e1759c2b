//! `callpath probe --list`: what would be probed in a program and in a process, which are left alone.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const SOURCE: &str = r#"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static volatile int seen;
static inline __attribute__((always_inline)) int tiny(int x) { return x * 3 + getpid(); }
__attribute__((noinline)) int step(int x) { seen = x; return tiny(x) + 1; }
__attribute__((noinline)) int stride(int x) { seen = x; return tiny(x) + 2; }
static int one(void) { return 1; }
static int two(void) { return 2; }
static int (*choose(void))(void) { return getpid ? one : two; }
int chosen(void) __attribute__((ifunc("choose")));
#define RETURNS(f) #f ":\n.cfi_startproc\nret\n.cfi_endproc\n.type " #f ",@function\n.size " #f ",.-" #f "\n"
__asm__(RETURNS(packed) RETURNS(behind));
int main(int argc, char **argv) {
    FILE *mark = argc > 2 ? fopen(argv[2], "w") : 0;
    if (mark) fclose(mark);
    if (argc > 1) pause();
    return step(argc) + stride(argc) + chosen() > 0 ? 0 : 1;
}
"#;

/// A program of its own in a directory that goes away.
struct Program {
    directory: tempfile::TempDir,
}

impl Program {
    fn build(options: &[&str]) -> Program {
        Program::of(SOURCE, options)
    }

    fn of(source_text: &str, options: &[&str]) -> Program {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("steps.c");
        std::fs::write(&source, source_text).unwrap();
        let built = Program { directory };
        let status = Command::new("gcc").args(options).arg("-O1").arg("-o").arg(built.path()).arg(source).status();
        assert!(status.unwrap().success());
        built
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("steps")
    }
}

fn probe(words: &[&str], rest: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_callpath"));
    command.arg("probe").args(words).args(rest).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

fn function<'a>(json: &'a Value, name: &str) -> &'a Value {
    let functions = json["functions"].as_array().unwrap();
    functions.iter().find(|function| function["name"] == name).unwrap_or_else(|| panic!("{name} is not in {json}"))
}

#[test]
fn a_program_is_looked_at_and_not_started() {
    let built = Program::build(&["-g"]);
    let mark = built.directory.path().join("mark");
    let output = probe(
        &["--list", "-f", "st*", "-f", "tiny", "-f", "stepp", "-f", "steps!chosen", "-f", "steps!packed", "--"],
        &[&built.path(), Path::new("x"), &mark],
    );
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(!mark.exists(), "the program was started");
    let line = |begin: &str| {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut lines = shown.lines().map(words).filter(|line| line.starts_with(begin));
        lines.next().unwrap_or_else(|| panic!("{begin}: {shown}"))
    };
    let step = line("steps step ");
    assert!(step.starts_with("steps step steps+0x") && step.ends_with(" steps.c:7 can be probed"), "{step}");
    // Without the pattern's module, libraries are looked at, too.
    assert!(line("libc.so.6 strlen").contains("libc.so.6+0x") || line("libc.so.6 st").contains("libc.so.6+0x"));
    let packed = line("steps packed ");
    assert!(packed.contains("cannot be probed: no room for a jump at 0x"), "{packed}");
    let tiny = line("steps tiny ");
    assert_eq!(tiny, "steps tiny steps.c:6 in 2 places: step at steps.c:7, stride at steps.c:8");
    assert!(line("steps chosen").contains("no symbol names one"), "{shown}");
    let unknown = line("stepp:");
    assert!(unknown.contains("no function has this name; similar names: step"), "{unknown}");
}

#[test]
fn the_same_of_a_process_as_json() {
    let built = Program::build(&["-g"]);
    let mark = built.directory.path().join("mark");
    let mut child = Command::new(built.path()).args(["x".as_ref(), mark.as_os_str()]).spawn().unwrap();
    while !mark.exists() {
        std::thread::yield_now();
    }
    let pid = child.id().to_string();
    let output = probe(&["--list", "--json", "-f", "stride", "-f", "tiny", "-p", &pid], &[]);
    child.kill().unwrap();
    child.wait().unwrap();
    let json = json(&output);
    assert_eq!(output.status.code(), Some(0));
    let stride = function(&json, "stride");
    assert_eq!((&stride["module"], &stride["can_be_probed"]), (&"steps".into(), &true.into()));
    assert_eq!(stride["place"]["line"], 8);
    let symbols = text(&Command::new("nm").arg(built.path()).output().unwrap().stdout);
    let symbol = symbols.lines().find(|line| line.ends_with(" T stride")).unwrap();
    let address = u64::from_str_radix(symbol.split(' ').next().unwrap(), 16).unwrap();
    assert_eq!(stride["address"], format!("{address:#x}"));
    let copies = json["inlined"][0]["copies"].as_array().unwrap();
    let callers: Vec<&str> = copies.iter().filter_map(|copy| copy["caller"].as_str()).collect();
    assert_eq!(callers, ["step", "stride"]);
}

/// glibc's own symbol table is needed to know all implementations; those that it exports suffice where it is stripped.
#[test]
fn implementations_of_what_chooses_others_are_listed() {
    let json = json(&probe(&["--list", "--json", "-f", "libc!memcpy", "--"], &[Path::new("/bin/true")]));
    let ifuncs = json["ifuncs"].as_array().unwrap();
    for ifunc in ifuncs {
        for name in ifunc["implementations"].as_array().unwrap() {
            let listed = function(&json, name.as_str().unwrap());
            assert_eq!((&listed["chosen_by"], &listed["pattern"]), (&ifunc["name"], &"libc!memcpy".into()));
        }
    }
    assert!(ifuncs.iter().any(|ifunc| ifunc["name"].as_str().unwrap().starts_with("memcpy")), "{json}");
}

#[test]
fn nothing_to_probe_is_an_error() {
    let with_dwarf = Program::build(&["-g"]);
    for (pattern, said) in [
        ("steps!stepp", "nothing to probe: steps!stepp: no function of steps has this name; similar names: steps!step"),
        ("nosuch!f", "nothing to probe: nosuch!f: no module was seen that is called nosuch"),
        ("steps!tiny", "nothing to probe: tiny is inlined in 2 places, not probed (in step, stride)"),
        ("steps!packed", "nothing to probe: packed: no room for a jump at 0x"),
    ] {
        for json in [&["--list"][..], &["--list", "--json"]] {
            let words = [json, &["-f", pattern, "--"]].concat();
            let output = probe(&words, &[&with_dwarf.path()]);
            let error = text(&output.stderr);
            assert_eq!(output.status.code(), Some(125), "{pattern}: {error}");
            assert!(error.starts_with(&format!("callpath: {said}")), "{pattern}: {error}");
        }
    }
    for words in [&["--list", "-f", "main"][..], &["--list"], &["--list", "-f", "main", "-p", "0x"]] {
        let output = probe(words, &[]);
        assert_eq!(output.status.code(), Some(125), "{words:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn without_debug_information_inlined_calls_are_said_to_be_unseen() {
    const SAID: &str = "calls that the compiler inlined cannot be seen: there is no debug information";
    for (options, is_said) in [(&["-g0"][..], 1), (&["-g"], 0)] {
        let built = Program::build(options);
        let output = probe(&["--list", "-f", "steps!step", "-f", "steps!stride", "--"], &[&built.path()]);
        assert_eq!(text(&output.stdout).matches(SAID).count(), is_said, "{options:?}");
    }
}

/// Which one is called, the program's loader chooses.
#[test]
fn what_chooses_others_is_probed_in_all_of_them() {
    const CHOOSES: &str = r#"
static volatile int seen;
static __attribute__((noinline, used)) int sum_fast(int x) { seen = x; return x + 1; }
static __attribute__((noinline, used)) int sum_slow(int x) { seen = x; return x + 2; }
static int (*choose(void))(int) { return sum_slow; }
int sum(int x) __attribute__((ifunc("choose")));
int main(void) { int all = 0; for (int i = 0; i < 77; i++) all += sum(i); return all == 0; }
"#;
    for pattern in ["steps!sum", "steps!su?"] {
        let built = Program::of(CHOOSES, &["-g"]);
        let directory = built.directory.path().join("out.callpath");
        let words = ["-f", pattern, "-o", directory.to_str().unwrap(), "--"];
        let output = probe(&words, &[&built.path()]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        // The compiler puts them in one order or the other.
        let is_it = |line: &&str| {
            let names = line.strip_prefix("callpath: sum chooses one of these when it is loaded, all are probed: ");
            names.is_some_and(|names| ["sum_fast, sum_slow", "sum_slow, sum_fast"].contains(&names))
        };
        assert_eq!(said.lines().filter(is_it).count(), 1, "{said}");
        assert!(said.contains("2 functions were probed"), "{said}");
        let mut report = Command::new(env!("CARGO_BIN_EXE_callpath"));
        let report = report.args(["report", "--json", "--view", "flat"]).arg(directory).output().unwrap();
        let report = json(&report);
        let nodes = report["nodes"].as_array().unwrap();
        let calls =
            |name: &str| nodes.iter().find(|node| node["name"] == name).map(|node| node["inclusive"][0].clone());
        assert_eq!((calls("sum_slow"), calls("sum_fast")), (Some(77.into()), None), "{report}");
    }
}

/// What is inlined everywhere is known, though nothing can be probed; a name of nothing is not.
#[test]
fn what_is_inlined_everywhere_is_not_unknown() {
    let built = Program::build(&["-g"]);
    let directory = built.directory.path().join("out.callpath");
    let of = |patterns: &[&str]| {
        let mut words = vec!["-o", directory.to_str().unwrap()];
        patterns.iter().for_each(|pattern| words.extend(["-f", pattern]));
        words.push("--");
        let output = probe(&words, &[&built.path()]);
        (output.status.code(), text(&output.stderr))
    };
    let (status, said) = of(&["steps!tiny"]);
    assert_eq!(status, Some(125), "{said}");
    assert!(said.contains("tiny is inlined in 2 places, not probed (in step, stride)"), "{said}");
    assert!(!said.contains("no function of"), "{said}");
    let (status, said) = of(&["steps!tiny", "steps!stepp", "steps!step"]);
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(said.matches("no function of steps has this name").count(), 1, "{said}");
    assert!(said.contains("tiny is inlined in 2 places") && said.contains("1 function was probed"), "{said}");
}
