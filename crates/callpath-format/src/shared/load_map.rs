//! The published memory: recipe tables, and for each process a load map from addresses to tables.
//!
//! A load map is a block that never changes:
//!
//! ```text
//! head     16 bytes   { generation: u32, count: u32, zero: u64 }
//! entries  40 each    { start: u64, end: u64, bias: u64, table: u64, module: u16, flags: u16, told: u32 }, by start
//! ```
//!
//! `start .. end` is an executable mapping of the process, `table` the offset of its module's recipe table in the
//! published memory, `told` an eighth of that of what a map tells of its call paths, or 0. A process's slot names its current block and that block's generation ([`CurrentMap`]). A
//! block that is no longer current may be overwritten, so a reader checks after a look-up that the slot still
//! names the same generation. A table never changes, nor does a block about moved code or told paths. A stretch of generated code is overwritten only after all
//! samples have ended that began with a map that names it.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicU64, fence};

use crate::address::RunAddr;
use crate::frame::ModuleIndex;
use crate::shared::columns::{Columns, Metrics};
use crate::shared::gauge::Part;
use crate::shared::generated::{self, GeneratedStretch};
use crate::shared::moved::{self, MovedCode};
use crate::shared::told::{self, ToldPaths};
use crate::table::{Header, Table};

/// The published memory, as far as this process has mapped it.
#[derive(Clone, Copy)]
pub struct Published<'m> {
    base: *const u8,
    len_bytes: usize,
    mapping: PhantomData<&'m AtomicU64>,
}

// SAFETY: what it gives consists of atomics, or does not change.
unsafe impl Send for Published<'_> {}
// SAFETY: as above.
unsafe impl Sync for Published<'_> {}

/// A process's current load map: its generation, unique within the process, and its offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CurrentMap(pub u64);

impl CurrentMap {
    /// `offset`: bytes from the start of the published memory, a multiple of 8. `None`: it is too large.
    pub fn new(generation: u32, offset: u64) -> Option<CurrentMap> {
        let place = u32::try_from(offset / 8).ok()?;
        Some(CurrentMap(u64::from(generation) << 32 | u64::from(place)))
    }

    /// Number of the load map within its process, from 1 on.
    #[inline]
    pub fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Its offset in the published memory, bytes; 0: there is none.
    #[inline]
    pub fn offset(self) -> u64 {
        u64::from(self.0 as u32) * 8
    }
}

/// One executable mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// First address.
    pub start: RunAddr,
    /// One past the last.
    pub end: RunAddr,
    /// Load bias of its module.
    pub bias: u64,
    /// Offset of its module's recipe table in the published memory, bytes; 0: none.
    pub table: u64,
    /// Its module.
    pub module: ModuleIndex,
    /// Offset of what a map tells of its call paths ([`super::told`]), bytes; 0: nothing.
    pub told: u64,
    /// [`Mapping::PENDING`], [`Mapping::GENERATED`], [`Mapping::HOPELESS`], [`Mapping::PINNED`],
    /// [`Mapping::CATCHES`], [`Mapping::UNFINISHED`], [`Mapping::MOVED`]
    pub flags: u16,
}

impl Mapping {
    /// Size in a block, bytes.
    pub const LEN_BYTES: usize = 40;
    /// Code that the program generated at run time and the recorder has not analysed yet: samples are kept raw.
    pub const PENDING: u16 = 1;
    /// Code that the program generated at run time: `table` is the offset of a stretch
    /// ([`super::generated::GeneratedStretch`]), and the bias is 0. A sample is kept
    /// raw if its walk does not get through this code.
    pub const GENERATED: u16 = 2;
    /// The same, but the recorder could not unwind a raw sample either: the path ends here instead.
    pub const HOPELESS: u16 = 4;

    /// Procedures of this code read their own return addresses: the sentinel leaves their frames alone.
    pub const PINNED: u16 = 8;
    /// Procedures of this code may catch exceptions: the sentinel leaves the frames alone that they call.
    pub const CATCHES: u16 = 16;
    /// The table is not complete yet: samples whose walk reaches code that is unknown in it are kept raw.
    pub const UNFINISHED: u16 = 32;
    /// Code that was moved: `table` is the offset of a block that says where it comes from
    /// ([`super::moved::MovedCode`]). Its addresses are link-time addresses of the module, as if it were a part of that.
    pub const MOVED: u16 = 64;

