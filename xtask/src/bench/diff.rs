//! `cargo xtask diff-trust`: whether `callpath compare` raises false alarms, finds what is slower, and matches builds of one
//! program by their source.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::arguments::Arguments;
use crate::{build, suite};

/// A build of a program.
struct Build {
    name: &'static str,
    compiler: &'static str,
    options: &'static [&'static str],
    source: &'static str,
}

const fn gcc(name: &'static str, options: &'static [&'static str]) -> Build {
    Build { name, compiler: "gcc", options, source: "portions.c" }
}

const fn cpp(name: &'static str, compiler: &'static str, options: &'static [&'static str]) -> Build {
    Build { name, compiler, options, source: "templates.cpp" }
}

/// What others of their program are compared with, and those; a compiler that is not there is left out.
const SLOWER: [Build; 2] = [gcc("token", &["-O2", "-DTOKEN=1050"]), gcc("intern", &["-O2", "-DINTERN=1200"])];
const BASE: Build = gcc("base", &["-O2"]);
const LEVELS: [Build; 3] = [gcc("c-o3", &["-O3"]), gcc("c-o1", &["-O1"]), gcc("c-og", &["-Og"])];
const CPP_BASE: Build = cpp("cpp-base", "g++", &["-O2"]);
const CPP_LEVELS: [Build; 5] = [
    cpp("cpp-same", "g++", &["-O2"]),
    cpp("cpp-o3", "g++", &["-O3"]),
    cpp("cpp-o1", "g++", &["-O1"]),
    cpp("cpp-og", "g++", &["-Og"]),
    cpp("cpp-clang", "clang++", &["-O2"]),
];
/// The C program's work is a hundredth of a second times this, about; the C++ program's a quarter of that.
const AMOUNT: usize = 100;

/// Prints a line for each comparison.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["callpath", "pairs", "runs", "amount"])?;
    let (pairs, runs) = (arguments.number("pairs", 20)?, arguments.number("runs", 10)?);
    let comparing = Comparing {
        callpath: build::command(arguments)?,
        directory: suite::work_directory()?,
        runs,
        amount: arguments.number("amount", AMOUNT)?,
    };
    println!("{}\n\n| A | B | matched | at the caller | by chance | total | found, in order |", suite::machine()?);
    println!("|---|---|---|---|---|---|---|");
    for (base, builds) in [(BASE, &SLOWER[..]), (BASE, &LEVELS), (CPP_BASE, &CPP_LEVELS)] {
        ensure!(comparing.compiles(&base)?, "{} is not installed", base.compiler);
        for other in builds {
            match comparing.compiles(other)? {
                true => println!("{}", line(&base, other, &comparing.compare(&base, other)?)),
                false => println!("| {} | {} | {} is not installed | | | | |", base.name, other.name, other.compiler),
            }
        }
    }
    let mut alarms = 0;
    for _ in 0..pairs {
        let answer = comparing.compare(&BASE, &BASE)?;
        alarms += found(&answer, "self").len() + found(&answer, "inclusive").len();
        println!("{}", line(&BASE, &BASE, &answer));
    }
    println!("\n{alarms} false alarms in {pairs} comparisons of {runs} equal runs a side");
    std::fs::remove_dir_all(&comparing.directory)?;
    Ok(ExitCode::SUCCESS)
}

struct Comparing {
    callpath: PathBuf,
    directory: PathBuf,
    runs: usize,
    amount: usize,
}

impl Comparing {
    /// Whether its compiler is there; then the build is, too.
    fn compiles(&self, build: &Build) -> anyhow::Result<bool> {
        let source = build::root().join("tests/nasty").join(build.source);
        let mut compiler = Command::new(build.compiler);
        compiler.arg("-g").args(build.options).arg("-o").arg(self.directory.join(build.name)).arg(&source);
        match compiler.status() {
            Ok(status) => ensure!(status.success(), "{} cannot compile {}", build.compiler, source.display()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error).with_context(|| format!("failed to run {}", build.compiler)),
        }
        Ok(true)
    }

    /// The difference of two builds.
    fn compare(&self, a: &Build, b: &Build) -> anyhow::Result<Value> {
        let mut command = Command::new(&self.callpath);
        command.args(["compare", "--json", "-n", &self.runs.to_string(), "--"]);
        command.env("CALLPATH_CACHE_DIR", self.directory.join("cache"));
        let amount = if a.source == BASE.source { self.amount } else { self.amount.div_ceil(4) };
        let program = |command: &mut Command, build: &Build| {
            command.arg(self.directory.join(Path::new(build.name))).arg(amount.to_string());
        };
        program(&mut command, a);
        command.arg(":::");
        program(&mut command, b);
        let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "{command:?} ended with {}", output.status);
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// The procedures that a difference names, with their change in percent, as they stand there.
fn found(answer: &Value, cost: &str) -> Vec<String> {
    let procedures = answer["procedures"].as_array().map_or(&[][..], Vec::as_slice);
    let found = procedures.iter().filter(|procedure| procedure[cost]["found"] == true);
    found
        .map(|procedure| format!("{} {}", procedure["name"].as_str().unwrap_or("?"), percent(&procedure[cost])))
        .collect()
}

fn percent(change: &Value) -> String {
    match (change["a"].as_f64(), change["b"].as_f64()) {
        (Some(a), Some(b)) if a > 0.0 => format!("{:+.1}%", (b / a - 1.0) * 100.0),
        _ => "new".into(),
    }
}

/// Names of templates are longer than a table is wide.
fn shortened(name: &str) -> String {
    const MOST_CHARACTERS: usize = 60;
    let (name, change) = name.rsplit_once(' ').unwrap_or((name, ""));
    let kept: String = name.chars().take(MOST_CHARACTERS).collect();
    let mark = if kept.len() < name.len() { "..." } else { "" };
    format!("{kept}{mark} {change}").replace('|', "/")
}

fn line(a: &Build, b: &Build, answer: &Value) -> String {
    let shares = |key: &str| -> String {
        let shares = answer[key].as_array().map_or(&[][..], Vec::as_slice);
        let shares = shares.iter().map(|share| format!("{:.1}%", share.as_f64().unwrap_or(f64::NAN) * 100.0));
        shares.collect::<Vec<_>>().join(", ")
    };
    // Another level changes all; which, is not what is asked.
    const MOST_NAMES: usize = 3;
    let names = found(answer, "self");
    let more = names.len().saturating_sub(MOST_NAMES);
    let more = if more > 0 { format!(", {more} more") } else { String::new() };
    let names: Vec<String> = names.into_iter().take(MOST_NAMES).map(|name| shortened(&name)).collect();
    format!(
        "| {} | {} | {} | {} | {} | {} | {}{more} |",
        a.name,
        b.name,
        shares("matched"),
        shares("compared_at_caller"),
        shares("unmatched_by_chance"),
        percent(&answer["total"]),
        names.join(", ")
    )
}
