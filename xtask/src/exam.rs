//! `cargo xtask exam`: the walk against the truth over many programs, with call frame information and without.
//! The programs are in exam/programs.rs; callpath-oracle finds true paths.
//!
//! Each program is compiled, if need be, and recorded once: NAME.cpsnap.zst and NAME.truth.txt in the directory, good
//! for as long as the modules are the same. Then each stream is answered three times: as it is; with `--no-cfi`'s
//! option; and with copies of the modules from which call frame information and symbols were really removed.

mod compile;
mod programs;
mod stripped;

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail, ensure};
use callpath_oracle::exam::{self, Exam, Files};
use callpath_oracle::run::Options;
use callpath_oracle::score::Tally;
use callpath_tables::recipes::RecipeOptions;
use callpath_target::find_program;

use crate::{build, install};
use programs::{Examinee, Program};
use stripped::Stripped;

/// What `cargo xtask exam --help` says.
const USAGE: &str = "\
cargo xtask exam [OPTION]...

Compiles and records many programs, and compares the walk with the true path at each snapshot. A row for each program:
snapshots, then wrong and partial paths with modules intact, with --no-cfi, and with really stripped modules.
The exit status is 1 if a path is wrong with modules intact.

  --dir DIR     where programs, streams and truths are kept (default target/exam)
  --only TEXT   programs only whose name contains TEXT; several, separated by commas
  --not TEXT    programs only whose name does not contain TEXT
  --again       compile and record even what is there
  --record      compile and record only
  --no-cfi      only the column of that name
  --show N      describe the first N wrong and partial paths of each program (with modules intact, or with --no-cfi)
  --list        name the programs
";

/// What was typed.
#[derive(Default)]
struct Typed {
    dir: Option<PathBuf>,
    only: Option<String>,
    not: Option<String>,
    again: bool,
    record: bool,
    no_cfi: bool,
    list: bool,
    shown: usize,
}

impl Typed {
    fn parse(mut words: impl Iterator<Item = OsString>) -> anyhow::Result<Option<Typed>> {
        let mut typed = Typed::default();
        while let Some(word) = words.next() {
            let name = word.to_string_lossy().into_owned();
            let mut value = || words.next().with_context(|| format!("{name} needs a value"));
            match &*name {
                "--dir" => typed.dir = Some(value()?.into()),
                "--only" => typed.only = Some(value()?.to_string_lossy().into_owned()),
                "--not" => typed.not = Some(value()?.to_string_lossy().into_owned()),
                "--show" => {
                    typed.shown = value()?.to_string_lossy().parse().context("--show takes a number")?;
                }
                "--again" => typed.again = true,
                "--record" => typed.record = true,
                "--no-cfi" => typed.no_cfi = true,
                "--list" => typed.list = true,
                "--help" | "-h" => return Ok(None),
                _ => bail!("{name} is not an option of this command\n\n{USAGE}"),
            }
        }
        Ok(Some(typed))
    }

    fn wants(&self, name: &str) -> bool {
        let among = |list: &str| list.split(',').any(|part| name.contains(part));
        self.only.as_deref().is_none_or(among) && !self.not.as_deref().is_some_and(among)
    }
}

