//! A published stretch of code that the program generated at run time: its procedures, a
//! fingerprint of each one's bytes, and their recipes.
//!
//! Such code changes under its recipes. A recipe holds for the bytes that were analysed. Before it is used, the mark of
//! the procedure's current bytes is computed and compared. All addresses are run-time addresses, also in the table.
//!
//! ```text
//! head        32 bytes  { magic "CPWRIT01", start: u64, len_bytes: u32, procedures: u32, table: u32, zero: u32 }
//! procedures  16 each   { start: i32, len_bytes: u32, mark: u64 }, by start, which counts from the stretch's
//! call ends             a bit for each byte of the stretch, low bits first: the last byte of a call
//! table                 `crate::table`, at offset `table`, a multiple of 8
//! ```
//!
//! A procedure may begin before the stretch and end after it.

use crate::address::RunAddr;
use crate::table::Table;

/// A stretch of code in place.
#[derive(Clone, Copy)]
pub struct GeneratedStretch<'m> {
    start: u64,
    procedures: &'m [[u8; CheckedProcedure::LEN_BYTES]],
    call_ends: &'m [u8],
    table: &'m [u8],
}

/// A procedure of a stretch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckedProcedure {
    /// Its first byte.
    pub start: RunAddr,
    /// Length, bytes; at least 8.
    pub len_bytes: u32,
    /// The mark of its bytes ([`Mark`]).
    pub mark: u64,
}

impl CheckedProcedure {
    /// Size in a block, bytes.
    pub const LEN_BYTES: usize = 16;
    /// Shorter procedures are not published: their mark would cover bytes that follow them.
    pub const LEAST_BYTES: u32 = 8;
    /// Longer procedures are not published: their mark takes too long to compute, 3 ns for 8 bytes.
    pub const MOST_BYTES: u32 = 32 << 10;

    /// The bytes in a block whose stretch begins at `stretch`.
    pub fn to_bytes(&self, stretch: RunAddr) -> [u8; CheckedProcedure::LEN_BYTES] {
        let mut b = [0; CheckedProcedure::LEN_BYTES];
        b[0..4].copy_from_slice(&(self.start.0.wrapping_sub(stretch.0) as i32).to_le_bytes());
        b[4..8].copy_from_slice(&self.len_bytes.to_le_bytes());
        b[8..16].copy_from_slice(&self.mark.to_le_bytes());
        b
    }

    /// The mark of the procedure's bytes, which `read` returns eight at a time; `None` if it does not return all.
    pub fn mark_now(&self, mut read: impl FnMut(u64) -> Option<u64>) -> Option<u64> {
        let words = u64::from(self.len_bytes) / 8;
        let last = u64::from(self.len_bytes).checked_sub(8)?;
        let mut mark = Mark::default();
        for word in 0..words {
            mark.add(read(self.start.0.checked_add(8 * word)?)?);
        }
        if !self.len_bytes.is_multiple_of(8) {
            mark.add(read(self.start.0.checked_add(last)?)?);
        }
        Some(mark.0)
    }
}

/// A 64-bit hash of bytes. It does not withstand a deliberate search for collisions.
#[derive(Clone, Copy, Debug)]
struct Mark(u64);

impl Default for Mark {
    fn default() -> Mark {
        Mark(0xcbf2_9ce4_8422_2325)
    }
}

impl Mark {
    /// A step of multiplication folds the word in; the shift brings its high bits down.
    fn add(&mut self, word: u64) {
        let product = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 29;
    }
}

/// Where the head says where the table begins, bytes.
pub(crate) const TABLE_AT: u64 = 24;

const MAGIC: [u8; 8] = *b"CPWRIT01";
/// Size of the head, bytes.
pub const HEAD_LEN_BYTES: usize = 32;

/// The head of a stretch; its table begins `table` bytes after the head's first byte.
pub fn head_bytes(start: RunAddr, len_bytes: u32, procedures: u32, table: u32) -> [u8; HEAD_LEN_BYTES] {
    let mut b = [0; HEAD_LEN_BYTES];
    b[0..8].copy_from_slice(&MAGIC);
    b[8..16].copy_from_slice(&start.0.to_le_bytes());
    b[16..20].copy_from_slice(&len_bytes.to_le_bytes());
    b[20..24].copy_from_slice(&procedures.to_le_bytes());
    b[24..28].copy_from_slice(&table.to_le_bytes());
    b
}

impl<'m> GeneratedStretch<'m> {
    /// The stretch at the beginning of `bytes`; `None` if there is none.
    pub fn new(bytes: &'m [u8]) -> Option<GeneratedStretch<'m>> {
        let head: &[u8; HEAD_LEN_BYTES] = bytes.first_chunk()?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if head[..8] != MAGIC {
            return None;
        }
        let start = u64::from(word(8)) | u64::from(word(12)) << 32;
        let (len_bytes, procedures, table) = (word(16) as usize, word(20) as usize, word(24) as usize);
        let rest = bytes.get(HEAD_LEN_BYTES..)?;
        let procedures = rest.get(..procedures.checked_mul(CheckedProcedure::LEN_BYTES)?)?;
        let call_ends = rest.get(procedures.len()..)?.get(..len_bytes.div_ceil(8))?;
        Some(GeneratedStretch { start, procedures: procedures.as_chunks().0, call_ends, table: bytes.get(table..)? })
    }

    /// The procedure that holds `addr`.
    pub fn procedure_at(&self, addr: RunAddr) -> Option<CheckedProcedure> {
        let (mut low, mut high) = (0, self.procedures.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let procedure = self.decode(self.procedures.get(middle)?);
            if addr < procedure.start {
                high = middle;
            } else if addr.0 - procedure.start.0 >= u64::from(procedure.len_bytes) {
                low = middle + 1;
            } else {
                return Some(procedure);
            }
        }
        None
    }

    /// Whether `addr` is the last byte of a call.
    pub fn is_call_end(&self, addr: RunAddr) -> bool {
        let offset = addr.0.wrapping_sub(self.start);
        let byte = usize::try_from(offset / 8).ok().and_then(|index| self.call_ends.get(index));
        byte.is_some_and(|byte| byte >> (offset % 8) & 1 != 0)
    }

    /// The recipes.
    pub fn table(&self) -> Option<Table<'m>> {
        Table::new(self.table).ok()
    }

    fn decode(&self, b: &[u8; CheckedProcedure::LEN_BYTES]) -> CheckedProcedure {
        let start = i32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        CheckedProcedure {
            start: RunAddr(self.start.wrapping_add(start as u64)),
            len_bytes: u32::from_le_bytes([b[4], b[5], b[6], b[7]]),
            mark: u64::from_le_bytes([b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]]),
        }
    }
}
