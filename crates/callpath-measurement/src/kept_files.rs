//! Files of modules that a report could not find under their paths, kept with the measurement: they were deleted, or lie in
//! another mount name space, as a container's do.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use callpath_image::identity::ModuleIdentity;

use crate::directory::TEMPORARY;
use crate::error::MeasurementError;
use crate::ranks::rank_directories;

/// What their names begin with. Behind it stands the module's identity.
const MODULE: &str = "module-";

/// The kept files of a measurement.
#[derive(Clone, Debug, Default)]
pub struct KeptFiles {
    directories: Vec<PathBuf>,
}

impl KeptFiles {
    /// Those of a measurement, of one recorder or of several ranks.
    pub fn of(directory: &Path) -> KeptFiles {
        let ranks = rank_directories(directory).into_iter().map(|(_, rank)| rank);
        KeptFiles { directories: ranks.chain([directory.to_owned()]).collect() }
    }

    /// Where the file of a module is kept, if it is.
    pub fn find(&self, identity: &ModuleIdentity) -> Option<PathBuf> {
        let name = name_of(identity);
        let mut places = self.directories.iter().map(|directory| directory.join(&name));
        places.find(|place| place.symlink_metadata().is_ok_and(|found| found.is_file()))
    }

    /// Keeps a file with a measurement, unless it is there already.
    ///
    /// # Errors
    /// If it cannot be copied.
    pub fn keep(directory: &Path, identity: &ModuleIdentity, mut file: &File) -> Result<(), MeasurementError> {
        let path = directory.join(name_of(identity));
        if path.exists() {
            return Ok(());
        }
        let mut temporary = OsString::from(&path);
        temporary.push(TEMPORARY);
        let mut copy = || {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
            io::copy(&mut file, &mut options.open(&temporary)?)?;
            fs::rename(&temporary, &path)
        };
        copy().map_err(|source| {
            // It may not exist: the error of the copy is the one to report.
            drop(fs::remove_file(&temporary));
            MeasurementError::Write { path: path.clone(), source }
        })
    }
}

fn name_of(identity: &ModuleIdentity) -> String {
    let hex: String = identity.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{MODULE}{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let (here, other) = (ModuleIdentity::BuildId(vec![1, 0xab]), ModuleIdentity::Content(7));
        let source = directory.path().join("source");
        fs::write(&source, "code").unwrap();
        let file = File::open(&source).unwrap();
        fs::remove_file(&source).unwrap();
        KeptFiles::keep(directory.path(), &here, &file).unwrap();
        // It is read once.
        KeptFiles::keep(directory.path(), &here, &file).unwrap();
        let kept = KeptFiles::of(directory.path());
        assert_eq!(fs::read(kept.find(&here).unwrap()).unwrap(), b"code");
        assert_eq!(kept.find(&here), Some(directory.path().join("module-01ab")));
        assert_eq!(kept.find(&other), None);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        // A link leads out of the measurement.
        std::os::unix::fs::symlink("/bin/true", directory.path().join(name_of(&other))).unwrap();
        assert_eq!(kept.find(&other), None);
        let failed = KeptFiles::keep(&directory.path().join("not there"), &here, &file).unwrap_err();
        assert!(failed.to_string().contains("module-01ab"), "{failed}");
    }
}
