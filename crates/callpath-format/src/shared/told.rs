//! Published facts about the call paths that a map tells: which procedure each address of a module is in, and at which
//! heights of the stack a procedure has one call path alone.
//!
//! A walk that comes to such a frame ends there: the map knows what lies above it (`record --on-ambiguous=walk`).
//!
//! ```text
//! head     32 bytes  { magic "CPTOLD01", base: u64, ranges: u32, slots: u32, length of the block: u32, zero: u32 }
//! ranges   12 each   { start: u32, end: u32, procedure: u32 }, by start; both count from `base`, a link-time address
//! slots    24 each   { procedure: u32, caller: u32, height: i64, root: u32, zero: u32 }, from the next multiple of 8 on
//! ```
//!
//! The slots, a power of two or none, are a hash table with linear probing by procedure and height. A free one has the
//! procedure 2^32 - 1. Procedures have the map's numbers, which are the same in the blocks of all modules.

use crate::address::LinkAddr;

/// A range of a module's code that belongs to one procedure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodeRange {
    /// Its first address.
    pub start: LinkAddr,
    /// One past its last.
    pub end: LinkAddr,
    /// The procedure's number.
    pub procedure: u32,
}

/// A call path that is told by the procedure that it leads to and the height of the stack there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ToldPath {
    /// The procedure's number.
    pub procedure: u32,
    /// The number of the one that has called it.
    pub caller: u32,
    /// The number of the procedure that the thread began in; [`ToldPath::MAIN`] for a process's first thread.
    pub root: u32,
    /// From the stack's fixed place down to the procedure's CFA, bytes.
    pub height: i64,
}

impl ToldPath {
    /// The root of a process's first thread.
    pub const MAIN: u32 = u32::MAX;
    const LEN_BYTES: usize = 24;

    fn to_bytes(self) -> [u8; Self::LEN_BYTES] {
        let mut b = [0; Self::LEN_BYTES];
        b[0..4].copy_from_slice(&self.procedure.to_le_bytes());
        b[4..8].copy_from_slice(&self.caller.to_le_bytes());
        b[8..16].copy_from_slice(&self.height.to_le_bytes());
        b[16..20].copy_from_slice(&self.root.to_le_bytes());
        b
    }

    fn of_bytes(b: &[u8; Self::LEN_BYTES]) -> ToldPath {
        let height = [b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]];
        ToldPath {
            procedure: u32::from_le_bytes([b[0], b[1], b[2], b[3]]),
            caller: u32::from_le_bytes([b[4], b[5], b[6], b[7]]),
            root: u32::from_le_bytes([b[16], b[17], b[18], b[19]]),
            height: i64::from_le_bytes(height),
        }
    }

    /// Where the search for it begins, in a table of any size.
    #[inline]
    fn hash(procedure: u32, height: i64) -> u64 {
        let mixed = (u64::from(procedure) << 32 ^ height as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 32
    }
}

const MAGIC: [u8; 8] = *b"CPTOLD01";
const HEAD_LEN_BYTES: usize = 32;
const RANGE_LEN_BYTES: usize = 12;
/// Where the head says how long the block is, bytes.
pub(crate) const LEN_AT: u64 = 24;
/// The procedure of a free slot.
const FREE: u32 = u32::MAX;

/// What is told of a module's code, in place.
#[derive(Clone, Copy, Debug)]
pub struct ToldPaths<'m> {
    base: u64,
    ranges: &'m [[u8; RANGE_LEN_BYTES]],
    slots: &'m [[u8; ToldPath::LEN_BYTES]],
}

/// How many bytes a block takes, and where its slots begin and how many there are. `None`: more than a block can hold.
fn layout(ranges: usize, told: usize) -> Option<(usize, usize, usize)> {
    let slots_at = ranges.checked_mul(RANGE_LEN_BYTES)?.checked_add(HEAD_LEN_BYTES)?.checked_next_multiple_of(8)?;
    let slots = if told == 0 { 0 } else { told.checked_mul(2)?.checked_next_power_of_two()? };
    let len = slots.checked_mul(ToldPath::LEN_BYTES)?.checked_add(slots_at)?;
    u32::try_from(len).ok()?;
    Some((len, slots_at, slots))
}

/// The length of the block for so many ranges and paths, bytes. `None`: it would be too long.
pub fn len_bytes(ranges: usize, told: usize) -> Option<usize> {
    layout(ranges, told).map(|(len, ..)| len)
}

/// Writes a block to zeroed bytes of the length that [`len_bytes`] says. `ranges` are in order, and do not overlap. `false`: the bytes
/// are not as many, or a range is farther than 4 GiB from the first.
pub fn write(to: &mut [u8], ranges: &[CodeRange], told: &[ToldPath]) -> bool {
    let Some((len, slots_at, slots)) = layout(ranges.len(), told.len()) else { return false };
    let base = ranges.first().map_or(0, |range| range.start.0);
    if to.len() != len {
        return false;
    }
    let (head, slots_of) = to.split_at_mut(slots_at);
    let (head, ranges_of) = head.split_at_mut(HEAD_LEN_BYTES);
    head[0..8].copy_from_slice(&MAGIC);
    head[8..16].copy_from_slice(&base.to_le_bytes());
    head[16..20].copy_from_slice(&(ranges.len() as u32).to_le_bytes());
    head[20..24].copy_from_slice(&(slots as u32).to_le_bytes());
    head[24..28].copy_from_slice(&(len as u32).to_le_bytes());
    for (to, range) in ranges_of.as_chunks_mut::<RANGE_LEN_BYTES>().0.iter_mut().zip(ranges) {
        let distance = |at: LinkAddr| u32::try_from(at.0.wrapping_sub(base));
        let (Ok(start), Ok(end)) = (distance(range.start), distance(range.end)) else { return false };
        to[0..4].copy_from_slice(&start.to_le_bytes());
        to[4..8].copy_from_slice(&end.to_le_bytes());
        to[8..12].copy_from_slice(&range.procedure.to_le_bytes());
    }
    let slots_of = slots_of.as_chunks_mut::<{ ToldPath::LEN_BYTES }>().0;
    slots_of.iter_mut().for_each(|slot| slot[0..4].copy_from_slice(&FREE.to_le_bytes()));
    for path in told {
        let first = ToldPath::hash(path.procedure, path.height) as usize;
        let places = (0..slots).map(|n| first.wrapping_add(n) & (slots - 1));
        for at in places {
            if ToldPath::of_bytes(&slots_of[at]).procedure == FREE {
                slots_of[at] = path.to_bytes();
                break;
            }
        }
    }
    true
}

