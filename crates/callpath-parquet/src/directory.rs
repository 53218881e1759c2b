//! A new directory that gets its name when all files in it are complete.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use callpath_db::database::DatabaseError;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

/// A directory that is being filled. Unless it is finished, it goes away with all that is in it.
pub(crate) struct NewDirectory {
    /// As it was typed, for errors.
    typed: PathBuf,
    path: PathBuf,
    /// Its name so far, beside the one that it will have.
    part: PathBuf,
    is_finished: bool,
}

impl NewDirectory {
    /// Begins a directory that will be `path`, which nothing may be yet.
    pub(crate) fn create(typed: &Path) -> Result<NewDirectory, DatabaseError> {
        if typed.symlink_metadata().is_ok() {
            return Err(DatabaseError::Exists { path: typed.to_owned() });
        }
        let failed = |source| DatabaseError::of_writing(typed, source);
        // `a/b/` and `.` have a name, too.
        let path = std::path::absolute(typed).map_err(failed)?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".part-{}", std::process::id()));
        let part = path.with_file_name(name);
        fs::create_dir(&part).map_err(failed)?;
        Ok(NewDirectory { typed: typed.to_owned(), path, part, is_finished: false })
    }

    /// Begins a file in it.
    pub(crate) fn file(&self, name: &str) -> io::Result<File> {
        File::create_new(self.part.join(name))
    }

    /// Gives it its name, if nothing else has got that by now.
    pub(crate) fn finish(mut self) -> Result<(), DatabaseError> {
        let renamed = match renameat_with(CWD, &self.part, CWD, &self.path, RenameFlags::NOREPLACE) {
            // There are file systems that know no flags. A directory replaces none but an empty one.
            Err(Errno::INVAL | Errno::NOSYS) => fs::rename(&self.part, &self.path),
            other => other.map_err(io::Error::from),
        };
        renamed.map_err(|source| DatabaseError::of_writing(&self.typed, source))?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        if !self.is_finished {
            // There is an error to tell of already.
            let _ = fs::remove_dir_all(&self.part);
        }
    }
}
