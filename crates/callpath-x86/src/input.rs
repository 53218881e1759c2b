//! What an analysis of machine code is given: bytes at link-time addresses, and hints.

use std::ops::Range;

use callpath_format::address::LinkAddr;

/// A module's code, and what is known of it beforehand. All slices may be in any order, overlap and lie.
#[derive(Clone, Copy, Debug, Default)]
pub struct CodeInput<'a> {
    /// Executable bytes. Of overlapping slices the one that begins first holds.
    pub code: &'a [(LinkAddr, &'a [u8])],
    /// All bytes that jump tables and pointers to code may be read from; may contain the code.
    pub data: &'a [(LinkAddr, &'a [u8])],
    /// Where the loader puts an address: `(slot, address)` of each relative relocation.
    pub pointers: &'a [(LinkAddr, LinkAddr)],
    /// Addresses in `data` are final: the module is not relocated, and its pointers are plain words.
    pub is_absolute: bool,
    /// Nobody calls the code here: a program's or a loader's first instruction.
    pub entry: Option<LinkAddr>,
    /// Procedures surely begin here: exported symbols, initialisers.
    pub starts: &'a [LinkAddr],
    /// Code whose recipes are known otherwise: it is not analysed, only looked at for what leads out of it.
    pub known: &'a [Range<LinkAddr>],
    /// Words in memory that hold the address of a procedure which never returns (`abort` in the global offset table).
    pub no_return_slots: &'a [LinkAddr],
}
