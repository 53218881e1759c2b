//! The files that a program would be started with, found without running it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use callpath_record::RecordError;
use callpath_target::{find_program, needed_libraries};

use super::doctor::executed;

/// What a program would be started with.
pub(super) struct ProgramFiles {
    /// The program, or the interpreter of a script.
    pub(super) file: PathBuf,
    /// The loader that it names.
    pub(super) loader: Option<PathBuf>,
    /// Its libraries in the loader's order, which are there.
    pub(super) libraries: Vec<PathBuf>,
    /// What should be known of others.
    pub(super) notes: Vec<String>,
}

/// There is no such program, or none that can be read.
#[derive(Debug)]
pub(super) enum NoProgram {
    Unsuitable(RecordError),
    Unreadable(PathBuf, String),
}

impl std::fmt::Display for NoProgram {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoProgram::Unsuitable(error) => error.fmt(out),
            NoProgram::Unreadable(path, why) => write!(out, "read {}: {why}", path.display()),
        }
    }
}

/// Of a program as typed.
pub(super) fn find(
    typed: &OsString,
    check: impl Fn(&Path) -> Result<(), RecordError>,
) -> Result<ProgramFiles, NoProgram> {
    let program = find_program(typed).map_err(|error| NoProgram::Unsuitable(error.into()))?;
    check(&program).map_err(NoProgram::Unsuitable)?;
    let Some((file, loader)) = executed(&program) else {
        let why = match std::fs::metadata(&program) {
            Err(error) => error.to_string(),
            Ok(there) if !there.is_file() => "it is no file".to_owned(),
            Ok(_) => match std::fs::File::open(&program) {
                Err(error) => error.to_string(),
                Ok(_) => "it is not a program of this machine".to_owned(),
            },
        };
        return Err(NoProgram::Unreadable(program, why));
    };
    let mut notes = Vec::new();
    if file != program {
        notes.push(format!("{} is a script: its interpreter {} is looked at", program.display(), file.display()));
    }
    let needed = loader.as_ref().map(|loader| needed_libraries(loader, &file)).transpose();
    let needed = match needed.map(Option::flatten) {
        Ok(needed) => needed.unwrap_or_default(),
        Err(error) => {
            notes.push(format!("the libraries are not known: failed to {error}"));
            Vec::new()
        }
    };
    let missing = needed.iter().filter(|library| library.path.is_none());
    notes.extend(missing.map(|library| format!("{} was not found", library.name)));
    let libraries = needed.into_iter().filter_map(|library| library.path).collect();
    Ok(ProgramFiles { file, loader, libraries, notes })
}

/// The path that a process's memory map has: without symbolic links.
pub(super) fn as_mapped(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
