//! `cargo xtask bench-views`: a database with a tree of millions of contexts: what it takes to write it, its length, and how long it takes to
//! open it and print the top of each view.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, ensure};

use crate::arguments::Arguments;
use crate::build;
use crate::measure;
use crate::suite;

/// What a leaf has no cost of is left out: so many more are made than remain.
const MADE_OVER_KEPT: f64 = 1.16;

/// Prints the figures.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["callpath", "contexts", "runs"])?;
    let contexts = arguments.number("contexts", 10_000_000)?;
    let runs = arguments.number("runs", 3)?;
    let callpath = build::command(arguments)?;
    let directory = suite::work_directory()?;
    let file = directory.join("large");
    println!("{}\n\n| | |\n|---|---|", suite::machine()?);
    let mut make = Command::new("cargo");
    make.args(["run", "--release", "--quiet", "-p", "callpath-db", "--example", "large_database"]);
    make.arg(((contexts as f64 * MADE_OVER_KEPT) as usize).to_string()).arg(&file).current_dir(build::root());
    ensure!(make.status().context("failed to run cargo")?.success(), "the database could not be made");
    let views: [(&str, &[&str]); 4] = [
        ("report", &[]),
        ("--view context", &["--view", "context"]),
        ("--view callers", &["--view", "callers"]),
        ("--view flat", &["--view", "flat"]),
    ];
    for (name, options) in views {
        let mut taken = Vec::new();
        for _ in 0..runs {
            taken.push(report(&callpath, &file, options)?);
        }
        let seconds: Vec<String> = taken.iter().map(|usage| format!("{:.2}", usage.wall.as_secs_f64())).collect();
        let memory = taken.iter().map(|usage| usage.max_rss_bytes).max().unwrap_or(0) / (1 << 20);
        println!("| `{name}` | {} s, at most {memory} MiB of memory, the mapped file included |", seconds.join(", "));
    }
    std::fs::remove_dir_all(&directory)?;
    Ok(ExitCode::SUCCESS)
}

fn report(callpath: &Path, file: &Path, options: &[&str]) -> anyhow::Result<measure::Usage> {
    let mut command = Command::new(callpath);
    command.arg("report").arg(file).args(options).stdin(Stdio::null()).stdout(Stdio::null());
    let usage = measure::run(&mut command)?;
    ensure!(usage.status.success(), "callpath report ended with {}", usage.status);
    Ok(usage)
}
