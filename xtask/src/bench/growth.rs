//! `cargo xtask bench-growth`: the recorder's CPU beside a tree of a million contexts that grows by a hundred a second.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::{Recording, compile};
use crate::arguments::Arguments;
use crate::build;
use crate::statistics::spread;
use crate::suite;

/// What the program is asked for: samples find about a third of what it runs through.
const CONTEXTS: usize = 2_500_000;
/// What came while the tree grew fast is written by then.
const SETTLES: Duration = Duration::from_secs(25);
/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What was seen of one recording.
struct Seen {
    cpu_percent: f64,
    writings: usize,
    bytes: u64,
    samples: u64,
}

/// Prints a line for each run.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["callpath", "runs", "seconds"])?;
    let (runs, seconds) = (arguments.number("runs", 3)?, arguments.number("seconds", 30)?);
    let recording = Recording { callpath: build::command(arguments)?, directory: suite::work_directory()? };
    let program = recording.directory.join("growth");
    compile(&build::root().join("xtask/src/bench/growth.c"), &program)?;
    println!(
        "{}, {seconds} s each\n\n| recorder, % of a core | writings of the process's file | bytes of it | samples |\n|---|---|---|---|",
        suite::machine()?
    );
    let mut shares = Vec::new();
    for _ in 0..runs {
        let seen = watched(&recording, &program, Duration::from_secs(seconds as u64))?;
        let Seen { cpu_percent, writings, bytes, samples } = seen;
        println!("| {cpu_percent:.3} | {writings} | {bytes} | {samples} |");
        shares.push(cpu_percent);
    }
    println!("\nrecorder: {:.3}% of a core", spread(&shares));
    fs::remove_dir_all(&recording.directory)?;
    Ok(ExitCode::SUCCESS)
}

fn watched(recording: &Recording, program: &Path, time: Duration) -> anyhow::Result<Seen> {
    let all = SETTLES + time + Duration::from_secs(1);
    let mut command = recording.command(1000)?;
    command.arg(program).args([CONTEXTS.to_string(), all.as_secs().to_string()]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no standard output")?).read_line(&mut line)?;
    ensure!(line == "steady\n", "the program did not come so far: {line:?}");
    std::thread::sleep(SETTLES);
    let (began, before) = (Instant::now(), cpu_ns(child.id())?);
    let (mut states, mut bytes) = (BTreeSet::new(), 0);
    while began.elapsed() < time {
        for entry in fs::read_dir(recording.output())? {
            let entry = entry?;
            let name = entry.file_name();
            if name.to_string_lossy().starts_with("process-")
                && let Ok(metadata) = entry.metadata()
            {
                states.insert((metadata.mtime(), metadata.mtime_nsec()));
                bytes = metadata.len();
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let spent = cpu_ns(child.id())?.saturating_sub(before);
    let cpu_percent = 100.0 * spent as f64 / began.elapsed().as_nanos() as f64;
    ensure!(child.wait()?.success(), "the recording failed");
    Ok(Seen { cpu_percent, writings: states.len().saturating_sub(1), bytes, samples: recording.quality("taken")? })
}

/// CPU time of a process and its threads, by the scheduler, ns. Those that have ended are not in it.
fn cpu_ns(pid: u32) -> anyhow::Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        sum += text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}
