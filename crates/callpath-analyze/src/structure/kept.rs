//! Structures that were found before, on disk beside the recipe tables.
//! Knows nothing of how they are found.
//!
//! ```text
//! DIR/<key>.structure   mode 0600, in a directory of mode 0700; written under another name, then renamed
//!
//! magic      8          "CPSTRC01"
//! key       16          xxh3-128 of what was analysed and of the DWARF's identity
//! checksum   8          xxh3-64 of key and of all that follows
//! body       ...        numbers as LEB128: procedures, then addresses that lie in none
//! ```
//!
//! A file grows by the procedures that reports ask for. One that is damaged or foreign is made again.

use std::ops::Range;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use rustc_hash::FxHashSet;
use xxhash_rust::xxh3::Xxh3;

use super::module::{ModuleSource, ModuleStructure, structure};
use super::{Piece, ProcedureStructure, SourcePlace, StaticKind, StaticScope, Way};
use crate::leb128;
use crate::recipes::RecipeOptions;
use crate::table_cache::{TableCache, key_of, read_file, replace_file};

/// Raised whenever the same input may give another structure.
const STRUCTURE_VERSION: u32 = 3;
const MAGIC: [u8; 8] = *b"CPSTRC01";
const HEADER_LEN_BYTES: usize = 8 + 16 + 8;

/// The structure of the procedures that `wanted` lie in: from the cache what it has, the rest found now and kept.
pub fn kept_structure(source: &ModuleSource, wanted: &[LinkAddr], cache: &TableCache) -> ModuleStructure {
    let key = key(source);
    let path = cache.directory().map(|directory| directory.join(format!("{key:032x}.structure")));
    // What cannot be read is found again, and replaced.
    let kept = path.as_ref().and_then(|path| read_file(path, cache.user()).ok().flatten());
    let Kept { procedures, outside } = kept.and_then(|bytes| decode(&bytes, key)).unwrap_or_default();
    let known = ModuleStructure::new(procedures, Vec::new());
    let is_known = |addr: &LinkAddr| outside.contains(addr) || known.procedure_at(*addr).is_some();
    let missing: Vec<LinkAddr> = wanted.iter().filter(|addr| !is_known(addr)).copied().collect();
    if missing.is_empty() {
        return known;
    }
    let ModuleStructure { procedures, diagnostics, .. } = structure(source, Some(&missing), &|_, _| {});
    let mut all = known.procedures;
    let had: FxHashSet<LinkAddr> = all.iter().map(|procedure| procedure.entry).collect();
    all.extend(procedures.into_iter().filter(|procedure| !had.contains(&procedure.entry)));
    let found = ModuleStructure::new(all, diagnostics);
    let mut outside = outside;
    outside.extend(missing.into_iter().filter(|&addr| found.procedure_at(addr).is_none()));
    if let Some(path) = path {
        let body = encode(&found.procedures, &outside);
        let header = [&MAGIC[..], &key.to_le_bytes(), &checksum(key, &body).to_le_bytes()].concat();
        // Without it the next report takes as long as this one.
        match replace_file(&path, &header, &body) {
            Ok(()) | Err(_) => {}
        }
    }
    found
}

fn key(source: &ModuleSource) -> u128 {
    let mut hash = Xxh3::new();
    hash.update(&STRUCTURE_VERSION.to_le_bytes());
    hash.update(&key_of(&source.image, &RecipeOptions::default()).to_le_bytes());
    for image in [Some(&source.with_dwarf), source.supplement.as_ref()].into_iter().flatten() {
        hash.update(&(image.bytes().len() as u64).to_le_bytes());
        hash.update(image.build_id().unwrap_or_default());
        for name in [".debug_info", ".debug_line", ".symtab", ".strtab"] {
            let section = image.section(name);
            let data = section.as_ref().map_or(&[][..], |section| &*section.data);
            hash.update(&(data.len() as u64).to_le_bytes());
            // Without a build-id, the content tells builds apart.
            if image.build_id().is_none() {
                hash.update(data);
            }
        }
    }
    hash.digest128()
}

fn checksum(key: u128, body: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&key.to_le_bytes());
    hash.update(body);
    hash.digest()
}

#[derive(Default)]
struct Kept {
    procedures: Vec<ProcedureStructure>,
    outside: FxHashSet<LinkAddr>,
}

