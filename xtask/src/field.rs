//! `cargo xtask field`: some sixty programs and runtimes that the suite does not hold, installed, run bare and recorded
//! in turn. The programs are in field/rows.rs; field/workspace.rs makes them ready; field/table.rs prints the table.
//!
//! Each program runs once bare and once recorded into an empty cache, then in pairs, the bare one first in
//! every other pair. A run that takes too much time or memory is killed, and the program is listed as
//! skipped. Not in CI: it installs some 3 GB.

mod rows;
mod same;
mod table;
mod workspace;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::arguments::Arguments;
use crate::measure::{self, Limits, Usage};
use crate::suite::prepared::{Prepared, Stdin};
use crate::suite::recorders::{self, Comparison, Recorder, Setting, Stacks};
use crate::suite::{remove_output, work_directory};
use crate::{build, descendants};
use rows::Row;
use same::{Agreement, Ended};
use workspace::Workspace;

/// What one run may take; those of the table take seconds, and some of them ten
/// times as much under a recorder's first look.
const LIMITS: Limits = Limits { wall: Duration::from_secs(120), memory_bytes: 4 << 30 };

/// One program in all its rounds.
#[derive(Debug)]
struct Measured {
    name: &'static str,
    /// Without a recorder, per round.
    bare: Vec<Usage>,
    /// The first recording: tables of no module are cached.
    first: Usage,
    /// With each recorder; callpath is the first.
    recorded: Vec<Recorded>,
    agreement: Agreement,
}

/// One program under one recorder.
#[derive(Debug)]
struct Recorded {
    recorder: Recorder,
    /// Per round.
    usage: Vec<Usage>,
    /// What the last round left.
    stacks: Stacks,
}

/// Runs the programs that were asked for and prints the table.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["programs", "against", "runs", "rate", "markdown", "list", "callpath"])?;
    if arguments.flag("list") {
        rows::all().for_each(|row| println!("{:<18} {}", row.name, row.does));
        return Ok(ExitCode::SUCCESS);
    }
    let rounds = arguments.number("runs", 5)?;
    let rate = arguments.number("rate", 1000)?;
    let chosen = choose(arguments.text("programs"))?;
    let mut recorders = vec![Recorder::Callpath];
    match arguments.text("against") {
        None => {}
        Some("perf") => recorders.extend([Recorder::PerfFp, Recorder::PerfDwarf]),
        Some(other) => bail!("--against knows perf, not `{other}`"),
    }
    let workspace = Workspace::for_programs(&chosen, &recorders)?;
    let comparison = Comparison { recorders, rounds };
    let callpath = build::command(arguments)?;
    descendants::adopt_orphans()?;
    let directory = work_directory()?;
    let (mut measured, mut skipped) = (vec![], vec![]);
    for row in chosen {
        let setting = Setting { callpath: callpath.clone(), rate, directory: directory.join(row.name) };
        match measure(row, &workspace, &comparison, &setting) {
            Ok(figures) => {
                table::print_one(&figures);
                measured.push(figures);
            }
            Err(error) => {
                println!("{}: SKIPPED: {error:#}\n", row.name);
                skipped.push((row.name, format!("{error:#}")));
            }
        }
        descendants::end_those_left()?;
        remove_output(&setting.directory)?;
        // What was known by then is there if the whole is ended.
        let text = table::markdown(&measured, &skipped, rounds, rate)?;
        if let Some(file) = arguments.text("markdown") {
            std::fs::write(file, &text).with_context(|| format!("failed to write {file}"))?;
        }
    }
    println!("\n{}", table::markdown(&measured, &skipped, rounds, rate)?);
    std::fs::remove_dir_all(&directory).with_context(|| format!("failed to remove {}", directory.display()))?;
    let right = !measured.is_empty() && measured.iter().all(|program| program.agreement.is_right());
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn choose(names: Option<&str>) -> anyhow::Result<Vec<&'static Row>> {
    let Some(names) = names else { return Ok(rows::all().collect()) };
    let find = |name| rows::all().find(|row| row.name == name);
    names
        .split(',')
        .map(|name| find(name).with_context(|| format!("no program `{name}` in the field (--list names them)")))
        .collect()
}

fn measure(
    row: &'static Row,
    workspace: &Workspace,
    comparison: &Comparison,
    setting: &Setting,
) -> anyhow::Result<Measured> {
    let Comparison { recorders, rounds } = comparison;
    let inputs = workspace.directory(row);
    std::fs::create_dir_all(&setting.directory)?;
    let prepared = workspace.prepare(row)?;
    eprintln!("{}: {rounds} rounds ...", row.name);
    let bare = || once(&prepared, prepared.bare(&inputs), &setting.directory);
    let recorded = |recorder: Recorder| -> anyhow::Result<_> {
        let (command, output) = recorders::recorded(recorder, &prepared, setting, &inputs)?;
        Ok((once(&prepared, command, &setting.directory)?, output))
    };
    // The kernel's cache of files is filled by a run that does not count.
    let warm = bare()?;
    warm.ensure_success()?;
    let mut agreement = Agreement::of_bare(warm);
    let (first, output) = recorded(Recorder::Callpath)?;
    ensure!(output.exists(), "not recorded: {}", first.by_callpath());
    agreement.recorded(&first);

    let mut figures = Measured { name: row.name, bare: vec![], first: first.usage, recorded: vec![], agreement };
    let new = |recorder: &Recorder| Recorded { recorder: *recorder, usage: vec![], stacks: Stacks::default() };
    figures.recorded.extend(recorders.iter().map(new));
    for round in 0..*rounds {
        if round % 2 == 0 {
            figures.bare(bare()?);
        }
        for (index, recorder) in recorders.iter().enumerate() {
            if row.cold {
                remove_output(&setting.directory.join("cache"))?;
            }
            let (ended, output) = recorded(*recorder)?;
            if *recorder == Recorder::Callpath {
                figures.agreement.recorded(&ended);
            }
            let of_recorder = &mut figures.recorded[index];
            of_recorder.usage.push(ended.usage);
            if round + 1 == *rounds {
                let stacks = recorders::stacks(*recorder, setting, &output);
                of_recorder.stacks = stacks.with_context(|| ended.by_callpath().to_owned())?;
            }
            remove_output(&output)?;
        }
        if round % 2 == 1 {
            figures.bare(bare()?);
        }
    }
    Ok(figures)
}

impl Measured {
    fn bare(&mut self, ended: Ended) {
        self.agreement.bare(&ended);
        self.bare.push(ended.usage);
    }
}

/// One run to its end, with what it said and what it left behind.
fn once(prepared: &Prepared, mut command: Command, directory: &Path) -> anyhow::Result<Ended> {
    let (stdout, stderr) = (directory.join("stdout"), directory.join("stderr"));
    command.envs(prepared.environment.iter().cloned());
    command.stdout(std::fs::File::create(&stdout)?).stderr(std::fs::File::create(&stderr)?);
    match &prepared.stdin {
        Stdin::Nothing => command.stdin(Stdio::null()),
        Stdin::File(file) => command.stdin(std::fs::File::open(file)?),
        Stdin::Dialogue(_) => bail!("the programs of the field are not spoken to"),
    };
    let ran = measure::run_within(&mut command, LIMITS)?;
    let left = descendants::end_those_left()?;
    Ok(Ended::new(ran, std::fs::read(&stdout)?, std::fs::read(&stderr)?, left))
}
