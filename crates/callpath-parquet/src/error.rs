//! What can go wrong with an export. Each completes "failed to ...".

use std::io;
use std::path::{Path, PathBuf};

use callpath_db::database::DatabaseError;
use parquet::errors::ParquetError;

/// Why tables cannot be written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ExportError {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error("write {path}: the metric {metric} has a value of {value}, and a table's integers end at 2^63 - 1")]
    TooLarge { path: PathBuf, metric: String, value: u64 },
    #[error("write {path}: {source}")]
    Parquet { path: PathBuf, source: ParquetError },
    #[error("write {path}: interrupted; nothing of it is left")]
    Interrupted { path: PathBuf },
}

impl ExportError {
    /// Why a file of `path` could not be written.
    pub(crate) fn of_io(path: &Path, source: io::Error) -> ExportError {
        DatabaseError::of_writing(path, source).into()
    }

    /// The same, where the error came through the writer of Parquet.
    pub(crate) fn of_parquet(path: &Path, source: ParquetError) -> ExportError {
        let path_buf = path.to_owned();
        match source {
            ParquetError::External(inner) => match inner.downcast::<io::Error>() {
                Ok(inner) => ExportError::of_io(path, *inner),
                Err(inner) => ExportError::Parquet { path: path_buf, source: ParquetError::External(inner) },
            },
            source => ExportError::Parquet { path: path_buf, source },
        }
    }
}
