//! `cargo xtask bench-make`: what it costs to record the build of a real C project, and whether each process is found.
//! Not in CI: it asks Debian's archive for the project's sources.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};

use super::{Recording, quietly};
use crate::archive::{Archive, passes};
use crate::arguments::Arguments;
use crate::build;
use crate::statistics::spread;
use crate::suite;

/// Debian's source package, and how it is built.
const PACKAGE: &str = "lua5.4";
const TARGET: &str = "posix";
const SUITE: &str = "bookworm";

/// Prints the ratios of the pairs, and the processes by two counts.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["runs", "callpath"])?;
    let rounds = arguments.number("runs", 10)?;
    let recording = Recording { callpath: build::command(arguments)?, directory: suite::work_directory()? };
    let sources = sources(&build::root().join("target/make").join(PACKAGE))?;
    let project = recording.directory.join("project");
    passes(Command::new("cp").arg("-r").arg(&sources).arg(&project))?;

    // Not counted: the first of each fills caches. The recorded one's products must be those of the bare one.
    let bare_files = {
        make(&project, Command::new("make"))?;
        products(&project)?
    };
    make(&project, with_make(recording.command(1000)?))?;
    ensure!(products(&project)? == bare_files, "the recorded build made other files");

    let (mut cpu, mut wall, mut bare_cpu, mut bare_wall) = (vec![], vec![], vec![], vec![]);
    let mut found = vec![];
    for round in 0..rounds {
        // In turn, and each first as often as the other.
        let mut usages = [None, None];
        for which in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            let command = if which == 0 { Command::new("make") } else { with_make(recording.command(1000)?) };
            usages[which] = Some(make(&project, command)?);
        }
        let [Some(bare), Some(recorded)] = usages else { anyhow::bail!("a build was left out") };
        cpu.push(recorded.cpu.as_secs_f64() / bare.cpu.as_secs_f64());
        wall.push(recorded.wall.as_secs_f64() / bare.wall.as_secs_f64());
        bare_cpu.push(bare.cpu.as_secs_f64());
        bare_wall.push(bare.wall.as_secs_f64());
        found.push(processes(&recording)?);
    }
    let (expected, names) = traced(&project, &recording.directory.join("trace"))?;
    println!("{}, {rounds} pairs of {PACKAGE}, median (quartiles)\n", suite::machine()?);
    println!("| `make -j2` | CPU | wall |\n|---|---|---|");
    println!("| bare, s | {:.2} | {:.2} |", spread(&bare_cpu), spread(&bare_wall));
    println!("| recorded, of bare | {:.3} | {:.3} |", spread(&cpu), spread(&wall));
    let names: Vec<String> = names.iter().map(|(name, count)| format!("{count} {name}")).collect();
    println!("\nprocesses: {expected} by strace ({} among their programs), by callpath {found:?}", names.join(", "));
    std::fs::remove_dir_all(&recording.directory)?;
    let all = found.iter().all(|count| *count == expected);
    println!("{}", if all { "every process was found" } else { "NOT every process was found" });
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn with_make(mut command: Command) -> Command {
    command.arg("make");
    command
}

/// Builds all of it.
fn make(project: &Path, mut command: Command) -> anyhow::Result<crate::measure::Usage> {
    quietly(Command::new("make").arg("-C").arg(project).arg("clean"))?;
    quietly(command.args(["-j2", "-C"]).arg(project).arg(TARGET))
}

/// The sources, fetched once.
fn sources(place: &Path) -> anyhow::Result<PathBuf> {
    let sources = place.join("sources");
    if !sources.join("Makefile").exists() {
        let archive = Archive::at(place, SUITE, "deb-src")?;
        archive.apt_get(&["-q", "source", "--download-only", PACKAGE])?;
        let files = std::fs::read_dir(place)?.filter_map(Result::ok).map(|entry| entry.path());
        let original = files.into_iter().find(|path| path.to_string_lossy().contains(".orig.tar."));
        std::fs::create_dir_all(&sources)?;
        let original = original.context("apt-get left no sources")?;
        passes(Command::new("tar").arg("-xf").arg(original).args(["--strip-components=1", "-C"]).arg(&sources))?;
    }
    Ok(sources)
}

/// What a build leaves: the object files and programs, by name and content.
fn products(project: &Path) -> anyhow::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut found = vec![];
    for entry in std::fs::read_dir(project.join("src"))? {
        let path = entry?.path();
        // An archive of objects holds the time of each.
        if path.extension().is_none_or(|extension| extension == "o") && path.is_file() {
            found.push((path.clone(), std::fs::read(path)?));
        }
    }
    found.sort();
    ensure!(found.len() > 20, "the build left only {} files", found.len());
    Ok(found)
}

/// How many processes the last measurement holds, each by its number once.
fn processes(recording: &Recording) -> anyhow::Result<usize> {
    let mut report = Command::new(&recording.callpath);
    report.arg("report").arg(recording.output()).arg("--json").env("CALLPATH_CACHE_DIR", recording.cache());
    let json: serde_json::Value = serde_json::from_slice(&report.output()?.stdout).context("the report is no JSON")?;
    let processes = json["run"]["processes"].as_array().context("the report has no processes")?;
    let numbers: BTreeSet<u64> = processes.iter().filter_map(|process| process["id"].as_u64()).collect();
    Ok(numbers.len())
}

/// How many processes a build has by strace, and how often which programs were executed.
fn traced(project: &Path, log: &Path) -> anyhow::Result<(usize, std::collections::BTreeMap<String, usize>)> {
    let mut strace = Command::new("strace");
    // The quick end of a vfork's child that could not execute anything is seen, too.
    strace.args(["-f", "-qq", "-s", "256", "-e", "trace=execve,exit_group", "-o"]).arg(log).arg("make");
    make(project, strace).context("strace is needed (Debian: strace)")?;
    let text = String::from_utf8_lossy(&std::fs::read(log)?).into_owned();
    let numbers: BTreeSet<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let mut names = std::collections::BTreeMap::new();
    for line in text.lines().filter(|line| line.ends_with("= 0")) {
        if let Some(path) = line.split("execve(\"").nth(1).and_then(|rest| rest.split('"').next()) {
            *names.entry(path.rsplit('/').next().unwrap_or(path).to_owned()).or_insert(0) += 1;
        }
    }
    Ok((numbers.len(), names))
}
