//! What is known of the frames of one thread's stack since its last sample: where each keeps its return address, and
//! the node of its path. In memory of the process's own: a fork's child has its own stack, and so its own of this.
//! Knows nothing of how frames are found.

use callpath_format::shared::ArenaRef;
use callpath_format::shared::thread::layout;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use super::stubs::{GROUP, Record, STUB_BYTES, STUBS, Stubs};
use crate::syscall;

/// As many frames as a walk follows.
pub(crate) const MAX_FRAMES: usize = layout::CHECKPOINTS_LEN * layout::KEYS_LEN;

/// A frame. Its layout is known to the stubs' code.
#[repr(C)]
pub(crate) struct Entry {
    /// Where its return address is. 0: it must not be marked.
    pub(crate) slot: AtomicU64,
    /// What counts its return: the address of a 64-bit number.
    pub(crate) counter: AtomicU64,
    /// The entry (address) of the next frame outwards that may be marked, 0: none.
    pub(crate) outward: AtomicU64,
    /// The frame's node.
    pub(crate) node: AtomicU32,
    /// 1: a stub stands in its return address's place.
    pub(crate) marked: AtomicU32,
}

/// Numbers of stubs, as a stack.
#[repr(C)]
pub(crate) struct Numbers {
    len: AtomicU32,
    padding: u32,
    numbers: [AtomicU16; STUBS],
}

impl Numbers {
    pub(crate) fn len(&self) -> usize {
        self.len.load(Relaxed) as usize
    }

    pub(crate) fn push(&self, number: usize) {
        if let Some(place) = self.numbers.get(self.len()) {
            place.store(number as u16, Relaxed);
            self.len.store(self.len() as u32 + 1, Relaxed);
        }
    }

    pub(crate) fn last(&self) -> Option<usize> {
        Some(usize::from(self.numbers.get(self.len().checked_sub(1)?)?.load(Relaxed)))
    }

    pub(crate) fn pop(&self) -> Option<usize> {
        let last = self.last()?;
        self.len.store(self.len() as u32 - 1, Relaxed);
        Some(last)
    }

    /// Takes out the one at `index`; the last takes its place.
    fn take(&self, index: usize) -> Option<usize> {
        let number = self.numbers.get(index)?.load(Relaxed);
        let last = self.pop()?;
        self.numbers.get(index)?.store(last as u16, Relaxed);
        Some(usize::from(number))
    }
}

/// How many return addresses are remembered to stand behind a call.
const CHECKED: usize = 256;

/// See the module.
#[repr(C)]
pub struct Frames {
    /// How many entries are in use; the first is the outermost frame's.
    len: AtomicU32,
    tid: AtomicU32,
    /// The load map that `checked` is about.
    generation: AtomicU32,
    /// How many dead stubs have been looked at. Free-running.
    looked: AtomicU32,
    /// Counts what is counted for nobody.
    nobody: AtomicU64,
    /// Stubs whose frames are live, the outermost first.
    pub(crate) live: Numbers,
    /// Stubs that are nowhere.
    free: Numbers,
    /// Stubs whose frames are gone, but not by a return. They go on working: their frames may come back (a stack that was
    /// left by swapcontext), until something else has been written over them.
    dead: Numbers,
    checked: [AtomicU64; CHECKED],
    entries: [Entry; MAX_FRAMES],
}

