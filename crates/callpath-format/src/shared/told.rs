//! Published facts about the call paths that a map tells: which procedure each address of a module is in, which of its heights
//! of the stack have one call path alone, and what each call is.
//!
//! A walk that comes to such a frame ends there if the return addresses beyond are those of this path: how far it is from one
//! to the next is a fact of each call, so that no recipe is needed for that (`record --on-ambiguous=walk`).
//!
//! ```text
//! head     32 bytes  { magic "CPTOLD01", base: u64, ranges: u32, paths: u32, length of the block: u32, calls: u32 }
//! ranges   12 each   { start: u32, end: u32, procedure: u32 }, by start; both count from `base`, a link-time address
//! calls    12 each   { at: u32, procedure: u32, height: u32 }, `at` counts from `base`
//! paths    32 each   { procedure: u32, root: u32, height: i64, callers: u32, zero: u32, chain: u64 }, from a multiple of 8 on
//! ```
//!
//! Calls and paths are hash tables with linear probing, a power of two of slots or none: by address, and by procedure and height. A
//! free slot has `at`, or the procedure, 2^32 - 1. Procedures have the map's numbers, which are the same in the blocks of all modules.

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

/// A call in a procedure of the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ToldCall {
    /// Where frames of it have their address: the last byte of its instruction.
    pub at: LinkAddr,
    /// The number of the procedure that calls.
    pub procedure: u32,
    /// How far that one's CFA is above the CFA of what it calls, bytes.
    pub height: u32,
}

/// A call path that is told by the procedure that it leads to and the height of the stack there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ToldPath {
    /// The procedure's number.
    pub procedure: u32,
    /// The number of the procedure that the thread began in; [`ToldPath::MAIN`] for a process's first thread.
    pub root: u32,
    /// From the stack's fixed place down to the procedure's CFA, bytes.
    pub height: i64,
    /// Who has called it.
    pub callers: Callers,
}

/// The callers of a procedure up to where the program or the thread began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Callers {
    /// How many there are.
    pub count: u32,
    /// A hash of their numbers.
    pub chain: u64,
}

impl Callers {
    /// These, and the one that has called the last of them.
    #[inline]
    #[must_use]
    pub fn and(self, procedure: u32) -> Callers {
        let mixed = (self.chain ^ u64::from(procedure)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Callers { count: self.count.wrapping_add(1), chain: mixed ^ mixed >> 29 }
    }
}

impl ToldPath {
    /// The root of a process's first thread.
    pub const MAIN: u32 = u32::MAX;
    const LEN_BYTES: usize = 32;

    fn to_bytes(self) -> [u8; Self::LEN_BYTES] {
        let mut b = [0; Self::LEN_BYTES];
        b[0..4].copy_from_slice(&self.procedure.to_le_bytes());
        b[4..8].copy_from_slice(&self.root.to_le_bytes());
        b[8..16].copy_from_slice(&self.height.to_le_bytes());
        b[16..20].copy_from_slice(&self.callers.count.to_le_bytes());
        b[24..32].copy_from_slice(&self.callers.chain.to_le_bytes());
        b
    }

    fn of_bytes(b: &[u8; Self::LEN_BYTES]) -> ToldPath {
        let long = |n: usize| u64::from(word(b, n)) | u64::from(word(b, n + 4)) << 32;
        ToldPath {
            procedure: word(b, 0),
            root: word(b, 4),
            height: long(8) as i64,
            callers: Callers { count: word(b, 16), chain: long(24) },
        }
    }

