//! Threads' names, as they are set: a thread may have ended before the recorder can read it.
//! A name that is written to /proc is the recorder's to read.

use callpath_collect::Thread;
use callpath_format::shared::{ArenaRef, ThreadRecord};
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::fence;

use crate::hook::hook;
use crate::libc::ENOSYS;
use crate::part;
use crate::tls::{self, Word};

/// A thread has its record now. A name that was set earlier is in its thread-local words.
pub fn has_begun(thread: &Thread<'_>) {
    fence(SeqCst);
    let words = [tls::get(Word::Named), tls::get(Word::NamedMore)];
    if words[0] != 0 {
        thread.record.set_name(words);
    }
}

/// A thread begins with the name of its creator.
pub fn inherit(by: &ThreadRecord, from: &ThreadRecord) {
    if let Some(name) = from.name() {
        by.set_name(name);
    }
}

/// The calling thread has set its name.
///
/// # Safety
/// `name` must be a string.
pub unsafe fn is_set(name: *const c_char) {
    // SAFETY: the caller vouches for the string.
    unsafe { note(tls::get(Word::Record), name) }
}

/// # Safety
/// `name` must be a string.
unsafe fn note(record: u64, name: *const c_char) {
    let Some(process) = part::own_process() else { return };
    if let Some(record) = process.arena.get::<ThreadRecord>(ArenaRef(record as u32)) {
        // SAFETY: the caller vouches for the string.
        record.set_name(unsafe { words_of(name) });
    }
}

/// # Safety
/// `name` must be a string, or as long as the kernel reads (`prctl` takes one without an end).
unsafe fn words_of(name: *const c_char) -> [u64; 2] {
    let mut text = [0; 15];
    let mut len = 0;
    for (index, place) in text.iter_mut().enumerate() {
        // SAFETY: the string has not ended before.
        *place = unsafe { *name.add(index) } as u8;
        if *place == 0 {
            break;
        }
        len = index + 1;
    }
    ThreadRecord::name_of(text.get(..len).unwrap_or(&text))
}

hook! {
    /// `pthread_setname_np(3)`: returns the error itself.
    fn pthread_setname_np(thread: *mut c_void, name: *const c_char) -> c_int, or ENOSYS;
    |next| {
        let result = next.original();
        if result == 0 {
            // SAFETY: the C library has just found the thread, and the program keeps it from ending until this returns;
            // our words are there as long as it is. The C library has read the string, too.
            unsafe {
                let [low, high] = words_of(name);
                (*tls::address_of(thread as usize, Word::NamedMore)).store(high, Relaxed);
                (*tls::address_of(thread as usize, Word::Named)).store(low, SeqCst);
                note((*tls::address_of(thread as usize, Word::Record)).load(SeqCst), name);
            }
        }
        result
    }
}
