//! `callpath merge`: measurements and databases in, one database out.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use callpath_db::database::{Database, DatabaseError, Source, is_database, merge};

use super::profile::load;
use crate::outcome::Outcome;
use crate::output;
use crate::surroundings::Progress;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Measurement directories and databases; an input that is named twice counts twice
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// The database to write, a new file; every command that reads a measurement reads it, too
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let spill = tempfile::Builder::new().prefix("callpath-merge-").tempdir()?;
    let inputs = arguments.inputs.iter().enumerate();
    let inputs: Vec<Input> = inputs
        .map(|(number, path)| Input {
            path,
            spilled: spill.path().join(number.to_string()),
            is_spilled: OnceCell::new(),
        })
        .collect();
    let mut progress = Progress::new("merging");
    let merged = merge(&inputs, &arguments.output, |done| progress.step(done, 2 * inputs.len()))?;
    drop(progress);
    output::say(format_args!(
        "merged: {} has {}, {}, {} and {} ({} bytes)",
        arguments.output.display(),
        counted(merged.runs as u64, "run"),
        counted(merged.profiles as u64, "thread"),
        counted(merged.contexts as u64, "context"),
        counted(merged.facts, "value"),
        merged.len_bytes,
    ));
    Ok(0)
}

fn counted(count: u64, word: &str) -> String {
    if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") }
}

/// A database, or a measurement, of which one is made once.
struct Input<'a> {
    path: &'a Path,
    /// Where the measurement's database is put.
    spilled: PathBuf,
    is_spilled: OnceCell<()>,
}

impl Source for Input<'_> {
    type Error = anyhow::Error;

    fn open(&self) -> anyhow::Result<Database> {
        let failed = |error: DatabaseError| anyhow::anyhow!("failed to {error}");
        if is_database(self.path) {
            return Database::open(self.path).map_err(failed);
        }
        if self.is_spilled.get().is_none() {
            let bytes = load(Some(self.path))?.to_database().map_err(failed)?;
            let written = std::fs::write(&self.spilled, bytes);
            written.map_err(|e| anyhow::anyhow!("failed to write {}: {e}", self.spilled.display()))?;
            self.is_spilled.get_or_init(|| ());
        }
        Database::open(&self.spilled).map_err(failed)
    }
}
