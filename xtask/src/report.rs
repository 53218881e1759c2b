//! The output of `cargo xtask test`: steps with their times, counts of tests, what was skipped and what failed.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

/// What passed, failed and was skipped so far.
#[derive(Debug, Default)]
pub struct Report {
    passed: usize,
    failures: Vec<String>,
    failed: usize,
    skipped: Vec<String>,
    started: Option<Instant>,
}

impl Report {
    /// Runs a step. Prints its name before, its time and its error after. A failure is
    /// counted, and the next step runs all the same.
    pub fn step(&mut self, name: &str, step: impl FnOnce() -> anyhow::Result<()>) {
        self.heading(name);
        let start = Instant::now();
        match step() {
            Ok(()) => {
                self.passed += 1;
                println!("ok: {name} ({})", seconds(start.elapsed()));
            }
            Err(error) => {
                println!("FAILED: {name} ({}): {error:#}", seconds(start.elapsed()));
                self.failed += 1;
                self.failures.push(name.to_owned());
            }
        }
    }

    /// Notes something that is not done; it is listed before the counts.
    pub fn skip(&mut self, what: String) {
        println!("SKIPPED: {what}");
        self.skipped.push(what);
    }

    /// Runs `cargo test`, or what prints like it. Prints its output and adds up its counts.
    ///
    /// A test that cannot run on this machine appends `name: reason` to the file that `CALLPATH_SKIPPED_TESTS` names.
    /// It counts as skipped, though libtest says "ok".
    pub fn cargo_test(&mut self, name: &str, command: &mut Command) {
        self.heading(name);
        let start = Instant::now();
        let skipped_file = std::env::temp_dir().join(format!("callpath-skipped-{}", std::process::id()));
        match self.count_tests(command, &skipped_file) {
            Ok(true) => println!("ok: {name} ({})", seconds(start.elapsed())),
            Ok(false) => {
                println!("FAILED: {name} ({})", seconds(start.elapsed()));
                self.failures.push(name.to_owned());
            }
            Err(error) => {
                println!("FAILED: {name} ({}): {error:#}", seconds(start.elapsed()));
                self.failed += 1;
                self.failures.push(name.to_owned());
            }
        }
    }

    fn count_tests(&mut self, command: &mut Command, skipped_file: &PathBuf) -> anyhow::Result<bool> {
        std::fs::write(skipped_file, "").with_context(|| format!("failed to write {}", skipped_file.display()))?;
        command.env("CALLPATH_SKIPPED_TESTS", skipped_file).stdout(Stdio::piped());
        let mut child = command.spawn().context("failed to start cargo test")?;
        let stdout = child.stdout.take().context("cargo test has no output")?;
        let (mut failed, mut ignored, mut said_by) = (0, Vec::new(), Failed::default());
        for line in BufReader::new(stdout).lines() {
            let line = line?;
            println!("{line}");
            said_by.read(&line);
            if let Some(counts) = Counts::of_line(&line) {
                self.passed += counts.passed;
                failed += counts.failed;
            } else if let Some(test) = ignored_test(&line) {
                ignored.push(test);
            }
        }
        let status = child.wait()?;
        self.failed += failed;
        self.failures.extend(said_by.tests);
        if !status.success() && failed == 0 {
            // It did not even compile, or died.
            self.failed += 1;
        }
        self.skipped.append(&mut ignored);
        let said = std::fs::read_to_string(skipped_file).context("failed to read which tests were skipped")?;
        for line in said.lines() {
            self.passed = self.passed.saturating_sub(1);
            self.skipped.push(line.to_owned());
        }
        std::fs::remove_file(skipped_file)?;
        Ok(status.success())
    }

