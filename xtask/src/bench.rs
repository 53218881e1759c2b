//! Measurements of single costs, each with a program of its own.

pub mod attach;
pub mod depth;
pub mod diff;
pub mod exact;
pub mod gprof;
pub mod growth;
pub mod infer;
pub mod infer_code;
pub mod infer_cost;
mod infer_pairs;
pub mod intervals;
pub mod make;
pub mod probe;
pub mod ranks;
pub mod report;
pub mod runtimes;
pub mod sample;
pub mod size;
pub mod start;
pub mod time;
pub mod views;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::measure::{self, Usage};

/// Compiles C from a source file.
fn compile(source: &Path, program: &Path) -> anyhow::Result<()> {
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-pthread", "-o"]).arg(program).arg(source);
    ensure!(gcc.status().context("failed to run gcc")?.success(), "gcc cannot compile {}", source.display());
    Ok(())
}

/// Runs a command without its output; it must succeed.
fn quietly(command: &mut Command) -> anyhow::Result<Usage> {
    let usage = measure::run(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))?;
    ensure!(usage.status.success(), "{command:?} ended with {}", usage.status);
    Ok(usage)
}

/// `callpath record` with a cache and an output of its own.
struct Recording {
    callpath: PathBuf,
    directory: PathBuf,
}

impl Recording {
    fn cache(&self) -> PathBuf {
        self.directory.join("cache")
    }

    fn output(&self) -> PathBuf {
        self.directory.join("out.callpath")
    }

    /// Removes the output of the run before and gives the command up to the program's name.
    fn command(&self, rate: usize) -> anyhow::Result<Command> {
        self.command_with(rate, &[])
    }

    /// The same, with options.
    fn command_with(&self, rate: usize, options: &[&str]) -> anyhow::Result<Command> {
        crate::suite::remove_output(&self.output())?;
        let mut command = Command::new(&self.callpath);
        command.args(["record", "-F", &rate.to_string(), "-o"]).arg(self.output()).args(options).arg("--");
        command.env("CALLPATH_CACHE_DIR", self.cache());
        Ok(command)
    }

    /// A number of the last run's quality.
    fn quality(&self, name: &str) -> anyhow::Result<u64> {
        let quality = crate::suite::quality(&self.callpath, &self.cache(), &self.output())?;
        quality[name].as_u64().with_context(|| format!("the JSON's quality has no {name}"))
    }
}