    /// Where the search for it begins, in a table of any size.
    #[inline]
    fn hash(procedure: u32, height: i64) -> usize {
        let mixed = (u64::from(procedure) << 32 ^ height as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 32) as usize
    }
}

const MAGIC: [u8; 8] = *b"CPTOLD01";
const HEAD_LEN_BYTES: usize = 32;
const RANGE_LEN_BYTES: usize = 12;
const CALL_LEN_BYTES: usize = 12;
/// Where the head says how long the block is, bytes.
pub(crate) const LEN_AT: u64 = 24;
/// What a free slot has first.
const FREE: u32 = u32::MAX;

/// The four bytes from the n-th on.
#[inline]
fn word(bytes: &[u8], n: usize) -> u32 {
    let word = bytes.get(n..).and_then(|bytes| bytes.first_chunk());
    u32::from_le_bytes(*word.unwrap_or(&[0; 4]))
}

/// Where the search for a call begins, in a table of any size.
#[inline]
fn hash_of_call(at: u32) -> usize {
    (u64::from(at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

/// The places of a table of so many slots, a power of two, from where a search begins.
#[inline]
fn places(first: usize, slots: usize) -> impl Iterator<Item = usize> {
    (0..slots).map(move |n| first.wrapping_add(n) & slots.wrapping_sub(1))
}

/// Where the parts of a block begin, and how many slots they have.
#[derive(Clone, Copy)]
struct Layout {
    calls_at: usize,
    paths_at: usize,
    len: usize,
}

impl Layout {
    fn new(ranges: usize, calls: usize, paths: usize) -> Option<Layout> {
        let calls_at = ranges.checked_mul(RANGE_LEN_BYTES)?.checked_add(HEAD_LEN_BYTES)?;
        let paths_at = calls.checked_mul(CALL_LEN_BYTES)?.checked_add(calls_at)?.checked_next_multiple_of(8)?;
        Some(Layout { calls_at, paths_at, len: paths.checked_mul(ToldPath::LEN_BYTES)?.checked_add(paths_at)? })
    }
}

/// The slots of a table for so many.
fn slots(count: usize) -> Option<usize> {
    if count == 0 { Some(0) } else { count.checked_mul(2)?.checked_next_power_of_two() }
}

/// What a map tells of a module.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'c> {
    /// The code of its procedures, in order; ranges do not overlap.
    pub ranges: &'c [CodeRange],
    /// Calls in it.
    pub calls: &'c [ToldCall],
    /// Paths that lead to its procedures.
    pub paths: &'c [ToldPath],
}

impl Contents<'_> {
    /// The length of the block, bytes. `None`: it would be too long.
    pub fn len_bytes(&self) -> Option<usize> {
        let layout = Layout::new(self.ranges.len(), slots(self.calls.len())?, slots(self.paths.len())?)?;
        u32::try_from(layout.len).ok().map(|_| layout.len)
    }

    /// Writes the block to zeroed bytes of that length. `false`: they are not as many, or something is farther than 4 GiB from the first
    /// range.
    pub fn write(&self, to: &mut [u8]) -> bool {
        let (Some(calls), Some(paths)) = (slots(self.calls.len()), slots(self.paths.len())) else { return false };
        let Some(layout) = Layout::new(self.ranges.len(), calls, paths) else { return false };
        if Some(to.len()) != self.len_bytes() {
            return false;
        }
        let base = self.ranges.first().map_or(0, |range| range.start.0);
        let distance = |at: LinkAddr| u32::try_from(at.0.wrapping_sub(base)).ok().filter(|at| *at != FREE);
        let (head, to_paths) = to.split_at_mut(layout.paths_at);
        let (head, to_calls) = head.split_at_mut(layout.calls_at);
        let (head, to_ranges) = head.split_at_mut(HEAD_LEN_BYTES);
        head[0..8].copy_from_slice(&MAGIC);
        head[8..16].copy_from_slice(&base.to_le_bytes());
        for (at, number) in [(16, self.ranges.len()), (20, paths), (24, layout.len), (28, calls)] {
            head[at..at + 4].copy_from_slice(&(number as u32).to_le_bytes());
        }
        for (to, range) in to_ranges.as_chunks_mut::<RANGE_LEN_BYTES>().0.iter_mut().zip(self.ranges) {
            let (Some(start), Some(end)) = (distance(range.start), distance(range.end)) else { return false };
            *to = triple([start, end, range.procedure]);
        }
        let to_calls = to_calls.as_chunks_mut::<CALL_LEN_BYTES>().0;
        let to_calls = to_calls.get_mut(..calls).unwrap_or_default();
        to_calls.iter_mut().for_each(|slot| *slot = triple([FREE, 0, 0]));
        for call in self.calls {
            let Some(at) = distance(call.at) else { return false };
            if let Some(free) = places(hash_of_call(at), calls).find(|place| word(&to_calls[*place], 0) == FREE) {
                to_calls[free] = triple([at, call.procedure, call.height]);
            }
        }
        let to_paths = to_paths.as_chunks_mut::<{ ToldPath::LEN_BYTES }>().0;
        to_paths.iter_mut().for_each(|slot| slot[0..4].copy_from_slice(&FREE.to_le_bytes()));
        for path in self.paths {
            let first = ToldPath::hash(path.procedure, path.height);
            if let Some(free) = places(first, paths).find(|place| word(&to_paths[*place], 0) == FREE) {
                to_paths[free] = path.to_bytes();
            }
        }
        true
    }
}

fn triple(words: [u32; 3]) -> [u8; 12] {
    let mut bytes = [0; 12];
    for (to, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
    bytes
}

/// What is told of a module's code, in place.
#[derive(Clone, Copy, Debug)]
pub struct ToldPaths<'m> {
    base: u64,
    ranges: &'m [[u8; RANGE_LEN_BYTES]],
    calls: &'m [[u8; CALL_LEN_BYTES]],
    paths: &'m [[u8; ToldPath::LEN_BYTES]],
}

impl<'m> ToldPaths<'m> {
    /// The block at the beginning of `bytes`; `None` if there is none.
    pub fn new(bytes: &'m [u8]) -> Option<ToldPaths<'m>> {
        let head: &[u8; HEAD_LEN_BYTES] = bytes.first_chunk()?;
        let [ranges, paths, calls] = [16, 20, 28].map(|at| word(head, at) as usize);
        let is_table = |slots: usize| slots == 0 || slots.is_power_of_two();
        if head[..8] != MAGIC || !is_table(paths) || !is_table(calls) {
            return None;
        }
        let Layout { calls_at, paths_at, len } = Layout::new(ranges, calls, paths)?;
        Some(ToldPaths {
            base: u64::from(word(head, 8)) | u64::from(word(head, 12)) << 32,
            ranges: bytes.get(HEAD_LEN_BYTES..calls_at)?.as_chunks().0,
            calls: bytes.get(calls_at..paths_at)?.as_chunks().0.get(..calls)?,
            paths: bytes.get(paths_at..len)?.as_chunks().0,
        })
    }

    /// The number of the procedure that the code at an address belongs to; `None`: the map has none there.
    pub fn procedure_at(&self, at: LinkAddr) -> Option<u32> {
        let at = u32::try_from(at.0.wrapping_sub(self.base)).ok()?;
        let behind = self.ranges.partition_point(|range| word(range, 0) <= at);
        let range = self.ranges.get(behind.checked_sub(1)?)?;
        (at < word(range, 4)).then(|| word(range, 8))
    }

    /// The call whose frames have this address: the number of the procedure that calls, and how far its CFA is above that of what it
    /// calls, bytes.
    pub fn call_at(&self, at: LinkAddr) -> Option<(u32, u32)> {
        let at = u32::try_from(at.0.wrapping_sub(self.base)).ok()?;
        let slots = places(hash_of_call(at), self.calls.len()).filter_map(|place| self.calls.get(place));
        let mut slots = slots.take_while(|slot| word(*slot, 0) != FREE);
        slots.find(|slot| word(*slot, 0) == at).map(|slot| (word(slot, 4), word(slot, 8)))
    }

    /// The callers on the path that is told of a procedure of this module at a height, on a stack of this root.
    pub fn callers(&self, procedure: u32, root: u32, height: i64) -> Option<Callers> {
        let first = ToldPath::hash(procedure, height);
        let slots = places(first, self.paths.len()).filter_map(|place| self.paths.get(place));
        let mut paths = slots.map(ToldPath::of_bytes).take_while(|path| path.procedure != FREE);
        let found = paths.find(|path| (path.procedure, path.root, path.height) == (procedure, root, height));
        found.map(|path| path.callers)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    fn block(contents: Contents<'_>) -> Vec<u8> {
        let mut bytes = std::vec![0; contents.len_bytes().unwrap()];
        assert!(contents.write(&mut bytes));
        bytes
    }

    #[test]
    fn a_block_tells_what_was_written_and_nothing_else() {
        let range = |start, end, procedure| CodeRange { start: LinkAddr(start), end: LinkAddr(end), procedure };
        // A procedure in two parts, and a gap.
        let ranges = [range(0x1000, 0x1010, 7), range(0x1010, 0x1040, 9), range(0x2000, 0x2008, 7)];
        let callers = |n: u32| (0..n % 5).fold(Callers::default(), Callers::and);
        let path = |n: u32| {
            let height = 16 * i64::from(n) - 8;
            ToldPath { procedure: 7 + n % 2, root: ToldPath::MAIN, height, callers: callers(n) }
        };
        let paths: Vec<ToldPath> = (0..500).map(path).collect();
        let call = |n: u32| ToldCall { at: LinkAddr(0x1004 + 3 * u64::from(n)), procedure: n % 10, height: 16 * n };
        let calls: Vec<ToldCall> = (0..300).map(call).collect();
        let contents = Contents { ranges: &ranges, calls: &calls, paths: &paths };
        let bytes = block(contents);
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
        for ToldPath { procedure, root, height, callers } in paths.iter().copied() {
            assert_eq!(read.callers(procedure, root, height), Some(callers));
            assert_eq!(read.callers(15 - procedure, root, height), None);
            assert_eq!(read.callers(procedure, 7, height), None);
            assert_eq!(read.callers(procedure, root, height + 8), None);
        }
        assert_eq!(read.callers(FREE, ToldPath::MAIN, 0), None);
        for call in &calls {
            assert_eq!(read.call_at(call.at), Some((call.procedure, call.height)));
            assert_eq!(read.call_at(LinkAddr(call.at.0 + 1)), None);
        }
        assert_eq!(read.call_at(LinkAddr(0x1000 + u64::from(FREE))), None);
        // What is cut, or something else, is nothing; a module without paths tells none.
        assert!(ToldPaths::new(&bytes[..bytes.len() - 1]).is_none() && ToldPaths::new(&bytes[1..]).is_none());
        let bare = block(Contents { calls: &[], paths: &[], ..contents });
        let bare = ToldPaths::new(&bare).unwrap();
        assert_eq!((bare.callers(7, ToldPath::MAIN, -8), bare.call_at(LinkAddr(0x1004))), (None, None));
        let empty = block(Contents { ranges: &[], calls: &[], paths: &[] });
        assert!(ToldPaths::new(&empty).unwrap().procedure_at(LinkAddr(0)).is_none());
        assert!(!contents.write(&mut [0; 8]));
        let far = Contents { ranges: &[ranges[0], range(1 << 40, 1 << 41, 7)], ..contents };
        assert!(!far.write(&mut std::vec![0; far.len_bytes().unwrap()]));
    }

    #[test]
    fn who_called_whom_makes_a_chain() {
        let chain = |procedures: &[u32]| procedures.iter().fold(Callers::default(), |callers, n| callers.and(*n));
        let chains = [chain(&[]), chain(&[0]), chain(&[0, 0]), chain(&[1, 2]), chain(&[2, 1]), chain(&[1, 2, 0])];
        for (at, one) in chains.iter().enumerate() {
            assert!(chains[at + 1..].iter().all(|other| one.chain != other.chain), "{at}");
        }
    }
}
