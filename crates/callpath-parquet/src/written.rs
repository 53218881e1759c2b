//! What of an export is written so far: files in a directory.

use std::path::Path;

use crate::directory::NewDirectory;
use crate::error::ExportError;
use crate::table_file::TableFile;
use crate::tables::Table;

/// The directory that is being written.
pub(crate) struct Written<'a> {
    /// Its name, for errors.
    pub(crate) path: &'a Path,
    directory: &'a NewDirectory,
    len_bytes: u64,
}

impl<'a> Written<'a> {
    pub(crate) fn new(path: &'a Path, directory: &'a NewDirectory) -> Written<'a> {
        Written { path, directory, len_bytes: 0 }
    }

    /// Begins the file of a table.
    pub(crate) fn begin(&self, table: &'static Table) -> Result<TableFile<'a>, ExportError> {
        TableFile::create(self.directory, self.path, table)
    }

    /// Counts a file that is complete.
    pub(crate) fn add(&mut self, len_bytes: u64) {
        self.len_bytes += len_bytes;
    }

    /// The length of all files that are complete.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }
}
