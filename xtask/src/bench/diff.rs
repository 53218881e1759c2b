//! `cargo xtask diff-trust`: whether `callpath compare` raises false alarms, and finds what is slower.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::arguments::Arguments;
use crate::{build, suite};

/// A build of the program: its name, and what it is compiled with.
const BUILDS: [(&str, &[&str]); 4] =
    [("base", &["-O2"]), ("token", &["-O2", "-DTOKEN=1050"]), ("intern", &["-O2", "-DINTERN=1200"]), ("o3", &["-O3"])];
/// The program's work is a hundredth of a second times this, about.
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
    let source = build::root().join("tests/nasty/portions.c");
    for (name, options) in BUILDS {
        let mut gcc = Command::new("gcc");
        gcc.arg("-g").args(options).arg("-o").arg(comparing.directory.join(name)).arg(&source);
        ensure!(gcc.status().context("failed to run gcc")?.success(), "gcc cannot compile {}", source.display());
    }
    println!("{}\n\n| B | matched | total | found, in order |\n|---|---|---|---|", suite::machine()?);
    for build in ["token", "intern", "o3"] {
        println!("{}", line(build, &comparing.with(build)?));
    }
    let mut alarms = 0;
    for _ in 0..pairs {
        let answer = comparing.with("base")?;
        alarms += found(&answer, "self").len() + found(&answer, "inclusive").len();
        println!("{}", line("base", &answer));
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
    /// The difference of the program as it is and another build.
    fn with(&self, build: &str) -> anyhow::Result<Value> {
        let mut command = Command::new(&self.callpath);
        command.args(["compare", "--json", "-n", &self.runs.to_string(), "--"]);
        command.env("CALLPATH_CACHE_DIR", self.directory.join("cache"));
        let program = |command: &mut Command, build: &Path| {
            command.arg(self.directory.join(build)).arg(self.amount.to_string());
        };
        program(&mut command, Path::new("base"));
        command.arg(":::");
        program(&mut command, Path::new(build));
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

fn line(build: &str, answer: &Value) -> String {
    let matched = answer["matched"].as_array().map_or(&[][..], Vec::as_slice);
    let shares: Vec<String> =
        matched.iter().map(|share| format!("{:.1}%", share.as_f64().unwrap_or(f64::NAN) * 100.0)).collect();
    format!(
        "| {build} | {} | {} | {} |",
        shares.join(", "),
        percent(&answer["total"]),
        found(answer, "self").join(", ")
    )
}
