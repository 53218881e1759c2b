//! The database: one file with the contexts, metrics and profiles of one measurement or of many.
//!
//! A context is a chain of scopes from the root; processes and threads are none: each thread is a *profile*, which has
//! values at contexts. The id of a context is a hash of its parent's id and of what makes its scope the one it is, so
//! it is equal in each database. A file has contexts in preorder, children by their ids; what a context costs with all below
//! is then a range, and equal trees stand in equal order. Merging adds up what has equal ids.
//!
//! A file is any bytes: a checksum tells damage, and what it says is never believed further than its own
//! length.

mod answers;
mod code_section;
mod content;
mod costs;
mod error;
mod facts;
mod from_profile;
mod fuzzing;
mod layout;
mod load;
mod map;
mod mapped;
mod merge;
mod new_file;
mod preorder;
mod scope_record;
mod sections_out;
mod statistics;
mod union;
mod views_out;
mod write;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use callpath_schema::Metric;
use xxhash_rust::xxh3::xxh3_64;

pub use answers::{AnswerError, Answers};
pub use content::{Content, ContextEntry};
pub use error::DatabaseError;
use facts::Facts;
pub use facts::{Member, ProfileColumn, ProfileEntry, Run, Unit};
#[doc(hidden)]
pub use fuzzing::fuzz_database;
use layout::{HEADER_BYTES, Section, SectionKind, u32_at, u64_at};
use map::Bytes;
pub use mapped::Mapped;
pub use merge::{Merged, Source, merge};
pub use statistics::{Statistics, StatisticsQuery, StatisticsRow, StatisticsTree};
pub use write::Columns;

use crate::Scope;

/// A database, opened.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
    bytes: Bytes,
    sections: Vec<Section>,
    facts: Facts,
    contexts: usize,
    /// Not when fuzzing: almost no bytes would get past them.
    checksums_count: bool,
    /// By section, whether its checksum was found to be right.
    checked: Vec<AtomicBool>,
}

/// Whether a file begins as a database does, of whatever version. A pipe is none: to look would take its bytes, or wait for them.
pub fn is_database(path: &Path) -> bool {
    if !path.is_file() {
        return false;
    }
    let mut first = [0; 6];
    let read = std::fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut first));
    read.is_ok() && first == layout::MAGIC[..6]
}

impl Database {
    /// Opens a file. Nothing but what ran is looked at yet: each section is checked when it is first needed.
    pub fn open(path: &Path) -> Result<Database, DatabaseError> {
        let bytes = Bytes::of_file(path).map_err(|source| DatabaseError::Read { path: path.to_owned(), source })?;
        Database::of(bytes, path, true)
    }

    /// A stretch of a file, which begins at `offset`; `path` is for errors only.
    pub fn open_within(file: &File, offset: u64, len_bytes: usize, path: &Path) -> Result<Database, DatabaseError> {
        let bytes = Bytes::of_stretch(file, offset, len_bytes);
        Database::of(bytes.map_err(|source| DatabaseError::Read { path: path.to_owned(), source })?, path, true)
    }

    /// A file's bytes; `path` is for errors only.
    pub fn of_bytes(bytes: Vec<u8>, path: &Path) -> Result<Database, DatabaseError> {
        Database::of(Bytes::Owned(bytes), path, true)
    }

    fn of(bytes: Bytes, path: &Path, checksums_count: bool) -> Result<Database, DatabaseError> {
        let sections = layout::sections(&bytes, path, checksums_count)?;
        let checked = sections.iter().map(|_| AtomicBool::new(false)).collect();
        let (path, facts) = (path.to_owned(), Facts::default());
        let mut database = Database { path, bytes, sections, facts, contexts: 0, checksums_count, checked };
        let facts = database.section(SectionKind::Facts, 0)?;
        let facts_at = facts.offset;
        let read = Facts::read(database.bytes_of_kind(SectionKind::Facts, 0)?);
        database.facts =
            read.map_err(|malformed| database.nonsense(facts_at + malformed.offset as u64, malformed.what))?;
        database.contexts = (database.section(SectionKind::Ids, 0)?.len_bytes / 8) as usize;
        let arrays = [SectionKind::Parents, SectionKind::Ends, SectionKind::Depths, SectionKind::ScopeOf];
        for array in arrays {
            let section = database.section(array, 0)?;
            if section.len_bytes != 4 * database.contexts as u64 || database.contexts == 0 {
                return Err(database.nonsense(section.offset, "number of contexts"));
            }
        }
        let values = database.section(SectionKind::Values, 0)?;
        for profile in &database.facts.profiles {
            let end = profile.offset.checked_add(profile.len_bytes);
            if end.is_none_or(|end| end > values.len_bytes) {
                return Err(database.nonsense(facts_at, "extent of a profile's values"));
            }
        }
        Ok(database)
    }