    /// The words in a block.
    fn to_words(self) -> [u64; Mapping::LEN_BYTES / 8] {
        let told = u32::try_from(self.told / 8).unwrap_or(0);
        let rest = u64::from(self.module.0) | u64::from(self.flags) << 16 | u64::from(told) << 32;
        [self.start.0, self.end.0, self.bias, self.table, rest]
    }

    fn read([start, end, bias, table, rest]: &[AtomicU64; Mapping::LEN_BYTES / 8]) -> Mapping {
        let rest = rest.load(Relaxed);
        Mapping {
            start: RunAddr(start.load(Relaxed)),
            end: RunAddr(end.load(Relaxed)),
            bias: bias.load(Relaxed),
            table: table.load(Relaxed),
            module: ModuleIndex(rest as u16),
            told: (rest >> 32) * 8,
            flags: (rest >> 16) as u16,
        }
    }
}

/// Size of a block's head, bytes.
pub const HEAD_LEN_BYTES: usize = 16;

/// A load map in place.
#[derive(Clone, Copy)]
pub struct LoadMap<'m> {
    /// As [`CurrentMap::generation`].
    pub generation: u32,
    entries: &'m [[AtomicU64; Mapping::LEN_BYTES / 8]],
}

impl<'m> Published<'m> {
    /// A view of a mapping. Offsets and lengths that are read from it are checked.
    ///
    /// # Safety
    /// `base` must be the page-aligned start of a mapping of `len_bytes` bytes that stays mapped and readable for `'m`.
    /// It may change only as the module's documentation says.
    pub unsafe fn new(base: *const u8, len_bytes: usize) -> Published<'m> {
        Published { base, len_bytes, mapping: PhantomData }
    }

    /// `count` words at an offset; `None` if they would reach beyond the mapping, or the offset is no multiple of 8.
    #[inline]
    fn words(&self, offset: u64, count: usize) -> Option<&'m [AtomicU64]> {
        let offset = usize::try_from(offset).ok()?;
        if offset.checked_add(count.checked_mul(8)?)? > self.len_bytes || !offset.is_multiple_of(8) {
            return None;
        }
        // SAFETY: in bounds and aligned (the base is page-aligned), mapped for
        // `'m` (`new`); atomics are valid for any bytes.
        Some(unsafe { core::slice::from_raw_parts(self.base.add(offset).cast(), count) })
    }

    #[inline]
    fn word(&self, offset: u64) -> Option<u64> {
        self.words(offset, 1)?.first().map(|word| word.load(Relaxed))
    }

    /// Bytes that do not change as long as a load map names them.
    ///
    /// # Safety
    /// They must be a recipe table's, or a stretch's that a current load map named when the sample began.
    #[inline]
    unsafe fn bytes(&self, offset: u64, len: u64) -> Option<&'m [u8]> {
        let (offset, len) = (usize::try_from(offset).ok()?, usize::try_from(len).ok()?);
        if offset.checked_add(len)? > self.len_bytes {
            return None;
        }
        // SAFETY: in bounds, mapped for `'m` (`new`), and not written to (the caller, and the module's rules).
        Some(unsafe { core::slice::from_raw_parts(self.base.add(offset), len) })
    }

    /// The program of an expression. `None`: it is not mapped.
    pub fn program(&self, part: Part) -> Option<impl Iterator<Item = u64> + use<'m>> {
        let words = self.words(u64::from(part.program) * 8, usize::from(part.program_words))?;
        Some(words.iter().map(|word| word.load(Relaxed)))
    }

    /// What was asked for of each metric; `None`: it is not mapped.
    pub fn metrics(&self, columns: Columns) -> Option<Metrics<'m>> {
        self.words(Metrics::OFFSET, Metrics::words(columns)).map(Metrics::in_words)
    }

    /// The load map at `offset`; `None` for 0 and for an offset that cannot
    /// hold one. It may be overwritten while it is read.
    #[inline]
    pub fn load_map(&self, offset: u64) -> Option<LoadMap<'m>> {
        if offset == 0 {
            return None;
        }
        let head = self.word(offset)?;
        let (generation, count) = (head as u32, (head >> 32) as usize);
        let words =
            self.words(offset.checked_add(HEAD_LEN_BYTES as u64)?, count.checked_mul(Mapping::LEN_BYTES / 8)?)?;
        Some(LoadMap { generation, entries: words.as_chunks().0 })
    }

    /// The stretch of generated code at `offset`, which a current load map named when the sample began.
    pub fn generated(&self, offset: u64) -> Option<GeneratedStretch<'m>> {
        if offset == 0 {
            return None;
        }
        let table = self.word(offset.checked_add(generated::TABLE_AT)?)? as u32;
        let table_len = self.word(offset.checked_add(u64::from(table) + Header::LEN_AT)?)? as u32;
        // SAFETY: what is there is a stretch's: the map that named it does not name anything else so.
        GeneratedStretch::new(unsafe { self.bytes(offset, u64::from(table) + u64::from(table_len)) }?)
    }

    /// The block about moved code at `offset`, which a load map named; the offset of its recipe table.
    pub fn moved(&self, offset: u64) -> Option<(MovedCode<'m>, u64)> {
        if offset == 0 {
            return None;
        }
        let table = u64::from(self.word(offset.checked_add(moved::TABLE_AT)?)? as u32);
        // SAFETY: such a block is never overwritten.
        let code = MovedCode::new(unsafe { self.bytes(offset, table) }?)?;
        Some((code, offset.checked_add(table)?))
    }

    /// What is told of a module's call paths at `offset`, which a load map named.
    pub fn told(&self, offset: u64) -> Option<ToldPaths<'m>> {
        if offset == 0 {
            return None;
        }
        let len = self.word(offset.checked_add(told::LEN_AT)?)? as u32;
        // SAFETY: such a block is never overwritten.
        ToldPaths::new(unsafe { self.bytes(offset, len.into()) }?)
    }

    /// The recipe table at `offset`, which a load map named.
    #[inline]
    pub fn table(&self, offset: u64) -> Option<Table<'m>> {
        if offset == 0 {
            return None;
        }
        let len = self.word(offset.checked_add(Header::LEN_AT)?)? as u32;
        // SAFETY: a table is never overwritten.
        Table::new(unsafe { self.bytes(offset, len.into()) }?).ok()
    }
}

