//! `cargo xtask bench-start`: what it costs to record a program that does nothing.

use std::process::{Command, ExitCode};

use super::{Recording, quietly};
use crate::arguments::Arguments;
use crate::build;
use crate::measure::Usage;
use crate::statistics::spread;
use crate::suite;

/// Prints milliseconds of CPU and of wall time.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["runs", "callpath"])?;
    let rounds = arguments.number("runs", 20)?;
    let recording = Recording { callpath: build::command(arguments)?, directory: suite::work_directory()? };
    let with_perf = Command::new("perf").arg("--version").output().is_ok_and(|output| output.status.success());
    let perf_output = recording.directory.join("out.perf");

    let (mut bare, mut cold, mut warm, mut perf) = (vec![], vec![], vec![], vec![]);
    for _ in 0..rounds {
        bare.push(quietly(&mut Command::new("true"))?);
        suite::remove_output(&recording.cache())?;
        cold.push(quietly(recording.command(1000)?.arg("true"))?);
        warm.push(quietly(recording.command(1000)?.arg("true"))?);
        if with_perf {
            let mut record = Command::new("perf");
            record.args(["record", "-q", "-F", "997", "-g", "-o"]).arg(&perf_output).args(["--", "true"]);
            perf.push(quietly(&mut record)?);
        }
    }
    println!("{}, {rounds} rounds, ms, median (quartiles)\n\n| | CPU | wall |\n|---|---|---|", suite::machine()?);
    line("`true`", &bare);
    line("`callpath record true`, no tables cached", &cold);
    line("`callpath record true`, tables cached", &warm);
    if with_perf {
        line("`perf record -g true`", &perf);
    }
    std::fs::remove_dir_all(&recording.directory)?;
    Ok(ExitCode::SUCCESS)
}

fn line(name: &str, runs: &[Usage]) {
    let cpu: Vec<f64> = runs.iter().map(|usage| usage.cpu.as_secs_f64() * 1e3).collect();
    let wall: Vec<f64> = runs.iter().map(|usage| usage.wall.as_secs_f64() * 1e3).collect();
    println!("| {name} | {:.1} | {:.1} |", spread(&cpu), spread(&wall));
}
