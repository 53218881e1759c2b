//! Jump tables: the targets of a jump through a table. Elsewhere values are followed to find the table of a jump.

use std::ops::Range;

use callpath_format::address::LinkAddr;

use crate::code_map::CodeMap;
use crate::input::CodeInput;
use crate::instruction::Instruction;

/// The most entries of a table.
const MAX_ENTRIES: u32 = 4096;

/// The bytes that tables are read from.
pub(crate) struct Data<'a> {
    /// Sorted by address.
    slices: Vec<(LinkAddr, &'a [u8])>,
    /// `(slot, address)`, sorted by slot.
    pointers: Vec<(u64, u64)>,
    constant: Vec<Range<LinkAddr>>,
    pub(crate) is_absolute: bool,
}

impl<'a> Data<'a> {
    pub(crate) fn new(input: &CodeInput<'a>) -> Data<'a> {
        let mut slices = input.data.to_vec();
        slices.sort_by_key(|(start, _)| *start);
        let mut pointers: Vec<_> = input.pointers.iter().map(|(slot, to)| (slot.0, to.0)).collect();
        pointers.sort_unstable();
        Data { slices, pointers, constant: input.constant.to_vec(), is_absolute: input.is_absolute }
    }

    fn word(&self, addr: u64) -> Option<i32> {
        self.bytes(addr)?.first_chunk().map(|bytes| i32::from_le_bytes(*bytes))
    }

    /// The procedure that an instruction that ends at `next` calls or jumps to through a word of this module that the
    /// loader fills.
    pub(crate) fn slot_target(&self, instruction: &Instruction, next: u64, code_map: &CodeMap<'_>) -> Option<u32> {
        let slot = instruction.beside_code(next).filter(|_| instruction.memory().is_some_and(|m| m.bytes == 8))?;
        self.relocated(slot).and_then(|target| code_map.position(target))
    }

    /// Whether the program cannot write any of so many bytes at an address once it is loaded.
    pub(crate) fn is_constant(&self, at: LinkAddr, len_bytes: u64) -> bool {
        let end = LinkAddr(at.0.saturating_add(len_bytes));
        self.constant.iter().any(|constant| constant.start <= at && end <= constant.end)
    }

    fn relocated(&self, slot: u64) -> Option<u64> {
        let index = self.pointers.binary_search_by_key(&slot, |pointer| pointer.0).ok()?;
        self.pointers.get(index).map(|pointer| pointer.1)
    }

    pub(crate) fn pointer(&self, addr: u64) -> Option<u64> {
        let relocated = self.relocated(addr);
        if relocated.is_some() || !self.is_absolute {
            return relocated;
        }
        self.bytes(addr)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    pub(crate) fn bytes(&self, addr: u64) -> Option<&'a [u8]> {
        let (start, bytes) =
            self.slices.get(self.slices.partition_point(|(start, _)| start.0 <= addr).checked_sub(1)?)?;
        bytes.get(usize::try_from(addr - start.0).ok()?..)
    }
}

/// The form of a table's entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// Four bytes: the distance from the address this many bytes after the table's start.
    Distance(i32),
    /// Eight bytes: the address.
    Pointer,
}

/// A table that a jump uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JumpedTable {
    pub(crate) address: u64,
    pub(crate) entry: Entry,
    /// The number of its last entry, if the code bounds it.
    pub(crate) bound: Option<u32>,
    /// The next address that code refers to.
    pub(crate) next: Option<u64>,
}

impl JumpedTable {
    /// Its targets, as positions: up to its bound, the first that `is_credible` rejects, or `next`.
    pub(crate) fn targets(
        self,
        data: &Data<'_>,
        code_map: &CodeMap<'_>,
        is_credible: impl Fn(u32) -> bool,
    ) -> Vec<u32> {
        let JumpedTable { address: table, entry, bound, next } = self;
        let width = match entry {
            Entry::Distance(_) => 4,
            Entry::Pointer => 8,
        };
        let room = next.map_or(u64::from(MAX_ENTRIES), |next| next.saturating_sub(table) / width);
        let entries = bound.map_or(MAX_ENTRIES, |bound| bound.saturating_add(1).min(MAX_ENTRIES));
        let entries = u64::from(entries).min(room);
        let mut targets = Vec::new();
        for index in 0..entries {
            let slot = table.wrapping_add(index * width);
            let target = match entry {
                Entry::Distance(base) => {
                    data.word(slot).map(|distance| table.wrapping_add(base as u64).wrapping_add(distance as u64))
                }
                Entry::Pointer => data.pointer(slot),
            };
            match target.and_then(|target| code_map.position(target)) {
                Some(target) if is_credible(target) => targets.push(target),
                Some(_) if bound.is_some() => {}
                _ => break,
            }
        }
        targets.sort_unstable();
        targets.dedup();
        targets
    }
}
