//! Eight words of each thread: where its lane is, where its record is, the mask that the program sees, whether it waits,
//! what was sent to it, where its frames are, and the name that another thread gave it.
//!
//! Initial-exec TLS: an offset from the thread pointer that is fixed when the object is loaded, so that reading it in a
//! handler takes no call and no allocation. Stable Rust cannot express it; assembly can.

use core::arch::{asm, global_asm};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

global_asm!(
    // The loader copies this one into new threads.
    ".pushsection .tdata.callpath,\"awT\",@progbits",
    ".balign 8",
    ".hidden callpath_lane_word",
    ".type callpath_lane_word,@object",
    ".size callpath_lane_word,8",
    "callpath_lane_word:",
    ".zero 8",
    ".popsection",
    ".pushsection .tbss.callpath,\"awT\",@nobits",
    ".balign 8",
    ".hidden callpath_thread_words",
    ".type callpath_thread_words,@object",
    ".size callpath_thread_words,56",
    "callpath_thread_words:",
    ".zero 56",
    ".popsection",
);

/// One of the words.
#[derive(Clone, Copy)]
pub enum Word {
    /// The `ArenaRef` of the thread's record; 0: none yet.
    Record = 0,
    /// What the kernel's mask does not say of the program's (`crate::masks`).
    Mask = 8,
    /// Whether it is in a wait that a sample may have interrupted (`crate::waits`).
    Wait = 16,
    /// 1: a SIGTRAP was sent to this very thread and not yet passed to its handler (`crate::sends`).
    Sent = 24,
    /// Where the sentinel's frames are (`crate::sentinel`).
    Frames = 32,
    /// The name that a thread has set for it (`crate::names`), perhaps before there was a record; its first 8 bytes.
    Named = 40,
    /// The others.
    NamedMore = 48,
}

/// The address of a word of the thread with this thread pointer, which is what the C library calls a `pthread_t`.
pub fn address_of(thread_pointer: usize, word: Word) -> *const AtomicU64 {
    let at: usize;
    // SAFETY: reads the words' offset from the thread pointer.
    unsafe {
        asm!("mov {at}, qword ptr [rip + callpath_thread_words@GOTTPOFF]", at = lateout(reg) at,
            options(nostack, readonly, preserves_flags));
    }
    thread_pointer.wrapping_add(at).wrapping_add(word as usize) as *const AtomicU64
}

/// How far above the thread pointer each thread has [`Word::Record`]: an `i32`, as all such distances are.
pub fn record_distance() -> u32 {
    address_of(0, Word::Record) as usize as u32
}

/// The calling thread's thread pointer.
pub fn thread_pointer() -> usize {
    let at;
    // SAFETY: fs:[0] is the thread pointer itself (psABI, TLS variant II).
    unsafe { asm!("mov {}, qword ptr fs:[0]", lateout(reg) at, options(nostack, readonly, preserves_flags)) };
    at
}

pub fn get(word: Word) -> u64 {
    let value;
    // SAFETY: reads one of the words above, relative to the thread pointer.
    unsafe {
        asm!(
            "mov {offset}, qword ptr [rip + callpath_thread_words@GOTTPOFF]",
            "mov {value}, qword ptr fs:[{offset} + {word}]",
            offset = out(reg) _, value = lateout(reg) value, word = in(reg) word as u64,
            options(nostack, readonly, preserves_flags),
        );
    }
    value
}

/// Sets a word that is 0, and returns what it was before. A handler of the thread that interrupts this sets it first or
/// finds it set.
pub fn set_first(word: Word, value: u64) -> u64 {
    exchange(word, 0, value)
}

/// Sets a word that is `expected`, and returns what it was before. A handler of the thread that interrupts this comes
/// before it or after it.
pub fn exchange(word: Word, expected: u64, value: u64) -> u64 {
    let before;
    // SAFETY: compares and writes one of the words above, relative to the thread pointer, in one instruction.
    unsafe {
        asm!(
            "mov {offset}, qword ptr [rip + callpath_thread_words@GOTTPOFF]",
            "cmpxchg qword ptr fs:[{offset} + {word}], {value}",
            offset = out(reg) _, value = in(reg) value, word = in(reg) word as u64,
            inlateout("rax") expected => before, options(nostack),
        );
    }
    before
}

pub fn set(word: Word, value: u64) {
    // SAFETY: writes one of the words above, relative to the thread pointer.
    unsafe {
        asm!(
            "mov {offset}, qword ptr [rip + callpath_thread_words@GOTTPOFF]",
            "mov qword ptr fs:[{offset} + {word}], {value}",
            offset = out(reg) _, value = in(reg) value, word = in(reg) word as u64,
            options(nostack, preserves_flags),
        );
    }
}

unsafe extern "C" {
    /// The first byte of our object, by the linker.
    #[link_name = "__ehdr_start"]
    static OBJECT: u8;
}

/// How far above the thread pointer the word is that leads to a thread's lane.
pub fn lane_distance() -> usize {
    let at;
    // SAFETY: reads the word's offset from the thread pointer.
    unsafe {
        asm!("mov {}, qword ptr [rip + callpath_lane_word@GOTTPOFF]", lateout(reg) at,
            options(nostack, readonly, preserves_flags));
    }
    at
}

/// The address of that word of the calling thread.
fn lane_word() -> &'static AtomicU64 {
    // SAFETY: the word is there as long as the thread runs, which is as long as anything here does.
    unsafe { &*(thread_pointer().wrapping_add(lane_distance()) as *const AtomicU64) }
}

/// The address of the first word of the calling thread's lane; 0: it has none.
pub fn lane() -> u64 {
    lane_word().load(Relaxed)
}

/// Gives the calling thread another lane.
pub fn set_lane(words: u64) {
    lane_word().store(words, Relaxed);
}

/// Where the C library copies that word from when it makes a thread: the beginning of our object's segment of such words,
/// since none has initial data but that one.
pub fn lane_image() -> *const AtomicU64 {
    const PROGRAM_HEADERS: usize = 32;
    const HEADER_COUNT: usize = 56;
    const HEADER_LEN_BYTES: usize = 56;
    const VIRTUAL_ADDRESS: usize = 16;
    const TLS: u32 = 7;
    let object = &raw const OBJECT;
    // SAFETY: the ELF header of our own object, which is mapped with its program headers behind it.
    unsafe {
        let headers = object.add(object.add(PROGRAM_HEADERS).cast::<u64>().read_unaligned() as usize);
        let count = object.add(HEADER_COUNT).cast::<u16>().read_unaligned();
        for number in 0..usize::from(count) {
            let header = headers.add(number * HEADER_LEN_BYTES);
            if header.cast::<u32>().read_unaligned() == TLS {
                let at = header.add(VIRTUAL_ADDRESS).cast::<u64>().read_unaligned() as usize;
                return object.add(at).cast();
            }
        }
    }
    core::ptr::null()
}
