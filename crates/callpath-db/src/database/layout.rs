//! How a database's file is laid out: header, sections, table of sections.
//!
//! ```text
//! 0   magic     "CPDATA" and two digits: the format's version
//! 8   length    u64: of the whole file, bytes; 0 while it is being written
//! 16  table     u64: offset of the table of sections, which ends the file
//! 24  checksum  u64: XXH3-64 of the table
//! 32  sections, each at a multiple of 8; then the table: 40 bytes for each section
//! ```

use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use super::error::DatabaseError;

/// The two digits of [`MAGIC`].
pub(crate) const VERSION: &str = "02";
pub(crate) const MAGIC: &[u8; 8] = b"CPDATA02";
pub(crate) const HEADER_BYTES: usize = 32;
const ENTRY_BYTES: usize = 40;

/// No database has more sections: some for each metric, and a dozen.
const MOST_SECTIONS: usize = 1 << 20;

/// What a section holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SectionKind {
    /// Metrics, runs, profiles.
    Facts,
    /// Where each string ends, u64, in the bytes.
    StringEnds,
    StringBytes,
    Scopes,
    /// By context: u64.
    Ids,
    /// By context: u32.
    Parents,
    /// By context: u32.
    Ends,
    /// By context: u32.
    Depths,
    /// By context: u32.
    ScopeOf,
    /// The values of all profiles, one after the other.
    Values,
    /// Of a metric over all profiles: the contexts that have a value of their own, u32.
    SummaryContexts,
    /// Of a metric that adds up as integers: before each of these values, and behind the last, the sum of all before it,
    /// modulo 2^64. So what a context costs with all below it is a difference of two.
    SummarySums,
    /// Of another metric: these values, u64.
    SummaryValues,
    /// Of such a metric: the contexts with a value of their own or below, u32.
    InclusiveContexts,
    /// Their values with all below, u64.
    InclusiveValues,
    /// What scopes of views are that are no contexts' scopes; their numbers are behind those.
    ViewScopes,
    /// Of a tree as views show it.
    Tree(ViewTree, TreePart),
    /// Of scopes with costs.
    Table(ViewTable, TablePart),
    /// What instructions cost.
    Code,
}

/// A tree as views show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ViewTree {
    /// Without lines and system calls.
    Folded,
    /// The same with recursion collapsed.
    Collapsed,
}

/// What is known of a tree's nodes, which are in preorder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TreePart {
    /// By node: u32.
    Parents,
    /// By node: u32.
    Ends,
    /// By node: u32.
    ScopeOf,
    /// Nodes that add up several activations on one path, u32 each, then how many, u32 each.
    Recursion,
    /// As the sections of the same names are of contexts.
    SummaryContexts,
    SummarySums,
    SummaryValues,
    InclusiveContexts,
    InclusiveValues,
    /// The nodes with a cost of their own, u32, by the row of the table of the first level that has it.
    Origins,
    /// For each row of it, and behind the last, where its origins begin, u32.
    OriginStarts,
}

/// Scopes with costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ViewTable {
    /// The flat view's tree.
    Code,
    /// Procedures, inlined ones in those that they are inlined in.
    Procedures,
    /// The same with inlined ones apart.
    WithInlined,
    /// The first level of the callers view of the folded tree.
    Folded,
    /// The same of the collapsed one.
    Collapsed,
}

/// What is known of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TablePart {
    /// By row: u32.
    ScopeOf,
    /// By row, of code: u32.
    Parents,
    /// Of a metric: rows that have a value of their own, u32 each, then these values, u64 each.
    Own,
    /// The same of values with all below, or all that is called.
    Inclusive,
}

