//! Structures that were found before, on disk beside the recipe tables.
//!
//! ```text
//! DIR/<key>.structure   mode 0600, in a directory of mode 0700; written under another name, then renamed
//!
//! magic      8          "CPSTRC03"
//! key       16          xxh3-128 of what was analysed and of the DWARF's identity
//! checksum   8          xxh3-64 of key and of all that follows
//! body       ...        numbers as LEB128: whether all procedures are there; what of the DWARF could not be used; procedures,
//!                       each with its length before it; addresses that lie in none
//! ```
//!
//! A file grows by the procedures that are asked for. Of a long one only those are decoded. One
//! that is damaged or foreign is built again.

mod body;

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use body::{Reader, Writer};
use callpath_format::address::LinkAddr;
use rustc_hash::FxHashSet;
use xxhash_rust::xxh3::Xxh3;

use super::ProcedureStructure;
use super::module::{ModuleSource, ModuleStructure, structure};
use callpath_tables::recipes::RecipeOptions;
use callpath_tables::table_cache::{TableCache, key_of, read_file, replace_file};

/// Raised whenever the same input may give another structure.
const STRUCTURE_VERSION: u32 = 18;
const MAGIC: [u8; 8] = *b"CPSTRC03";
const HEADER_LEN_BYTES: usize = 8 + 16 + 8;

/// The structure of the procedures that `wanted` lie in, or of all: from the cache what it has, the rest found now and
/// stored. `progress` counts what is found now, as in [`structure`].
pub fn cached_structure(
    source: &ModuleSource,
    wanted: Option<&[LinkAddr]>,
    cache: &TableCache,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> ModuleStructure {
    let Some(directory) = cache.directory() else { return structure(source, wanted, progress) };
    let key = key(source);
    let path = directory.join(format!("{key:032x}.structure"));
    // What cannot be read is found again, and replaced.
    let bytes = read_file(&path, cache.user()).ok().flatten().unwrap_or_default();
    let cached = decode(&bytes, key).unwrap_or_default();
    let Some((had, missing)) = cached.look_up(wanted) else {
        return CachedStructure::default().store((&path, key), wanted, structure(source, wanted, progress));
    };
    if missing.as_ref().is_some_and(Vec::is_empty) {
        return ModuleStructure::new(had, cached.diagnostics);
    }
    let found = cached.store((&path, key), missing.as_deref(), structure(source, missing.as_deref(), progress));
    let ModuleStructure { procedures, diagnostics, .. } = found;
    ModuleStructure::new(had.into_iter().chain(procedures).collect(), diagnostics)
}

fn key(source: &ModuleSource) -> u128 {
    let mut hash = Xxh3::new();
    hash.update(&STRUCTURE_VERSION.to_le_bytes());
    hash.update(&key_of(&source.module, &RecipeOptions::default()).to_le_bytes());
    for image in [Some(&source.with_dwarf), source.supplement.as_ref()].into_iter().flatten() {
        hash.update(&(image.bytes().len() as u64).to_le_bytes());
        hash.update(image.build_id().unwrap_or_default());
        for name in [".debug_info", ".debug_line", ".symtab", ".strtab"] {
            hash.update(&image.section_len(name).to_le_bytes());
            // Without a build-id, the content distinguishes builds.
            if image.build_id().is_none()
                && let Some(section) = image.section(name)
            {
                hash.update(&section.data);
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

/// What a file holds.
#[derive(Default)]
struct CachedStructure<'a> {
    /// All procedures are there.
    is_whole: bool,
    diagnostics: Vec<String>,
    procedures: Vec<CachedProcedure<'a>>,
    outside: FxHashSet<LinkAddr>,
}

/// A procedure that may not be asked for.
struct CachedProcedure<'a> {
    /// The one with the entry first.
    fragments: Vec<Range<LinkAddr>>,
    bytes: Cow<'a, [u8]>,
}

impl<'a> CachedProcedure<'a> {
    fn new(procedure: &ProcedureStructure) -> CachedProcedure<'a> {
        CachedProcedure { fragments: procedure.fragments.clone(), bytes: Cow::Owned(body::encode(procedure)) }
    }
}

impl CachedProcedure<'_> {
    fn entry(&self) -> Option<LinkAddr> {
        self.fragments.first().map(|fragment| fragment.start)
    }
}

impl CachedStructure<'_> {
    /// Writes a file of this and of what was `found` now because it was `missing` here (`None`: all). Gives
    /// what of it is new, with all diagnostics.
    fn store(
        mut self,
        (path, key): (&Path, u128),
        missing: Option<&[LinkAddr]>,
        found: ModuleStructure,
    ) -> ModuleStructure {
        self.is_whole = missing.is_none();
        if self.is_whole {
            self.procedures.clear();
            self.outside.clear();
        }
        let known: FxHashSet<LinkAddr> = self.procedures.iter().filter_map(CachedProcedure::entry).collect();
        let new: Vec<ProcedureStructure> =
            found.procedures.into_iter().filter(|new| !known.contains(&new.entry)).collect();
        self.diagnostics.extend(found.diagnostics);
        self.diagnostics.sort_unstable();
        self.diagnostics.dedup();
        self.procedures.extend(new.iter().map(CachedProcedure::new));
        let new = ModuleStructure::new(new, self.diagnostics.clone());
        let outside = missing.unwrap_or(&[]).iter().filter(|&&addr| new.procedure_at(addr).is_none());
        self.outside.extend(outside);
        let body = self.encode();
        let header = [&MAGIC[..], &key.to_le_bytes(), &checksum(key, &body).to_le_bytes()].concat();
        // Without it the next report takes as long as this one.
        match replace_file(path, &header, &body) {
            Ok(()) | Err(_) => {}
        }
        new
    }

    /// The procedures that `wanted` lie in, and what lies in none that is here; `None`:
    /// all. `None` if what is here cannot be read.
    #[allow(clippy::type_complexity)] // Once.
    fn look_up(&self, wanted: Option<&[LinkAddr]>) -> Option<(Vec<ProcedureStructure>, Option<Vec<LinkAddr>>)> {
        let Some(wanted) = wanted else {
            let all = self.procedures.iter().filter(|_| self.is_whole).map(|cached| body::decode(&cached.bytes));
            return Some((all.collect::<Option<_>>()?, self.is_whole.then(Vec::new)));
        };
        let mut fragments: Vec<(LinkAddr, LinkAddr, usize)> = Vec::new();
        for (number, cached) in self.procedures.iter().enumerate() {
            fragments.extend(cached.fragments.iter().map(|fragment| (fragment.start, fragment.end, number)));
        }
        fragments.sort_unstable();
        let holder = |addr: LinkAddr| {
            let before = fragments.partition_point(|fragment| fragment.0 <= addr).checked_sub(1)?;
            fragments.get(before).filter(|fragment| addr < fragment.1).map(|fragment| fragment.2)
        };
        let (mut numbers, mut missing) = (Vec::new(), Vec::new());
        for &addr in wanted {
            match holder(addr) {
                Some(number) => numbers.push(number),
                None if self.is_whole || self.outside.contains(&addr) => {}
                None => missing.push(addr),
            }
        }
        numbers.sort_unstable();
        numbers.dedup();
        let had = numbers.into_iter().filter_map(|number| self.procedures.get(number));
        Some((had.map(|cached| body::decode(&cached.bytes)).collect::<Option<_>>()?, Some(missing)))
    }

    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.number(self.is_whole.into());
        w.number(self.diagnostics.len() as u64);
        self.diagnostics.iter().for_each(|diagnostic| w.text(diagnostic));
        w.number(self.procedures.len() as u64);
        self.procedures.iter().for_each(|cached| w.bytes(&cached.bytes));
        let mut outside: Vec<u64> = self.outside.iter().map(|addr| addr.0).collect();
        outside.sort_unstable();
        w.number(outside.len() as u64);
        outside.into_iter().for_each(|addr| w.number(addr));
        w.0
    }
}

