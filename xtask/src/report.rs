//! The account of `cargo xtask test`: each step with its time, each test counted, what was skipped said at the end.
//! Knows nothing of what a step does.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

/// Everything until now.
#[derive(Debug, Default)]
pub struct Report {
    passed: usize,
    failures: Vec<String>,
    failed: usize,
    skipped: Vec<String>,
    started: Option<Instant>,
}

impl Report {
    /// Runs a step and prints its name before and its time after.
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

    /// Names something that is not done, without a step of its own.
    pub fn skip(&mut self, what: String) {
        println!("SKIPPED: {what}");
        self.skipped.push(what);
    }

    /// Runs `cargo test` (or what prints like it), passes its output on and adds its counts up.
    ///
    /// A test that cannot run here appends `name: reason` to the file that `CALLPATH_SKIPPED_TESTS` names; it counts as
    /// skipped, though libtest says "ok".
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
        let (mut failed, mut ignored) = (0, Vec::new());
        for line in BufReader::new(stdout).lines() {
            let line = line?;
            println!("{line}");
            if let Some(counts) = Counts::of_line(&line) {
                self.passed += counts.passed;
                failed += counts.failed;
            } else if let Some(test) = ignored_test(&line) {
                ignored.push(test);
            }
        }
        let status = child.wait()?;
        self.failed += failed;
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

    /// Prints what was skipped, what failed and the counts; the counts stand alone on the last line.
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

/// From `test name ... ignored, reason`.
fn ignored_test(line: &str) -> Option<String> {
    let (name, end) = line.strip_prefix("test ")?.split_once(" ... ignored")?;
    let reason = end.strip_prefix(", ").unwrap_or("ignored by default");
    Some(format!("{name}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_libtest() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(Counts::of_line(line), Some(Counts { passed: 12, failed: 3 }));
        assert_eq!(Counts::of_line("test result of another kind"), None);
        assert_eq!(ignored_test("test a::b ... ignored, needs a GPU").as_deref(), Some("a::b: needs a GPU"));
        assert_eq!(ignored_test("test a::b ... ok"), None);
    }
}
