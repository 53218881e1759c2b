//! The recipe table of one module: from a link-time address to a recipe, in place, without allocation.
//! It reads a table; callpath-tables builds it.
//!
//! All integers are little-endian. Offsets count from the first byte of the table. Sections begin at multiples of 8.
//!
//! ```text
//! header   64 bytes      magic "CPRTAB06", lengths, the largest region (`Header`)
//! regions  24 each       { link_start: u64, len_bytes: u64, first_block: u32, block_count: u32 }, by link_start
//! blocks    4 each       first row of each 256-byte block of code; one more at the end holds the number of rows
//! rows      3 each       block by block: first the starts of its n rows, 1 byte each, then their ids, 2 bytes each
//! recipes  16 each       `Packed`; recipe 0 is the unknown one
//! wide      8 each       words of wide recipes
//! expr      1 each       bytes of DWARF expressions
//! ```
//!
//! A start is the low 8 bits of the link address where the row begins, relative to its region. An id below 32,768 is
//! the index of its recipe; the others are recipes themselves ([`short`]). Starts and ids of a block lie together, most
//! rows of compiled code have short recipes, and most addresses of a module lie in its largest region, which the header
//! repeats: of a table that is in no cache, a look-up waits for the header, a block, and its rows, in turn.
//!
//! The row for an address is the last one that begins at or before it; rows never reach over a region's end. A block
//! in which no row begins continues the last row of the block before it. The first row of a region begins at its
//! start. At most one row begins at an address.
//!
//! Worked example: a region at 0x1000 of 0x300 bytes with rows at 0x1000, 0x1001, 0x1204 has `blocks` 0, 2, 2 (and
//! 3 at the end) and `rows` 00 01, the ids of these two, 04, the id of that. Address 0x1110 is in block 1, where
//! no row begins: its row is the one before row 2.
//!
//! A wide recipe is a head word `{ rules: u8, flags: u8, zero: u48 }` and then `rules` words `{ target: u8,
//! kind: u8, base: u8, len: u8, value: i32 }`. Targets 0 to 15 are registers, 16 the return address, 17 the CFA.
//! Targets without a word are as in `Recipe::with_cfa`.
//!
//! | kind | rule | kind | rule |
//! |---|---|---|---|
//! | 0 | same | 5 | base + value |
//! | 1 | lost | 6 | *(expression at value, len bytes) |
//! | 2 | *(CFA + value) | 7 | expression at value, len bytes |
//! | 3 | CFA + value | 8 | of target 17 only: *(base + value) + add, where a word `{ add: i64 }` follows |
//! | 4 | *(base + value) | | |
//!
//! The CFA uses kinds 5, 7 and 8. A length of 0 means 256.

pub mod short;

use crate::address::LinkAddr;
use crate::recipe::{Cfa, Expression, Packed, Recipe, Rule};
use crate::register::Reg;

/// Flag of a wide recipe's head: [`Recipe::signal_frame`].
pub const WIDE_SIGNAL_FRAME: u8 = 1;
/// Flag of a wide recipe's head: [`Recipe::switches_stack`].
pub const WIDE_SWITCHES_STACK: u8 = 2;
/// Flag of a wide recipe's head: [`Recipe::begins_stack`].
pub const WIDE_BEGINS_STACK: u8 = 4;

/// Bytes of code in a block.
pub const BLOCK_LEN_BYTES: u64 = 256;

/// The fixed start of a table. Its version is part of the magic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// Length of the whole table, bytes.
    pub len_bytes: u32,
    /// Number of regions.
    pub regions: u32,
    /// Number of blocks, over all regions, without the closing one.
    pub blocks: u32,
    /// Number of rows.
    pub rows: u32,
    /// Number of recipes that are not short; at most [`Header::MAX_RECIPES`].
    pub recipes: u32,
    /// Number of words of wide recipes.
    pub wide_words: u32,
    /// Number of bytes of expressions.
    pub expr_bytes: u32,
    /// Recipes say which frames are pinned ([`Packed::PINNED`],
    /// [`Packed::PINS_CALLEE`]). Without this flag that is unknown.
    pub knows_pinned: bool,
    /// The largest region, and the first of those that are equally large; zeros if there is none.
    pub largest: Region,
}

/// A contiguous range of code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Region {
    /// Its first address.
    pub link_start: u64,
    /// Bytes.
    pub len_bytes: u64,
    /// Index of its first block.
    pub first_block: u32,
    /// Number of its blocks.
    pub block_count: u32,
}

