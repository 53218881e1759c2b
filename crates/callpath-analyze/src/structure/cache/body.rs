//! Encodes procedures' structures as bytes, and decodes them.

use std::num::NonZeroU16;
use std::ops::Range;
use std::sync::Arc;

use callpath_format::address::LinkAddr;

use crate::structure::{ProcedureStructure, ScopedRange, SourceLocation, StaticKind, StaticScope, Way};
use callpath_schema::leb128;

/// A procedure, its fragments first.
pub(super) fn encode(procedure: &ProcedureStructure) -> Vec<u8> {
    let mut writer = Writer::default();
    let w = &mut writer;
    w.number(procedure.fragments.len() as u64);
    procedure.fragments.iter().for_each(|fragment| w.range(fragment));
    w.number(procedure.entry.0);
    w.optional(procedure.name.as_deref(), |w, name| w.text(name));
    w.number(procedure.identity);
    w.optional(procedure.location, Writer::location);
    w.number(match procedure.way {
        Way::Inlines => 0,
        Way::Lines => 1,
        Way::Code => 2,
    });
    w.number(procedure.unresolved_jumps.into());
    w.number(procedure.files.len() as u64);
    procedure.files.iter().for_each(|file| w.text(file));
    w.number(procedure.scopes.len() as u64);
    for scope in &procedure.scopes {
        w.optional(scope.parent, |w, parent| w.number(parent.into()));
        w.number(match scope.kind {
            StaticKind::Loop { is_irreducible } => u64::from(is_irreducible),
            StaticKind::Inlined => 2,
            StaticKind::Alien => 3,
        });
        w.optional(scope.name.as_deref(), |w, name| w.text(name));
        w.number(scope.identity);
        w.optional(scope.location, Writer::location);
        w.optional(scope.column, |w, column| w.number(column.get().into()));
        w.optional(scope.call_site, Writer::location);
        w.optional(scope.lines, |w, (first, last)| {
            w.number(first.into());
            w.number(last.into());
        });
        w.number(scope.address.0);
    }
    w.number(procedure.scoped_ranges.len() as u64);
    for scoped_range in &procedure.scoped_ranges {
        w.range(&scoped_range.code);
        w.optional(scoped_range.scope, |w, scope| w.number(scope.into()));
        w.optional(scoped_range.location, Writer::location);
    }
    writer.0
}

/// Where a procedure's code lies.
pub(super) fn fragments(bytes: &[u8]) -> Option<Vec<Range<LinkAddr>>> {
    Reader::new(bytes).list(Reader::range)
}

/// The whole procedure.
pub(super) fn decode(bytes: &[u8]) -> Option<ProcedureStructure> {
    let mut reader = Reader::new(bytes);
    let procedure = reader.procedure()?;
    reader.is_at_end().then_some(procedure)
}

/// Numbers are LEB128; a list is its length and its items.
#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn number(&mut self, value: u64) {
        leb128::put(&mut self.0, value);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn location(&mut self, location: SourceLocation) {
        self.number(location.file.into());
        self.number(location.line.into());
    }

    fn range(&mut self, range: &Range<LinkAddr>) {
        self.number(range.start.0);
        self.number(range.end.0.saturating_sub(range.start.0));
    }

    fn optional<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Writer, T)) {
        self.number(u64::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }
}

/// Everything is `None` where the bytes make no sense.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        leb128::take(self.bytes, &mut self.at)
    }

    fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    pub(super) fn address(&mut self) -> Option<LinkAddr> {
        self.number().map(LinkAddr)
    }

    pub(super) fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        // Each takes a byte at least.
        let count = usize::try_from(self.number()?).ok().filter(|count| *count <= self.bytes.len() - self.at)?;
        (0..count).map(|_| read(self)).collect()
    }

    fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.number()? {
            0 => Some(None),
            1 => read(self).map(Some),
            _ => None,
        }
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let end = self.at.checked_add(len)?;
        let bytes = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(bytes)
    }

    pub(super) fn text(&mut self) -> Option<String> {
        std::str::from_utf8(self.bytes()?).ok().map(ToOwned::to_owned)
    }

    fn location(&mut self) -> Option<SourceLocation> {
        Some(SourceLocation { file: self.small()?, line: self.small()? })
    }

    fn range(&mut self) -> Option<Range<LinkAddr>> {
        let start = self.number()?;
        Some(LinkAddr(start)..LinkAddr(start.checked_add(self.number()?)?))
    }

    fn procedure(&mut self) -> Option<ProcedureStructure> {
        let fragments = self.list(Reader::range)?;
        Some(ProcedureStructure {
            fragments,
            entry: self.address()?,
            name: self.optional(Reader::text)?,
            identity: self.number()?,
            location: self.optional(Reader::location)?,
            way: match self.number()? {
                0 => Way::Inlines,
                1 => Way::Lines,
                2 => Way::Code,
                _ => return None,
            },
            unresolved_jumps: self.small()?,
            files: self.list(|r| r.text().map(Arc::from))?,
            scopes: self.list(Reader::scope)?,
            scoped_ranges: self.list(Reader::scoped_range)?,
        })
    }

    fn scope(&mut self) -> Option<StaticScope> {
        Some(StaticScope {
            parent: self.optional(Reader::small)?,
            kind: match self.number()? {
                0 => StaticKind::Loop { is_irreducible: false },
                1 => StaticKind::Loop { is_irreducible: true },
                2 => StaticKind::Inlined,
                3 => StaticKind::Alien,
                _ => return None,
            },
            name: self.optional(Reader::text)?,
            identity: self.number()?,
            location: self.optional(Reader::location)?,
            column: self.optional(|r| NonZeroU16::new(r.number()?.try_into().ok()?))?,
            call_site: self.optional(Reader::location)?,
            lines: self.optional(|r| Some((r.small()?, r.small()?)))?,
            address: self.address()?,
        })
    }

    fn scoped_range(&mut self) -> Option<ScopedRange> {
        Some(ScopedRange {
            code: self.range()?,
            scope: self.optional(Reader::small)?,
            location: self.optional(Reader::location)?,
        })
    }
}
