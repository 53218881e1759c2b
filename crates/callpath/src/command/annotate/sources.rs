//! Finds source files: where the compiler read them, below directories that a person names, or not at all.

use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use callpath_db::RunInfo;
use callpath_view::text::SourceText;

/// A source file is at most so long, bytes.
const MOST_BYTES: u64 = 64 << 20;

/// Where source files may be.
pub(super) struct Sources<'a> {
    directories: &'a [PathBuf],
    /// What a path that is not absolute is looked up in.
    working_directory: &'a str,
    /// When the program ran, if that is known.
    ran: Option<SystemTime>,
}

impl<'a> Sources<'a> {
    pub(super) fn new(directories: &'a [PathBuf], run: &'a RunInfo) -> Sources<'a> {
        let ran = Some(run.started_unix_ns).filter(|ns| *ns > 0);
        let ran = ran.and_then(|ns| SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(ns)));
        Sources { directories, working_directory: &run.working_directory, ran }
    }

    /// The text of the file that the debug information calls so, or why it is not there.
    pub(super) fn text(&self, name: &str) -> Result<SourceText, String> {
        let candidates = self.candidates(name);
        let Some(path) = candidates.iter().find(|path| path.is_file()) else {
            return Err(format!(
                "No source: there is no {name} here; name the directory that has it: --source-dir DIRECTORY"
            ));
        };
        let shown = path.display();
        let metadata = path.metadata().map_err(|error| format!("No source: failed to read {shown}: {error}"))?;
        if metadata.len() > MOST_BYTES {
            return Err(format!("No source: {shown} has more than {} MiB", MOST_BYTES >> 20));
        }
        let bytes = std::fs::read(path).map_err(|error| format!("No source: failed to read {shown}: {error}"))?;
        let changed = metadata.modified().ok().zip(self.ran).is_some_and(|(modified, ran)| modified > ran);
        let mut notes = Vec::new();
        if path.as_path() != Path::new(name) {
            notes.push(format!("The source is {shown}."));
        }
        if changed {
            notes
                .push(format!("{shown} has changed since the program ran: lines may not be those that were measured."));
        }
        let note = Some(notes.join(" ")).filter(|note| !note.is_empty());
        let lines = String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect();
        Ok(SourceText { lines, note })
    }

    /// Where the file may be, the best place first: below each directory with as much of its path as possible.
    fn candidates(&self, name: &str) -> Vec<PathBuf> {
        let path = Path::new(name);
        let mut candidates = Vec::new();
        let parts = normal_parts(path);
        for directory in self.directories {
            for skipped in 0..parts.len() {
                candidates.push(directory.join(parts[skipped..].iter().collect::<PathBuf>()));
            }
        }
        if path.is_absolute() {
            candidates.push(path.to_owned());
        } else if !self.working_directory.is_empty() {
            candidates.push(Path::new(self.working_directory).join(path));
        }
        candidates
    }
}

/// The names in a path, without `.`, and without `..` and what it takes back.
fn normal_parts(path: &Path) -> Vec<&std::ffi::OsStr> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part),
            Component::ParentDir => drop(parts.pop()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_with_as_much_of_its_path_as_possible() {
        let place = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let path = place.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            std::fs::write(path, text).expect("a file");
        };
        write("tree/src/a.c", "right\n");
        write("tree/a.c", "wrong\n");
        write("run/b.c", "in the working directory\n");
        let directories = [place.path().join("tree")];
        let run = RunInfo { working_directory: place.path().join("run").display().to_string(), ..RunInfo::default() };
        let sources = Sources::new(&directories, &run);
        let first = |name: &str| sources.text(name).map(|text| text.lines[0].clone());
        assert_eq!(first("/build/pkg-1/src/a.c"), Ok("right".into()));
        assert_eq!(first("./x/../src/a.c"), Ok("right".into()));
        assert_eq!(first("lib/a.c"), Ok("wrong".into()));
        assert_eq!(first("b.c"), Ok("in the working directory".into()));
        assert!(first("/build/c.c").expect_err("nowhere").contains("--source-dir"));
        assert!(first("../..").is_err());
        // It ran in 1970.
        let run = RunInfo { started_unix_ns: 1, ..run.clone() };
        let note = Sources::new(&directories, &run).text("a.c").expect("a text").note.expect("a note");
        assert!(note.contains("has changed since the program ran"), "{note}");
    }
}
