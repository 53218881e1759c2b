//! Four words of each thread: where its record is, the mask that it believes in, whether it waits, and what is kept for it.
//! Knows nothing of what they mean.
//!
//! Initial-exec TLS: an offset from the thread pointer that is fixed when the object is loaded, so that reading it in a
//! handler takes no call and no allocation. Stable Rust has no word for it; assembly has.

use core::arch::{asm, global_asm};

global_asm!(
    ".pushsection .tbss.callpath,\"awT\",@nobits",
    ".balign 8",
    ".hidden callpath_thread_words",
    ".type callpath_thread_words,@object",
    ".size callpath_thread_words,32",
    "callpath_thread_words:",
    ".zero 32",
    ".popsection",
);

/// One of the words.
#[derive(Clone, Copy)]
pub enum Word {
    /// The `ArenaRef` of the thread's record; 0: none yet.
    Record = 0,
    /// Bit 0: the program has blocked SIGTRAP in this thread, as far as it knows.
    Mask = 8,
    /// Whether it is in a wait that a sample may have interrupted (`crate::waits`).
    Wait = 16,
    /// 1: a SIGTRAP that was sent to this very thread while it was blocked has been put back.
    Kept = 24,
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
