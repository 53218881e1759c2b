//! Chunks 1 to 4: one slot for each process that is being measured. A slot holds the head of the list of its threads.

use core::sync::atomic::{AtomicU32, AtomicU64};

use super::arena::{CHUNK_LEN_BYTES, Shared};
use super::thread::Dropped;

/// How many processes can be measured at once.
pub const PROCESS_SLOTS: usize = 1024;

/// The first chunk of the slots' bases ([`super::Columns::bases`]).
pub(super) const FIRST_BASES_CHUNK: u32 = 5;

/// The state of a slot. The process moves it from free to claimed to live, the recorder back to free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotState(pub u32);

#[allow(missing_docs)]
impl SlotState {
    pub const FREE: u32 = 0;
    /// A process is filling it in.
    pub const CLAIMED: u32 = 1;
    /// Filled in: the recorder may read it.
    pub const LIVE: u32 = 2;
}

/// Whether a process's events take samples. The process requests a change and rings; the recorder makes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pause(pub u32);

#[allow(missing_docs)]
impl Pause {
    pub const RUNNING: u32 = 0;
    /// The process wants no more samples.
    pub const WANTED: u32 = 1;
    /// The recorder has stopped the events.
    pub const PAUSED: u32 = 2;
    /// The process wants samples again.
    pub const OVER: u32 = 3;
}

/// One process.
#[repr(C, align(256))]
pub struct ProcessSlot {
    /// [`SlotState`]
    pub state: AtomicU32,
    /// The process's number as it sees it itself (its PID name space).
    pub pid: AtomicU32,
    /// Futex. 0 until the recorder has published the load map and opened the source; then the [`super::Source`]'s
    /// number.
    pub source: AtomicU32,
    /// The process counts this up and rings to have its memory map read again.
    pub map_wanted: AtomicU32,
    /// Futex: the last `map_wanted` that the recorder has served.
    pub map_served: AtomicU32,
    /// Set by the recorder before `map_served`: 1 as long as tables are being built of code that the load map lacks.
    pub map_awaits: AtomicU32,
    /// The list of thread records (`ArenaRef`), newest first; a thread pushes itself.
    pub threads: AtomicU32,
    /// Raw samples that the recorder has not seen: a list of chunks (index), newest first.
    pub raw: AtomicU32,
    /// Raw samples in that list or being drained.
    pub raw_pending: AtomicU32,
    /// The slot's index + 1 of the process that forked this one, 0 if none or not known.
    pub forked_from: AtomicU32,
    /// Where each thread of a process that is sampled has the word with its record's `ArenaRef`: the distance from the thread
    /// pointer, an `i32`. The word is 0 as long as it has none; whoever makes one sets it. 0: there are no such words.
    pub record_word: AtomicU32,
    /// The current load map ([`super::load_map::CurrentMap`]); 0: none yet.
    pub load_map: AtomicU64,
    /// An address that the last walk of a call found in no load map; 0: the recorder has seen it.
    pub map_lacks: AtomicU64,
    /// CPU time that an earlier program image of this process had accounted for at its last sample, nanoseconds.
    pub inherited_cpu_ns: AtomicU64,
    /// Where each thread has the word that leads to its lane ([`super::lanes`]): its distance from the thread pointer. 0: it has
    /// none.
    pub lane_word: AtomicU64,
    /// The address of the word that the C library copies into new threads.
    pub lane_word_image: AtomicU64,
    /// Samples that were not kept in threads that have no record, by [`super::Dropped`].
    pub dropped_unrecorded: [AtomicU64; Dropped::COUNT],
    /// 1: SIGTRAP is ignored only because the process is about to execute another program. That program reads this.
    pub trap_default: AtomicU32,
    /// How many calls of dlclose are under way.
    pub unloading: AtomicU32,
    /// Futex: [`Pause`]. Whether the recorder's events are on, for a
    /// process that executes a program without our object.
    pub pause: AtomicU32,
    /// Set by the recorder: 1 if the program has code that walks its own stack by
    /// its return addresses. None may be changed then.
    pub walks_itself: AtomicU32,
    /// Why the process does not use the sentinel ([`Unmarked`]), 0: it does, or was not asked to.
    pub unmarked: AtomicU32,
    /// Return addresses that could not be marked: there was no stub for them.
    pub marks_lost: AtomicU32,
    /// System calls that a filter of the program refuses, so they are not made ([`super::refused::Calls`]).
    pub refused_calls: AtomicU32,
    /// What the loader calls when libraries are mapped counts this up, and rings: their procedures are to count, too.
    pub loads_wanted: AtomicU32,
    /// Futex: the last `loads_wanted` that the recorder has served.
    pub loads_served: AtomicU32,
    /// Set by the recorder: how many more chunks a raw sample of generated code uses for its stack (`RawSample::more`).
    pub raw_reach: AtomicU32,
}

/// Why a process marks no return address, although the settings ask for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Unmarked {
    /// The processor compares return addresses with its own copies (a user shadow stack).
    ShadowStack = 1,
    /// Code of the program walks its own stack by return addresses.
    WalksItself = 2,
    /// There is no memory for a thread's frames, or the program's limit (RLIMIT_AS) leaves none.
    NoMemory = 3,
}

// SAFETY: all atomics.
unsafe impl Shared for ProcessSlot {}

impl ProcessSlot {
    /// Offset of a slot in the arena, bytes; `None` for an index out of range.
    pub fn offset_bytes(index: usize) -> Option<usize> {
        if index < PROCESS_SLOTS { Some(CHUNK_LEN_BYTES + index * size_of::<ProcessSlot>()) } else { None }
    }
}

const _: () = assert!(PROCESS_SLOTS * size_of::<ProcessSlot>() == (FIRST_BASES_CHUNK as usize - 1) * CHUNK_LEN_BYTES);