impl<'m> ToldPaths<'m> {
    /// The block at the beginning of `bytes`; `None` if there is none.
    pub fn new(bytes: &'m [u8]) -> Option<ToldPaths<'m>> {
        let head: &[u8; HEAD_LEN_BYTES] = bytes.first_chunk()?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (ranges, slots) = (word(16) as usize, word(20) as usize);
        if head[..8] != MAGIC || slots != 0 && !slots.is_power_of_two() {
            return None;
        }
        let ranges_len = ranges.checked_mul(RANGE_LEN_BYTES)?;
        let slots_at = ranges_len.checked_add(HEAD_LEN_BYTES)?.checked_next_multiple_of(8)?;
        Some(ToldPaths {
            base: u64::from(word(8)) | u64::from(word(12)) << 32,
            ranges: bytes.get(HEAD_LEN_BYTES..)?.get(..ranges_len)?.as_chunks().0,
            slots: bytes.get(slots_at..)?.get(..slots.checked_mul(ToldPath::LEN_BYTES)?)?.as_chunks().0,
        })
    }

    /// The number of the procedure that the code at an address belongs to; `None`: the map has none there.
    pub fn procedure_at(&self, at: LinkAddr) -> Option<u32> {
        let at = u32::try_from(at.0.wrapping_sub(self.base)).ok()?;
        let word = |b: &[u8; RANGE_LEN_BYTES], n: usize| u32::from_le_bytes([b[n], b[n + 1], b[n + 2], b[n + 3]]);
        let behind = self.ranges.partition_point(|range| word(range, 0) <= at);
        let range = self.ranges.get(behind.checked_sub(1)?)?;
        (at < word(range, 4)).then(|| word(range, 8))
    }

    /// Whether a path is told by its procedure, which is of this module, and the height there.
    pub fn tells(&self, path: ToldPath) -> bool {
        let first = ToldPath::hash(path.procedure, path.height) as usize;
        let mask = self.slots.len().wrapping_sub(1);
        let slots = (0..self.slots.len()).filter_map(|n| self.slots.get(first.wrapping_add(n) & mask));
        slots.map(ToldPath::of_bytes).take_while(|slot| slot.procedure != FREE).any(|slot| slot == path)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    fn block(ranges: &[CodeRange], told: &[ToldPath]) -> Vec<u8> {
        let mut bytes = std::vec![0; len_bytes(ranges.len(), told.len()).unwrap()];
        assert!(write(&mut bytes, ranges, told));
        bytes
    }

    #[test]
    fn a_block_tells_what_was_written_and_nothing_else() {
        let range = |start, end, procedure| CodeRange { start: LinkAddr(start), end: LinkAddr(end), procedure };
        // A procedure in two parts, and a gap.
        let ranges = [range(0x1000, 0x1010, 7), range(0x1010, 0x1040, 9), range(0x2000, 0x2008, 7)];
        let path = |procedure, height| ToldPath { procedure, caller: 9, root: ToldPath::MAIN, height };
        let told: Vec<ToldPath> = (0..500).map(|n| path(7 + n % 2, 16 * i64::from(n) - 8)).collect();
        let bytes = block(&ranges, &told);
        let read = ToldPaths::new(&bytes).unwrap();
        for (at, expected) in [
            (0xfff, None),
            (0x1000, Some(7)),
            (0x100f, Some(7)),
            (0x1010, Some(9)),
            (0x1040, None),
            (0x2007, Some(7)),
            (0x2008, None),
            (u64::MAX, None),
        ] {
            assert_eq!(read.procedure_at(LinkAddr(at)), expected, "{at:#x}");
        }
        assert!(told.iter().all(|path| read.tells(*path)));
        for other in [
            path(7, 8),
            path(8, -8),
            ToldPath { caller: 7, ..told[0] },
            ToldPath { root: 7, ..told[0] },
            ToldPath { procedure: FREE, ..told[0] },
        ] {
            assert!(!read.tells(other), "{other:?}");
        }
        // What is cut, or something else, is nothing; a module without paths tells none.
        assert!(ToldPaths::new(&bytes[..bytes.len() - 1]).is_none() && ToldPaths::new(&bytes[1..]).is_none());
        let bare = block(&ranges, &[]);
        assert!(!ToldPaths::new(&bare).unwrap().tells(told[0]));
        assert!(ToldPaths::new(&block(&[], &[])).unwrap().procedure_at(LinkAddr(0)).is_none());
        assert!(!write(&mut [0; 8], &ranges, &told));
    }
}
