//! Programs that a probed program executes: each has the probes of its own functions before its first constructor.

use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::{Duration, Instant};

use callpath_end_to_end::{C, Profile, Program, Recorded, Truth, callpath, run_report};
use serde_json::Value;

use super::{assert_counted, truth};

/// Of tests/nasty/forks.c.
const FUNCTIONS: [&str; 3] = ["leaf", "work", "child"];

/// A command of a shell, which runs programs of tests/nasty by their names.
fn shell(script: &str) -> Program {
    let of = |source: &'static str| Program::nasty(source).path().to_str().expect("in UTF-8").to_owned();
    let script = script.replace("FORKS", &of("forks.c")).replace("SITES", &of("sites.c"));
    Program::at("/bin/sh").arguments(["-c", &script])
}

fn json_of(recorded: &Recorded) -> Value {
    serde_json::from_str(&run_report(&recorded.directory, &["--json"]).stdout).expect("the report is JSON")
}

#[test]
fn programs_of_a_shell_are_counted_and_nothing_is_counted_twice() {
    for metric in ["calls", "wall-time"] {
        let recorded =
            shell("SITES; FORKS fork; SITES; exit 6").options(&["-m", metric]).same_probed(&["leaf", "work"]);
        assert_eq!(recorded.ended.status, 6, "{recorded:?}");
        let profile = assert_counted(&recorded, &["leaf", "work"], &["forks", "sites"]);
        let probes = &json_of(&recorded)["quality"]["probes"];
        assert_eq!(probes["hits"], profile.total("calls"), "{probes}");
        assert_eq!(probes["unmatched_exits"], 0, "{probes}");
        assert_eq!(probes["inside_when_set"], 0, "{probes}");
    }
}

#[test]
fn a_program_that_executes_itself() {
    let forks = Program::nasty("forks.c");
    let own = forks.path().to_str().expect("in UTF-8").to_owned();
    // Without random addresses each of them lies where the one before did.
    for prefix in [&[][..], &["setarch", "-R"]] {
        let twice = forks.clone().through(prefix).arguments(["exec", &own, "exec", &own, "fork"]);
        let recorded = twice.same_probed(&FUNCTIONS);
        assert_eq!(recorded.ended.status, 3, "{recorded:?}");
        assert_counted(&recorded, &FUNCTIONS, &["forks"]);
    }
}

#[test]
fn one_of_several_programs_has_the_function() {
    let recorded = shell("true; FORKS; ls / > /dev/null; SITES; (SITES) | sort").same_probed(&["odd"]);
    assert_eq!(recorded.ended.status, 0, "{recorded:?}");
    assert_counted(&recorded, &["odd"], &["sites"]);
    assert!(!recorded.ended.stderr.contains("no function has this name"), "{recorded:?}");
}

#[test]
fn a_hundred_short_programs() {
    let recorded = shell("i=0; while [ $i -lt 100 ]; do FORKS > /dev/null; i=$((i + 1)); done").same_probed(&["leaf"]);
    assert_counted(&recorded, &["leaf"], &["forks"]);
    assert_eq!(recorded.profile().total("calls"), 100_100);
}

#[test]
fn beside_samples_programs_are_probed_as_well() {
    let recorded = shell("SITES; FORKS fork").options(&["--probe", "leaf"]).same();
    assert_counted(&recorded, &["leaf"], &["forks", "sites"]);
}

#[test]
fn what_no_program_has_is_said_at_the_end() {
    let recorded = shell("FORKS; exit 4").probed(&["leaff"]);
    assert_eq!(recorded.ended.status, 4, "{recorded:?}");
    let said = &recorded.ended.stderr;
    assert!(said.contains("leaff: no function has this name; similar names: leaf"), "{said}");
    // A program that executes none is refused as ever.
    let refused = Program::nasty("sites.c").probed(&["leaff"]);
    assert_eq!((refused.ended.status, refused.ended.stdout.as_str()), (125, ""), "{refused:?}");
}

#[test]
fn programs_that_load_no_object_run_unprobed_and_are_counted() {
    let tells = Program::compiled(C { source: "tells.c", output: "tells_static", options: &["-static"] });
    let script = format!("{0} > /dev/null; {0} > /dev/null; FORKS", tells.path().display());
    let recorded = shell(&script).probed(&["leaf"]);
    assert_eq!(recorded.profile().calls_of("leaf"), truth(&recorded).calls_of("leaf"));
    let said = &recorded.ended.stderr;
    assert_eq!(said.matches("2 programs that it started were not measured").count(), 1, "{said}");
    assert!(said.contains("tells_static (2 times)"), "{said}");
}

/// A shell that reads what it does next, with probes.
struct Asked {
    child: Child,
    input: Option<ChildStdin>,
    surroundings: tempfile::TempDir,
}

