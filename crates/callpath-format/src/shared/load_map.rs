//! What is published: recipe tables, and for each process a load map that says which table holds where.
//! Knows nothing of files.
//!
//! A load map is a block that never changes:
//!
//! ```text
//! head     16 bytes   { generation: u32, count: u32, zero: u64 }
//! entries  40 each    { start: u64, end: u64, bias: u64, table: u64, module: u16, flags: u16, zero: u32 }, by start
//! ```
//!
//! `start .. end` is an executable mapping of the process, `table` the offset of its module's recipe table in what is
//! published. A process's slot names its current block; a block that is no longer current may be overwritten, so who
//! looks something up checks afterwards that the slot still names the same block.

use crate::address::RunAddr;
use crate::frame::ModuleIndex;
use crate::shared::written::Written;
use crate::table::Table;

/// What is published, as far as this process has mapped it.
#[derive(Clone, Copy)]
pub struct Published<'m> {
    bytes: &'m [u8],
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
    /// Where its module's recipe table begins, bytes from the start of what is published; 0: none.
    pub table: u64,
    /// Its module.
    pub module: ModuleIndex,
    /// [`Mapping::PENDING`], [`Mapping::WRITTEN`], [`Mapping::HOPELESS`], [`Mapping::KEPT`],
    /// [`Mapping::CATCHES`], [`Mapping::UNFINISHED`]
    pub flags: u16,
}

impl Mapping {
    /// Size in a block, bytes.
    pub const LEN_BYTES: usize = 40;
    /// Code that the program wrote at run time, and that the recorder has not looked at yet: samples are kept raw.
    pub const PENDING: u16 = 1;
    /// Code that the program wrote at run time: `table` is the offset of a stretch ([`super::written::Written`]), and the
    /// bias is 0. A sample whose path does not get through is kept raw.
    pub const WRITTEN: u16 = 2;
    /// The same, but the recorder knows no better way either: such a sample's path ends here.
    pub const HOPELESS: u16 = 4;

    /// Procedures of this code read their own return addresses: the sentinel leaves their frames alone.
    pub const KEPT: u16 = 8;
    /// Procedures of this code may catch exceptions: the sentinel leaves the frames alone that they call.
    pub const CATCHES: u16 = 16;
    /// The table says less than there will be to know: samples that come to code which is unknown in it are kept raw.
    pub const UNFINISHED: u16 = 32;

    /// The bytes in a block.
    pub fn to_bytes(&self) -> [u8; 40] {
        let mut b = [0; 40];
        b[0..8].copy_from_slice(&self.start.0.to_le_bytes());
        b[8..16].copy_from_slice(&self.end.0.to_le_bytes());
        b[16..24].copy_from_slice(&self.bias.to_le_bytes());
        b[24..32].copy_from_slice(&self.table.to_le_bytes());
        b[32..34].copy_from_slice(&self.module.0.to_le_bytes());
        b[34..36].copy_from_slice(&self.flags.to_le_bytes());
        b
    }

    fn from_bytes(b: &[u8; 40]) -> Mapping {
        let word = |at: usize| {
            u64::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3], b[at + 4], b[at + 5], b[at + 6], b[at + 7]])
        };
        Mapping {
            start: RunAddr(word(0)),
            end: RunAddr(word(8)),
            bias: word(16),
            table: word(24),
            module: ModuleIndex(u16::from_le_bytes([b[32], b[33]])),
            flags: u16::from_le_bytes([b[34], b[35]]),
        }
    }
}

/// Size of a block's head, bytes.
pub const HEAD_LEN_BYTES: usize = 16;

/// A load map in place.
#[derive(Clone, Copy)]
pub struct LoadMap<'m> {
    /// Counts the load maps of a process.
    pub generation: u32,
    entries: &'m [[u8; Mapping::LEN_BYTES]],
}

impl<'m> Published<'m> {
    /// The mapping's bytes. They may change as said above; what is read from them is checked.
    pub fn new(bytes: &'m [u8]) -> Published<'m> {
        Published { bytes }
    }

    /// The load map at `offset`; `None` for 0 and for a place that cannot hold one.
    #[inline]
    pub fn load_map(&self, offset: u64) -> Option<LoadMap<'m>> {
        if offset == 0 {
            return None;
        }
        let block = self.bytes.get(usize::try_from(offset).ok()?..)?;
        let head: &[u8; HEAD_LEN_BYTES] = block.first_chunk()?;
        let generation = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let count = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let entries = block.get(HEAD_LEN_BYTES..)?.get(..count.checked_mul(Mapping::LEN_BYTES)?)?;
        Some(LoadMap { generation, entries: entries.as_chunks().0 })
    }

    /// The stretch of written code at `offset`.
    pub fn written(&self, offset: u64) -> Option<Written<'m>> {
        if offset == 0 {
            return None;
        }
        Written::new(self.bytes.get(usize::try_from(offset).ok()?..)?)
    }

    /// The recipe table at `offset`.
    #[inline]
    pub fn table(&self, offset: u64) -> Option<Table<'m>> {
        if offset == 0 {
            return None;
        }
        Table::new(self.bytes.get(usize::try_from(offset).ok()?..)?).ok()
    }
}

impl LoadMap<'_> {
    /// The mapping that holds `addr`.
    #[inline]
    pub fn find(&self, addr: RunAddr) -> Option<Mapping> {
        let (mut low, mut high) = (0, self.entries.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let mapping = Mapping::from_bytes(self.entries.get(middle)?);
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

/// The bytes of a load map; `mappings` must be in order of address.
pub fn head_bytes(generation: u32, count: u32) -> [u8; HEAD_LEN_BYTES] {
    let mut b = [0; HEAD_LEN_BYTES];
    b[0..4].copy_from_slice(&generation.to_le_bytes());
    b[4..8].copy_from_slice(&count.to_le_bytes());
    b
}
