//! The frames of one thread's stack, as its last sample found them: where each keeps its return address, and the node
//! of its path. In private memory of the process: a fork's child has its own stack, so it needs its own copy.

use callpath_format::shared::ArenaRef;
use callpath_format::shared::thread::layout;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::syscall;

/// As many frames as a walk follows.
pub(crate) const MAX_FRAMES: usize = layout::DEEPEST;

/// A frame. Its layout is known to the stubs' code.
#[repr(C)]
pub(crate) struct Entry {
    /// Where its return address is. 0: it must not be marked.
    pub(crate) slot: AtomicU64,
    /// The counter of its returns: the address of a 64-bit number.
    pub(crate) counter: AtomicU64,
    /// The entry (address) of the next frame outwards that may be marked, 0: none.
    pub(crate) outward: AtomicU64,
    /// The stub of its return address, if it may be marked.
    pub(crate) stub: AtomicU64,
    /// If it is marked: the entry (address) of the next mark outwards, 0: none.
    pub(crate) next: AtomicU64,
    /// The word in the return address's place: that address or its stub.
    pub(crate) word: AtomicU64,
    /// The frame's node.
    pub(crate) node: AtomicU32,
}

/// The location of a noted frame's return address.
#[derive(Clone, Copy, Default)]
pub(crate) struct ReturnLocation {
    /// The address of its return address. 0: it must not be marked.
    pub(crate) slot: u64,
    /// That return address's stub.
    pub(crate) stub: u64,
    /// The word there.
    pub(crate) word: u64,
}

/// See the module. Its layout is known to the stubs' code.
#[repr(C)]
pub struct Frames {
    /// The innermost marked entry (address); outer marks follow in `Entry::next`. 0: none.
    mark: AtomicU64,
    /// How many entries are in use; the first is the outermost frame's.
    len: AtomicU32,
    /// Whether they are noted: at least one deep stack was seen.
    pub(crate) is_wanted: AtomicU32,
    /// Takes counts of frames without a counter.
    uncounted: AtomicU64,
    entries: [Entry; MAX_FRAMES],
}

impl Frames {
    /// Maps memory for `count` threads. `None`: there is none.
    pub fn map(count: usize) -> Option<&'static [Frames]> {
        let at = syscall::map_private(size_of::<Frames>().checked_mul(count)?)?;
        // SAFETY: as much has just been mapped, zeroed and page-aligned; they consist of atomics, for which
        // zero is a value. They stay mapped until `unmap`.
        Some(unsafe { core::slice::from_raw_parts(at as *const Frames, count) })
    }

    /// Gives back what [`Frames::map`] gave for one thread.
    pub fn unmap(&'static self) {
        syscall::unmap(core::ptr::from_ref(self) as usize, size_of::<Frames>());
    }

    /// Forgets all frames: their marks stay, but count nothing.
    pub fn forget(&self) {
        self.mark.store(0, Relaxed);
        self.len.store(0, Relaxed);
        self.is_wanted.store(0, Relaxed);
    }

    /// How many frames are known.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Relaxed) as usize
    }

    pub(crate) fn entry(&self, index: usize) -> Option<&Entry> {
        self.entries.get(index)
    }

    /// The index of the entry at an address.
    fn index_of(&self, entry: u64) -> Option<usize> {
        let index = entry.checked_sub(self.entries.as_ptr() as u64)? / size_of::<Entry>() as u64;
        (index < self.len() as u64).then_some(index as usize)
    }

    /// The frame that is marked at `slot`. Marks of frames within it that are gone may still be known.
    pub(crate) fn marked_at(&self, slot: u64) -> Option<usize> {
        let mut mark = self.mark.load(Relaxed);
        loop {
            let index = self.index_of(mark)?;
            let entry = self.entries.get(index)?;
            let at = entry.slot.load(Relaxed);
            if at >= slot {
                return (at == slot).then_some(index);
            }
            mark = entry.next.load(Relaxed);
        }
    }

    /// The innermost marked frame.
    pub(crate) fn innermost_mark(&self) -> Option<usize> {
        self.index_of(self.mark.load(Relaxed))
    }

    /// Keeps the frames outwards of the marked one at `met`, which is to be noted next, and its
    /// mark, and those outwards. `None`: keeps nothing.
    pub(crate) fn retain_outward(&self, met: Option<usize>) {
        let mark = met.and_then(|index| self.entries.get(index)).map_or(0, |entry| core::ptr::from_ref(entry) as u64);
        self.mark.store(mark, Relaxed);
        self.len.store(met.unwrap_or(0) as u32, Relaxed);
    }

    /// Adds a frame within the innermost known one; its index.
    pub(crate) fn push(&self, location: ReturnLocation, node: ArenaRef, counter: Option<&AtomicU64>) -> Option<usize> {
        let index = self.len();
        let entry = self.entries.get(index)?;
        let outward = match index.checked_sub(1).and_then(|above| self.entries.get(above)) {
            None => 0,
            Some(above) if above.slot.load(Relaxed) != 0 => core::ptr::from_ref(above) as u64,
            Some(above) => above.outward.load(Relaxed),
        };
        entry.slot.store(location.slot, Relaxed);
        entry.stub.store(location.stub, Relaxed);
        entry.word.store(location.word, Relaxed);
        entry.counter.store(core::ptr::from_ref(counter.unwrap_or(&self.uncounted)) as u64, Relaxed);
        entry.outward.store(outward, Relaxed);
        entry.node.store(node.0, Relaxed);
        self.len.store(index as u32 + 1, Relaxed);
        Some(index)
    }

    /// Notes that the frame at `index` is marked, and is the innermost one.
    pub(crate) fn add_mark(&self, index: usize) {
        if let Some(entry) = self.entries.get(index) {
            entry.next.store(self.mark.load(Relaxed), Relaxed);
            self.mark.store(core::ptr::from_ref(entry) as u64, Relaxed);
        }
    }
}
