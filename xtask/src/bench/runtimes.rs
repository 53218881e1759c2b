//! `cargo xtask bench-runtimes`: how many call paths of runtimes that generate code are whole, from inside, from outside and by
//! other recorders. A runtime that is not installed is skipped, with a line that says so.

mod programs;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::arguments::Arguments;
use crate::build;
use crate::suite::prepared::Prepared;
use crate::suite::recorders::{Recorder, Setting, Stacks, length, recorded, stacks};
use crate::suite::{self, run_once, samply};

/// A runtime has compiled what is hot by then, most of it.
const ATTACHED_AFTER: Duration = Duration::from_millis(1500);
/// Recordings of which each may begin the tables of large modules anew, on a busy machine.
const MOST_WARMING: usize = 8;
/// How the paths are recorded, by column; nothing: attached while the program runs.
const WAYS: [(&str, Option<Recorder>); 6] = [
    ("inside", Some(Recorder::Callpath)),
    ("outside", Some(Recorder::Outside)),
    ("attached (-p)", None),
    ("perf fp", Some(Recorder::PerfFp)),
    ("perf dwarf", Some(Recorder::PerfDwarf)),
    ("samply", Some(Recorder::SamplyWithNames)),
];

/// Prints a row for each runtime and option.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["callpath", "programs", "python", "dotnet", "milliseconds", "no-install"])?;
    let given = programs::Given {
        directory: suite::work_directory()?,
        milliseconds: arguments.number("milliseconds", 4000)?.to_string(),
        python: arguments.text("python").unwrap_or("/usr/bin/python3").into(),
        dotnet: arguments.text("dotnet").unwrap_or("/usr/bin/dotnet").into(),
    };
    let chosen: Option<Vec<&str>> = arguments.text("programs").map(|names| names.split(',').collect());
    if let Some(name) = chosen.iter().flatten().find(|name| programs::ALL.iter().all(|row| row.name != **name)) {
        bail!("no program `{name}`: there are {}", programs::ALL.map(|row| row.name).join(", "));
    }
    // Without it, its column says so.
    if !arguments.flag("no-install")
        && let Err(error) = samply::install()
    {
        eprintln!("{error:#}");
    }
    let setting = Setting { callpath: build::command(arguments)?, rate: 1000, directory: given.directory.clone() };
    println!("{}\n", suite::heading("1,000 samples a second, tables cached")?);
    println!(
        "| runtime | options | {} |\n|---|---|{}",
        WAYS.map(|(name, _)| name).join(" | "),
        "--:|".repeat(WAYS.len())
    );
    for row in programs::ALL.iter().filter(|row| chosen.as_ref().is_none_or(|names| names.contains(&row.name))) {
        match (row.prepare)(&given) {
            Ok(prepared) => {
                println!("| {} | {} | {} |", row.name, row.options, cells(&prepared, &setting)?.join(" | "))
            }
            Err(lacks) => println!("| {} | {} | skipped: {lacks:#} |", row.name, row.options),
        }
    }
    std::fs::remove_dir_all(&given.directory)?;
    Ok(ExitCode::SUCCESS)
}

/// The share of whole paths, by column.
fn cells(prepared: &Prepared, setting: &Setting) -> anyhow::Result<Vec<String>> {
    // Tables of large modules may take longer than a run: once they are cached, the runs are alike.
    for _ in 0..MOST_WARMING {
        let (warm, output) = recorded(Recorder::Callpath, prepared, setting, &setting.directory)?;
        run_once(prepared, warm)?;
        let mut report = Command::new(&setting.callpath);
        report.arg("report").arg(&output).env("CALLPATH_CACHE_DIR", setting.directory.join("cache"));
        let said = report.output().context("failed to run callpath report")?;
        if !String::from_utf8_lossy(&said.stdout).contains("recipe tables of large modules were not complete") {
            break;
        }
    }
    let of_way = |(_, recorder): &(&str, Option<Recorder>)| -> anyhow::Result<String> {
        let output = match recorder {
            // Not everybody has it.
            Some(recorder) => match recorded(*recorder, prepared, setting, &setting.directory) {
                Ok((command, output)) => {
                    run_once(prepared, command)?;
                    output
                }
                Err(_) => return Ok("not installed".into()),
            },
            None => attached(prepared, setting)?,
        };
        let Stacks { whole, taken, .. } = stacks(recorder.unwrap_or(Recorder::Outside), setting, &output)?;
        ensure!(length(&output)? > 0, "{} is empty", output.display());
        Ok(format!("{:.1}% of {taken}", 100.0 * whole as f64 / taken.max(1) as f64))
    };
    WAYS.iter().map(of_way).collect()
}

/// Records a program that already runs, until it ends.
fn attached(prepared: &Prepared, setting: &Setting) -> anyhow::Result<std::path::PathBuf> {
    let output = setting.directory.join("attached.callpath");
    suite::remove_output(&output)?;
    let mut program = prepared.bare(&setting.directory);
    program.envs(prepared.environment.iter().cloned()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut program = program.spawn().with_context(|| format!("failed to start {}", prepared.program.display()))?;
    std::thread::sleep(ATTACHED_AFTER);
    let status = attach(&setting.callpath, program.id(), setting, &output);
    program.wait()?;
    let status = status?;
    ensure!(status.success(), "callpath record -p ended with {status}");
    Ok(output)
}

fn attach(callpath: &Path, pid: u32, setting: &Setting, output: &Path) -> anyhow::Result<std::process::ExitStatus> {
    let mut record = Command::new(callpath);
    record.args(["record", "-F", &setting.rate.to_string(), "-p", &pid.to_string(), "-o"]).arg(output);
    record.env("CALLPATH_CACHE_DIR", setting.directory.join("cache")).stdout(Stdio::null()).stderr(Stdio::null());
    record.status().context("failed to run callpath record -p")
}