fn encode(procedures: &[ProcedureStructure], outside: &FxHashSet<LinkAddr>) -> Vec<u8> {
    let mut w = Writer(Vec::new());
    w.number(procedures.len() as u64);
    for procedure in procedures {
        w.number(procedure.entry.0);
        w.optional(procedure.name.as_deref(), |w, name| w.text(name));
        w.optional(procedure.place, Writer::place);
        w.number(procedure.fragments.len() as u64);
        procedure.fragments.iter().for_each(|fragment| w.range(fragment));
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
            w.optional(scope.place, Writer::place);
            w.optional(scope.call_site, Writer::place);
            w.optional(scope.lines, |w, (first, last)| {
                w.number(first.into());
                w.number(last.into());
            });
            w.number(scope.address.0);
        }
        w.number(procedure.pieces.len() as u64);
        for piece in &procedure.pieces {
            w.range(&piece.code);
            w.optional(piece.scope, |w, scope| w.number(scope.into()));
            w.optional(piece.place, Writer::place);
        }
    }
    let mut outside: Vec<u64> = outside.iter().map(|addr| addr.0).collect();
    outside.sort_unstable();
    w.number(outside.len() as u64);
    outside.into_iter().for_each(|addr| w.number(addr));
    w.0
}

fn decode(bytes: &[u8], key: u128) -> Option<Kept> {
    let header: &[u8; HEADER_LEN_BYTES] = bytes.first_chunk()?;
    let body = &bytes[HEADER_LEN_BYTES..];
    let is_ours =
        header[..8] == MAGIC && header[8..24] == key.to_le_bytes() && header[24..] == checksum(key, body).to_le_bytes();
    if is_ours { decode_body(body) } else { None }
}

fn decode_body(body: &[u8]) -> Option<Kept> {
    let mut r = Reader { bytes: body, at: 0 };
    let procedures = r.list(Reader::procedure)?;
    let outside: Vec<LinkAddr> = r.list(Reader::address)?;
    (r.at == body.len()).then(|| Kept { procedures, outside: outside.into_iter().collect() })
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, value: u64) {
        leb128::put(&mut self.0, value);
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend(text.as_bytes());
    }

    fn place(&mut self, place: SourcePlace) {
        self.number(place.file.into());
        self.number(place.line.into());
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
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn number(&mut self) -> Option<u64> {
        leb128::take(self.bytes, &mut self.at)
    }

    fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    fn address(&mut self) -> Option<LinkAddr> {
        self.number().map(LinkAddr)
    }

    fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
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

    fn text(&mut self) -> Option<String> {
        let len = usize::try_from(self.number()?).ok()?;
        let end = self.at.checked_add(len)?;
        let text = std::str::from_utf8(self.bytes.get(self.at..end)?).ok()?;
        self.at = end;
        Some(text.to_owned())
    }

    fn place(&mut self) -> Option<SourcePlace> {
        Some(SourcePlace { file: self.small()?, line: self.small()? })
    }

    fn range(&mut self) -> Option<Range<LinkAddr>> {
        let start = self.number()?;
        Some(LinkAddr(start)..LinkAddr(start.checked_add(self.number()?)?))
    }

    fn procedure(&mut self) -> Option<ProcedureStructure> {
        Some(ProcedureStructure {
            entry: self.address()?,
            name: self.optional(Reader::text)?,
            place: self.optional(Reader::place)?,
            fragments: self.list(Reader::range)?,
            way: match self.number()? {
                0 => Way::Inlines,
                1 => Way::Lines,
                2 => Way::Code,
                _ => return None,
            },
            unresolved_jumps: self.small()?,
            files: self.list(|r| r.text().map(Arc::from))?,
            scopes: self.list(Reader::scope)?,
            pieces: self.list(Reader::piece)?,
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
            place: self.optional(Reader::place)?,
            call_site: self.optional(Reader::place)?,
            lines: self.optional(|r| Some((r.small()?, r.small()?)))?,
            address: self.address()?,
        })
    }

    fn piece(&mut self) -> Option<Piece> {
        Some(Piece { code: self.range()?, scope: self.optional(Reader::small)?, place: self.optional(Reader::place)? })
    }
}

/// For fuzzing: whatever a file's body holds, reading it ends, and what it gives can be asked.
#[doc(hidden)]
pub fn fuzz_kept_structure(bytes: &[u8]) {
    let Some(Kept { procedures, outside }) = decode_body(bytes) else { return };
    let again = decode_body(&encode(&procedures, &outside));
    assert!(again.is_some_and(|again| again.procedures == procedures && again.outside == outside));
    let structure = ModuleStructure::new(procedures, Vec::new());
    for procedure in &structure.procedures {
        for piece in &procedure.pieces {
            procedure.chain(piece.scope);
            structure.procedure_at(piece.code.start);
        }
    }
}