    /// The columns, metric 0 first.
    pub fn metrics(&self) -> &[Metric] {
        &self.facts.metrics
    }

    /// The runs, in the order in which they were merged.
    pub fn runs(&self) -> &[Run] {
        &self.facts.runs
    }

    /// The profiles: threads of processes of runs.
    pub fn profiles(&self) -> &[ProfileEntry] {
        &self.facts.profiles
    }

    /// How many contexts there are, the root included.
    pub fn len(&self) -> usize {
        self.contexts
    }

    /// Whether there is nothing below the root.
    pub fn is_empty(&self) -> bool {
        self.contexts <= 1
    }

    /// Length of the file, bytes.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// How many values that are not 0 all profiles have.
    pub fn facts(&self) -> u64 {
        let columns = self.facts.profiles.iter().flat_map(|profile| &profile.columns);
        columns.fold(0, |sum: u64, column| sum.saturating_add(column.facts))
    }

    /// Equal for equal files: the header has the checksum of the table of sections, which has theirs, and so on.
    pub fn fingerprint(&self) -> u64 {
        xxh3_64(self.bytes.get(..HEADER_BYTES).unwrap_or_default())
    }

    fn changed(&self) -> DatabaseError {
        DatabaseError::Changed { path: self.path.clone() }
    }

    fn nonsense(&self, offset: u64, what: &'static str) -> DatabaseError {
        DatabaseError::Content { path: self.path.clone(), offset, what }
    }

    /// The first section of this kind and metric.
    fn section(&self, kind: SectionKind, metric: usize) -> Result<Section, DatabaseError> {
        let is_it = |section: &&Section| section.kind == kind.number() && section.metric as usize == metric;
        let found = self.sections.iter().find(is_it).copied();
        found.ok_or_else(|| self.nonsense(HEADER_BYTES as u64, kind.words()))
    }

    fn bytes_of(&self, section: &Section) -> &[u8] {
        // Each section is inside the file.
        self.bytes.get(section.offset as usize..(section.offset + section.len_bytes) as usize).unwrap_or_default()
    }

    /// Whether there is a section of this kind.
    fn has(&self, kind: SectionKind) -> bool {
        self.sections.iter().any(|section| section.kind == kind.number())
    }

    /// The bytes of the first section of this kind and metric, none if there is no such section. Its checksum is looked at the first time.
    fn bytes_of_kind(&self, kind: SectionKind, metric: usize) -> Result<&[u8], DatabaseError> {
        let is_it = |section: &Section| section.kind == kind.number() && section.metric as usize == metric;
        let Some(number) = self.sections.iter().position(is_it) else { return Ok(&[]) };
        let section = &self.sections[number];
        // Several sections may be of the same bytes.
        let same = |other: &Section| {
            (other.offset, other.len_bytes, other.checksum) == (section.offset, section.len_bytes, section.checksum)
        };
        let checked = self.sections.iter().position(same).and_then(|first| self.checked.get(first));
        if checked.is_none_or(|checked| !checked.load(Ordering::Relaxed)) {
            self.check(section)?;
            checked.inspect(|checked| checked.store(true, Ordering::Relaxed));
        }
        Ok(self.bytes_of(section))
    }

    /// An error if a section of contexts and what they cost does not match its checksum. Values have their own.
    fn check_all(&self) -> Result<(), DatabaseError> {
        let is_for_views =
            |kind| matches!(kind, SectionKind::ViewScopes | SectionKind::Tree(..) | SectionKind::Table(..));
        for section in &self.sections {
            match SectionKind::of_number(section.kind) {
                // Only what shows instructions needs them.
                Some(SectionKind::Values | SectionKind::Code) => {}
                Some(kind) if is_for_views(kind) => {}
                Some(kind) => drop(self.bytes_of_kind(kind, section.metric as usize)?),
                None => self.check(section)?,
            }
        }
        Ok(())
    }

