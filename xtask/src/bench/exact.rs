//! `cargo xtask bench-paths`: what it costs the suite's programs to count their paths.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context;
use serde_json::Value;

use crate::arguments::Arguments;
use crate::suite::prepared::Prepared;
use crate::{build, suite};

/// `cargo xtask bench-paths [--programs NAME,...] [--runs N]`
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["programs", "runs", "callpath"])?;
    let runs = arguments.number("runs", 5)?;
    let callpath = build::command(arguments)?;
    let place = suite::work_directory()?;
    println!("CPU time of the program while it counts its paths, over bare (median of {runs} pairs, least to most)\n");
    println!("| program | over bare | procedures | not counted | paths executed | of | planning and recorder, s |");
    println!("|---|---|---|---|---|---|---|");
    for program in suite::chosen(arguments.text("programs"))? {
        match measured(program, &callpath, (&place, runs)) {
            Ok(row) => println!("| {} | {row} |", program.name),
            Err(error) => println!("| {} | SKIPPED: {error:#} | | | | | |", program.name),
        }
    }
    std::fs::remove_dir_all(&place)?;
    Ok(ExitCode::SUCCESS)
}

/// A program's row.
fn measured(program: &suite::Program, callpath: &Path, (place, runs): (&Path, usize)) -> anyhow::Result<String> {
    let inputs = place.join(program.name);
    std::fs::create_dir_all(&inputs)?;
    let prepared = (program.prepare)(&inputs, 5)?;
    let output = place.join("out.callpath");
    let mut ratios = Vec::new();
    let mut last = Value::Null;
    suite::run_once(&prepared, prepared.bare(&inputs))?;
    for _ in 0..runs {
        let bare = suite::run_once(&prepared, prepared.bare(&inputs))?.cpu.as_secs_f64();
        suite::remove_output(&output)?;
        suite::run_once(&prepared, counting(callpath, &prepared, (&inputs, &output)))?;
        last = report(callpath, &output, &["--view", "flat"])?;
        let counted = last["run"]["cpu_time_by_kernel_ns"].as_f64().context("its CPU time is not known")? / 1e9;
        ratios.push(counted / bare);
    }
    let recorder = last["run"]["recorder_cpu_ns"].as_f64().unwrap_or(f64::NAN) / 1e9;
    let exact = report(callpath, &output, &["--view", "paths"])?;
    let quality = &exact["quality"]["exact"];
    let refused = quality["refused"].as_array().map_or(0, Vec::len);
    let nodes = exact["nodes"].as_array().context("no nodes")?;
    let executed = nodes.iter().filter(|node| node["kind"] == "path").count();
    let possible: u64 = nodes.iter().filter_map(|node| node["possible"].as_u64()).sum();
    ratios.sort_by(f64::total_cmp);
    let at = |index: usize| ratios.get(index).copied().unwrap_or(f64::NAN);
    let (median, least, most) = (at(ratios.len() / 2), at(0), at(ratios.len().saturating_sub(1)));
    Ok(format!(
        "{median:.2} ({least:.2} to {most:.2}) | {} | {refused} | {executed} | {possible} | {recorder:.1}",
        quality["procedures"]
    ))
}

fn counting(callpath: &Path, prepared: &Prepared, (inputs, output): (&Path, &Path)) -> Command {
    let mut command = Command::new(callpath);
    command.args(["record", "--quiet", "--exact=paths", "-o"]).arg(output).arg("--").arg(&prepared.program);
    command.args(&prepared.arguments).current_dir(inputs);
    command
}

fn report(callpath: &Path, output: &Path, options: &[&str]) -> anyhow::Result<Value> {
    let report = Command::new(callpath).arg("report").arg(output).args(options).arg("--json").output()?;
    serde_json::from_slice(&report.stdout).with_context(|| String::from_utf8_lossy(&report.stderr).into_owned())
}
