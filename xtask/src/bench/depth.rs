//! `cargo xtask bench-depth`: what a sample costs at growing depths of the stack.
//! Knows nothing of other costs.

use std::process::{Command, ExitCode};

use super::{Recording, compile, quietly};
use crate::arguments::Arguments;
use crate::build;
use crate::statistics::{median, spread};
use crate::suite;

const DEPTHS: [u32; 5] = [10, 100, 1_000, 10_000, 100_000];
const RATE: usize = 1000;
/// Millions of steps at the bottom: a second or two.
const WORK: &str = "1000";

/// Prints a line for each depth.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["runs", "callpath"])?;
    let rounds = arguments.number("runs", 5)?;
    let recording = Recording { callpath: build::command(arguments)?, directory: suite::work_directory()? };
    let deep = recording.directory.join("deep");
    compile(&build::root().join("tests/nasty/deep.c"), &deep)?;
    println!("{} at {RATE} Hz, {rounds} rounds, median (quartiles)\n", suite::machine()?);
    println!("| depth | CPU over bare | us of CPU a sample | of these by the collector's account | samples | full |");
    println!("|---|---|---|---|---|---|");
    for depth in DEPTHS {
        let depth = depth.to_string();
        quietly(recording.command(RATE)?.arg(&deep).args(["1", &depth, WORK]))?;
        let (mut over, mut each, mut own) = (vec![], vec![], vec![]);
        let (mut taken, mut full) = (0, 0);
        for _ in 0..rounds {
            let bare = quietly(Command::new(&deep).args(["1", &depth, WORK]))?.cpu.as_secs_f64();
            let with = quietly(recording.command(RATE)?.arg(&deep).args(["1", &depth, WORK]))?.cpu.as_secs_f64();
            (taken, full) = (recording.quality("taken")?, recording.quality("full")?);
            over.push(with / bare);
            each.push((with - bare) * 1e6 / taken as f64);
            own.push(recording.quality("overhead_ns")? as f64 / 1e3 / taken as f64);
        }
        println!("| {depth} | {:.3} | {:.1} | {:.1} | {taken} | {full} |", spread(&over), spread(&each), median(&own));
    }
    std::fs::remove_dir_all(&recording.directory)?;
    Ok(ExitCode::SUCCESS)
}
