//! `cargo xtask bench-size`: a measurement's length against the time that it took.

use std::process::ExitCode;

use super::{Recording, compile, quietly};
use crate::arguments::Arguments;
use crate::build;
use crate::suite;

/// How much longer each run is than the first.
const TIMES: [u32; 4] = [1, 4, 16, 64];
/// Milliseconds of the first run.
const FIRST_MS: u32 = 500;

/// Prints a line for each length.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["callpath", "outside"])?;
    let options: &[&str] = if arguments.flag("outside") { &["--outside"] } else { &[] };
    let recording = Recording { callpath: build::command(arguments)?, directory: suite::work_directory()? };
    let burn = recording.directory.join("burn");
    compile(&build::root().join("tests/nasty/burn.c"), &burn)?;
    println!("{}\n\n| seconds of CPU | samples | bytes |\n|---|---|---|", suite::machine()?);
    for times in TIMES {
        let milliseconds = FIRST_MS * times;
        quietly(recording.command_with(1000, options)?.arg(&burn).arg(milliseconds.to_string()))?;
        let bytes = suite::length(&recording.output())?;
        println!("| {:.1} | {} | {bytes} |", f64::from(milliseconds) / 1e3, recording.quality("taken")?);
    }
    std::fs::remove_dir_all(&recording.directory)?;
    Ok(ExitCode::SUCCESS)
}