impl Region {
    /// Size, bytes.
    pub const LEN_BYTES: usize = 24;

    /// The region's bytes.
    pub fn to_bytes(&self) -> [u8; 24] {
        let mut b = [0; 24];
        b[..8].copy_from_slice(&self.link_start.to_le_bytes());
        b[8..16].copy_from_slice(&self.len_bytes.to_le_bytes());
        b[16..20].copy_from_slice(&self.first_block.to_le_bytes());
        b[20..].copy_from_slice(&self.block_count.to_le_bytes());
        b
    }

    #[inline]
    fn from_bytes(b: &[u8; 24]) -> Region {
        Region {
            link_start: u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]),
            len_bytes: u64::from_le_bytes([b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]]),
            first_block: u32::from_le_bytes([b[16], b[17], b[18], b[19]]),
            block_count: u32::from_le_bytes([b[20], b[21], b[22], b[23]]),
        }
    }
}

impl Header {
    /// `CPRTAB06`
    pub const MAGIC: [u8; 8] = *b"CPRTAB06";
    /// Size, bytes.
    pub const LEN_BYTES: usize = 64;
    /// Where `len_bytes` is, bytes.
    pub(crate) const LEN_AT: u64 = 8;
    /// The ids from here on are short recipes.
    pub const MAX_RECIPES: u32 = 1 << 15;
    const LARGEST: usize = Self::LEN_BYTES - Region::LEN_BYTES;

    /// Where each section begins, and the end; `None` if that does not fit into 32 bits.
    pub fn layout(&self) -> Option<Layout> {
        let align = |at: u64| (at + 7) & !7;
        let regions = Self::LEN_BYTES as u64;
        let blocks = regions + Region::LEN_BYTES as u64 * u64::from(self.regions);
        let rows = align(blocks + 4 * (u64::from(self.blocks) + 1));
        let recipes = align(rows + 3 * u64::from(self.rows));
        let wide = recipes + 16 * u64::from(self.recipes);
        let expr = wide + 8 * u64::from(self.wide_words);
        let end = align(expr + u64::from(self.expr_bytes));
        if end > u64::from(u32::MAX) {
            return None;
        }
        let n = |v: u64| v as usize;
        Some(Layout {
            regions: n(regions),
            blocks: n(blocks),
            rows: n(rows),
            recipes: n(recipes),
            wide: n(wide),
            expr: n(expr),
            end: n(end),
        })
    }

    /// The header's bytes.
    pub fn to_bytes(&self) -> [u8; 64] {
        let mut b = [0; 64];
        b[..8].copy_from_slice(&Self::MAGIC);
        let words =
            [self.len_bytes, self.regions, self.blocks, self.rows, self.recipes, self.wide_words, self.expr_bytes];
        for (i, word) in words.iter().enumerate() {
            b[8 + 4 * i..12 + 4 * i].copy_from_slice(&word.to_le_bytes());
        }
        b[36] = u8::from(self.knows_pinned);
        b[Self::LARGEST..].copy_from_slice(&self.largest.to_bytes());
        b
    }
}

/// Offsets of a table's sections, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Layout {
    pub regions: usize,
    pub blocks: usize,
    pub rows: usize,
    pub recipes: usize,
    pub wide: usize,
    pub expr: usize,
    pub end: usize,
}

/// Why bytes are not a recipe table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableError {
    /// It does not begin with [`Header::MAGIC`]: no table, or another version's.
    Magic,
    /// It is shorter than its header says, or its header's counts do not fit its length.
    Length,
    /// The region of this index is out of order, or its blocks are not where they must be.
    Region(u32),
    /// The rows of the block of this index are out of order or out of range.
    Block(u32),
    /// The row of this index names a recipe that does not exist.
    Row(u32),
    /// The recipe of this index is malformed.
    Recipe(u32),
}

/// The recipe of a table that holds at an address: its index, or the whole recipe ([`short`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RecipeId(pub u16);

/// A recipe table in place.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    bytes: &'a [u8],
    header: Header,
    layout: Layout,
    /// Of this length: the number of blocks and one.
    blocks: &'a [[u8; 4]],
    /// With everything that follows, so that sixteen bytes may be read at most rows.
    rows: &'a [u8],
    recipes: &'a [[u8; Packed::LEN_BYTES]],
}