fn decode(bytes: &[u8], key: u128) -> Option<CachedStructure<'_>> {
    let header: &[u8; HEADER_LEN_BYTES] = bytes.first_chunk()?;
    let body = &bytes[HEADER_LEN_BYTES..];
    let is_ours =
        header[..8] == MAGIC && header[8..24] == key.to_le_bytes() && header[24..] == checksum(key, body).to_le_bytes();
    if is_ours { decode_body(body) } else { None }
}

fn decode_body(bytes: &[u8]) -> Option<CachedStructure<'_>> {
    let mut r = Reader::new(bytes);
    let is_whole = match r.number()? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let diagnostics = r.list(Reader::text)?;
    let procedures = r.list(|r| {
        let bytes = r.bytes()?;
        Some(CachedProcedure { fragments: body::fragments(bytes)?, bytes: Cow::Borrowed(bytes) })
    })?;
    let outside: Vec<LinkAddr> = r.list(Reader::address)?;
    r.is_at_end().then(|| CachedStructure { is_whole, diagnostics, procedures, outside: outside.into_iter().collect() })
}

/// For fuzzing: whatever a file's body holds, reading it ends, and what it gives can be asked.
#[doc(hidden)]
pub fn fuzz_cached_structure(bytes: &[u8]) {
    let Some(cached) = decode_body(bytes) else { return };
    let procedures: Vec<ProcedureStructure> =
        cached.procedures.iter().filter_map(|cached| body::decode(&cached.bytes)).collect();
    for procedure in &procedures {
        assert!(body::decode(&body::encode(procedure)).as_ref() == Some(procedure));
    }
    let again = cached.encode();
    assert!(decode_body(&again).is_some_and(|again| again.outside == cached.outside));
    let addrs: Vec<LinkAddr> = cached.procedures.iter().filter_map(CachedProcedure::entry).collect();
    let asked = cached.look_up(Some(&addrs));
    assert!(asked.is_none_or(|(had, missing)| had.len() <= addrs.len() && missing.is_some()));
    let structure = ModuleStructure::new(procedures, cached.diagnostics);
    for procedure in &structure.procedures {
        for scoped_range in &procedure.scoped_ranges {
            procedure.chain(scoped_range.scope);
            structure.procedure_at(scoped_range.code.start);
        }
    }
}