    /// Prints the time, what was skipped, what failed, and on the last line the counts.
    /// The status is a failure if anything failed.
    pub fn finish(self) -> ExitCode {
        println!();
        if let Some(started) = self.started {
            println!("{} in all", seconds(started.elapsed()));
        }
        if !self.skipped.is_empty() {
            println!("\nSKIPPED, and therefore not known to work here:");
            for what in &self.skipped {
                println!("  - {what}");
            }
        }
        if !self.failures.is_empty() {
            println!("\nFAILED:");
            for what in &self.failures {
                println!("  - {what}");
            }
        }
        println!("\n{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped.len());
        if self.failed == 0 && self.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn heading(&mut self, name: &str) {
        self.started.get_or_insert_with(Instant::now);
        println!("\n== {name}");
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// What failing tests say, each in one line.
#[derive(Debug, Default)]
struct Failed {
    tests: Vec<String>,
    /// More lines that may belong to the last test.
    more_lines: usize,
}

impl Failed {
    /// The first lines of what a test says, from its panic on if it has one: where it failed, and what was wrong.
    const LINES: usize = 6;

    /// From `---- name stdout ----` to the empty line behind it.
    fn read(&mut self, line: &str) {
        if let Some(test) = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----")) {
            self.tests.push(format!("{test}:"));
            self.more_lines = Self::LINES;
        } else if line.starts_with("thread '")
            && line.contains(" panicked at ")
            && let Some(last) = self.tests.last_mut()
            && !last.contains(" panicked at ")
        {
            // What it printed before tells less.
            last.truncate(last.find(": ").map_or(last.len(), |colon| colon + 1));
            *last = format!("{last} {line}");
            self.more_lines = Self::LINES - 1;
        } else if line.is_empty() && self.tests.last().is_some_and(|last| !last.ends_with(':')) {
            self.more_lines = 0;
        } else if self.more_lines > 0
            && let Some(last) = self.tests.last_mut()
        {
            self.more_lines -= 1;
            if !line.is_empty() {
                *last = format!("{last} {}", line.trim());
            }
        }
    }
}

#[derive(Debug, PartialEq)]
struct Counts {
    passed: usize,
    failed: usize,
}

impl Counts {
    /// From `test result: ok. 5 passed; 0 failed; 1 ignored; ...`.
    fn of_line(line: &str) -> Option<Self> {
        let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
        let mut numbers = counts.split("; ").map(|part| part.split(' ').next().and_then(|n| n.parse().ok()));
        Some(Self { passed: numbers.next()??, failed: numbers.next()?? })
    }
}

/// The reason of ignored tests that another step runs.
const OWN_STEP: &str = "has a step of its own";

/// From `test name ... ignored, reason`. `None`: another line, or another step runs the test.
fn ignored_test(line: &str) -> Option<String> {
    let (name, end) = line.strip_prefix("test ")?.split_once(" ... ignored")?;
    let reason = end.strip_prefix(", ").unwrap_or("ignored by default");
    (reason != OWN_STEP).then(|| format!("{name}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failing_tests_say() {
        let mut said = Failed::default();
        let output = "test a::b ... FAILED\n\nfailures:\n\n---- a::b stdout ----\n\nthread 'a::b' panicked at x.rs:3:4:\nno\n\n\
                      ---- c stdout ----\nError: 5\n\n\nfailures:\n    a::b\n    c\n";
        output.lines().for_each(|line| said.read(line));
        assert_eq!(said.tests, ["a::b: thread 'a::b' panicked at x.rs:3:4: no", "c: Error: 5"]);
        let mut said = Failed::default();
        let many_lines = "1\n2: 3\n\n4\n5\n6\n7\n8";
        let output =
            format!("---- a::b stdout ----\n{many_lines}\n\nthread 'a::b' (7) panicked at x.rs:3:4:\nno\nmore\n\n9\n");
        output.lines().for_each(|line| said.read(line));
        assert_eq!(said.tests, ["a::b: thread 'a::b' (7) panicked at x.rs:3:4: no more"]);
    }

    #[test]
    fn lines_of_libtest() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(Counts::of_line(line), Some(Counts { passed: 12, failed: 3 }));
        assert_eq!(Counts::of_line("test result of another kind"), None);
        assert_eq!(ignored_test("test a::b ... ignored, needs a GPU").as_deref(), Some("a::b: needs a GPU"));
        assert_eq!(ignored_test("test a::b ... ok"), None);
        assert_eq!(ignored_test("test a::b ... ignored, has a step of its own"), None);
    }
}
