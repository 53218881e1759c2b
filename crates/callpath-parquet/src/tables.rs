//! The tables: which there are, and their columns. docs/engines.md says what they mean.

use crate::column::{Column, Encoded};

/// A table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Table {
    /// Its name; its file is this with `.parquet`.
    pub name: &'static str,
    /// Its columns.
    pub columns: &'static [Column],
    /// How many rows lie together.
    pub(crate) group: usize,
}

impl Table {
    const fn of(name: &'static str, columns: &'static [Column]) -> Table {
        Table { name, columns, group: 1 << 16 }
    }
}

const fn id(name: &'static str) -> Column {
    Column::integer(name).encoded(Encoded::Plain)
}

const fn ascending(name: &'static str) -> Column {
    Column::integer(name).encoded(Encoded::AsDifferences)
}

pub(crate) const NODE: Table = Table::of(
    "node",
    &[
        Column::integer("export"),
        id("id"),
        id("parent").or_null(),
        ascending("place"),
        ascending("last"),
        ascending("depth"),
        Column::text("kind"),
        Column::integer("function").or_null(),
        Column::integer("module").or_null(),
        Column::integer("file").or_null(),
        Column::integer("line").or_null(),
        Column::integer("source_column").or_null(),
        Column::integer("address").or_null(),
        Column::integer("call_file").or_null(),
        Column::integer("call_line").or_null(),
        Column::integer("discriminator"),
    ],
);

pub(crate) const VALUE: Table = Table {
    // Each group has its dictionary of nodes: in larger ones there are fewer.
    group: 1 << 20,
    ..Table::of(
        "value",
        &[
            Column::integer("export"),
            Column::integer("profile"),
            Column::integer("node"),
            Column::integer("metric"),
            Column::integer("value").or_null(),
            Column::real("real").or_null(),
        ],
    )
};

pub(crate) const METRIC: Table = Table::of(
    "metric",
    &[
        Column::integer("export"),
        id("id"),
        ascending("position"),
        Column::text("name"),
        Column::text("unit"),
        Column::text("kind"),
        Column::text("type"),
        Column::integer("bin").or_null(),
        Column::text("source"),
        Column::text("note").or_null(),
        Column::text("formula").or_null(),
    ],
);

pub(crate) const PROFILE: Table = Table::of(
    "profile",
    &[
        Column::integer("export"),
        id("id"),
        Column::integer("run"),
        Column::text("program").or_null(),
        Column::text("command").or_null(),
        Column::text("host").or_null(),
        Column::text("directory").or_null(),
        Column::integer("started_unix_ns").or_null(),
        Column::integer("rank").or_null(),
        Column::text("process").or_null(),
        Column::integer("pid").or_null(),
        Column::text("thread").or_null(),
        Column::integer("tid").or_null(),
    ],
);

pub(crate) const MODULE: Table = Table::of("module", &[id("id"), Column::text("name")]);

pub(crate) const FUNCTION: Table = Table::of(
    "function",
    &[
        id("id"),
        Column::text("name"),
        Column::integer("module").or_null(),
        Column::integer("file").or_null(),
        Column::integer("discriminator"),
    ],
);

pub(crate) const FILE: Table = Table::of("file", &[id("id"), Column::text("name")]);

/// All tables.
pub const TABLES: [&Table; 7] = [&NODE, &VALUE, &METRIC, &PROFILE, &MODULE, &FUNCTION, &FILE];
