//! Programs of the exam that are compiled for it, once.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::build;

/// Where the sources are, in the repository.
const SOURCES: &str = "crates/callpath-oracle/tests";

/// A program to be compiled.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// Its name.
    pub name: String,
    /// The compiler.
    pub compiler: &'static str,
    /// Its arguments.
    pub options: Vec<&'static str>,
    /// Files among the oracle's test programs.
    pub sources: &'static [&'static str],
    /// Arguments after the sources: libraries.
    pub libraries: &'static [&'static str],
}

impl Compiled {
    /// The compiled program, made now if it is not there, or `again` is set.
    pub fn program(&self, dir: &Path, again: bool) -> anyhow::Result<PathBuf> {
        let bin = dir.join("bin");
        std::fs::create_dir_all(&bin).with_context(|| format!("failed to make {}", bin.display()))?;
        let program = bin.join(&self.name);
        if program.exists() && !again {
            return Ok(program);
        }
        let sources = self.sources.iter().map(|source| build::root().join(SOURCES).join(source));
        let mut compiler = Command::new(self.compiler);
        compiler.args(&self.options).args(sources).arg("-o").arg(&program).args(self.libraries);
        let output = compiler.output().with_context(|| format!("failed to run {}", self.compiler))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} cannot compile it: {}", self.compiler, said.trim());
        Ok(program)
    }
}
