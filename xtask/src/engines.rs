//! `cargo xtask engines`: the SQL that callpath ships, over exported tables, on other engines.
//!
//! It installs DuckDB, Spark, pandas and polars from PyPI, and a Java from Debian. Several exports, put together by an engine, have
//! to give the numbers of the merged database, which `callpath report --json` says. Then each piece of code in docs/engines.md is
//! run as it stands there.

mod document;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};

use crate::arguments::Arguments;
use crate::install::{self, said};
use crate::{build, exports, suite};

const PACKAGES: [&str; 4] = ["python3", "python3-venv", "g++", "default-jre-headless"];
const PYTHON: [&str; 6] = ["duckdb", "duckdb-cli", "pyspark", "pandas", "polars", "pyarrow"];

/// Metrics of the merged database whose statistics are compared: their places and names, which are there once.
const STATISTICS: [(usize, &str); 5] =
    [(1, "peak"), (2, "energy"), (3, "temperature"), (4, "balance"), (8, "page-faults")];

/// Where everything is.
struct Bench {
    callpath: PathBuf,
    directory: PathBuf,
    /// Programs of the Python that has the engines.
    programs: PathBuf,
}

/// Prints a line for each comparison; fails if one finds a difference, or code of the document does not run.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["callpath", "engines"])?;
    let engines = arguments.text("engines").unwrap_or("duckdb,spark,docs");
    let missing = install::packages_or_commands(&PACKAGES)?;
    ensure!(missing.is_empty(), "cannot do without {}", missing.join(", "));
    let callpath = build::command(arguments)?;
    let programs = install::python(&build::root().join("target/engines"), &PYTHON)?;
    let bench = Bench { callpath, directory: suite::work_directory()?, programs };
    println!("{}\n", suite::machine()?);
    let exported = bench.prepare()?;
    for engine in engines.split(',') {
        match engine {
            "docs" => document::run(&bench)?,
            engine => bench.compare(engine, &exported)?,
        }
    }
    fs::remove_dir_all(&bench.directory)?;
    Ok(ExitCode::SUCCESS)
}

/// The PATH of tests that find DuckDB: the one that is installed, or one from PyPI.
pub fn duckdb_on_path() -> anyhow::Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|directory| directory.join("duckdb").is_file()) {
        return Ok(path);
    }
    let programs = install::python(&build::root().join("target/duckdb"), &["duckdb-cli"])?;
    Ok(std::env::join_paths([programs].into_iter().chain(std::env::split_paths(&path)))?)
}

impl Bench {
    fn callpath(&self, words: &[&str]) -> anyhow::Result<String> {
        said(Command::new(&self.callpath).args(words).current_dir(&self.directory))
    }

    /// Databases with metrics of each kind and two recordings; the exports of each. Beside them, in `merged`, what their merged
    /// database says.
    fn prepare(&self) -> anyhow::Result<Vec<String>> {
        let mut inputs = Vec::new();
        for seed in ["1", "2", "3"] {
            let database = format!("kinds-{seed}.cpdb");
            let mut make = build::cargo();
            make.args(["run", "-q", "--locked", "-p", "callpath-parquet", "--example", "kinds", "--", seed]);
            said(make.arg(self.directory.join(&database)))?;
            inputs.push(database);
        }
        exports::record(&self.callpath, &self.directory)?;
        fs::create_dir(self.directory.join(document::DIRECTORY))?;
        for name in ["first.callpath", "second.callpath"] {
            let measurement = format!("{}/{name}", document::DIRECTORY);
            self.callpath(&["record", "-q", "-o", &measurement, "./program"])?;
            inputs.push(measurement);
        }
        let mut exported = Vec::new();
        for (number, input) in inputs.iter().enumerate() {
            let name = format!("tables-{number}");
            self.callpath(&["export", "--format", "parquet", input, "-o", &name])?;
            exported.push(name);
        }
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        self.callpath(&[&["merge", "-o", "all.cpdb"], &inputs[..]].concat())?;
        fs::create_dir(self.directory.join("merged"))?;
        self.callpath(&["export", "--format", "parquet", "all.cpdb", "-o", "merged/export"])?;
        let report = self.callpath(&["report", "--json", "--lines", "--kernel", "all.cpdb"])?;
        fs::write(self.directory.join("merged/report.json"), report)?;
        for (place, metric) in STATISTICS {
            let statistics = ["report", "--statistics", "--json", "--lines", "--kernel", "--threshold", "0"];
            let said = self.callpath(&[&statistics[..], &["--columns", metric, "all.cpdb"]].concat())?;
            fs::write(self.directory.join(format!("merged/statistics-{place}.json")), said)?;
        }
        Ok(exported)
    }

    fn compare(&self, engine: &str, exported: &[String]) -> anyhow::Result<()> {
        println!("{engine}");
        let script = build::root().join("xtask/src/engines/compare.py");
        let log = self.directory.join(format!("{engine}.log"));
        let status = self
            .python()
            .arg(script)
            .arg(engine)
            .arg(build::root().join("sql"))
            .arg("merged")
            .args(exported)
            .stderr(fs::File::create(&log)?)
            .status()
            .context("failed to run Python")?;
        ensure!(status.success(), "{engine}: {status}\n{}", last_lines(&log)?);
        Ok(())
    }

    fn python(&self) -> Command {
        let mut command = Command::new(self.programs.join("python"));
        command.current_dir(&self.directory);
        command
    }
}

/// What a program said at last: engines say much.
fn last_lines(log: &Path) -> anyhow::Result<String> {
    const MOST: usize = 30;
    let text = fs::read_to_string(log)?;
    let lines: Vec<&str> = text.lines().collect();
    Ok(lines[lines.len().saturating_sub(MOST)..].join("\n"))
}
