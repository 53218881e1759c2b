//! A new file that has no name until it is complete: whatever ends its writer, a killed process or a lost disk, nothing half is
//! left.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, OFlags, linkat};

use super::error::DatabaseError;

/// A file that is being written.
pub(crate) struct NewFile {
    path: PathBuf,
    file: File,
    /// Its name so far, where the file system has no files without one.
    part: Option<PathBuf>,
}

impl NewFile {
    /// Begins a file that will be `path`, which nothing may be yet.
    pub(crate) fn create(path: &Path) -> Result<NewFile, DatabaseError> {
        if path.symlink_metadata().is_ok() {
            return Err(DatabaseError::Exists { path: path.to_owned() });
        }
        NewFile::without_name(path)
            .or_else(|_| NewFile::with_name(path))
            .map_err(|source| DatabaseError::of_writing(path, source))
    }

    /// A file in the directory of `path` that no directory lists: it is gone with its last descriptor.
    fn without_name(path: &Path) -> io::Result<NewFile> {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let flags = OFlags::TMPFILE.bits() as i32;
        let file = OpenOptions::new().write(true).custom_flags(flags).mode(0o666).open(directory)?;
        // It gets its name by this one.
        fs::metadata(own_link(&file))?;
        Ok(NewFile { path: path.to_owned(), file, part: None })
    }

    /// A file beside `path` with `.part` in its name: one that is killed leaves it.
    fn with_name(path: &Path) -> io::Result<NewFile> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".part-{}", std::process::id()));
        let part = path.with_file_name(name);
        let file = OpenOptions::new().write(true).create_new(true).open(&part)?;
        Ok(NewFile { path: path.to_owned(), file, part: Some(part) })
    }

    /// What to write to.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its name, if nothing else has got it by now; its length.
    pub(crate) fn finish(self) -> Result<u64, DatabaseError> {
        let named = self.file.sync_all().and_then(|()| self.file.metadata()).and_then(|metadata| {
            match &self.part {
                None => linkat(CWD, own_link(&self.file), CWD, &self.path, AtFlags::SYMLINK_FOLLOW)?,
                Some(part) => fs::hard_link(part, &self.path).or_else(|error| match self.path.symlink_metadata() {
                    Ok(_) => Err(error),
                    // There are file systems without hard links.
                    Err(_) => fs::rename(part, &self.path),
                })?,
            }
            Ok(metadata.len())
        });
        named.map_err(|source| DatabaseError::of_writing(&self.path, source))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            // Whether it has another name by now or is not wanted: this one goes. There is nobody to tell of an error.
            let _ = fs::remove_file(part);
        }
    }
}

/// A name of an open file, for this process.
fn own_link(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn listed(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("a directory");
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }

    fn both_ways(test: impl Fn(&Path, fn(&Path) -> io::Result<NewFile>)) {
        for way in [NewFile::without_name as fn(&Path) -> _, NewFile::with_name] {
            let directory = tempfile::tempdir().expect("a directory");
            test(&directory.path().join("all"), way);
        }
    }

    #[test]
    fn a_file_gets_its_name_when_it_is_complete() {
        both_ways(|path, way| {
            let new = way(path).expect("a file");
            new.file().write_all(b"whole").expect("written");
            assert!(!path.exists());
            assert_eq!(new.finish().expect("finished"), 5);
            assert_eq!(fs::read(path).expect("a file"), b"whole");
            assert_eq!(listed(path.parent().expect("a directory")), ["all"]);
        });
    }

    #[test]
    fn a_file_that_is_given_up_leaves_nothing() {
        both_ways(|path, way| {
            way(path).expect("a file").file().write_all(b"half").expect("written");
            assert!(listed(path.parent().expect("a directory")).is_empty());
        });
    }

    #[test]
    fn a_file_that_came_meanwhile_stays() {
        both_ways(|path, way| {
            let new = way(path).expect("a file");
            fs::write(path, "theirs").expect("written");
            assert!(matches!(new.finish(), Err(DatabaseError::Exists { .. })));
            assert_eq!(fs::read(path).expect("a file"), b"theirs");
            assert_eq!(listed(path.parent().expect("a directory")), ["all"]);
        });
    }

    #[test]
    fn a_file_in_the_current_directory_has_no_parent_to_name() {
        let name = Path::new("database-of-a-test");
        drop(NewFile::create(name).expect("a file"));
        assert!(!name.exists());
    }
}
