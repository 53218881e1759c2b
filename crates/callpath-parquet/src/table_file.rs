//! The file of one table, written row by row.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, GzipLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};

use crate::column::{Cell, CellType, Cells};
use crate::directory::NewDirectory;
use crate::error::ExportError;
use crate::tables::Table;

/// The version of the tables (docs/engines.md), which each file says.
const VERSION: &str = "1";

/// A dictionary of so many bytes is no shorter than the values themselves.
const MOST_DICTIONARY_BYTES: usize = 4 << 20;

/// A table's file that is being written.
pub(crate) struct TableFile<'a> {
    /// Of the directory, for errors.
    path: &'a Path,
    table: &'static Table,
    out: SerializedFileWriter<BufWriter<File>>,
    cells: Vec<Cells>,
    rows: usize,
}

impl<'a> TableFile<'a> {
    pub(crate) fn create(
        directory: &NewDirectory,
        path: &'a Path,
        table: &'static Table,
    ) -> Result<TableFile<'a>, ExportError> {
        let file = directory.file(&format!("{}.parquet", table.name));
        let file = file.map_err(|source| ExportError::of_io(path, source))?;
        let begun = schema(table).and_then(|schema| {
            SerializedFileWriter::new(BufWriter::with_capacity(1 << 18, file), schema, Arc::new(properties(table)?))
        });
        let out = begun.map_err(|source| ExportError::of_parquet(path, source))?;
        let cells = table.columns.iter().map(|_| Cells::default()).collect();
        Ok(TableFile { path, table, out, cells, rows: 0 })
    }

    /// Adds a row: a cell for each column.
    pub(crate) fn row<const N: usize>(&mut self, row: [Cell<'_>; N]) -> Result<(), ExportError> {
        debug_assert_eq!(N, self.table.columns.len());
        for ((column, cells), cell) in self.table.columns.iter().zip(&mut self.cells).zip(row) {
            cells.push(column, cell);
        }
        self.rows += 1;
        if self.rows == self.table.group { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> Result<(), ExportError> {
        self.rows = 0;
        let mut write = || -> Result<(), ParquetError> {
            let mut group = self.out.next_row_group()?;
            for (column, cells) in self.table.columns.iter().zip(&mut self.cells) {
                let next = group.next_column()?;
                let mut out = next.ok_or_else(|| ParquetError::General(format!("no column {}", column.name)))?;
                cells.write(column, &mut out)?;
                out.close()?;
            }
            group.close().map(drop)
        };
        write().map_err(|source| ExportError::of_parquet(self.path, source))
    }

    /// Completes the file; its length.
    pub(crate) fn finish(mut self) -> Result<u64, ExportError> {
        if self.rows > 0 {
            self.write_group()?;
        }
        let path = self.path;
        let mut out = self.out.into_inner().map_err(|source| ExportError::of_parquet(path, source))?;
        let written = out.flush().and_then(|()| {
            let file = out.get_ref();
            file.sync_all()?;
            file.metadata()
        });
        Ok(written.map_err(|source| ExportError::of_io(path, source))?.len())
    }
}

fn schema(table: &Table) -> Result<Arc<Type>, ParquetError> {
    let columns = table.columns.iter().map(|column| column.schema()).collect::<Result<Vec<_>, _>>()?;
    Ok(Arc::new(Type::group_type_builder(table.name).with_fields(columns).build()?))
}

fn properties(table: &Table) -> Result<WriterProperties, ParquetError> {
    let mut properties = WriterProperties::builder()
        // What all engines read.
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_compression(Compression::GZIP(GzipLevel::default()))
        .set_dictionary_page_size_limit(MOST_DICTIONARY_BYTES)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_max_row_group_row_count(None)
        .set_created_by(concat!("callpath ", env!("CARGO_PKG_VERSION")).into())
        .set_key_value_metadata(Some(vec![KeyValue::new("callpath.tables".into(), VERSION.to_owned())]));
    for column in table.columns {
        let path = || ColumnPath::from(column.name);
        let (has_dictionary, encoding) = column.encoding();
        properties =
            properties.set_column_dictionary_enabled(path(), has_dictionary).set_column_encoding(path(), encoding);
        if column.cells == CellType::Text {
            // Names may be of any length.
            properties = properties.set_column_statistics_enabled(path(), EnabledStatistics::None);
        }
    }
    Ok(properties.build())
}
