//! `callpath merge`: measurements and databases in, one database out.

use std::cell::{Cell, OnceCell};
use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use callpath_db::database::{Database, DatabaseError, Merged, Source, is_database, merge};
use callpath_target::survive_long_files;
use callpath_view::json::quoted;

use super::profile::load_sampled;
use crate::outcome::{Failure, Outcome};
use crate::surroundings::Progress;
use crate::{interrupt, output};

/// The schema of the JSON (docs/formats.md).
const SCHEMA: u32 = 1;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Measurement directories and databases; an input that is named twice counts twice
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// The database to write, a new file; every command that reads a measurement reads it, too
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Print what was merged as JSON (docs/formats.md)
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let Arguments { inputs, output, json } = arguments;
    if let Some(input) = inputs.iter().find(|input| is_same(input, output)) {
        let (output, input) = (output.display(), input.display());
        return Err(anyhow::anyhow!("failed to write {output}: it is an input, too ({input}); name a new file").into());
    }
    survive_long_files();
    interrupt::catch();
    let spill = Spill::beside(output);
    let sources: Vec<Input> =
        inputs.iter().map(|path| Input { path, spill: &spill, spilled: OnceCell::new() }).collect();
    let mut progress = Progress::new("merging");
    let merged = merge(&sources, output, |done| progress.step(done, 2 * sources.len()));
    drop(progress);
    let merged = match (merged, interrupt::caught()) {
        (Ok(merged), _) => merged,
        (Err(Problem(error)), None) => return Err(error.into()),
        (Err(Problem(error)), Some(signal)) => return Err(Failure { error, status: 128 + signal }),
    };
    match json {
        true => print(&merged, output)?,
        false => output::say(format_args!(
            "merged: {} has {}, {}, {} and {} ({} bytes)",
            output.display(),
            counted(merged.runs as u64, "run"),
            counted(merged.profiles as u64, "thread"),
            counted(merged.contexts as u64, "context"),
            counted(merged.facts, "value"),
            merged.len_bytes,
        )),
    }
    Ok(0)
}

fn print(merged: &Merged, path: &Path) -> anyhow::Result<()> {
    let Merged { runs, profiles, contexts, facts, len_bytes } = merged;
    let mut out = output::stdout();
    let file = quoted(&path.to_string_lossy())?;
    write!(out, "{{\"schema\":{SCHEMA},\"kind\":\"merge\",\"file\":{file},\"runs\":{runs},\"profiles\":{profiles}")?;
    writeln!(out, ",\"contexts\":{contexts},\"values\":{facts},\"len_bytes\":{len_bytes}}}")?;
    Ok(out.flush()?)
}

fn counted(count: u64, word: &str) -> String {
    if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") }
}

/// Whether both name one file that is there.
fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(one).is_some_and(|one| Some(one) == real(other))
}

/// A database, or a measurement, of which one is made once.
struct Input<'a> {
    path: &'a Path,
    spill: &'a Spill,
    /// Of a measurement, where its database is in the spill.
    spilled: OnceCell<Stretch>,
}

impl Source for Input<'_> {
    type Error = Problem;

    fn open(&self) -> Result<Database, Problem> {
        if interrupt::caught().is_some() {
            return Err(Problem(anyhow::anyhow!("interrupted; nothing was written")));
        }
        if is_database(self.path) {
            return Ok(Database::open(self.path)?);
        }
        let stretch = match self.spilled.get() {
            Some(stretch) => *stretch,
            None => {
                let bytes = load_sampled(Some(self.path), "merged")?.to_database()?;
                let stretch = self.spill.append(&bytes)?;
                *self.spilled.get_or_init(|| stretch)
            }
        };
        Ok(Database::open_within(self.spill.file()?, stretch.offset, stretch.len_bytes, self.path)?)
    }
}

/// Why nothing was merged, as a sentence.
struct Problem(anyhow::Error);

impl From<DatabaseError> for Problem {
    fn from(error: DatabaseError) -> Problem {
        Problem(anyhow::anyhow!("failed to {error}"))
    }
}

impl From<anyhow::Error> for Problem {
    fn from(error: anyhow::Error) -> Problem {
        Problem(error)
    }
}

/// The databases of measurements, one behind the other in a file without a name: one descriptor for any number of them, on the disk
/// that has room for the result, and nothing is left whatever ends us.
struct Spill {
    directory: PathBuf,
    file: OnceCell<File>,
    len_bytes: Cell<u64>,
}

#[derive(Clone, Copy)]
struct Stretch {
    offset: u64,
    len_bytes: usize,
}

impl Spill {
    fn beside(output: &Path) -> Spill {
        let directory = output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Spill { directory: directory.to_owned(), file: OnceCell::new(), len_bytes: Cell::new(0) }
    }

    fn file(&self) -> anyhow::Result<&File> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = tempfile::tempfile_in(&self.directory).with_context(|| self.failed())?;
        Ok(self.file.get_or_init(|| file))
    }

    fn append(&self, bytes: &[u8]) -> anyhow::Result<Stretch> {
        /// Mappings begin at pages.
        const PAGE_BYTES: u64 = 4096;
        let (mut file, offset) = (self.file()?, self.len_bytes.get().next_multiple_of(PAGE_BYTES));
        let written = file.seek(std::io::SeekFrom::Start(offset)).and_then(|_| file.write_all(bytes));
        written.with_context(|| self.failed())?;
        self.len_bytes.set(offset + bytes.len() as u64);
        Ok(Stretch { offset, len_bytes: bytes.len() })
    }

    fn failed(&self) -> String {
        format!(
            "failed to write a temporary file in {}; merging measurements takes room there: free some, or name an output on another disk",
            self.directory.display()
        )
    }
}