impl LoadMap<'_> {
    /// The mapping that holds `addr`.
    #[inline]
    pub fn find(&self, addr: RunAddr) -> Option<Mapping> {
        let (mut low, mut high) = (0, self.entries.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let mapping = Mapping::read(self.entries.get(middle)?);
            if addr < mapping.start {
                high = middle;
            } else if addr >= mapping.end {
                low = middle + 1;
            } else {
                return Some(mapping);
            }
        }
        None
    }
}

/// Length of a load map of `mappings` mappings, words.
pub const fn words_of(mappings: usize) -> usize {
    (HEAD_LEN_BYTES + mappings * Mapping::LEN_BYTES) / 8
}

/// Writes a load map to a region whose older load map samples may still read. `mappings` must be
/// in order of address. `false`: `to` is too short.
///
/// The slot must name another load map by now, so that a sample that
/// reads these words also sees the change of the slot.
pub fn write_map(to: &[AtomicU64], generation: u32, mappings: &[Mapping]) -> bool {
    let Some((head, entries)) =
        to.get(..words_of(mappings.len())).and_then(|to| to.split_at_checked(HEAD_LEN_BYTES / 8))
    else {
        return false;
    };
    fence(Release);
    let words = [u64::from(generation) | (mappings.len() as u64) << 32, 0];
    head.iter().zip(words).for_each(|(to, word)| to.store(word, Relaxed));
    for (to, mapping) in entries.as_chunks::<{ Mapping::LEN_BYTES / 8 }>().0.iter().zip(mappings) {
        to.iter().zip(mapping.to_words()).for_each(|(to, word)| to.store(word, Relaxed));
    }
    true
}
