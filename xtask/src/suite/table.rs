//! The figures of a suite as text for a terminal and as Markdown for docs/results.md.

use std::fmt::Write;
use std::process::Command;

use super::recorders::Recorder;
use super::{Measured, Recorded};
use crate::measure::Usage;
use crate::statistics::{median, spread};

/// One program, as soon as it is done.
pub fn print_one(program: &Measured) {
    let bare: Vec<f64> = program.bare.iter().map(|usage| usage.cpu.as_secs_f64()).collect();
    println!("{}: bare {:.2} s of CPU", program.name, spread(&bare));
    for recorded in &program.recorded {
        println!(
            "  {:<10} CPU {:.3}  wall {:.3}  {}",
            recorded.recorder.name(),
            cpu(program, recorded),
            wall(program, recorded),
            stacks(recorded)
        );
    }
    println!();
}

fn stacks(recorded: &Recorded) -> String {
    let stacks = &recorded.stacks;
    let dropped: u64 = stacks.dropped.iter().map(|(_, count)| count).sum();
    format!(
        "samples {}  whole {}  dropped {dropped}  output {}",
        stacks.taken,
        whole(recorded),
        bytes(stacks.output_bytes)
    )
}

/// The whole table, with what is needed to read it.
pub fn markdown(programs: &[Measured], setting: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    writeln!(text, "{}", heading(setting)?)?;
    writeln!(
        text,
        "CPU and wall are ratios to the bare run of the same round: median (quartiles). CPU is program plus recorder."
    )?;
    writeln!(text)?;
    writeln!(
        text,
        "| program | bare CPU s | recorder | CPU | wall | samples | whole stacks | dropped | longest handler us | failed unwinds in 100,000 | output | peak RSS | report s |"
    )?;
    writeln!(text, "|---|---|---|---|---|---|---|---|---|---|---|---|---|")?;
    for program in programs {
        let bare = median(&program.bare.iter().map(|usage| usage.cpu.as_secs_f64()).collect::<Vec<_>>());
        for recorded in &program.recorded {
            writeln!(
                text,
                "| {} | {bare:.2} | {} | {:.3} | {:.3} | {} | {} | {} | {} | {} | {} | {} | {:.2} |",
                program.name,
                recorded.recorder.name(),
                cpu(program, recorded),
                wall(program, recorded),
                recorded.stacks.taken,
                whole(recorded),
                dropped(recorded),
                longest_handler(recorded),
                failed(recorded),
                bytes(recorded.stacks.output_bytes),
                peak(program, recorded),
                recorded.stacks.report_seconds,
            )?;
        }
    }
    writeln!(text)?;
    for recorder in programs.first().into_iter().flat_map(|program| &program.recorded) {
        let name = recorder.recorder;
        let ratios: Vec<f64> = programs
            .iter()
            .flat_map(|program| program.recorded.iter().filter(|r| r.recorder == name).map(|r| cpu(program, r).median))
            .collect();
        writeln!(text, "{}: median CPU ratio over the programs {:.3}.", name.name(), spread(&ratios))?;
    }
    pairs(&mut text, programs)?;
    handlers(&mut text, programs)?;
    Ok(text)
}

/// Where the sentinel was compared: CPU with it over CPU without, round by round.
fn pairs(text: &mut String, programs: &[Measured]) -> std::fmt::Result {
    for program in programs {
        if let [never, auto] = &program.recorded[..]
            && (never.recorder, auto.recorder) == (Recorder::Never, Recorder::Auto)
        {
            let ratio = ratio(&never.usage, &auto.usage, |usage| usage.cpu.as_secs_f64());
            writeln!(text, "{}: CPU with the sentinel (auto) over CPU without {ratio:.3}.", program.name)?;
        }
    }
    Ok(())
}

