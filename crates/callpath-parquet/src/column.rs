//! A table's columns: what they hold, how they are encoded, and the cells of a group of rows.

use parquet::basic::{Encoding, LogicalType, Repetition, Type as PhysicalType};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::writer::SerializedColumnWriter;
use parquet::schema::types::{Type, TypePtr};

/// What the cells of a column are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CellType {
    /// 64 bits with a sign.
    Integer,
    /// An IEEE 754 double.
    Real,
    /// UTF-8.
    Text,
}

/// How values become bytes, before they are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Encoded {
    /// By their numbers in a dictionary; differences, if that grows large.
    InDictionary,
    /// As differences to the one before.
    AsDifferences,
    /// As they are: hashes, each of which is there once or twice.
    Plain,
}

/// A column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// What its cells are.
    pub cells: CellType,
    /// Whether a cell may be NULL.
    pub is_optional: bool,
    pub(crate) encoded: Encoded,
}

impl Column {
    pub(crate) const fn integer(name: &'static str) -> Column {
        Column { name, cells: CellType::Integer, is_optional: false, encoded: Encoded::InDictionary }
    }

    pub(crate) const fn real(name: &'static str) -> Column {
        Column { cells: CellType::Real, encoded: Encoded::Plain, ..Column::integer(name) }
    }

    pub(crate) const fn text(name: &'static str) -> Column {
        Column { cells: CellType::Text, ..Column::integer(name) }
    }

    /// May be NULL.
    pub(crate) const fn or_null(self) -> Column {
        Column { is_optional: true, ..self }
    }

    pub(crate) const fn encoded(self, encoded: Encoded) -> Column {
        Column { encoded, ..self }
    }

    /// Whether there is a dictionary, and what is used without.
    pub(crate) fn encoding(&self) -> (bool, Encoding) {
        match (self.encoded, self.cells) {
            (Encoded::InDictionary, CellType::Integer) => (true, Encoding::DELTA_BINARY_PACKED),
            (Encoded::InDictionary, _) => (true, Encoding::PLAIN),
            (Encoded::AsDifferences, _) => (false, Encoding::DELTA_BINARY_PACKED),
            (Encoded::Plain, _) => (false, Encoding::PLAIN),
        }
    }

    /// As Parquet's schemas say it.
    pub(crate) fn schema(&self) -> Result<TypePtr> {
        let (physical, logical) = match self.cells {
            CellType::Integer => (PhysicalType::INT64, None),
            CellType::Real => (PhysicalType::DOUBLE, None),
            CellType::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let repetition = if self.is_optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let column = Type::primitive_type_builder(self.name, physical);
        Ok(column.with_repetition(repetition).with_logical_type(logical).build()?.into())
    }
}

/// A cell of a row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Cell<'a> {
    Null,
    Integer(i64),
    Real(f64),
    Text(&'a str),
}

impl<'a> Cell<'a> {
    /// An integer, or NULL.
    pub(crate) fn known(integer: Option<impl Into<i64>>) -> Cell<'a> {
        integer.map_or(Cell::Null, |integer| Cell::Integer(integer.into()))
    }

    /// The 64 bits of a hash or an address.
    pub(crate) fn bits(bits: u64) -> Cell<'a> {
        Cell::Integer(bits as i64)
    }

    /// A text, or NULL if it is empty.
    pub(crate) fn text(text: &'a str) -> Cell<'a> {
        if text.is_empty() { Cell::Null } else { Cell::Text(text) }
    }
}

/// The cells of one column in a group of rows.
#[derive(Default)]
pub(crate) struct Cells {
    integers: Vec<i64>,
    reals: Vec<f64>,
    texts: Vec<ByteArray>,
    /// Of an optional column, by row: 1, or 0 for NULL.
    levels: Vec<i16>,
}

impl Cells {
    pub(crate) fn push(&mut self, column: &Column, cell: Cell<'_>) {
        match cell {
            Cell::Null => {}
            Cell::Integer(integer) => self.integers.push(integer),
            Cell::Real(real) => self.reals.push(real),
            Cell::Text(text) => self.texts.push(ByteArray::from(text)),
        }
        if column.is_optional {
            self.levels.push(i16::from(cell != Cell::Null));
        }
    }

    /// Writes them, and is empty again.
    pub(crate) fn write(&mut self, column: &Column, out: &mut SerializedColumnWriter<'_>) -> Result<()> {
        let levels = column.is_optional.then_some(&self.levels[..]);
        match column.cells {
            CellType::Integer => out.typed::<Int64Type>().write_batch(&self.integers, levels, None)?,
            CellType::Real => out.typed::<DoubleType>().write_batch(&self.reals, levels, None)?,
            CellType::Text => out.typed::<ByteArrayType>().write_batch(&self.texts, levels, None)?,
        };
        self.integers.clear();
        self.reals.clear();
        self.texts.clear();
        self.levels.clear();
        Ok(())
    }
}
