//! Files of modules that a report could not find under their paths, kept with the measurement: they were deleted, or lie in
//! another mount name space, as a container's do.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use callpath_image::identity::ModuleIdentity;
use xxhash_rust::xxh3::xxh3_128;

use crate::directory::TEMPORARY;
use crate::error::MeasurementError;
use crate::ranks::rank_directories;

/// What their names begin with. Behind it stands the module's identity.
const MODULE: &str = "module-";

/// Of a longer identity, the name has the XXH3-128.
const LONGEST_BYTES: usize = 64;

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

    /// Keeps a file with a measurement, unless it is there already. Gives how much was copied, bytes.
    ///
    /// # Errors
    /// If it cannot be copied, or has more than so many bytes.
    pub fn keep(
        directory: &Path,
        identity: &ModuleIdentity,
        (file, most_bytes): (&File, u64),
    ) -> Result<u64, MeasurementError> {
        let path = directory.join(name_of(identity));
        if path.exists() {
            return Ok(0);
        }
        let mut temporary = OsString::from(&path);
        temporary.push(TEMPORARY);
        let copy = || {
            let len = file.metadata()?.len();
            if len > most_bytes {
                return Err(ErrorKind::FileTooLarge.into());
            }
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
            // It may grow meanwhile.
            let copied = io::copy(&mut file.take(len), &mut options.open(&temporary)?)?;
            fs::rename(&temporary, &path)?;
            Ok(copied)
        };
        copy().map_err(|source| {
            // It may not exist: the error of the copy is the one to report.
            drop(fs::remove_file(&temporary));
            MeasurementError::Write { path: path.clone(), source }
        })
    }
}

/// No linker gives a build-id as long as a file's name can be; a file may say that it has one.
fn name_of(identity: &ModuleIdentity) -> String {
    let mut bytes = identity.to_bytes();
    if bytes.len() > LONGEST_BYTES {
        bytes = xxh3_128(&bytes).to_be_bytes().to_vec();
    }
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{MODULE}{hex}")
}

#[cfg(test)]
mod tests {
    use callpath_format::address::LinkAddr;
    use callpath_format::frame::{FrameKey, ModuleIndex};

    use super::*;
    use crate::{FULL_ROOT, ModuleRecord, PathTree, ProcessFile, ThreadProfile};

    #[test]
    fn what_is_kept_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let (here, other) = (ModuleIdentity::BuildId(vec![1, 0xab]), ModuleIdentity::Content(7));
        let source = directory.path().join("source");
        fs::write(&source, "code").unwrap();
        let file = File::open(&source).unwrap();
        fs::remove_file(&source).unwrap();
        let too_long = KeptFiles::keep(directory.path(), &here, (&file, 3)).unwrap_err();
        assert!(too_long.to_string().contains("too large"), "{too_long}");
        assert_eq!(KeptFiles::keep(directory.path(), &here, (&file, 4)).unwrap(), 4);
        // It is read once.
        assert_eq!(KeptFiles::keep(directory.path(), &here, (&file, 4)).unwrap(), 0);
        let kept = KeptFiles::of(directory.path());
        assert_eq!(fs::read(kept.find(&here).unwrap()).unwrap(), b"code");
        assert_eq!(kept.find(&here), Some(directory.path().join("module-01ab")));
        assert_eq!(kept.find(&other), None);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let long = |end| ModuleIdentity::BuildId([vec![1; 300], vec![end]].concat());
        assert!(name_of(&long(1)).len() < 64 && name_of(&long(1)) != name_of(&long(2)));
        // A link leads out of the measurement.
        std::os::unix::fs::symlink("/bin/true", directory.path().join(name_of(&other))).unwrap();
        assert_eq!(kept.find(&other), None);
        let failed = KeptFiles::keep(&directory.path().join("not there"), &here, (&file, 4)).unwrap_err();
        assert!(failed.to_string().contains("module-01ab"), "{failed}");
    }

    /// The roots of a tree are no frames in the first module.
    #[test]
    fn modules_with_frames() {
        let identity = |id| ModuleIdentity::BuildId(vec![id]);
        let module = |id| ModuleRecord { path: "/a".into(), identity: Some(identity(id)) };
        let mut thread = ThreadProfile { tree: PathTree::default(), ..ThreadProfile::default() };
        let key = |module| FrameKey::in_module(ModuleIndex(module), LinkAddr(0x10));
        let node = thread.tree.child(FULL_ROOT, key(1));
        thread.tree.add(node, 1, &[1]);
        let with = |thread: ThreadProfile| ProcessFile {
            modules: vec![module(0), module(1), module(2)],
            threads: vec![thread],
            ..ProcessFile::default()
        };
        let process = with(ThreadProfile { start: Some(key(2)), ..thread.clone() });
        assert_eq!(process.modules_with_frames().collect::<Vec<_>>(), [&identity(1), &identity(2)]);
        assert_eq!(with(thread).modules_with_frames().collect::<Vec<_>>(), [&identity(1)]);
    }
}
