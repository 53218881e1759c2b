//! Tasks of people who measure (tests/tasks): the answer stands in the first 24 rows of the default report.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use callpath_end_to_end::{C, Program, Recorded, run_report, tool_path};

/// What a terminal of the usual size shows.
const SCREEN_ROWS: usize = 24;

/// As people build: procedures are inlined.
const AS_BUILT: &[&str] = &["-O2", "-finline", "-foptimize-sibling-calls"];

fn first_screen(recorded: &Recorded) -> String {
    let report = run_report(&recorded.directory, &["--width", "100"]).stdout;
    let screen: Vec<&str> = report.lines().take(SCREEN_ROWS).collect();
    let wide: Vec<&&str> = screen.iter().filter(|line| line.chars().count() > 100).collect();
    assert!(wide.is_empty(), "{wide:#?}");
    screen.join("\n")
}

/// The rows of the tree that are on the screen.
fn tree(screen: &str) -> Vec<&str> {
    screen.lines().skip_while(|line| !line.starts_with("Call paths")).skip(3).collect()
}

#[track_caller]
fn assert_answered(screen: &str, answer: impl Fn(&str) -> bool) {
    assert!(tree(screen).into_iter().any(answer), "{screen}");
}

/// A program of tests/tasks that Cargo builds: its path.
fn built_by_cargo(name: &str) -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tasks").join(name).join("Cargo.toml");
    let target = tool_path("tasks");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--release", "--locked", "--manifest-path"]).arg(manifest);
    let built = build.arg("--target-dir").arg(&target).output().expect("cargo can be run");
    assert!(built.status.success(), "{name} does not build: {}", String::from_utf8_lossy(&built.stderr));
    target.join("release").join(name)
}

/// tests/tasks/pipeline.c under the three names that it goes by: the directory.
fn pipeline() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let program =
            Program::compiled(C { source: "../tasks/pipeline.c", output: "task_pipeline", options: AS_BUILT });
        let directory = tool_path("pipeline");
        std::fs::create_dir_all(&directory).expect("the target's directory can be written");
        for name in ["words", "rank", "summary"] {
            callpath_end_to_end::copy_program(program.path(), &directory.join(name));
        }
        directory
    })
}

#[test]
fn the_slow_closure() {
    let recorded = Program::at(built_by_cargo("closure")).recorded();
    let screen = first_screen(&recorded);
    // The loops of the closure that scores a word: main.rs, lines 13 and 14.
    let is_answer = |row: &str| row.contains("{closure#") && (row.contains("main.rs:13") || row.contains("main.rs:14"));
    assert_answered(&screen, is_answer);
}

#[test]
fn the_hot_branch_of_a_pool() {
    let program = Program::compiled(C { source: "../tasks/pool.c", output: "task_pool", options: AS_BUILT });
    let screen = first_screen(&program.recorded());
    assert_answered(&screen, |row| row.contains("collide"));
}

#[test]
fn the_lock_that_waits() {
    let program = Program::compiled(C { source: "../tasks/lock.c", output: "task_lock", options: AS_BUILT });
    let screen = first_screen(&program.options(&["-e", "wall-time"]).recorded());
    assert_answered(&screen, |row| row.contains("append_entry"));
}

#[test]
fn the_page_faults_owner() {
    let program = Program::compiled(C { source: "../tasks/faults.c", output: "task_faults", options: AS_BUILT });
    let screen = first_screen(&program.options(&["-e", "page-faults@1"]).recorded());
    assert_answered(&screen, |row| row.contains("build_index"));
}

#[test]
fn the_slow_child_of_a_pipeline() {
    let line = ["words", "rank", "summary"].map(|name| format!("'{}'", pipeline().join(name).display())).join(" | ");
    let screen = first_screen(&Program::at("/bin/sh").arguments(["-c", &line]).recorded());
    assert_answered(&screen, |row| row.contains("process rank"));
    assert_answered(&screen, |row| row.contains("rank_word"));
}