impl Frames {
    /// Makes one for the calling thread. `None`: no memory.
    pub(crate) fn create(stubs: &Stubs, tid: u32) -> Option<&'static Frames> {
        // What we map would be missing to the program.
        if syscall::is_space_limited() {
            return None;
        }
        let at = syscall::map_private(size_of::<Frames>())?;
        // SAFETY: as much has just been mapped, zeroed and page-aligned; it is made of atomics and numbers, for which zero
        // is a value. It stays mapped until `destroy`.
        let frames = unsafe { &*(at as *const Frames) };
        frames.tid.store(tid, Relaxed);
        for (group, owner) in stubs.owners.iter().enumerate() {
            // An earlier thread of the same number.
            if owner.load(Relaxed) == tid {
                frames.add_group(group);
            }
        }
        Some(frames)
    }

    /// Gives the memory back. The frames that are marked still return, but nothing is counted any more.
    pub fn destroy(&'static self, stubs: &Stubs) {
        self.disown(stubs);
        syscall::unmap(core::ptr::from_ref(self) as usize, size_of::<Frames>());
    }

    /// Forgets all frames: their marks stay, but count nothing.
    fn disown(&self, stubs: &Stubs) {
        while let Some(number) = self.live.pop() {
            if let Some(record) = stubs.records.get(number) {
                record.entry.store(0, Relaxed);
            }
            self.dead.push(number);
        }
        self.len.store(0, Relaxed);
    }

    /// The same in a fork's child, where the thread has another number.
    pub fn adopt(&self, stubs: &Stubs, tid: u32) {
        self.disown(stubs);
        let before = self.tid.swap(tid, Relaxed);
        for owner in stubs.owners {
            if owner.load(Relaxed) == before {
                owner.store(tid, Relaxed);
            }
        }
    }

    fn add_group(&self, group: usize) {
        (group * GROUP..(group + 1) * GROUP).rev().for_each(|number| self.free.push(number));
    }

    /// How many frames are known.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Relaxed) as usize
    }

    /// Keeps the outermost `len` frames.
    pub(crate) fn truncate(&self, len: usize) {
        self.len.store(len as u32, Relaxed);
    }

    pub(crate) fn entry(&self, index: usize) -> Option<&Entry> {
        self.entries.get(index)
    }

    /// The index of the entry at an address.
    pub(crate) fn index_of(&self, entry: u64) -> Option<usize> {
        let index = entry.checked_sub(self.entries.as_ptr() as u64)? / size_of::<Entry>() as u64;
        (index < self.len() as u64).then_some(index as usize)
    }

    /// Adds a frame within the innermost known one.
    pub(crate) fn push(&self, slot: u64, node: ArenaRef, counter: Option<&AtomicU64>, marked: bool) -> Option<()> {
        let index = self.len();
        let entry = self.entries.get(index)?;
        let outward = match index.checked_sub(1).and_then(|above| self.entries.get(above)) {
            None => 0,
            Some(above) if above.slot.load(Relaxed) != 0 => core::ptr::from_ref(above) as u64,
            Some(above) => above.outward.load(Relaxed),
        };
        entry.slot.store(slot, Relaxed);
        entry.counter.store(core::ptr::from_ref(counter.unwrap_or(&self.nobody)) as u64, Relaxed);
        entry.outward.store(outward, Relaxed);
        entry.node.store(node.0, Relaxed);
        entry.marked.store(u32::from(marked), Relaxed);
        self.len.store(index as u32 + 1, Relaxed);
        Some(())
    }

    /// Whether `addr` is known to stand behind a call. `generation`: of the load map.
    pub(crate) fn is_checked(&self, addr: u64, generation: u32) -> bool {
        if self.generation.load(Relaxed) != generation {
            self.checked.iter().for_each(|checked| checked.store(0, Relaxed));
            self.generation.store(generation, Relaxed);
        }
        self.checked_place(addr).is_some_and(|checked| checked.load(Relaxed) == addr)
    }

    pub(crate) fn set_checked(&self, addr: u64) {
        if let Some(checked) = self.checked_place(addr) {
            checked.store(addr, Relaxed);
        }
    }

    fn checked_place(&self, addr: u64) -> Option<&AtomicU64> {
        self.checked.get((addr ^ (addr >> 8)) as usize % CHECKED)
    }

    /// Strikes off the marks of frames within `innermost` (an entry's address; 0: of all), and those that have been returned
    /// through.
    pub(crate) fn strike(&self, stubs: &Stubs, innermost: u64) {
        while let Some((number, record)) = self.live.last().and_then(|n| Some((n, stubs.records.get(n)?))) {
            let entry = record.entry.load(Relaxed);
            if record.slot.load(Relaxed) == 0 {
                self.live.pop();
                self.free.push(number);
            } else if entry == 0 || innermost == 0 || entry > innermost {
                record.entry.store(0, Relaxed);
                self.live.pop();
                self.dead.push(number);
            } else {
                return;
            }
        }
    }

    /// A stub that is nowhere. `read`: the stack.
    pub(crate) fn take_stub(
        &self,
        stubs: &Stubs,
        mut read: impl FnMut(u64) -> Option<u64>,
    ) -> Option<(usize, &'static Record)> {
        const LOOKS: usize = 4;
        for _ in 0..LOOKS.min(self.dead.len()) {
            let looked = self.looked.load(Relaxed);
            self.looked.store(looked.wrapping_add(1), Relaxed);
            let Some(index) = (looked as usize).checked_rem(self.dead.len()) else { break };
            let number = usize::from(self.dead.numbers.get(index)?.load(Relaxed));
            let record = stubs.records.get(number)?;
            let slot = record.slot.load(Relaxed);
            if slot == 0 || read(slot) != Some(record.stub.load(Relaxed)) {
                self.free.push(self.dead.take(index)?);
                break;
            }
        }
        if self.free.len() == 0 {
            const GROUP_LOOKS: usize = 64;
            let tid = self.tid.load(Relaxed);
            // Somewhere else each time: what was looked at last time has not become free.
            let start = (tid as usize).wrapping_add(self.live.len()).wrapping_mul(37);
            self.add_group(stubs.take_group(tid, start, GROUP_LOOKS)?);
        }
        let number = self.free.pop()?;
        let record = stubs.records.get(number)?;
        record.stub.store(stubs.first + number as u64 * STUB_BYTES, Relaxed);
        Some((number, record))
    }
}
