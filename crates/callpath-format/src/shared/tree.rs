//! The nodes of a thread's calling context tree, and raw samples.

use core::sync::atomic::{AtomicU32, AtomicU64};

use super::arena::{CHUNK_LEN_BYTES, ChunkHeader, Shared};

/// The fixed part of a node; the metrics' values follow it ([`super::Columns::of_node`]).
///
/// Only its thread writes to a node. `key` and `parent` are written before the chunk's `end` passes the node.
#[repr(C)]
pub struct Node {
    /// `FrameKey`
    pub key: AtomicU64,
    /// The parent's `ArenaRef`; 0 for a root.
    pub parent: AtomicU32,
    /// The next node of the same bucket.
    pub next: AtomicU32,
    /// Samples at this very node.
    pub samples: AtomicU64,
    /// The child on the last path through this node, 0 if none: the most likely one of the next path.
    pub last_child: AtomicU32,
    /// 0: it is an only child, and in no bucket.
    pub hashed: AtomicU32,
}

// SAFETY: all atomics.
unsafe impl Shared for Node {}

/// A word that a walk over a deep stack depended on. Private to the handler.
#[repr(C)]
pub struct KnownWord {
    /// Its address, a multiple of 8, and in the lowest bits its kind ([`KnownKind`]). For a frame, the address
    /// of the return address into it; 0: it has none.
    pub at: AtomicU64,
    /// Its value; for a stub, the return address that it replaces.
    pub word: AtomicU64,
}

/// Further facts about a known word.
#[repr(C)]
pub struct Known {
    /// The frame's key.
    pub key: AtomicU64,
    /// The node of the path up to here; 0: not looked for yet.
    pub node: AtomicU32,
    reserved: AtomicU32,
}

// SAFETY: all atomics.
unsafe impl Shared for KnownWord {}
// SAFETY: all atomics.
unsafe impl Shared for Known {}

/// What an entry is.
pub struct KnownKind;

#[allow(missing_docs)]
impl KnownKind {
    pub const FRAME: u64 = 0;
    /// Bit, of a frame: the word may be marked. It is the return address of the next frame inwards.
    pub const MARKABLE: u64 = 1;
    /// A word on the stack that the step to the next frame outwards depended on, or (address 0) rbp.
    pub const WORD: u64 = 2;
    /// The step outwards depended on something that is not noted.
    pub const SEAL: u64 = 4;
    /// All of them.
    pub const BITS: u64 = 7;
}

/// A raw sample, alone in a chunk behind the chunk's header: this, then its weight by
/// metric ([`super::Columns::of_raw`]), then a copy of the stack. The rest of the stack
/// follows in other chunks, each filled behind its header.
#[repr(C)]
#[derive(Default)]
pub struct RawSample {
    /// General-purpose registers in DWARF order, then rip.
    pub registers: [AtomicU64; 17],
    /// Address of the first byte of the copy.
    pub stack_start: AtomicU64,
    /// Bytes of the copy: those in this chunk, then those in other chunks.
    pub stack_len_bytes: AtomicU32,
    /// Bit 0: the copy reaches the end of the stack.
    pub flags: AtomicU32,
    /// Time stamp counter.
    pub ticks: AtomicU64,
    /// How many samples it counts as (0 or 1).
    pub samples: AtomicU64,
    /// Address of the copied code in the program, around the first frame of generated code ([`super::generated`]) that
    /// the sample's walk did not get over. The copy is at the chunk's end.
    pub code_start: AtomicU64,
    /// Its length, bytes; 0: there is none.
    pub code_len_bytes: AtomicU32,
    /// The first chunk with more of the stack (its index), 0: there is none. Others follow in `ChunkHeader::next`.
    pub more: AtomicU32,
    /// From where heights on its stack count ([`super::ThreadRecord::stack_base`]), 0: no such place is known.
    pub stack_base: AtomicU64,
}

// SAFETY: all atomics.
unsafe impl Shared for RawSample {}

impl RawSample {
    /// The longest copy of code, bytes; it begins so many bytes before the chunk's end.
    pub const MAX_CODE_BYTES: usize = 4096;
    /// How much of a stack's copy fits into each further chunk, bytes.
    pub const MORE_STACK_BYTES: usize = CHUNK_LEN_BYTES - ChunkHeader::LEN_BYTES;
    /// The largest number of further chunks: a stack of a megabyte.
    pub const MAX_MORE: usize = 15;
}