    fn nonsense_in(&self, kind: SectionKind, what: &'static str) -> DatabaseError {
        let section = self.sections.iter().find(|section| section.kind == kind.number());
        self.nonsense(section.map_or(0, |section| section.offset), what)
    }

    /// An error if a section does not match its checksum.
    fn check(&self, section: &Section) -> Result<(), DatabaseError> {
        if !self.checksums_count || xxh3_64(self.bytes_of(section)) == section.checksum {
            return Ok(());
        }
        let kind = SectionKind::of_number(section.kind).map_or("facts of a later version", SectionKind::words);
        Err(DatabaseError::Checksum { path: self.path.clone(), section: kind, offset: section.offset })
    }

    /// The contexts, checked: parents stand before children, and each has a scope.
    pub(crate) fn contexts(&self) -> Result<ContextTable<'_>, DatabaseError> {
        let (parents, scope_of) = (self.section(SectionKind::Parents, 0)?, self.section(SectionKind::ScopeOf, 0)?);
        let table = ContextTable {
            len: self.contexts,
            ids: self.bytes_of_kind(SectionKind::Ids, 0)?,
            parents: self.bytes_of_kind(SectionKind::Parents, 0)?,
            scope_of: self.bytes_of_kind(SectionKind::ScopeOf, 0)?,
        };
        let scopes = self.section(SectionKind::Scopes, 0)?.len_bytes as usize / scope_record::BYTES;
        for context in 0..table.len {
            if table.scope(context) as usize >= scopes {
                return Err(self.nonsense(scope_of.offset + 4 * context as u64, "scope of a context"));
            }
            if context > 0 && table.parent(context) as usize >= context {
                return Err(self.nonsense(parents.offset + 4 * context as u64, "parent of a context"));
            }
        }
        Ok(table)
    }

    /// The strings, in order of their numbers.
    pub(crate) fn strings(&self) -> Result<Vec<&str>, DatabaseError> {
        let ends = self.section(SectionKind::StringEnds, 0)?;
        let numbers = self.bytes_of_kind(SectionKind::StringEnds, 0)?;
        let text = self.bytes_of_kind(SectionKind::StringBytes, 0)?;
        let mut start = 0usize;
        let mut strings = Vec::with_capacity(numbers.len() / 8);
        for number in 0..numbers.len() / 8 {
            let end = usize::try_from(u64_at(numbers, number)).unwrap_or(usize::MAX);
            let string = text.get(start..end).and_then(|string| std::str::from_utf8(string).ok());
            strings.push(string.ok_or_else(|| self.nonsense(ends.offset + 8 * number as u64, "string"))?);
            start = end;
        }
        if strings.first().is_none_or(|first| !first.is_empty()) {
            return Err(self.nonsense(ends.offset, "first string, which is empty"));
        }
        Ok(strings)
    }

    /// The scopes, in order of their numbers; their names are the numbers of [`Database::strings`].
    pub(crate) fn scopes(&self, strings: usize) -> Result<Vec<Scope>, DatabaseError> {
        self.scopes_of(SectionKind::Scopes, strings)
    }

    fn scopes_of(&self, kind: SectionKind, strings: usize) -> Result<Vec<Scope>, DatabaseError> {
        let section = self.section(kind, 0)?;
        let records = self.bytes_of_kind(kind, 0)?.chunks(scope_record::BYTES).enumerate();
        let read = |(number, record): (usize, &[u8])| {
            let offset = section.offset + (number * scope_record::BYTES) as u64;
            scope_record::read(record, strings).ok_or_else(|| self.nonsense(offset, "scope"))
        };
        records.map(read).collect()
    }
}

/// The contexts of a file.
pub(crate) struct ContextTable<'a> {
    pub(crate) len: usize,
    ids: &'a [u8],
    parents: &'a [u8],
    scope_of: &'a [u8],
}

impl ContextTable<'_> {
    #[inline]
    pub(crate) fn id(&self, context: usize) -> u64 {
        u64_at(self.ids, context)
    }

    #[inline]
    pub(crate) fn parent(&self, context: usize) -> u32 {
        u32_at(self.parents, context)
    }

    #[inline]
    pub(crate) fn scope(&self, context: usize) -> u32 {
        u32_at(self.scope_of, context)
    }
}