impl SectionKind {
    /// A kind's place is its number less 1: a new one goes to the end.
    const ALL: [SectionKind; 59] = [
        SectionKind::Facts,
        SectionKind::StringEnds,
        SectionKind::StringBytes,
        SectionKind::Scopes,
        SectionKind::Ids,
        SectionKind::Parents,
        SectionKind::Ends,
        SectionKind::Depths,
        SectionKind::ScopeOf,
        SectionKind::Values,
        SectionKind::SummaryContexts,
        SectionKind::SummarySums,
        SectionKind::SummaryValues,
        SectionKind::InclusiveContexts,
        SectionKind::InclusiveValues,
        SectionKind::ViewScopes,
        SectionKind::Tree(ViewTree::Folded, TreePart::Parents),
        SectionKind::Tree(ViewTree::Folded, TreePart::Ends),
        SectionKind::Tree(ViewTree::Folded, TreePart::ScopeOf),
        SectionKind::Tree(ViewTree::Folded, TreePart::Recursion),
        SectionKind::Tree(ViewTree::Folded, TreePart::SummaryContexts),
        SectionKind::Tree(ViewTree::Folded, TreePart::SummarySums),
        SectionKind::Tree(ViewTree::Folded, TreePart::SummaryValues),
        SectionKind::Tree(ViewTree::Folded, TreePart::InclusiveContexts),
        SectionKind::Tree(ViewTree::Folded, TreePart::InclusiveValues),
        SectionKind::Tree(ViewTree::Folded, TreePart::Origins),
        SectionKind::Tree(ViewTree::Folded, TreePart::OriginStarts),
        SectionKind::Tree(ViewTree::Collapsed, TreePart::Parents),
        SectionKind::Tree(ViewTree::Collapsed, TreePart::Ends),
        SectionKind::Tree(ViewTree::Collapsed, TreePart::ScopeOf),
        SectionKind::Tree(ViewTree::Collapsed, TreePart::Recursion),
        SectionKind::Tree(ViewTree::Collapsed, TreePart::SummaryContexts),
        SectionKind::Tree(ViewTree::Collapsed, TreePart::SummarySums),
        SectionKind::Tree(ViewTree::Collapsed, TreePart::SummaryValues),
        SectionKind::Tree(ViewTree::Collapsed, TreePart::InclusiveContexts),
        SectionKind::Tree(ViewTree::Collapsed, TreePart::InclusiveValues),
        SectionKind::Tree(ViewTree::Collapsed, TreePart::Origins),
        SectionKind::Tree(ViewTree::Collapsed, TreePart::OriginStarts),
        SectionKind::Table(ViewTable::Code, TablePart::ScopeOf),
        SectionKind::Table(ViewTable::Code, TablePart::Parents),
        SectionKind::Table(ViewTable::Code, TablePart::Own),
        SectionKind::Table(ViewTable::Code, TablePart::Inclusive),
        SectionKind::Table(ViewTable::Procedures, TablePart::ScopeOf),
        SectionKind::Table(ViewTable::Procedures, TablePart::Parents),
        SectionKind::Table(ViewTable::Procedures, TablePart::Own),
        SectionKind::Table(ViewTable::Procedures, TablePart::Inclusive),
        SectionKind::Table(ViewTable::WithInlined, TablePart::ScopeOf),
        SectionKind::Table(ViewTable::WithInlined, TablePart::Parents),
        SectionKind::Table(ViewTable::WithInlined, TablePart::Own),
        SectionKind::Table(ViewTable::WithInlined, TablePart::Inclusive),
        SectionKind::Table(ViewTable::Folded, TablePart::ScopeOf),
        SectionKind::Table(ViewTable::Folded, TablePart::Parents),
        SectionKind::Table(ViewTable::Folded, TablePart::Own),
        SectionKind::Table(ViewTable::Folded, TablePart::Inclusive),
        SectionKind::Table(ViewTable::Collapsed, TablePart::ScopeOf),
        SectionKind::Table(ViewTable::Collapsed, TablePart::Parents),
        SectionKind::Table(ViewTable::Collapsed, TablePart::Own),
        SectionKind::Table(ViewTable::Collapsed, TablePart::Inclusive),
        SectionKind::Code,
    ];

    /// Its number in the table, the same for ever.
    pub(crate) fn number(self) -> u32 {
        SectionKind::ALL.iter().position(|kind| *kind == self).map_or(0, |at| at as u32 + 1)
    }

    /// The kind with this number; `None`: a later callpath knows it.
    pub(crate) fn of_number(number: u32) -> Option<SectionKind> {
        SectionKind::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// For messages.
    pub(crate) fn words(self) -> &'static str {
        match self {
            SectionKind::Facts => "metrics and profiles",
            SectionKind::StringEnds | SectionKind::StringBytes => "strings",
            SectionKind::Scopes => "scopes",
            SectionKind::Ids
            | SectionKind::Parents
            | SectionKind::Ends
            | SectionKind::Depths
            | SectionKind::ScopeOf => "contexts",
            SectionKind::Values => "values",
            SectionKind::SummaryContexts
            | SectionKind::SummarySums
            | SectionKind::SummaryValues
            | SectionKind::InclusiveContexts
            | SectionKind::InclusiveValues => "sums",
            SectionKind::ViewScopes | SectionKind::Tree(..) | SectionKind::Table(..) => "views",
            SectionKind::Code => "instructions",
        }
    }
}

