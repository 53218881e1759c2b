//! `cargo xtask bench-sample`: CPU per sample over that of a recorder of pc and sp alone.
//! The spin is three frames deep.
//!
//! Both record the same fixed amount of work at the same rate, in turn with the bare work: bare, floor, callpath, bare,
//! ... What a sample costs is (CPU of program and recorder - CPU of the bare run beside it) / samples.

use std::process::{Command, ExitCode};

use anyhow::Context;

use super::{Recording, compile, quietly};
use crate::arguments::Arguments;
use crate::build;
use crate::measure::Usage;
use crate::statistics::{median, spread};
use crate::suite;

/// Prints both costs and their ratio with its spread.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["runs", "rate", "callpath"])?;
    let pairs = arguments.number("runs", 20)?;
    let rate = arguments.number("rate", 10_000)?;
    let recording = Recording { callpath: build::command(arguments)?, directory: suite::work_directory()? };
    let (spin, floor) = (recording.directory.join("spin"), recording.directory.join("floor"));
    let sources = build::root().join("xtask/src/bench");
    compile(&sources.join("spin.c"), &spin)?;
    compile(&sources.join("floor.c"), &floor)?;
    let counted = recording.directory.join("floor.count");
    let ring = recording.directory.join("floor.out");
    // The table of the spin's modules comes into the cache.
    quietly(recording.command(rate)?.arg(&spin))?;

    let (mut floor_us, mut callpath_us, mut ratios) = (vec![], vec![], vec![]);
    let (mut floor_rate, mut callpath_rate) = (vec![], vec![]);
    for pair in 0..pairs {
        let before = quietly(&mut Command::new(&spin))?;
        let with_floor = quietly(Command::new(&floor).arg(rate.to_string()).arg(&counted).arg(&ring).arg(&spin))?;
        let with_callpath = quietly(recording.command(rate)?.arg(&spin))?;
        let after = quietly(&mut Command::new(&spin))?;
        let text = std::fs::read_to_string(&counted).context("the floor recorder left no count")?;
        let by_floor: f64 = first_number(&text)?;
        let by_callpath = recording.quality("taken")? as f64;
        let bare_us = (micros(&before) + micros(&after)) / 2.0;
        let (one, other) =
            ((micros(&with_floor) - bare_us) / by_floor, (micros(&with_callpath) - bare_us) / by_callpath);
        println!(
            "{:>3}: bare {:.3} s; floor {by_floor} samples, {one:.2} us each; callpath {by_callpath} samples, {other:.2} us \
             each; ratio {:.3}",
            pair + 1,
            bare_us / 1e6,
            other / one
        );
        floor_us.push(one);
        callpath_us.push(other);
        ratios.push(other / one);
        floor_rate.push(by_floor / bare_us * 1e6);
        callpath_rate.push(by_callpath / bare_us * 1e6);
    }
    println!("\n{} at {rate} Hz, {pairs} rounds, median (quartiles):", suite::machine()?);
    println!("  floor     {:.2} us of CPU a sample, {:.0} samples a second", spread(&floor_us), median(&floor_rate));
    println!(
        "  callpath  {:.2} us of CPU a sample, {:.0} samples a second",
        spread(&callpath_us),
        median(&callpath_rate)
    );
    println!("  ratio     {:.3}", spread(&ratios));
    println!("  ratio of the medians {:.3}", median(&callpath_us) / median(&floor_us));
    std::fs::remove_dir_all(&recording.directory)?;
    Ok(ExitCode::SUCCESS)
}

fn micros(usage: &Usage) -> f64 {
    usage.cpu.as_secs_f64() * 1e6
}

fn first_number(text: &str) -> anyhow::Result<f64> {
    let number = text.split_whitespace().next().and_then(|number| number.parse().ok());
    number.context("the floor recorder left no number")
}
