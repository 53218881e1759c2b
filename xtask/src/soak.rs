//! `cargo xtask soak`: programs that misbehave and real ones, drawn at random, recorded at 10 kHz for as long as asked
//! for. The programs are in soak/programs.rs, what must hold after each run in soak/check.rs.
//!
//! The same seed draws the same runs. Each run gives the output and status that it gives bare, accounts for each
//! sample, and leaves nothing behind; what does not is printed, with the command that repeats it, and fails the whole.

mod check;
mod draw;
mod programs;
mod table;
mod watch;
mod workspace;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::arguments::Arguments;
use crate::build;
use check::Run;
use draw::Draw;
use programs::{Kind, Subject};
use table::Tally;
use watch::Watched;
use workspace::Workspace;

/// How a run is recorded.
#[derive(Debug, Default)]
struct Way {
    options: Vec<&'static str>,
    ordinary_user: bool,
}

impl Way {
    fn drawn(draw: &mut Draw, root: bool) -> Way {
        let events: [&[&str]; 4] = [&[], &[], &["-e", "wall-time"], &["-e", "cpu-time,wall-time"]];
        let options = events[draw.below(events.len())].to_vec();
        Way { options, ordinary_user: root && draw.below(5) == 0 }
    }

    fn words(&self) -> Vec<&'static str> {
        if self.ordinary_user {
            vec!["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        } else {
            vec![]
        }
    }
}

/// Runs until the time is over and prints what came of it.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["minutes", "seed", "rate", "programs", "callpath"])?;
    let time = Duration::from_secs(60 * arguments.number("minutes", 60)? as u64);
    let seed = arguments.number("seed", 1)?;
    let callpath = build::command(arguments)?;
    let root = std::env::temp_dir().join(format!("callpath-soak-{}", std::process::id()));
    let workspace = Workspace { callpath, rate: arguments.number("rate", 10_000)?, root };
    for directory in [workspace.root.clone(), workspace.programs(), workspace.failures(), workspace.cache(true)] {
        std::fs::create_dir_all(&directory).with_context(|| format!("failed to make {}", directory.display()))?;
    }
    let is_root = is_superuser();
    if is_root {
        // Its cache must be its own.
        std::os::unix::fs::chown(workspace.cache(true), Some(65534), Some(65534))?;
    }
    crate::descendants::adopt_orphans()?;
    let subjects = programs::all(&workspace, arguments.text("programs"))?;
    let mut tallies: BTreeMap<&'static str, Tally> = BTreeMap::new();
    let (mut draw, began, mut runs) = (Draw::new(seed as u64), Instant::now(), 0u64);
    // One that lasts, to see whether memory grows with time: a quarter of the whole.
    let long = programs::long(&workspace, seed, (time / 4).as_secs().max(5));
    let tally = tallies.entry(long.name).or_default();
    one(&workspace, &long, &Way::default(), tally)?;
    while began.elapsed() < time {
        let subject = programs::drawn(&workspace, &subjects, &mut draw);
        let way = Way::drawn(&mut draw, is_root);
        one(&workspace, &subject, &way, tallies.entry(subject.name).or_default())?;
        runs += 1;
        if runs.is_multiple_of(100) {
            let failed: usize = tallies.values().map(|tally| tally.failures).sum();
            eprintln!("{runs} runs in {} s, {failed} failed", began.elapsed().as_secs());
        }
    }
    println!("{}", table::markdown(&tallies, began.elapsed())?);
    let failed: usize = tallies.values().map(|tally| tally.failures).sum();
    if failed > 0 {
        println!("{failed} runs failed; their measurements are in {}", workspace.failures().display());
        return Ok(ExitCode::FAILURE);
    }
    std::fs::remove_dir_all(&workspace.root)
        .with_context(|| format!("failed to remove {}", workspace.root.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// One program bare, then recorded, then looked at.
fn one(workspace: &Workspace, subject: &Subject, way: &Way, tally: &mut Tally) -> anyhow::Result<()> {
    workspace.fresh()?;
    let (bare, lasts) = match subject.kind {
        Kind::Lasting(time) => (None, time),
        Kind::Same => {
            let mut command = bare_command(workspace, subject, way);
            let bare = watch::watch(&mut command, workspace, Duration::ZERO)?;
            workspace.fresh()?;
            (Some(bare), Duration::ZERO)
        }
    };
    let mut command = recorded_command(workspace, subject, way);
    let recorded = watch::watch(&mut command, workspace, lasts)?;
    let run = Run { workspace, subject, bare, recorded, cache: workspace.cache(way.ordinary_user) };
    let wrong = run.complaints(tally);
    tally.runs += 1;
    if !wrong.is_empty() {
        tally.failures += 1;
        println!("FAILED: {command:?}");
        for sentence in &wrong {
            println!("  {sentence}");
        }
        keep(workspace, &wrong, &run.recorded, &format!("{command:?}"))?;
    }
    Ok(())
}

fn bare_command(workspace: &Workspace, subject: &Subject, way: &Way) -> Command {
    let words = way.words();
    let mut command = match words.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(&subject.program);
            command
        }
        None => Command::new(&subject.program),
    };
    command.args(&subject.arguments);
    surroundings(&mut command, workspace, subject, way);
    command
}

fn recorded_command(workspace: &Workspace, subject: &Subject, way: &Way) -> Command {
    let mut words: Vec<PathBuf> = way.words().iter().map(PathBuf::from).collect();
    words.push(workspace.callpath.clone());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).args(["record", "-F", &workspace.rate.to_string()]).args(&way.options);
    command.arg("-o").arg(workspace.measurement()).arg("--").arg(&subject.program).args(&subject.arguments);
    surroundings(&mut command, workspace, subject, way);
    command
}

fn surroundings(command: &mut Command, workspace: &Workspace, subject: &Subject, way: &Way) {
    command.current_dir(subject.directory.as_deref().unwrap_or(&workspace.run()));
    command.env("TMPDIR", workspace.temporary()).env("CALLPATH_CACHE_DIR", workspace.cache(way.ordinary_user));
    command.envs(subject.environment.iter().cloned());
}

fn keep(workspace: &Workspace, wrong: &[String], recorded: &Watched, command: &str) -> anyhow::Result<()> {
    let number = workspace.failures().read_dir()?.count();
    let kept = workspace.failures().join(number.to_string());
    std::fs::create_dir_all(&kept)?;
    std::fs::write(kept.join("said"), format!("{command}\n{}\n\n{}", wrong.join("\n"), recorded.stderr))?;
    if workspace.measurement().is_dir() {
        std::fs::rename(workspace.measurement(), kept.join("m.callpath"))?;
    }
    Ok(())
}

fn is_superuser() -> bool {
    // SAFETY: takes nothing, returns a number.
    unsafe { libc::geteuid() == 0 }
}
