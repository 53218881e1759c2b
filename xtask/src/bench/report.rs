//! `cargo xtask bench-report`: what `callpath report` takes of a large program without DWARF, the C++ compiler, with loops and inlined calls,
//! our cache empty and filled.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, ensure};

use crate::arguments::Arguments;
use crate::build;
use crate::measure::Usage;
use crate::statistics::spread;
use crate::suite;

/// The program's size in the suite.
const SIZE: u32 = 5;

/// Prints the figures.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["callpath", "runs"])?;
    let runs = arguments.number("runs", 10)?;
    let callpath = build::command(arguments)?;
    let directory = suite::work_directory()?;
    let program =
        suite::PROGRAMS.iter().find(|program| program.name == "cc1plus").context("the suite has no cc1plus")?;
    let prepared = (program.prepare)(&directory, SIZE)?;
    let (output, cache) = (directory.join("cc1plus.callpath"), directory.join("cache"));
    let mut record = Command::new(&callpath);
    record.args(["record", "-q", "-o"]).arg(&output).arg("--").arg(&prepared.program).args(&prepared.arguments);
    // Recipe tables are no part of what a report finds in its cache.
    record.env("CALLPATH_CACHE_DIR", directory.join("tables")).current_dir(&directory);
    super::quietly(&mut record)?;
    let taken = suite::quality(&callpath, &cache, &output)?["taken"].as_u64().context("no number of samples")?;
    println!("{}\n{taken} samples of cc1plus\n\n| cache | wall s | CPU s |\n|---|---|---|", suite::machine()?);
    let (mut empty, mut filled) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        std::fs::remove_dir_all(&cache).context("failed to empty the cache")?;
        empty.push(report(&callpath, &cache, &output)?);
        filled.push(report(&callpath, &cache, &output)?);
    }
    for (name, usages) in [("empty", empty), ("filled", filled)] {
        let wall: Vec<f64> = usages.iter().map(|usage| usage.wall.as_secs_f64()).collect();
        let cpu: Vec<f64> = usages.iter().map(|usage| usage.cpu.as_secs_f64()).collect();
        println!("| {name} | {:.2} | {:.2} |", spread(&wall), spread(&cpu));
    }
    std::fs::remove_dir_all(&directory)?;
    Ok(ExitCode::SUCCESS)
}

fn report(callpath: &Path, cache: &Path, measurement: &Path) -> anyhow::Result<Usage> {
    let mut command = Command::new(callpath);
    command.arg("report").arg(measurement).env("CALLPATH_CACHE_DIR", cache).stdin(Stdio::null()).stdout(Stdio::null());
    let usage = crate::measure::run(&mut command)?;
    ensure!(usage.status.success(), "callpath report ended with {}", usage.status);
    Ok(usage)
}