/// An entry of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section {
    /// Of a [`SectionKind`], or of one that a later callpath knows.
    pub(crate) kind: u32,
    /// The metric that it is of, or 0.
    pub(crate) metric: u32,
    pub(crate) offset: u64,
    pub(crate) len_bytes: u64,
    /// XXH3-64 of its bytes; of the values, 0: each profile has its own.
    pub(crate) checksum: u64,
}

impl Section {
    fn bytes(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..4].copy_from_slice(&self.kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.metric.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.len_bytes.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }
}

/// The header of a finished file and its table of sections, which begins at `table_at`.
pub(crate) fn closing(sections: &[Section], table_at: u64) -> ([u8; HEADER_BYTES], Vec<u8>) {
    let table: Vec<u8> = sections.iter().flat_map(Section::bytes).collect();
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..16].copy_from_slice(&(table_at + table.len() as u64).to_le_bytes());
    header[16..24].copy_from_slice(&table_at.to_le_bytes());
    header[24..].copy_from_slice(&xxh3_64(&table).to_le_bytes());
    (header, table)
}

/// The header of a file that is being written.
pub(crate) fn unfinished() -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header
}

/// A little-endian number of `bytes`; 0 behind their end.
#[inline]
pub(crate) fn u64_at(bytes: &[u8], index: usize) -> u64 {
    bytes.get(index * 8..index * 8 + 8).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
}

/// The same.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], index: usize) -> u32 {
    bytes.get(index * 4..index * 4 + 4).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

/// The sections of a file, each inside of it.
pub(crate) fn sections(bytes: &[u8], path: &Path, checksum_counts: bool) -> Result<Vec<Section>, DatabaseError> {
    let owned = || path.to_owned();
    if bytes.get(..6) != Some(&MAGIC[..6]) {
        return Err(DatabaseError::Magic { path: owned() });
    }
    let found = bytes.len() as u64;
    if bytes.len() < HEADER_BYTES {
        return Err(DatabaseError::Length { path: owned(), expected: HEADER_BYTES as u64, found });
    }
    if bytes[..8] != MAGIC[..] {
        let found = String::from_utf8_lossy(&bytes[6..8]).into_owned();
        return Err(DatabaseError::Version { path: owned(), found });
    }
    let (expected, table_at, checksum) = (u64_at(bytes, 1), u64_at(bytes, 2), u64_at(bytes, 3));
    if expected == 0 {
        return Err(DatabaseError::Unfinished { path: owned() });
    }
    if expected != found {
        return Err(DatabaseError::Length { path: owned(), expected, found });
    }
    let nonsense = |offset: u64, what| DatabaseError::Content { path: owned(), offset, what };
    let table = usize::try_from(table_at).ok().filter(|at| *at >= HEADER_BYTES).and_then(|at| bytes.get(at..));
    let table = table.ok_or_else(|| nonsense(16, "offset of the table of sections"))?;
    if table.len() % ENTRY_BYTES != 0 || table.len() / ENTRY_BYTES > MOST_SECTIONS {
        return Err(nonsense(table_at, "length of the table of sections"));
    }
    if checksum_counts && xxh3_64(table) != checksum {
        return Err(DatabaseError::Checksum { path: owned(), section: "table of sections", offset: table_at });
    }
    let mut sections = Vec::new();
    for (number, entry) in table.chunks_exact(ENTRY_BYTES).enumerate() {
        let section = Section {
            kind: u32_at(entry, 0),
            metric: u32_at(entry, 1),
            offset: u64_at(entry, 1),
            len_bytes: u64_at(entry, 2),
            checksum: u64_at(entry, 3),
        };
        let is_inside = section.offset.checked_add(section.len_bytes).is_some_and(|end| end <= table_at);
        if !is_inside || !section.offset.is_multiple_of(8) || section.offset < HEADER_BYTES as u64 {
            return Err(nonsense(table_at + (number * ENTRY_BYTES) as u64, "extent of a section"));
        }
        sections.push(section);
    }
    Ok(sections)
}
