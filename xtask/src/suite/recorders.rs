//! The recorders that are compared: how each is called and what its output says of the stacks.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::prepared::Prepared;
use super::samply;
use crate::measure::{self, Limits};

/// A report that takes more is no report.
const REPORT_LIMITS: Limits = Limits { wall: Duration::from_secs(300), memory_bytes: 8 << 30 };

/// The recording tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorder {
    Callpath,
    /// With `--sentinel never`.
    Never,
    /// With `--sentinel auto`.
    Auto,
    /// From outside.
    Outside,
    PerfFp,
    PerfDwarf,
    Samply,
    /// The same, which then looks up names: more than a recording takes, but without them it does not show which stacks are whole.
    SamplyWithNames,
}

impl Recorder {
    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Callpath => "callpath",
            Self::Never => "callpath, never",
            Self::Auto => "callpath, auto",
            Self::Outside => "callpath, outside",
            Self::PerfFp => "perf fp",
            Self::PerfDwarf => "perf dwarf",
            Self::Samply | Self::SamplyWithNames => "samply",
        }
    }
}

impl Recorder {
    fn is_callpath(self) -> bool {
        matches!(self, Self::Callpath | Self::Never | Self::Auto | Self::Outside)
    }
}

/// What a program is compared under.
#[derive(Debug)]
pub struct Comparison {
    /// callpath is the first.
    pub recorders: Vec<Recorder>,
    /// Recordings with each of them.
    pub rounds: usize,
}

/// What all recorders need to know.
#[derive(Debug)]
pub struct Setting {
    /// The command under test.
    pub callpath: PathBuf,
    /// Samples a second.
    pub rate: usize,
    /// Where caches are put.
    pub directory: PathBuf,
}

/// What one recording says of its stacks.
#[derive(Debug, Default)]
pub struct Stacks {
    /// Samples taken.
    pub taken: u64,
    /// Of these, those with a whole path.
    pub whole: u64,
    /// Of these, those with a part of it, raw ones included.
    pub partial: u64,
    /// Samples that were dropped, by reason.
    pub dropped: Vec<(String, u64)>,
    /// The handler that took longest, nanoseconds; 0 where there is none in the program.
    pub longest_handler_ns: u64,
    /// How many handlers took how long: entry i counts those of 2^i to 2^(i+1) nanoseconds.
    pub handlers: Vec<u64>,
    /// Length of what was written.
    pub output_bytes: u64,
    /// Wall time of the report, with no cache of the report's own, seconds.
    pub report_seconds: f64,
    /// The same once more, with what the first one has cached.
    pub second_report_seconds: f64,
    /// CPU time by the clocks that samples read, over the kernel's account of the
    /// program and the children that it waited for.
    pub cpu_over_kernel: Option<f64>,
}

/// The command that records, and where it puts its output.
pub fn recorded(
    recorder: Recorder,
    prepared: &Prepared,
    setting: &Setting,
    inputs: &Path,
) -> anyhow::Result<(Command, PathBuf)> {
    let output = inputs.join(match recorder {
        Recorder::Samply | Recorder::SamplyWithNames => "out.json",
        recorder if recorder.is_callpath() => "out.callpath",
        _ => "out.perf",
    });
    remove(&output)?;
    let mut command = match recorder {
        Recorder::Callpath | Recorder::Never | Recorder::Auto | Recorder::Outside => {
            let mut command = Command::new(&setting.callpath);
            command.args(["record", "-F", &setting.rate.to_string(), "-o"]).arg(&output);
            command.env("CALLPATH_CACHE_DIR", setting.directory.join("cache"));
            match recorder {
                Recorder::Never => command.env("CALLPATH_SENTINEL", "never"),
                Recorder::Auto => command.env("CALLPATH_SENTINEL", "auto"),
                Recorder::Outside => command.arg("--outside"),
                _ => &mut command,
            };
            command
        }
        Recorder::PerfFp | Recorder::PerfDwarf => {
            // Away from the round number, as perf's users do; the ratio of rates is below half a percent.
            let rate = setting.rate.saturating_sub(setting.rate / 300).max(1).to_string();
            let graph = if recorder == Recorder::PerfFp { "fp" } else { "dwarf" };
            let mut command = Command::new("perf");
            command.args(["record", "-q", "-F", &rate, "--call-graph", graph, "-o"]).arg(&output);
            command
        }
        Recorder::Samply | Recorder::SamplyWithNames => {
            let mut command = Command::new(samply::installed()?);
            command.args(["record", "-r", &setting.rate.to_string(), "--save-only"]);
            if recorder == Recorder::SamplyWithNames {
                command.arg("--unstable-presymbolicate");
            }
            command.arg("-o").arg(&output);
            command
        }
    };
    command.arg("--").arg(&prepared.program).args(&prepared.arguments).current_dir(inputs);
    Ok((command, output))
}

