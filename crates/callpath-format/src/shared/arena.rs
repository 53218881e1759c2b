//! The arena: memory in chunks, and references into it that mean the same in every process.

use core::marker::PhantomData;
use core::sync::atomic::AtomicU32;

/// Length of a chunk, bytes.
pub const CHUNK_LEN_BYTES: usize = 64 << 10;

/// A chunk's number; its first byte is at `index * CHUNK_LEN_BYTES`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct ChunkIndex(pub u32);

/// A location in the arena: its offset in units of 8 bytes; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
#[repr(transparent)]
pub struct ArenaRef(pub u32);

impl ArenaRef {
    /// No location.
    pub const NONE: ArenaRef = ArenaRef(0);

    /// The location at a byte offset, rounded down to a multiple of 8. An offset beyond 32 GiB (from a damaged chunk
    /// index) gives the last location that a number exists for, which no arena reaches.
    pub const fn from_offset(offset_bytes: usize) -> ArenaRef {
        let location = offset_bytes / 8;
        ArenaRef(if location > u32::MAX as usize { u32::MAX } else { location as u32 })
    }

    /// Offset from the arena's first byte, bytes.
    pub const fn offset_bytes(self) -> usize {
        self.0 as usize * 8
    }

    /// The chunk that it lies in.
    pub const fn chunk(self) -> ChunkIndex {
        ChunkIndex((self.offset_bytes() / CHUNK_LEN_BYTES) as u32)
    }

    /// This location, or `None` for [`ArenaRef::NONE`].
    pub fn some(self) -> Option<ArenaRef> {
        if self.0 == 0 { None } else { Some(self) }
    }
}

/// The first 64 bytes of every chunk that is handed out.
#[repr(C)]
pub struct ChunkHeader {
    /// What it holds: one of the `KIND_` constants.
    pub kind: AtomicU32,
    /// The next chunk of the same list (its index), 0 at the end.
    pub next: AtomicU32,
    /// Where the first node begins: offset in the chunk, bytes.
    pub start: AtomicU32,
    /// One past the last complete node: offset in the chunk, bytes. Stored with release order.
    pub end: AtomicU32,
    /// The lowest byte of what grows downwards from the chunk's end: offset in the chunk, bytes.
    pub top: AtomicU32,
    /// The thread record that owns it.
    pub owner: AtomicU32,
    reserved: [AtomicU32; 10],
}

impl ChunkHeader {
    /// Size, bytes.
    pub const LEN_BYTES: usize = 64;
    /// Begins with a [`super::ThreadRecord`]; nodes follow.
    pub const KIND_THREAD: u32 = 1;
    /// Nodes of a tree.
    pub const KIND_NODES: u32 = 2;
    /// One raw sample.
    pub const KIND_RAW: u32 = 3;
    /// More of a raw sample's stack.
    pub const KIND_RAW_MORE: u32 = 4;
    /// What is known of a deep stack ([`super::tree::Known`]), in the list of its thread's nodes.
    pub const KIND_KNOWN: u32 = 5;
}

/// A mapping of the arena, in a measured process or in the recorder.
#[derive(Clone, Copy)]
pub struct Arena<'m> {
    base: *mut u8,
    len_bytes: usize,
    mapping: PhantomData<&'m AtomicU32>,
}

// SAFETY: an `Arena` only hands out references to types that consist of atomics.
unsafe impl Send for Arena<'_> {}
// SAFETY: as above.
unsafe impl Sync for Arena<'_> {}

/// Types that may be borrowed in shared memory. Each field is atomic or accessed only by
/// volatile reads and writes, and valid for any bytes.
///
/// # Safety
/// Every bit pattern must be a valid value. Every field must be atomic, or in a cell that is never borrowed.
pub unsafe trait Shared: Sized {}

// SAFETY: all atomics.
unsafe impl Shared for ChunkHeader {}
// SAFETY: an atomic.
unsafe impl Shared for AtomicU32 {}
// SAFETY: an atomic.
unsafe impl Shared for core::sync::atomic::AtomicU64 {}
// SAFETY: an atomic.
unsafe impl Shared for core::sync::atomic::AtomicU8 {}

impl<'m> Arena<'m> {
    /// # Safety
    /// `base` must be the page-aligned start of a mapping of `len_bytes` bytes that stays mapped, readable and writable
    /// for `'m`. No access may reach a chunk that the recorder has not backed with memory.
    pub unsafe fn new(base: *mut u8, len_bytes: usize) -> Arena<'m> {
        Arena { base, len_bytes, mapping: PhantomData }
    }

    /// First byte of the mapping, in this process.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Length of the mapping, bytes.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// The value at a location; `None` if it would reach beyond the mapping, or for [`ArenaRef::NONE`].
    #[inline]
    pub fn get<T: Shared>(&self, at: ArenaRef) -> Option<&'m T> {
        self.at_offset(at.some()?.offset_bytes())
    }

    /// The value at an offset in bytes; `None` if it would reach beyond the mapping or is misaligned.
    #[inline]
    pub fn at_offset<T: Shared>(&self, offset: usize) -> Option<&'m T> {
        if offset.checked_add(size_of::<T>())? > self.len_bytes || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: in bounds and aligned (the base is page-aligned); `Shared` types are valid for any bytes and change
        // only through atomics; the mapping lives for `'m` (`Arena::new`).
        Some(unsafe { &*self.base.add(offset).cast::<T>() })
    }

    /// `count` consecutive values; `None` as in [`Arena::at_offset`].
    #[inline]
    pub fn slice_at<T: Shared>(&self, offset: usize, count: usize) -> Option<&'m [T]> {
        let len = count.checked_mul(size_of::<T>())?;
        if offset.checked_add(len)? > self.len_bytes || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: as in `at_offset`.
        Some(unsafe { core::slice::from_raw_parts(self.base.add(offset).cast::<T>(), count) })
    }

    /// A chunk's header; `None` beyond the mapping.
    #[inline]
    pub fn chunk(&self, index: ChunkIndex) -> Option<&'m ChunkHeader> {
        self.at_offset(index.0 as usize * CHUNK_LEN_BYTES)
    }

    /// Number of whole chunks in the mapping.
    pub fn chunk_count(&self) -> u32 {
        (self.len_bytes / CHUNK_LEN_BYTES) as u32
    }
}