/// How long the handlers took, in all programs' last rounds together.
fn handlers(text: &mut String, programs: &[Measured]) -> std::fmt::Result {
    let mut sums: Vec<u64> = vec![];
    for recorded in programs.iter().flat_map(|program| &program.recorded) {
        let bins = &recorded.stacks.handlers;
        sums.resize(sums.len().max(bins.len()), 0);
        sums.iter_mut().zip(bins).for_each(|(sum, bin)| *sum += bin);
    }
    let all: u64 = sums.iter().sum();
    if all == 0 {
        return Ok(());
    }
    writeln!(text, "\n| handlers shorter than us | samples | of all |\n|---|---|---|")?;
    let mut below = 0;
    for (bin, count) in sums.iter().enumerate().filter(|(_, count)| **count > 0) {
        below += count;
        let us = 2f64.powi(bin as i32 + 1) / 1e3;
        writeln!(text, "| {us:.1} | {count} | {:.3}% |", 100.0 * below as f64 / all as f64)?;
    }
    Ok(())
}

fn cpu(program: &Measured, recorded: &Recorded) -> crate::statistics::Spread {
    ratio(&program.bare, &recorded.usage, |usage| usage.cpu.as_secs_f64())
}

fn wall(program: &Measured, recorded: &Recorded) -> crate::statistics::Spread {
    ratio(&program.bare, &recorded.usage, |usage| usage.wall.as_secs_f64())
}

fn ratio(bare: &[Usage], with: &[Usage], figure: fn(&Usage) -> f64) -> crate::statistics::Spread {
    spread(&bare.iter().zip(with).map(|(bare, with)| figure(with) / figure(bare)).collect::<Vec<_>>())
}

fn whole(recorded: &Recorded) -> String {
    let stacks = &recorded.stacks;
    match stacks.taken {
        0 => "-".into(),
        taken => format!("{:.2}%", 100.0 * stacks.whole as f64 / taken as f64),
    }
}

fn dropped(recorded: &Recorded) -> String {
    let share = |count: u64| 100.0 * count as f64 / recorded.stacks.taken.max(1) as f64;
    let one = |(reason, count): &(String, u64)| format!("{count} {reason} ({:.2}%)", share(*count));
    let parts: Vec<String> = recorded.stacks.dropped.iter().map(one).collect();
    if parts.is_empty() { "0".into() } else { parts.join(", ") }
}

fn longest_handler(recorded: &Recorded) -> String {
    match recorded.stacks.longest_handler_ns {
        0 => "-".into(),
        ns => format!("{:.0}", ns as f64 / 1e3),
    }
}

/// Of the samples that were walked, those whose walk did not reach an outermost frame.
fn failed(recorded: &Recorded) -> String {
    let stacks = &recorded.stacks;
    let walked = stacks.taken - stacks.dropped.iter().map(|(_, count)| count).sum::<u64>();
    if walked == 0 {
        return "-".into();
    }
    format!("{:.0}", 1e5 * (walked - stacks.whole) as f64 / walked as f64)
}

fn peak(program: &Measured, recorded: &Recorded) -> String {
    let most = |usage: &[Usage]| usage.iter().map(|usage| usage.max_rss_bytes).max().unwrap_or(0);
    format!("{} (bare {})", bytes(most(&recorded.usage)), bytes(most(&program.bare)))
}

fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} B"),
        10_000..1_000_000 => format!("{:.0} kB", count as f64 / 1e3),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}

/// The machine's kind: processor and kernel.
pub fn machine() -> anyhow::Result<String> {
    let cpus = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map_or("?", |(_, m)| m);
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let kernel = kernel.trim().split('-').next().unwrap_or("?");
    Ok(format!("{count} CPUs {model}, Linux {kernel}"))
}

/// What was typed, when, and where.
pub fn heading(setting: &str) -> anyhow::Result<String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    Ok(format!("`cargo xtask {}`, {}; {}; {setting}.", words.join(" "), today(), machine()?))
}

fn today() -> String {
    let said = Command::new("date").args(["-u", "+%Y-%m-%d"]).output();
    said.map_or_else(|_| "?".into(), |said| String::from_utf8_lossy(&said.stdout).trim().to_owned())
}