/// Removes an output, if it is there.
pub fn remove(output: &Path) -> anyhow::Result<()> {
    let removed = match output.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(output),
        Ok(_) => std::fs::remove_file(output),
    };
    removed.with_context(|| format!("failed to remove {}", output.display()))
}

/// Reads what a recording says.
pub fn stacks(recorder: Recorder, setting: &Setting, output: &Path) -> anyhow::Result<Stacks> {
    let mut stacks = match recorder {
        Recorder::Samply | Recorder::SamplyWithNames => samply::stacks(output)?,
        recorder if recorder.is_callpath() => of_callpath(setting, output)?,
        _ => of_perf(output)?,
    };
    stacks.output_bytes = length(output)?;
    Ok(stacks)
}

/// The quality that `report --json` states, of any measurement.
pub fn quality(callpath: &Path, cache: &Path, output: &Path) -> anyhow::Result<Value> {
    Ok(view(callpath, cache, output)?["quality"].take())
}

fn view(callpath: &Path, cache: &Path, output: &Path) -> anyhow::Result<Value> {
    let mut report = Command::new(callpath);
    report.args(["report", "--json"]).arg(output).env("CALLPATH_CACHE_DIR", cache);
    let said = report.stderr(Stdio::inherit()).output()?;
    ensure!(said.status.success(), "callpath report --json ended with {}", said.status);
    serde_json::from_slice(&said.stdout).context("failed to read the JSON of the report")
}

fn of_callpath(setting: &Setting, output: &Path) -> anyhow::Result<Stacks> {
    let fresh = setting.directory.join("report-cache");
    remove(&fresh)?;
    let timed_report = || -> anyhow::Result<f64> {
        let mut report = Command::new(&setting.callpath);
        report.arg("report").arg(output).env("CALLPATH_CACHE_DIR", &fresh).stdout(Stdio::null());
        let usage = measure::run_well_within(&mut report, REPORT_LIMITS).context("no report")?;
        Ok(usage.wall.as_secs_f64())
    };
    let (report_seconds, second_report_seconds) = (timed_report()?, timed_report()?);

    let view = view(&setting.callpath, &fresh, output)?;
    let quality = &view["quality"];
    let number = |name: &str| quality[name].as_u64().with_context(|| format!("the JSON's quality has no {name}"));
    let dropped = quality["dropped"].as_object().context("the JSON's quality has no dropped")?;
    let (sampled, by_kernel) = (&view["nodes"][0]["inclusive"][0], &view["run"]["cpu_time_by_kernel_ns"]);
    Ok(Stacks {
        taken: number("taken")?,
        whole: number("full")?,
        partial: number("partial")? + number("raw_kept")?,
        dropped: dropped.iter().filter_map(|(reason, count)| Some((reason.clone(), count.as_u64()?))).collect(),
        longest_handler_ns: quality["handlers"]["longest_ns"].as_u64().unwrap_or(0),
        handlers: quality["handlers"]["histogram"]
            .as_array()
            .map(|bins| bins.iter().filter_map(Value::as_u64).collect())
            .unwrap_or_default(),
        report_seconds,
        second_report_seconds,
        cpu_over_kernel: sampled.as_f64().zip(by_kernel.as_f64()).map(|(sampled, kernel)| sampled / kernel),
        ..Stacks::default()
    })
}

/// perf has no word for a whole stack: here it is one whose outermost two frames hold a start of a program or thread.
fn of_perf(output: &Path) -> anyhow::Result<Stacks> {
    let start = Instant::now();
    let mut script = Command::new("perf");
    script.args(["script", "--no-inline", "-F", "comm,ip,sym", "-i"]).arg(output).stderr(Stdio::null());
    let said = script.output().context("failed to run perf script")?;
    let mut stacks = Stacks { report_seconds: start.elapsed().as_secs_f64(), ..Stacks::default() };
    for block in String::from_utf8_lossy(&said.stdout).split("\n\n") {
        let frames: Vec<&str> = block.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
        if block.trim().is_empty() {
            continue;
        }
        stacks.taken += 1;
        if frames.iter().rev().take(2).any(|name| begins_stack(name)) {
            stacks.whole += 1;
        }
    }
    Ok(stacks)
}

/// Whether a procedure is where a program or a thread starts, by the name that other tools have for it.
pub fn begins_stack(name: &str) -> bool {
    ["_start", "start_thread", "clone", "clone3", "__clone3"].contains(&name) || name.starts_with("__libc_start")
}

/// The length of a file, or of all files in a directory.
pub fn length(path: &Path) -> anyhow::Result<u64> {
    let found = path.symlink_metadata().with_context(|| format!("failed to look at {}", path.display()))?;
    if !found.is_dir() {
        return Ok(found.len());
    }
    let mut sum = 0;
    for entry in std::fs::read_dir(path)? {
        sum += length(&entry?.path())?;
    }
    Ok(sum)
}
