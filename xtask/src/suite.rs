//! `cargo xtask suite`: real programs bare, under callpath and under perf, in turn; or under callpath without the
//! sentinel and with it. The programs are in suite/programs.rs, the layout of figures in suite/table.rs.
//!
//! In each round every program runs once in each way, one right after the other, so that a machine that slows down
//! slows all of them down; ratios are taken within a round. CPU is that of the program and the recorder together.

pub mod inputs;
pub mod prepared;
mod programs;
pub mod recorders;
pub mod samply;
mod table;
pub mod variants;

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail, ensure};

use crate::arguments::Arguments;
use crate::measure::Usage;
use crate::{build, install};
use prepared::{Prepared, Stdin};
pub use programs::ALL as PROGRAMS;
pub use programs::Program;
use recorders::{Comparison, Recorder, Stacks};
pub use recorders::{length, quality, remove as remove_output};
pub use table::{heading, machine};

/// One program in all its rounds.
#[derive(Debug, Default)]
pub struct Measured {
    /// The program's name.
    pub name: &'static str,
    /// Without a recorder, per round.
    pub bare: Vec<Usage>,
    /// With each recorder.
    pub recorded: Vec<Recorded>,
}

/// One program under one recorder.
#[derive(Debug)]
pub struct Recorded {
    /// Which one.
    pub recorder: Recorder,
    /// Per round.
    pub usage: Vec<Usage>,
    /// What the last round left.
    pub stacks: Stacks,
}

/// Runs the programs that were asked for and prints the table.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["programs", "against", "runs", "rate", "quick", "markdown", "list", "callpath"])?;
    if arguments.flag("list") {
        for program in programs::ALL {
            println!("{:<10} {}", program.name, program.does);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let quick = arguments.flag("quick");
    let rounds = arguments.number("runs", if quick { 1 } else { 5 })?;
    let rate = arguments.number("rate", 1000)?;
    let chosen = chosen(arguments.text("programs"))?;
    let mut recorders = vec![Recorder::Callpath];
    match arguments.text("against") {
        None => {}
        Some("sentinel") => recorders = vec![Recorder::Never, Recorder::Auto],
        Some("perf") => recorders.extend([Recorder::PerfFp, Recorder::PerfDwarf]),
        Some("outside") => recorders.extend([Recorder::Outside, Recorder::PerfDwarf]),
        Some("samply") => recorders.extend([Recorder::Outside, Recorder::PerfDwarf, Recorder::Samply]),
        Some(other) => bail!("--against knows perf, outside, samply and sentinel, not `{other}`"),
    }

    install_for(&chosen, &recorders)?;
    let callpath = build::command(arguments)?;
    let directory = work_directory()?;
    let setting = recorders::Setting { callpath, rate, directory: directory.clone() };
    let comparison = Comparison { recorders, rounds };
    let mut measured = Vec::new();
    for program in chosen {
        match measure(program, &comparison, &setting, quick) {
            Ok(figures) => {
                table::print_one(&figures);
                measured.push(figures);
            }
            Err(error) => println!("{}: SKIPPED: {error:#}\n", program.name),
        }
    }
    let text = table::markdown(&measured, &format!("{rounds} rounds, {rate} samples a second of CPU"))?;
    println!("\n{text}");
    if let Some(file) = arguments.text("markdown") {
        std::fs::write(file, &text).with_context(|| format!("failed to write {file}"))?;
    }
    std::fs::remove_dir_all(&directory).with_context(|| format!("failed to remove {}", directory.display()))?;
    Ok(if measured.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The programs with these names, between commas; all of them without.
pub fn chosen(names: Option<&str>) -> anyhow::Result<Vec<&'static Program>> {
    let Some(names) = names else { return Ok(programs::ALL.iter().collect()) };
    names
        .split(',')
        .map(|name| {
            let found = programs::ALL.iter().find(|program| program.name == name);
            found.with_context(|| format!("no program `{name}` in the suite (--list names them)"))
        })
        .collect()
}

/// Installs what programs and recorders need; says what cannot be.
pub fn install_for(chosen: &[&Program], recorders: &[Recorder]) -> anyhow::Result<()> {
    let mut wanted: Vec<&str> = chosen.iter().flat_map(|program| program.packages).copied().collect();
    if recorders.contains(&Recorder::PerfDwarf) {
        wanted.push("linux-perf");
    }
    if recorders.contains(&Recorder::Samply) {
        samply::install()?;
    }
    wanted.sort_unstable();
    wanted.dedup();
    let lacking = install::packages(&wanted)?;
    if !lacking.is_empty() {
        println!("cannot install {}: what needs them is skipped", lacking.join(" "));
    }
    Ok(())
}

/// A fresh directory for inputs and measurements.
pub fn work_directory() -> anyhow::Result<PathBuf> {
    let directory = std::env::temp_dir().join(format!("callpath-suite-{}", std::process::id()));
    std::fs::create_dir_all(&directory).with_context(|| format!("failed to make {}", directory.display()))?;
    Ok(directory)
}

fn measure(
    program: &'static Program,
    comparison: &Comparison,
    setting: &recorders::Setting,
    quick: bool,
) -> anyhow::Result<Measured> {
    let Comparison { recorders, rounds } = comparison;
    let inputs = setting.directory.join(program.name);
    std::fs::create_dir_all(&inputs)?;
    let prepared = (program.prepare)(&inputs, if quick { 1 } else { 5 })?;
    eprintln!("{}: {} rounds ...", program.name, rounds);
    // The first run fills caches: the kernel's of files, callpath's of recipe tables. Tables are cached by nature; what
    // the first run costs is bench-start's.
    run_once(&prepared, prepared.bare(&inputs))?;
    let (warm, _) = recorders::recorded(Recorder::Callpath, &prepared, setting, &inputs)?;
    run_once(&prepared, warm)?;

    let mut figures = Measured { name: program.name, ..Measured::default() };
    for round in 0..*rounds {
        figures.bare.push(run_once(&prepared, prepared.bare(&inputs))?);
        for (index, recorder) in recorders.iter().enumerate() {
            let (command, output) = recorders::recorded(*recorder, &prepared, setting, &inputs)?;
            let usage = run_once(&prepared, command)?;
            if round == 0 {
                figures.recorded.push(Recorded { recorder: *recorder, usage: vec![], stacks: Stacks::default() });
            }
            figures.recorded[index].usage.push(usage);
            if round + 1 == *rounds {
                if *recorder == Recorder::Samply {
                    let (command, _) = recorders::recorded(Recorder::SamplyWithNames, &prepared, setting, &inputs)?;
                    run_once(&prepared, command)?;
                }
                figures.recorded[index].stacks = recorders::stacks(*recorder, setting, &output)?;
            }
            recorders::remove(&output)?;
        }
    }
    Ok(figures)
}

/// Runs a program of the suite.
pub fn run_once(prepared: &Prepared, mut command: Command) -> anyhow::Result<Usage> {
    command.envs(prepared.environment.iter().cloned()).stdout(Stdio::null()).stderr(Stdio::null());
    let usage = match &prepared.stdin {
        Stdin::Nothing => crate::measure::run(command.stdin(Stdio::null()))?,
        Stdin::File(file) => crate::measure::run(command.stdin(std::fs::File::open(file)?))?,
        Stdin::Dialogue(dialogue) => dialogue.run(&mut command)?,
    };
    ensure!(usage.status.success(), "{command:?} ended with {}", usage.status);
    Ok(usage)
}
