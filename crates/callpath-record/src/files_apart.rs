//! Files of modules that a report would not find under their paths: deleted ones, and those in another mount name space. They are kept open
//! while the recording lasts, and those with frames in them are copied into the measurement when it ends.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use callpath_image::identity::ModuleIdentity;
use callpath_measurement::{KeptFiles, Measurement, MeasurementError};
use callpath_target::descriptors_are_scarce;
use rustc_hash::FxHashSet;

/// How many files are kept open.
const MOST_FILES: usize = 512;

/// How much of them is kept with a measurement, bytes.
const MOST_BYTES: u64 = 2 << 30;

struct Held {
    identity: ModuleIdentity,
    path: PathBuf,
    file: File,
}

/// Files that are kept open, a build once.
#[derive(Default)]
pub(crate) struct FilesApart {
    held: Vec<Held>,
    not_held: usize,
}

impl FilesApart {
    /// Keeps a file open, unless one of the same build is.
    pub(crate) fn hold(&mut self, identity: &ModuleIdentity, path: &Path, open: impl FnOnce() -> Option<File>) {
        if self.held.iter().any(|held| held.identity == *identity) {
            return;
        }
        let is_room = self.held.len() < MOST_FILES && !descriptors_are_scarce();
        match is_room.then(open).flatten() {
            Some(file) => self.held.push(Held { identity: identity.clone(), path: path.to_owned(), file }),
            None => self.not_held += 1,
        }
    }

    /// Copies those with frames in them into the measurement, and lets go of all. Gives notes on what is missing.
    pub(crate) fn keep(&mut self, directory: &Path) -> Vec<String> {
        let FilesApart { held, not_held } = std::mem::take(self);
        let mut notes = Vec::new();
        if not_held > 0 {
            notes.push(format!(
                "{not_held} files that are deleted or in a container could not be kept open: reports lack their names when the files \
                 are gone"
            ));
        }
        if held.is_empty() {
            return notes;
        }
        let measurement = match Measurement::read(directory) {
            Ok(measurement) => measurement,
            Err(error) => {
                notes.push(format!("files that are deleted or in a container are not kept: failed to {error}"));
                return notes;
            }
        };
        let has_frames: FxHashSet<&ModuleIdentity> =
            measurement.processes.iter().flat_map(|process| process.modules_with_frames()).collect();
        let (mut left_bytes, mut not_kept, mut why) = (MOST_BYTES, Vec::new(), None);
        let mut is_full = false;
        for held in held.iter().filter(|held| has_frames.contains(&held.identity)) {
            if is_full {
                not_kept.push(&held.path);
                continue;
            }
            match KeptFiles::keep(directory, &held.identity, (&held.file, left_bytes)) {
                Ok(bytes) => left_bytes = left_bytes.saturating_sub(bytes),
                Err(error) => {
                    is_full = is_of_full_disk(&error);
                    not_kept.push(&held.path);
                    why.get_or_insert(error);
                }
            }
        }
        if let (Some(first), Some(why)) = (not_kept.first(), why) {
            let more = if not_kept.len() > 1 { format!(" and {} more", not_kept.len() - 1) } else { String::new() };
            notes.push(format!(
                "reports lack the names of {}{more} when the files are gone: they are deleted or in a container, and not kept: failed \
                 to {why}",
                first.display()
            ));
        }
        notes
    }
}

fn is_of_full_disk(error: &MeasurementError) -> bool {
    let MeasurementError::Write { source, .. } = error else { return false };
    matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = FilesApart::default();
        assert_eq!(files.keep(directory.path()), [""; 0]);
        let (one, other) = (ModuleIdentity::BuildId(vec![1]), ModuleIdentity::BuildId(vec![2]));
        let path = Path::new("/in/a/container");
        files.hold(&one, path, || Some(File::open("/bin/true").unwrap()));
        // The same build is there already.
        files.hold(&one, path, || panic!("it is opened twice"));
        files.hold(&other, path, || None);
        let notes = files.keep(directory.path());
        assert!(notes.len() == 2 && notes[0].starts_with("1 files"), "{notes:?}");
        assert!(notes[1].contains("there is no file `session`"), "{notes:?}");
        assert_eq!(files.keep(directory.path()), [""; 0]);
    }
}