/// `cargo xtask exam`
pub fn run(words: impl Iterator<Item = OsString>) -> anyhow::Result<ExitCode> {
    let Some(typed) = Typed::parse(words)? else {
        print!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    };
    let examinees: Vec<Examinee> = programs::all().into_iter().filter(|one| typed.wants(&one.name)).collect();
    if typed.list {
        examinees.iter().for_each(|one| println!("{}", one.name));
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(!examinees.is_empty(), "no program of that name");
    let dir = typed.dir.clone().unwrap_or_else(|| build::root().join("target/exam"));
    std::fs::create_dir_all(&dir).with_context(|| format!("failed to make {}", dir.display()))?;
    let dir = dir.canonicalize().with_context(|| format!("failed to find {}", dir.display()))?;
    for package in install::packages(programs::PACKAGES)? {
        println!("without Debian's package {package}, some programs are missing");
    }
    programs::inputs(&dir)?;
    let stripped = Stripped::in_directory(&dir.join("stripped"))?;
    let mut table = Table::default();
    table.head(&typed);
    for examinee in &examinees {
        let files = Files {
            stream: dir.join(format!("{}.cpsnap.zst", examinee.name)),
            truth: dir.join(format!("{}.truth.txt", examinee.name)),
        };
        if let Err(error) = record(examinee, &dir, &files, typed.again) {
            println!("{:<28} {error:#}", examinee.name);
            continue;
        }
        if !typed.record {
            table.row(&examinee.name, &score(&files, &stripped, &typed)?);
        }
    }
    table.foot(&typed);
    Ok(ExitCode::from(u8::from(table.sums.first().is_some_and(|sum| sum.wrong > 0 && !typed.no_cfi))))
}

/// Compiles a program and records it, unless both are there.
fn record(examinee: &Examinee, dir: &Path, files: &Files, again: bool) -> anyhow::Result<()> {
    let program = match &examinee.program {
        Program::Installed(name) => find_program(name.as_ref()).with_context(|| format!("{name} is not there"))?,
        Program::Compiled(compiled) => compiled.program(dir, again)?,
    };
    if files.stream.exists() && files.truth.exists() && !again {
        return Ok(());
    }
    let mut command = Command::new(program);
    command.args(&examinee.arguments).current_dir(dir).env_clear().env("LC_ALL", "C").env("PATH", "/usr/bin:/bin");
    command.envs(examinee.environment.iter().copied());
    command.stdin(match examinee.stdin {
        Some(name) => Stdio::from(File::open(dir.join(name)).with_context(|| format!("failed to read {name}"))?),
        None => Stdio::null(),
    });
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let options = Options {
        visits: 2,
        max_steps: 6_000_000,
        max_snapshots: 120_000,
        module: examinee.module.map(str::to_owned),
        ..Options::default()
    };
    // Under names of this process's own until they are whole.
    let number = std::process::id();
    let unfinished = Files {
        stream: dir.join(format!("unfinished-{number}.cpsnap.zst")),
        truth: dir.join(format!("unfinished-{number}.txt")),
    };
    let ran = exam::record(command, &options, &unfinished).map_err(|error| anyhow::anyhow!("failed to {error}"))?;
    std::fs::rename(&unfinished.truth, &files.truth)?;
    std::fs::rename(&unfinished.stream, &files.stream)?;
    eprint!("recorded {}: {ran}", examinee.name);
    Ok(())
}

/// Answers a stream in each way: a row of the table.
fn score(files: &Files, stripped: &Stripped, typed: &Typed) -> anyhow::Result<Vec<Tally>> {
    let failed = |error| anyhow::anyhow!("failed to {error}");
    let intact = RecipeOptions::default();
    let without = RecipeOptions { call_frames: false, ..intact };
    if typed.shown > 0 {
        let exam = Exam { recipes: if typed.no_cfi { without } else { intact }, shown: typed.shown };
        println!("{}", exam.of_files(files).map_err(failed)?.report);
    }
    let copies = |path: PathBuf| stripped.copy(&path);
    let mut tallies = Vec::new();
    if !typed.no_cfi {
        tallies.push(exam::tally(files, &intact, None).map_err(failed)?);
    }
    tallies.push(exam::tally(files, &without, None).map_err(failed)?);
    if !typed.no_cfi {
        tallies.push(exam::tally(files, &intact, Some(&copies)).map_err(failed)?);
    }
    Ok(tallies)
}

/// The table, row by row as it comes to be known.
#[derive(Default)]
struct Table {
    sums: Vec<Tally>,
}

impl Table {
    fn head(&self, typed: &Typed) {
        if typed.record {
            return;
        }
        let columns: &[&str] = if typed.no_cfi { &["--no-cfi"] } else { &["intact", "--no-cfi", "stripped"] };
        print!("{:<28} {:>9}", "program", "snapshots");
        columns.iter().for_each(|column| print!(" | {column:>8}: exact wrong partial"));
        println!();
    }

    fn row(&mut self, name: &str, tallies: &[Tally]) {
        print!("{name:<28} {:>9}", tallies.first().map_or(0, Tally::snapshots));
        self.sums.resize(tallies.len(), Tally::default());
        for (tally, sum) in tallies.iter().zip(&mut self.sums) {
            let exact = 100.0 * tally.exact as f64 / tally.snapshots().max(1) as f64;
            print!(" | {exact:>14.4}% {:>5} {:>7}", tally.wrong, tally.partial);
            sum.exact += tally.exact;
            sum.wrong += tally.wrong;
            sum.partial += tally.partial;
        }
        println!();
    }

    fn foot(&mut self, typed: &Typed) {
        let sums = self.sums.clone();
        if !typed.record {
            self.row("all", &sums);
            self.sums = sums;
        }
    }
}
