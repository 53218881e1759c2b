//! `cargo xtask bench-depth`: what a sample costs at growing depths of the stack, with the sentinel and without.
//! With `--svg FILE` the table is drawn, too (depth/picture.rs).

mod picture;

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context;

use super::{Recording, compile, quietly};
use crate::arguments::Arguments;
use crate::build;
use crate::statistics::{median, spread};
use crate::suite;

const DEPTHS: [u32; 6] = [10, 100, 250, 1_000, 10_000, 100_000];
const RATE: usize = 1000;
/// Millions of steps at the bottom: a second or two.
const WORK: &str = "1000";

/// What `--sentinel` can be.
const SENTINELS: [&str; 3] = ["never", "auto", "always"];

/// One depth with one sentinel.
#[derive(Default)]
struct Row {
    sentinel: &'static str,
    over: Vec<f64>,
    each: Vec<f64>,
    own: Vec<f64>,
    taken: u64,
    full: u64,
}

/// Prints a line for each depth and sentinel.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["runs", "callpath", "svg"])?;
    let rounds = arguments.number("runs", 5)?;
    let mut lines = SENTINELS.map(|name| picture::Line { name, points: vec![] });
    let recording = Recording { callpath: build::command(arguments)?, directory: suite::work_directory()? };
    let deep = recording.directory.join("deep");
    compile(&build::root().join("tests/nasty/deep.c"), &deep)?;
    println!("{} at {RATE} Hz, {rounds} rounds, median (quartiles)\n", suite::machine()?);
    println!(
        "| depth | sentinel | CPU over bare | us of CPU a sample | of these by the collector's account | samples | full |"
    );
    println!("|---|---|---|---|---|---|---|");
    for depth in DEPTHS {
        let depth = depth.to_string();
        quietly(recording.command(RATE)?.arg(&deep).args(["1", &depth, WORK]))?;
        let mut rows = SENTINELS.map(|sentinel| Row { sentinel, ..Row::default() });
        for _ in 0..rounds {
            let bare = quietly(Command::new(&deep).args(["1", &depth, WORK]))?.cpu.as_secs_f64();
            for row in &mut rows {
                let mut command = recording.command(RATE)?;
                command.env("CALLPATH_SENTINEL", row.sentinel).arg(&deep).args(["1", &depth, WORK]);
                let with = quietly(&mut command)?.cpu.as_secs_f64();
                (row.taken, row.full) = (recording.quality("taken")?, recording.quality("full")?);
                row.over.push(with / bare);
                row.each.push((with - bare) * 1e6 / row.taken as f64);
                row.own.push(recording.quality("overhead_ns")? as f64 / 1e3 / row.taken as f64);
            }
        }
        for (Row { sentinel, over, each, own, taken, full }, line) in rows.into_iter().zip(&mut lines) {
            line.points.push((depth.parse()?, median(&own)));
            let (over, each, own) = (spread(&over), spread(&each), median(&own));
            println!("| {depth} | {sentinel} | {over:.3} | {each:.1} | {own:.1} | {taken} | {full} |");
        }
    }
    two_threads(&recording, &deep, rounds)?;
    if let Some(file) = arguments.text("svg") {
        let title =
            "us of a sample at 1,000 a second by the collector's account, against the stack's depth (--sentinel)";
        std::fs::write(file, picture::svg(title, &lines)).with_context(|| format!("failed to write {file}"))?;
    }
    std::fs::remove_dir_all(&recording.directory)?;
    Ok(ExitCode::SUCCESS)
}

/// CPU over bare of two threads, deep down and near the top, and the ratio of both in each round.
fn two_threads(recording: &Recording, deep: &Path, rounds: usize) -> anyhow::Result<()> {
    const SHALLOW_AND_DEEP: [&str; 2] = ["15", "1500"];
    println!("\n| two threads, sentinel | CPU over bare, 15 deep | CPU over bare, 1,500 deep | ratio of both |");
    println!("|---|---|---|---|");
    for sentinel in SENTINELS {
        let mut over = [vec![], vec![]];
        for _ in 0..rounds {
            for (over, depth) in over.iter_mut().zip(SHALLOW_AND_DEEP) {
                let bare = quietly(Command::new(deep).args(["2", depth, WORK]))?.cpu.as_secs_f64();
                let mut command = recording.command(RATE)?;
                command.env("CALLPATH_SENTINEL", sentinel).arg(deep).args(["2", depth, WORK]);
                over.push(quietly(&mut command)?.cpu.as_secs_f64() / bare);
            }
        }
        let [shallow, deep_down] = &over;
        let ratio: Vec<f64> = shallow.iter().zip(deep_down).map(|(shallow, deep)| deep / shallow).collect();
        println!("| {sentinel} | {:.3} | {:.3} | {:.3} |", spread(shallow), spread(deep_down), spread(&ratio));
    }
    Ok(())
}