impl Asked {
    fn begin(functions: &[&str]) -> Asked {
        let surroundings = tempfile::tempdir().expect("a directory");
        let mut command = Command::new(callpath());
        command.current_dir(surroundings.path()).args(["probe", "-q", "-o", "measured"]);
        for function in functions {
            command.args(["-f", function]);
        }
        command.args(["--", "/bin/sh"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it can be started");
        let asked = Asked { input: child.stdin.take(), child, surroundings };
        until(|| asked.directory().join("control").exists());
        asked
    }

    fn directory(&self) -> PathBuf {
        self.surroundings.path().join("measured")
    }

    fn do_next(&mut self, script: &str) {
        let program = shell(script);
        let words = program.words();
        let line = format!("{}; touch done\n", words.last().expect("the script"));
        let done = self.surroundings.path().join("done");
        let input = self.input.as_mut().expect("it is open");
        std::io::Write::write_all(input, line.as_bytes()).expect("it reads");
        until(|| done.exists());
        std::fs::remove_file(done).expect("it is there");
    }

    fn ctl(&self, words: &[&str]) -> Output {
        Command::new(callpath()).arg("ctl").arg(self.directory()).args(words).output().expect("it can be run")
    }

    #[track_caller]
    fn answer(&self, words: &[&str]) -> String {
        let output = self.ctl(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).expect("in UTF-8")
    }

    fn calls_of(&self, name: &str) -> u64 {
        Profile::of_json(&run_report(&self.directory(), &["--json"]).stdout).calls_of(name)
    }

    fn end(mut self) -> (Output, tempfile::TempDir) {
        drop(self.input.take());
        (self.child.wait_with_output().expect("it ends"), self.surroundings)
    }
}

fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn truth_in(directory: &Path) -> Truth {
    Truth::in_directory(directory)
}

#[test]
fn requests_are_for_the_programs_that_come_later() {
    let mut asked = Asked::begin(&["leaf"]);
    asked.do_next("FORKS");
    let leaf = truth_in(asked.surroundings.path()).calls_of("leaf");
    until(|| asked.answer(&["list"]) == "forks!leaf: gone\n");
    let answer = asked.answer(&["add", "odd"]);
    assert!(answer.contains("odd: no function has this name") && answer.contains("will be probed if"), "{answer}");
    asked.do_next("SITES");
    asked.answer(&["snapshot"]);
    let truth = truth_in(asked.surroundings.path());
    assert_eq!(asked.calls_of("odd"), truth.calls_of("odd"));
    assert_eq!(asked.calls_of("leaf"), truth.calls_of("leaf"));
    assert!(truth.calls_of("leaf") > leaf && truth.calls_of("odd") > 0);
    // What is meant is removed for those that come, too, and may be added again.
    assert!(!asked.ctl(&["remove", "nothing"]).status.success());
    asked.answer(&["add", "main"]);
    assert_eq!(
        asked.answer(&["remove", "leaf"]),
        "0 functions were removed; programs that come later have no probe of it\n"
    );
    asked.do_next("SITES");
    asked.answer(&["snapshot"]);
    assert_eq!(asked.calls_of("leaf"), truth.calls_of("leaf"));
    assert_eq!(asked.calls_of("odd"), 2 * truth.calls_of("odd"));
    assert_eq!(asked.calls_of("main"), 1);
    assert!(asked.answer(&["metrics"]).starts_with("calls\n"));
    asked.answer(&["add", "leaf"]);
    asked.do_next("FORKS");
    asked.answer(&["snapshot"]);
    assert_eq!(asked.calls_of("leaf"), truth.calls_of("leaf") + leaf);
    // A program that runs on is not waited for, and what it executes begins without probes.
    assert_eq!(asked.answer(&["stop"]), "the probes are taken out\n");
    asked.do_next("FORKS");
    let directory = asked.directory();
    let (output, _surroundings) = asked.end();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let json: Value = serde_json::from_str(&run_report(&directory, &["--json"]).stdout).expect("it is JSON");
    let hits = truth.calls_of("leaf") + leaf + 2 * truth.calls_of("odd") + 2;
    assert_eq!(json["quality"]["probes"]["hits"], hits, "{}", json["quality"]);
}

/// callpath is killed while programs wait for their probes: they run on, and so do all that come.
#[test]
fn programs_run_on_when_callpath_is_killed() {
    let script = "i=0; while [ $i -lt 40 ]; do FORKS >> said; i=$((i + 1)); done; touch done";
    let words = shell(script).words();
    for after in [0, 5, 11, 18] {
        let surroundings = tempfile::tempdir().expect("a directory");
        let mut command = Command::new(callpath());
        command.current_dir(surroundings.path()).args(["probe", "-q", "-f", "leaf", "-o", "measured", "--", "/bin/sh"]);
        let mut child = command.args(&words).stdin(Stdio::null()).spawn().expect("it can be started");
        let lines = || std::fs::read_to_string(surroundings.path().join("said")).unwrap_or_default().lines().count();
        until(|| lines() > after);
        // In the middle of what is done for the next one.
        std::thread::sleep(Duration::from_millis(after as u64));
        child.kill().expect("it runs");
        child.wait().expect("it is a child");
        until(|| surroundings.path().join("done").exists());
        assert_eq!(lines(), 40);
    }
}
