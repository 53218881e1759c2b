//! A database as tables that other engines read: DuckDB, Spark, pandas, polars. One Parquet file for each table, in a directory.
//!
//! Ids are 64-bit hashes of what a row stands for, so that those of different measurements are equal where they mean the same: an
//! engine merges any number of exports with GROUP BY. docs/engines.md describes the tables; [`shipped`] has the SQL.
//!
//! Contexts and values are written as they are read: memory is bounded by the tree, and a group of rows.

#![forbid(unsafe_code)]

mod column;
mod contexts;
mod directory;
mod error;
mod ids;
mod profiles;
pub mod shipped;
mod table_file;
mod tables;
mod values;
mod written;

use std::path::{Path, PathBuf};

use callpath_db::database::Database;

pub use column::{CellType, Column};
use directory::NewDirectory;
pub use error::ExportError;
pub use tables::{TABLES, Table};
use written::Written;

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exported {
    /// Contexts, the root included.
    pub contexts: u64,
    /// Values that are not 0.
    pub facts: u64,
    /// Profiles: threads.
    pub profiles: u64,
    /// Length of all files together, bytes.
    pub len_bytes: u64,
}

/// A new directory for the tables of a database. It gets its name when all of them are complete: an export that fails leaves nothing,
/// and nothing is overwritten. (One that is killed leaves a directory with `.part` in its name.)
pub struct NewTables {
    path: PathBuf,
    directory: NewDirectory,
}

impl NewTables {
    /// Begins a directory that will be `path`, which nothing may be yet.
    pub fn create(path: &Path) -> Result<NewTables, ExportError> {
        Ok(NewTables { path: path.to_owned(), directory: NewDirectory::create(path)? })
    }

    /// Writes the tables of `database`. `go_on` is asked before each profile, with the number of those that are written; false ends
    /// the export.
    pub fn write(self, database: &Database, mut go_on: impl FnMut(usize) -> bool) -> Result<Exported, ExportError> {
        let NewTables { path, directory } = self;
        let mut written = Written::new(&path, &directory);
        let content = database.content()?;
        let export = ids::export(database);
        let names = contexts::write(&content, export, &mut written)?;
        names.write(&content, &mut written)?;
        let metrics = profiles::write_metrics(database.metrics(), export, &mut written)?;
        let profiles = profiles::write_profiles(database, export, &mut written)?;
        let source = values::Source { database, content: &content, export, metrics: &metrics, profiles: &profiles };
        values::write(source, &mut written, &mut go_on)?;
        let len_bytes = written.len_bytes();
        directory.finish()?;
        let (contexts, profiles) = (content.len() as u64, profiles.len() as u64);
        Ok(Exported { contexts, facts: database.facts(), profiles, len_bytes })
    }
}
