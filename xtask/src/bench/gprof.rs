//! `cargo xtask bench-gprof`: Table 1 of csprof-2006 again, and how far gprof's shares are from those of
//! the program as it is. The programs are in gprof/programs.rs; gprof/shares.rs reads profiles. Not in
//! CI: it asks Debian's archive for sources.
//!
//! Each program is built twice, with gcc -O2 and with gcc -O2 -pg. In each round it runs bare, with gprof's
//! instrumentation, under callpath without the sentinel and with it, and under `perf record` without call graphs, one
//! right after the other. The last one's samples of the program as it is are the reference for the shares; how far
//! callpath's are from it is what two samplers of the same program differ by.

mod programs;
mod shares;

use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};

use super::Recording;
use crate::arguments::Arguments;
use crate::measure::{self, Usage};
use crate::statistics::spread;
use crate::{build, install, suite};
use programs::{ALL, Built, Program};
use shares::Times;

const RATE: usize = 1000;
/// Positions do not matter to gcc's code; gprof understands programs that are loaded where they were linked.
const PLAIN: [&str; 3] = ["-O2", "-w", "-no-pie"];
const INSTRUMENTED: [&str; 4] = ["-O2", "-w", "-no-pie", "-pg"];

/// What became of one program.
#[derive(Default)]
struct Row {
    bare_s: Vec<f64>,
    gprof: Vec<f64>,
    never: Vec<f64>,
    auto: Vec<f64>,
    reference: Times,
    by_gprof: Times,
    by_callpath: Times,
}

/// Prints the table.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["runs", "callpath", "programs", "list"])?;
    if arguments.flag("list") {
        ALL.iter().for_each(|program| println!("{:<10} {}", program.package, program.does));
        return Ok(ExitCode::SUCCESS);
    }
    let rounds = arguments.number("runs", 5)?;
    let chosen: Vec<&Program> = match arguments.text("programs") {
        None => ALL.iter().collect(),
        Some(names) => {
            let find = |name| ALL.iter().find(|program| program.package == name);
            let found = names.split(',').map(|name| find(name).with_context(|| format!("no program `{name}`")));
            found.collect::<Result<_, _>>()?
        }
    };
    let lacking = install::packages(&["gcc", "make", "binutils", "linux-perf", "dpkg-dev"])?;
    ensure!(lacking.is_empty(), "cannot install {}", lacking.join(" "));
    let recording = Recording { callpath: build::command(arguments)?, directory: suite::work_directory()? };
    println!("{}, {RATE} samples a second, {rounds} rounds, median (quartiles)\n", suite::machine()?);
    println!(
        "| program | bare CPU s | gprof % | callpath % | callpath, sentinel auto % | shares: gprof | shares: callpath |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut columns = [const { Vec::new() }; 5];
    let mut skipped = Vec::new();
    for program in chosen {
        match measure(program, &recording, rounds) {
            Ok(row) => columns.iter_mut().zip(row.print(program)).for_each(|(column, figure)| column.push(figure)),
            Err(error) => skipped.push(format!("{}: SKIPPED: {error:#}", program.package)),
        }
    }
    let [gprof, never, auto, by_gprof, by_callpath] =
        columns.map(|column| column.iter().sum::<f64>() / column.len() as f64);
    println!("| average | | {gprof:.1} | {never:.1} | {auto:.1} | {by_gprof:.1} | {by_callpath:.1} |");
    println!(
        "\nShares: sum over the executable's procedures of the differences of self time's shares from perf's, percent."
    );
    skipped.iter().for_each(|skipped| println!("{skipped}"));
    std::fs::remove_dir_all(&recording.directory)?;
    Ok(if gprof.is_nan() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Row {
    /// Prints it; gives the medians of what is over bare, and the distances.
    fn print(&self, program: &Program) -> [f64; 5] {
        let [by_gprof, by_callpath] =
            [&self.by_gprof, &self.by_callpath].map(|times| shares::difference(times, &self.reference));
        let [gprof, never, auto] = [&self.gprof, &self.never, &self.auto].map(|figures| spread(figures));
        println!(
            "| {} | {:.2} | {gprof:.1} | {never:.1} | {auto:.1} | {by_gprof:.1} | {by_callpath:.1} |",
            program.package,
            spread(&self.bare_s)
        );
        [gprof.median, never.median, auto.median, by_gprof, by_callpath]
    }
}

fn measure(program: &Program, recording: &Recording, rounds: usize) -> anyhow::Result<Row> {
    let plain = program.built("plain", &PLAIN)?;
    let instrumented = program.built("instrumented", &INSTRUMENTED)?;
    eprintln!("{}: {rounds} rounds ...", program.package);
    let (profile, data) = (instrumented.directory.join("gmon.out"), recording.directory.join("perf.data"));
    // Not counted: the first of each fills caches.
    once(plain.command()?)?;
    once(instrumented.command()?)?;
    once(recorded(recording, &plain, "never")?)?;
    let mut row = Row::default();
    for _ in 0..rounds {
        let bare = once(plain.command()?)?.cpu.as_secs_f64();
        let over = |usage: Usage| 100.0 * (usage.cpu.as_secs_f64() / bare - 1.0);
        row.bare_s.push(bare);
        row.gprof.push(over(once(instrumented.command()?)?));
        shares::of_gprof(&instrumented.path, &profile, &mut row.by_gprof)?;
        row.never.push(over(once(recorded(recording, &plain, "never")?)?));
        shares::of_callpath(&plain.path, recording, &mut row.by_callpath)?;
        row.auto.push(over(once(recorded(recording, &plain, "auto")?)?));
        let mut perf = Command::new("perf");
        perf.args(["record", "-q", "-e", "cpu-clock:u", "-F", &RATE.to_string(), "-o"]).arg(&data).arg("--");
        plain.append_to(&mut perf)?;
        once(perf)?;
        shares::of_perf(&plain.path, &data, &mut row.reference)?;
    }
    Ok(row)
}

fn recorded(recording: &Recording, program: &Built, sentinel: &str) -> anyhow::Result<Command> {
    let mut command = recording.command(RATE)?;
    command.env("CALLPATH_SENTINEL", sentinel);
    program.append_to(&mut command)?;
    Ok(command)
}

fn once(mut command: Command) -> anyhow::Result<Usage> {
    let usage = measure::run(&mut command)?;
    ensure!(usage.status.success(), "{command:?} ended with {}", usage.status);
    Ok(usage)
}
