//! `cargo xtask bench-attach`: how soon after its start `record -p` samples a process of many libraries and threads, and whether that
//! stands still meanwhile.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};

use super::{Recording, compile, quietly};
use crate::arguments::Arguments;
use crate::build;
use crate::statistics::spread;
use crate::suite;

const LIBRARIES: usize = 200;
const THREADS: usize = 500;
/// The program's busy threads are in another procedure each so many milliseconds, and after so many in the first one again.
const SLOT_MS: u64 = 10;
const SLOTS: u64 = 400;
/// How long each recording takes, from its first sample.
const RECORDED: Duration = Duration::from_secs(1);

/// Prints a line for each attachment, and the spread of all.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["callpath", "runs"])?;
    let runs = arguments.number("runs", 10)?;
    let recording = Recording { callpath: build::command(arguments)?, directory: suite::work_directory()? };
    let program = recording.directory.join("attach");
    compile(&build::root().join("xtask/src/bench/attach.c"), &program)?;
    let mut target = Target::start(&program, &libraries(&recording.directory)?)?;
    println!(
        "{}, {LIBRARIES} libraries, {THREADS} threads, two of them busy\n\n\
         | first sample, ms after callpath's start | longest time between two readings of the clock, ms | in as long without callpath |\n\
         |--:|--:|--:|",
        suite::machine()?
    );
    // The first one makes the tables.
    attached(&recording, &target)?;
    let mut all = Vec::new();
    for _ in 0..runs {
        target.longest_ms()?;
        std::thread::sleep(RECORDED);
        let bare = target.longest_ms()?;
        let begun = attached(&recording, &target)?;
        let longest = target.longest_ms()?;
        let first = first_sample(&recording, begun)?;
        println!("| {first} | {longest:.1} | {bare:.1} |");
        all.push(first as f64);
    }
    println!("\nfirst sample: {:.0} ms after callpath's start", spread(&all));
    drop(target);
    fs::remove_dir_all(&recording.directory)?;
    Ok(ExitCode::SUCCESS)
}

/// Records the program, and says where its busy threads were when callpath was started.
fn attached(recording: &Recording, target: &Target) -> anyhow::Result<u64> {
    suite::remove_output(&recording.output())?;
    let begun = slot()?;
    let mut record = Command::new(&recording.callpath);
    record.args(["record", "--quiet", "-F", "1000", "-p", &target.child.id().to_string()]);
    record.args(["--duration", &RECORDED.as_secs().to_string(), "-o"]).arg(recording.output());
    quietly(record.env("CALLPATH_CACHE_DIR", recording.cache()))?;
    Ok(begun)
}

/// After how many milliseconds the first sample was.
fn first_sample(recording: &Recording, begun: u64) -> anyhow::Result<u64> {
    let mut report = Command::new(&recording.callpath);
    report.arg("report").arg(recording.output()).arg("--json").env("CALLPATH_CACHE_DIR", recording.cache());
    let report = report.output().context("failed to run callpath report")?;
    let report = String::from_utf8_lossy(&report.stdout).into_owned();
    let procedures = report.split("\"at_").skip(1).filter_map(|rest| rest.get(..3)?.parse::<u64>().ok());
    let passed = procedures.map(|slot| (slot + SLOTS - begun) % SLOTS * SLOT_MS).min();
    passed.context("no sample of a busy thread")
}

/// Where busy threads are now.
fn slot() -> anyhow::Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for a time.
    ensure!(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) } == 0, "no monotonic clock");
    Ok((time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000) / SLOT_MS % SLOTS)
}

/// Shared libraries of a procedure each.
fn libraries(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let make = |number: usize| {
        let source = directory.join("library.c");
        fs::write(&source, format!("int procedure_{number}(int n) {{ return n * {number} + 1; }}\n"))?;
        let library = directory.join(format!("lib{number}.so"));
        quietly(Command::new("gcc").args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source))?;
        Ok(library)
    };
    (0..LIBRARIES).map(make).collect()
}

/// The program, which ends with this.
struct Target {
    child: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Target {
    fn start(program: &Path, libraries: &[PathBuf]) -> anyhow::Result<Target> {
        let mut command = Command::new(program);
        command.arg(THREADS.to_string()).args(libraries).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("failed to run the program")?;
        let asks = child.stdin.take().context("no standard input")?;
        let answers = BufReader::new(child.stdout.take().context("no standard output")?);
        let mut target = Target { child, asks, answers };
        ensure!(target.line()? == "ready", "the program could not load its libraries or start its threads");
        Ok(target)
    }

    /// The longest time that a busy thread was not busy, since this was asked last.
    fn longest_ms(&mut self) -> anyhow::Result<f64> {
        self.asks.write_all(b"\n")?;
        Ok(self.line()?.parse::<u64>().context("no number")? as f64 / 1000.0)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // It has ended by itself, or is of no use any more.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}
