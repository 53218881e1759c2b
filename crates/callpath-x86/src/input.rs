//! The input of an analysis of machine code: bytes at link-time addresses, and hints.

use std::ops::Range;

use callpath_format::address::LinkAddr;

/// A module's code, and what is known of it beforehand. All slices may be in any order, overlap, and be wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct CodeInput<'a> {
    /// Executable bytes. Of overlapping slices the one that begins first holds.
    pub code: &'a [(LinkAddr, &'a [u8])],
    /// All bytes that jump tables and pointers to code may be read from; may contain the code.
    pub data: &'a [(LinkAddr, &'a [u8])],
    /// Where the loader puts an address: `(slot, address)` of each relative relocation.
    pub pointers: &'a [(LinkAddr, LinkAddr)],
    /// Of `data`, what the program cannot write once it is loaded.
    pub constant: &'a [Range<LinkAddr>],
    /// Addresses in `data` are final: the module is not relocated, and its pointers are plain words.
    pub is_absolute: bool,
    /// A program's or a loader's first instruction, which has no caller.
    pub entry: Option<LinkAddr>,
    /// Where procedures are known to begin: exported symbols, initialisers.
    pub starts: &'a [LinkAddr],
    /// Code whose recipes are known from elsewhere: it is not analysed, only searched for jumps and calls out of it.
    pub known: &'a [Range<LinkAddr>],
    /// Words in memory that hold the address of a procedure that never returns (`abort` in the global offset table).
    pub no_return_slots: &'a [LinkAddr],
}
