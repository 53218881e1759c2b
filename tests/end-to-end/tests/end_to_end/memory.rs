//! Commands that have little memory, and what they say of how much was measured.

use std::path::Path;
use std::process::{Command, Output};

use callpath_end_to_end::{Program, callpath, run_report, tool_path};

/// `callpath`, in a process with at most so much address space.
fn within(limit_kb: u32, words: &[&str]) -> Output {
    let line = format!("ulimit -v {limit_kb} && exec \"$0\" \"$@\"");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &line]).arg(callpath()).args(words).env("CALLPATH_CACHE_DIR", tool_path("no-cache/here"));
    command.output().expect("a shell can be run")
}

const SENTENCE: &str = "callpath: there is not enough memory for this (see ulimit -v)\n";

/// A file is too long for the memory that there is.
fn is_unread(said: &str) -> bool {
    said.starts_with("callpath: failed to read ") && said.ends_with(": out of memory\n") && said.lines().count() == 1
}

/// A command that has all that it needs, or ends with a sentence. Both happen.
#[test]
fn without_memory_a_sentence_is_said() {
    let place = tempfile::TempDir::new().expect("a temp directory");
    let directory = place.path().join("m");
    let (own, directory) = (callpath().to_str().expect("a plain name"), directory.to_str().expect("a plain name"));
    // Much is to be read of what ran.
    let recorded = Command::new(callpath())
        .args(["record", "-o", directory, "--", own, "structure", "--no-cache", own])
        .env("CALLPATH_CACHE_DIR", tool_path("cache"))
        .output()
        .expect("callpath can be run");
    assert!(recorded.status.success(), "{recorded:?}");
    // The kernel or the loader refuses what has no room for the program itself.
    let starts = |limit_kb: &u32| within(*limit_kb, &["--version"]).status.success();
    let least_kb = (10_000..60_000).step_by(500).find(starts).expect("it has room somewhere");
    for words in [
        &["report", directory][..],
        &["report", "--json", directory],
        &["structure", "--no-cache", "--procedure", "main", own],
    ] {
        let (mut whole, mut without) = (0, 0);
        for more_kb in [0, 1_000, 5_000, 20_000, 40_000, 100_000, 180_000, 4_000_000] {
            let limit_kb = least_kb + more_kb;
            let output = within(limit_kb, words);
            let said = String::from_utf8_lossy(&output.stderr);
            match output.status.code() {
                Some(0) if said.is_empty() && !output.stdout.is_empty() => whole += 1,
                Some(1) if said == SENTENCE || is_unread(&said) => without += 1,
                _ => panic!("{words:?} within {limit_kb} KB: {:?}: {said}", output.status),
            }
        }
        assert!(whole > 0 && without > 0, "{words:?}: {whole} and {without}");
    }
}

/// The cost of samples is compared with CPU time of the processes that they were taken in. The kernel's account of the
/// run is without daemons, which is nearly all of it here.
#[test]
fn the_cost_of_samples_is_a_share_of_what_was_measured() {
    let burn = Program::nasty("burn.c");
    let script = format!("{} 300", burn.path().display());
    let recorded =
        Program::nasty("starts.c").arguments(["detach", "/bin/sh", "-c", &script]).options(&["--wait-all"]).same();
    let json: serde_json::Value =
        serde_json::from_str(&json_of(&recorded.directory)).expect("a report of one measurement is JSON");
    let overhead_ns = json["quality"]["overhead_ns"].as_u64().expect("a number");
    let cpu_ns = recorded.profile().total("cpu-time");
    let by_kernel_ns = json["run"]["cpu_time_by_kernel_ns"].as_u64().expect("a number");
    assert!(cpu_ns > 2 * by_kernel_ns, "the daemon is in the kernel's account: {cpu_ns} and {by_kernel_ns}");
    let share = 100.0 * overhead_ns as f64 / cpu_ns as f64;
    let expected = if share < 0.05 { "<0.1%".to_owned() } else { format!("{share:.1}%") };
    let report = run_report(&recorded.directory, &["--width", "1000"]).stdout;
    assert!(report.contains(&format!("measuring cost {expected} of the cpu time")), "{expected}: {report}");
}

fn json_of(directory: &Path) -> String {
    run_report(directory, &["--json"]).stdout
}
