//! The measurement directory: where it is, and that nothing is ever overwritten.

mod of_ranks;

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use callpath_target::Pid;

use crate::error::RecordError;
use crate::settings::RecordOptions;

/// Where a measurement goes.
#[derive(Debug)]
pub struct Destination {
    /// The directory, made for this measurement.
    pub directory: PathBuf,
    /// Of one rank of a job: the directory of the whole measurement, which the directory is in.
    pub of_job: Option<PathBuf>,
    /// Why it is not in the usual place.
    pub note: Option<String>,
}

/// How many names are tried before giving up: `x.callpath`, `x-2.callpath`, ...
const NAMES: u32 = 1000;

impl Destination {
    /// Makes the directory, as far as it can be known before there is a process. `None`: its number is part of the name.
    pub(crate) fn known(options: &RecordOptions) -> Result<Option<Destination>, RecordError> {
        match (&options.output, &options.rank) {
            (Some(directory), Some(rank)) => Destination::asked_for_rank(directory, rank).map(Some),
            (Some(directory), None) => Destination::asked_for(directory).map(Some),
            (None, Some(rank)) => Destination::usual_of_rank(&options.program, rank).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Makes the directory that was asked for.
    pub(crate) fn asked_for(directory: &Path) -> Result<Destination, RecordError> {
        match make(directory) {
            Ok(()) => Ok(Destination { directory: directory.to_owned(), of_job: None, note: None }),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                Err(RecordError::Exists { path: directory.to_owned() })
            }
            Err(source) => Err(RecordError::Directory { path: directory.to_owned(), source }),
        }
    }

    /// Makes `<program>-<pid>.callpath` here, or where temporary files go if nothing can be written here.
    pub fn usual(program: &OsStr, pid: Pid) -> Result<Destination, RecordError> {
        match make_numbered(Path::new(""), program, pid) {
            Ok(directory) => Ok(Destination { directory, of_job: None, note: None }),
            Err(here) => match make_numbered(&std::env::temp_dir(), program, pid) {
                Ok(directory) => {
                    let note = elsewhere(&here, &directory);
                    Ok(Destination { directory, of_job: None, note: Some(note) })
                }
                Err(source) => {
                    Err(RecordError::Directory { path: std::env::temp_dir().join(name(program, &pid, 1)), source })
                }
            },
        }
    }
}

fn elsewhere(why: &dyn std::fmt::Display, directory: &Path) -> String {
    format!("the current directory cannot be written ({why}); recording to {}", directory.display())
}

fn name(program: &OsStr, whose: &dyn std::fmt::Display, number: u32) -> PathBuf {
    let program = Path::new(program).file_name().unwrap_or(OsStr::new("program")).to_string_lossy();
    PathBuf::from(match number {
        1 => format!("{program}-{whose}.callpath"),
        n => format!("{program}-{whose}-{n}.callpath"),
    })
}

fn make_numbered(parent: &Path, program: &OsStr, pid: Pid) -> io::Result<PathBuf> {
    for number in 1..=NAMES {
        let directory = parent.join(name(program, &pid, number));
        match make(&directory) {
            Ok(()) => return Ok(directory),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::from(io::ErrorKind::AlreadyExists))
}

/// A directory that is the user's alone.
fn make(directory: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(directory)
}