impl<'a> Table<'a> {
    /// The table that begins at `bytes[0]`. Checks the header only, in constant time: look-ups in a table that was
    /// never [checked](Table::check) give wrong recipes at worst, never a panic.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Table<'a>, TableError> {
        let head: &[u8; 64] = bytes.first_chunk().ok_or(TableError::Length)?;
        if head[..8] != Header::MAGIC {
            return Err(TableError::Magic);
        }
        let word =
            |i: usize| u32::from_le_bytes([head[8 + 4 * i], head[9 + 4 * i], head[10 + 4 * i], head[11 + 4 * i]]);
        let header = Header {
            len_bytes: word(0),
            regions: word(1),
            blocks: word(2),
            rows: word(3),
            recipes: word(4),
            wide_words: word(5),
            expr_bytes: word(6),
            knows_pinned: word(7) == 1,
            largest: Region::from_bytes(head.last_chunk().ok_or(TableError::Length)?),
        };
        let layout = header.layout().ok_or(TableError::Length)?;
        let bytes = bytes.get(..header.len_bytes as usize).ok_or(TableError::Length)?;
        if layout.end != bytes.len() || header.recipes > Header::MAX_RECIPES {
            return Err(TableError::Length);
        }
        let section = |from: usize, to: usize| bytes.get(from..to).ok_or(TableError::Length);
        let blocks = section(layout.blocks, layout.rows)?.as_chunks().0;
        Ok(Table {
            bytes,
            header,
            layout,
            blocks: blocks.get(..=header.blocks as usize).ok_or(TableError::Length)?,
            rows: section(layout.rows, layout.end)?,
            recipes: section(layout.recipes, layout.wide)?.as_chunks().0,
        })
    }

    /// Checks every row and recipe, once, before a table is given to others.
    pub fn check(&self) -> Result<(), TableError> {
        let mut next_block = 0;
        let mut last_end = 0;
        let mut largest = Region::default();
        for r in 0..self.header.regions {
            let region = self.region(r).ok_or(TableError::Region(r))?;
            let end = region.link_start.checked_add(region.len_bytes).ok_or(TableError::Region(r))?;
            let blocks = region.len_bytes.div_ceil(BLOCK_LEN_BYTES);
            if region.len_bytes == 0
                || region.link_start < last_end
                || region.first_block != next_block
                || blocks != u64::from(region.block_count)
            {
                return Err(TableError::Region(r));
            }
            last_end = end;
            if region.len_bytes > largest.len_bytes {
                largest = region;
            }
            next_block = region.first_block.checked_add(region.block_count).ok_or(TableError::Region(r))?;
            let row_of = |block| self.block(block).ok_or(TableError::Region(r));
            let first_row = row_of(region.first_block)?;
            if row_of(region.first_block + 1)? <= first_row || self.start(region.first_block, first_row) != Some(0) {
                return Err(TableError::Region(r));
            }
            // In its last block no row begins at or after the region's end.
            let tail_len_bytes = region.len_bytes - BLOCK_LEN_BYTES * (blocks - 1);
            let (last_rows, end_row) = (row_of(next_block - 1)?, row_of(next_block)?);
            if end_row > last_rows
                && self.start(next_block - 1, end_row - 1).is_none_or(|start| u64::from(start) >= tail_len_bytes)
            {
                return Err(TableError::Region(r));
            }
        }
        if largest != self.header.largest {
            return Err(TableError::Length);
        }
        if next_block != self.header.blocks || self.block(next_block) != Some(self.header.rows) {
            return Err(TableError::Length);
        }
        for b in 0..self.header.blocks {
            let (first, last) = self.rows_of(b).ok_or(TableError::Block(b))?;
            let ascends = |rows: &Rows<'_>| rows.starts.is_sorted_by(|a, b| a < b);
            if first > last || last > self.header.rows || !self.block_rows(b).is_some_and(|rows| ascends(&rows)) {
                return Err(TableError::Block(b));
            }
        }
        for b in 0..self.header.blocks {
            let (first, rows) = self.rows_of(b).zip(self.block_rows(b)).ok_or(TableError::Block(b))?;
            for (row, id) in (first.0..).zip(rows.ids) {
                if self.packed(RecipeId(u16::from_le_bytes(*id))).is_none() {
                    return Err(TableError::Row(row));
                }
            }
        }
        for id in 0..self.header.recipes {
            u16::try_from(id).ok().and_then(|id| self.recipe(RecipeId(id))).ok_or(TableError::Recipe(id))?;
        }
        match self.recipe(RecipeId(0)) {
            Some(Recipe { cfa: Cfa::Unknown, .. }) => Ok(()),
            _ => Err(TableError::Recipe(0)),
        }
    }

    /// The counts of the header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Length, bytes.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The recipe that holds at `addr`, or `None` outside the table's regions.
    #[inline]
    pub fn find(&self, addr: LinkAddr) -> Option<RecipeId> {
        let largest = &self.header.largest;
        let is_in_largest = addr.0.wrapping_sub(largest.link_start) < largest.len_bytes;
        let region = if is_in_largest { *largest } else { self.region_of(addr)? };
        let offset = addr.0 - region.link_start;
        let (first, last) = self.rows_of(region.first_block.wrapping_add((offset / BLOCK_LEN_BYTES) as u32))?;
        let count = last.checked_sub(first)? as usize;
        let first = 3 * first as usize;
        let starts = self.rows.get(first..)?;
        // The ids are often in the next cache line: both come at once.
        prefetch(starts.as_ptr().wrapping_add(3 * count));
        let before = rank(starts, count, offset as u8)?;
        // The id of the row before precedes the block's rows. A branch here would be unpredictable.
        let skipped = if before == 0 { 0 } else { count };
        let id = (first + skipped + 2 * before).checked_sub(2)?;
        Some(RecipeId(u16::from_le_bytes(*self.rows.get(id..)?.first_chunk()?)))
    }

    /// The packed form of a recipe, which is enough for most walks.
    #[inline]
    pub fn packed(&self, id: RecipeId) -> Option<Packed> {
        if id.is_short() {
            return Some(id.unpack());
        }
        self.recipes.get(usize::from(id.0)).map(Packed::from_bytes)
    }

    /// The open form of a recipe; `None` if there is no such recipe or it is malformed.
    pub fn recipe(&self, id: RecipeId) -> Option<Recipe> {
        let packed = self.packed(id)?;
        if packed.kind() == Packed::WIDE { self.wide(packed.disp as u32) } else { packed.unpack() }
    }

    /// The bytes of an expression.
    pub fn expression(&self, expression: Expression) -> Option<&'a [u8]> {
        let pool = self.bytes.get(self.layout.expr..self.layout.expr + self.header.expr_bytes as usize)?;
        pool.get(expression.start as usize..)?.get(..usize::from(expression.len))
    }

    /// Calls `row(start, id)` for each row in order of address, and `row(end, None)` at each region's end.
    ///
    /// For a table that was never [checked](Table::check), rows may be
    /// wrong, and the call may take long but bounded time.
    pub fn for_each_row(&self, mut row: impl FnMut(LinkAddr, Option<RecipeId>)) {
        for region in (0..self.header.regions).filter_map(|r| self.region(r)) {
            let mut block_start = region.link_start;
            for b in (region.first_block..self.header.blocks).take(region.block_count as usize) {
                let Some(rows) = self.block_rows(b) else { break };
                for (start, id) in rows.starts.iter().zip(rows.ids) {
                    let id = RecipeId(u16::from_le_bytes(*id));
                    row(LinkAddr(block_start.wrapping_add(u64::from(*start))), Some(id));
                }
                block_start = block_start.wrapping_add(BLOCK_LEN_BYTES);
            }
            row(LinkAddr(region.link_start.wrapping_add(region.len_bytes)), None);
        }
    }

    #[inline]
    fn region_of(&self, addr: LinkAddr) -> Option<Region> {
        let (mut low, mut high) = (0, self.header.regions);
        while low < high {
            let middle = low + (high - low) / 2;
            let region = self.region(middle)?;
            if addr.0 < region.link_start {
                high = middle;
            } else if addr.0 - region.link_start >= region.len_bytes {
                low = middle + 1;
            } else {
                return Some(region);
            }
        }
        None
    }

    #[inline]
    fn region(&self, index: u32) -> Option<Region> {
        let at = self.layout.regions + Region::LEN_BYTES * index as usize;
        self.bytes.get(at..self.layout.blocks)?.first_chunk().map(Region::from_bytes)
    }

    #[inline]
    fn block(&self, index: u32) -> Option<u32> {
        self.blocks.get(index as usize).map(|block| u32::from_le_bytes(*block))
    }

    /// The first row of a block and that of the next one.
    #[inline]
    fn rows_of(&self, index: u32) -> Option<(u32, u32)> {
        // In this order one of them is checked.
        let last = self.blocks.get(index as usize + 1)?;
        let first = self.blocks.get(index as usize)?;
        Some((u32::from_le_bytes(*first), u32::from_le_bytes(*last)))
    }

    /// The rows of a block.
    fn block_rows(&self, index: u32) -> Option<Rows<'a>> {
        let (first, last) = self.rows_of(index)?;
        let count = last.checked_sub(first)? as usize;
        let rows = self.bytes.get(self.layout.rows + 3 * first as usize..self.layout.recipes)?.get(..3 * count)?;
        let (starts, ids) = rows.split_at(count);
        Some(Rows { starts, ids: ids.as_chunks().0 })
    }

    /// Where a row begins, by the number of its block and its own.
    fn start(&self, block: u32, row: u32) -> Option<u8> {
        let (first, _) = self.rows_of(block)?;
        self.block_rows(block)?.starts.get(row.checked_sub(first)? as usize).copied()
    }

    fn wide_word(&self, index: u32) -> Option<[u8; 8]> {
        if index >= self.header.wide_words {
            return None;
        }
        self.bytes.get(self.layout.wide + 8 * index as usize..)?.first_chunk().copied()
    }

    fn wide(&self, at: u32) -> Option<Recipe> {
        let head = self.wide_word(at)?;
        let mut recipe = Recipe::with_cfa(Cfa::Unknown);
        recipe.signal_frame = head[1] & WIDE_SIGNAL_FRAME != 0;
        recipe.switches_stack = head[1] & WIDE_SWITCHES_STACK != 0;
        recipe.begins_stack = head[1] & WIDE_BEGINS_STACK != 0;
        let mut next = at + 1;
        for _ in 0..head[0] {
            let word = self.wide_word(next)?;
            next += 1;
            let (target, kind, base) = (word[0], word[1], Reg::from_dwarf(u16::from(word[2]))?);
            let len = if word[3] == 0 { 256 } else { u16::from(word[3]) };
            let value = i32::from_le_bytes([word[4], word[5], word[6], word[7]]);
            let expression = Expression { start: value as u32, len };
            if matches!(kind, 6 | 7) {
                self.expression(expression)?;
            }
            if target == 17 {
                recipe.cfa = match kind {
                    5 => Cfa::Register { reg: base, disp: value },
                    7 => Cfa::Expression(expression),
                    8 => {
                        let add = i64::from_le_bytes(self.wide_word(next)?);
                        next += 1;
                        Cfa::Deref { reg: base, disp: value, add: i32::try_from(add).ok()? }
                    }
                    _ => return None,
                };
                continue;
            }
            let rule = match kind {
                0 => Rule::Same,
                1 => Rule::Lost,
                2 => Rule::AtCfa(value),
                3 => Rule::CfaPlus(value),
                4 => Rule::AtRegister(base, value),
                5 => Rule::RegisterPlus(base, value),
                6 => Rule::AtExpression(expression),
                7 => Rule::ExpressionValue(expression),
                _ => return None,
            };
            match target {
                16 => recipe.return_address = rule,
                _ => *recipe.registers.get_mut(usize::from(target))? = rule,
            }
        }
        (recipe.cfa != Cfa::Unknown).then_some(recipe)
    }
}

/// Prefetches the cache line of an address.
#[inline]
fn prefetch(at: *const u8) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: an invalid address is ignored; SSE is part of x86-64.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
}

/// How many of the first `len` bytes, which ascend, are at most `low`.
#[inline]
fn rank(ascending: &[u8], len: usize, low: u8) -> Option<usize> {
    use core::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8, _mm_set1_epi8};
    match ascending.first_chunk::<16>() {
        // Without a branch for each: a block has six rows or so, and the answer is unpredictable.
        Some(window) if len <= window.len() => {
            // SAFETY: reads the 16 bytes of `window`; SSE2 is part of x86-64.
            let at_most = unsafe {
                let starts = _mm_loadu_si128(window.as_ptr().cast());
                _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(starts, _mm_set1_epi8(low as i8)), starts))
            };
            Some(((at_most as u32) & ((1 << len) - 1)).trailing_ones() as usize)
        }
        _ => Some(ascending.get(..len)?.partition_point(|start| *start <= low)),
    }
}

/// The rows of one block.
struct Rows<'a> {
    starts: &'a [u8],
    ids: &'a [[u8; 2]],
}
