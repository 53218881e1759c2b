//! What each thread keeps, found by its thread pointer: threads that did not begin with us have no word of TLS for us.
//!
//! A fork's child finds the table and all areas empty (MADV_WIPEONFORK): it counts its own.

use callpath_collect::syscall::{call4, gettid, map_private, unmap};
use callpath_collect::{Process, Thread};
use callpath_format::shared::probe::{Activation, Area, Slot, Waiting};
use callpath_format::shared::{ArenaRef, ThreadRecord};
use core::arch::asm;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::{contexts, gauges, join};

/// The table's address, for `routines.rs`.
pub static TABLE: AtomicU64 = AtomicU64::new(0);

/// A thread that is not found in so many places behind its own has none.
const PROBES: usize = 16;
/// So much of a thread's control block is searched for its number, bytes: what the C libraries keep there.
const CONTROL_BLOCK_BYTES: u64 = 1024;

/// Maps the table. `false`: there is no memory.
pub fn begin() -> bool {
    match map_wiped(Slot::COUNT * size_of::<Slot>()) {
        Some(at) => TABLE.store(at as u64, Relaxed),
        None => return false,
    }
    true
}

/// Memory that is zeroes in a fork's child.
pub fn map_wiped(len_bytes: usize) -> Option<usize> {
    wiped(map_private(len_bytes)?, len_bytes)
}

/// Has memory that was just mapped be zeroes in a fork's child. `None`: the kernel cannot; it is unmapped.
pub fn wiped(at: usize, len_bytes: usize) -> Option<usize> {
    const MADVISE: usize = 28;
    const MADV_WIPEONFORK: usize = 18;
    const MADV_DONTDUMP: usize = 16;
    // SAFETY: changes what a fork's child finds there; it is our own memory.
    if unsafe { call4(MADVISE, [at, len_bytes, MADV_WIPEONFORK, 0]) } != 0 {
        unmap(at, len_bytes);
        return None;
    }
    // SAFETY: changes only what a core dump holds.
    unsafe { call4(MADVISE, [at, len_bytes, MADV_DONTDUMP, 0]) };
    Some(at)
}

/// Makes memory of ours that was mapped zeroes again.
pub fn empty(at: usize, len_bytes: usize) {
    const MADVISE: usize = 28;
    const MADV_DONTNEED: usize = 4;
    // SAFETY: private memory of ours without a file: it reads as zeroes from now on.
    unsafe { call4(MADVISE, [at, len_bytes, MADV_DONTNEED, 0]) };
}

/// The calling thread's thread pointer.
fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: the word at fs:0 is the thread pointer itself (psABI, TLS variant II).
    unsafe { asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags)) };
    pointer
}

/// A word of the calling thread's control block.
fn control_word(at: u64) -> u32 {
    let word: u32;
    // SAFETY: within the control block: `at` is below CONTROL_BLOCK_BYTES, and was found there.
    unsafe {
        asm!("mov {:e}, dword ptr fs:[{}]", out(reg) word, in(reg) at, options(nostack, readonly, preserves_flags))
    };
    word
}

fn slots() -> &'static [Slot] {
    match TABLE.load(Relaxed) {
        0 => &[],
        // SAFETY: `begin` has mapped as many, which stay; atomics are valid for any bytes.
        at => unsafe { core::slice::from_raw_parts(at as *const Slot, Slot::COUNT) },
    }
}

/// Where a thread's place in the table is, or would be: as `routines.rs` computes it.
fn home(pointer: u64) -> usize {
    const BITS: u32 = Slot::COUNT.trailing_zeros();
    (((pointer >> Slot::SPACING_SHIFT) as u32).wrapping_mul(Slot::SPREAD) >> (u32::BITS - BITS)) as usize
}

/// The process, the calling thread's record, and what it keeps.
type Own = (&'static Process<'static>, Thread<'static>, *mut Area);

/// The places in the table where the thread with this thread pointer may be.
fn places(pointer: u64) -> impl Iterator<Item = &'static Slot> {
    (0..PROBES).filter_map(move |n| slots().get((home(pointer) + n) % Slot::COUNT))
}

/// What the thread at a place in the table keeps, if it is the calling one and not another that had its memory before.
fn kept(slot: &Slot) -> Option<Own> {
    let area = slot.area.load(Relaxed) as *mut Area;
    let process = join::process()?;
    // SAFETY: areas stay mapped; only the calling thread uses its own.
    let (record, check_at, check) = unsafe { ((*area).record, (*area).check_at, (*area).check) };
    // Not by the record's number: its memory may have become the calling thread's record since, and what the area leads to is gone.
    let is_same = match check & Area::ASKS {
        0 => u64::from(control_word(check_at)) == check,
        _ => check == Area::ASKS | u64::from(gettid()),
    };
    let thread = Thread::at(process, ArenaRef(record as u32))?;
    is_same.then_some((process, thread, area))
}

/// What the calling thread keeps, and its record. `None`: nothing is known of it.
pub fn known() -> Option<Own> {
    let pointer = thread_pointer();
    places(pointer).find(|slot| slot.thread.load(Acquire) == pointer).and_then(kept)
}

/// The same, and it is made if nothing is known. `None`: there is no memory, or the process does not take part.
pub fn own() -> Option<Own> {
    let pointer = thread_pointer();
    if let Some(slot) = places(pointer).find(|slot| slot.thread.load(Acquire) == pointer) {
        let area = slot.area.load(Relaxed) as *mut Area;
        join::settled()?;
        if let Some(kept) = kept(slot) {
            return Some(kept);
        }
        // Another thread has got the memory of one that has ended. The recorder sees by itself that it has.
        let process = join::own_process()?;
        let thread = create(process, pointer)?;
        // SAFETY: as above.
        unsafe { set_up(area, process, &thread) };
        return Some((process, thread, area));
    }
    let process = join::own_process()?;
    let area = map_wiped(size_of::<Area>())?;
    let Some(thread) = create(process, pointer) else {
        unmap(area, size_of::<Area>());
        return None;
    };
    let area = area as *mut Area;
    // SAFETY: mapped just now, writable, and nobody else knows it.
    unsafe { set_up(area, process, &thread) };
    // A handler that has interrupted this thread may have been here before: then its record is the thread's.
    if let Some(slot) = places(pointer).find(|slot| slot.thread.load(Acquire) == pointer) {
        drop_unused(process, pointer, &thread);
        unmap(area as usize, size_of::<Area>());
        let area = slot.area.load(Relaxed) as *mut Area;
        // SAFETY: as above.
        let thread = Thread::at(process, ArenaRef(unsafe { (*area).record } as u32))?;
        return Some((process, thread, area));
    }
    for slot in places(pointer) {
        let before = slot.thread.load(Relaxed);
        if (before == 0 || has_ended(process, slot))
            && slot.thread.compare_exchange(before, u64::MAX, AcqRel, Relaxed).is_ok()
        {
            slot.area.store(area as u64, Relaxed);
            slot.thread.store(pointer, Release);
            return Some((process, thread, area));
        }
    }
    unmap(area as usize, size_of::<Area>());
    drop_unused(process, pointer, &thread);
    None
}

/// Drops the record of a thread, unless the thread is sampled: then it is its own whatever becomes of its area.
fn drop_unused(process: &Process<'_>, pointer: u64, thread: &Thread<'_>) {
    if record_word(process, pointer).is_none() {
        drop_record(thread);
    }
}

/// The recorder takes the record back as one of a thread that never ran.
fn drop_record(thread: &Thread<'_>) {
    thread.record.tid.store(0, Relaxed);
    thread.record.state.store(ThreadRecord::EXITED, Release);
}

/// Whether the thread of a place in the table has ended. Its area is left: there may be as many as places.
fn has_ended(process: &Process<'_>, slot: &Slot) -> bool {
    const TGKILL: usize = 234;
    const ESRCH: isize = -3;
    let area = slot.area.load(Relaxed) as *const Area;
    if area.is_null() || slot.thread.load(Relaxed) == u64::MAX {
        return false;
    }
    // SAFETY: areas stay mapped.
    let record = unsafe { (*area).record };
    let Some(thread) = Thread::at(process, ArenaRef(record as u32)) else { return false };
    let (pid, tid) = (process.slot.pid.load(Relaxed), thread.record.tid.load(Relaxed));
    // SAFETY: signal 0 is never sent: the call only checks whether the thread exists.
    tid == 0 || unsafe { call4(TGKILL, [pid as usize, tid as usize, 0, 0]) } == ESRCH
}

fn create(process: &Process<'static>, pointer: u64) -> Option<Thread<'static>> {
    let admitted = join::admission()?;
    let word = record_word(process, pointer);
    if let Some(thread) = word.and_then(|word| recorded(process, word)) {
        return Some(thread);
    }
    let stack = if pointer == admitted.first_thread { admitted.stack } else { own_stack(pointer) };
    join::await_chunks(process);
    let thread = Thread::create(process, gettid(), stack, [0; 2]);
    match (thread, word) {
        (None, _) => {
            process.ring();
            None
        }
        (Some(thread), Some(word)) => Some(made_known(process, thread, word)),
        (thread, None) => thread,
    }
}

/// The word of the calling thread that leads to its record. `None`: the process is not sampled, and nobody else looks for one.
fn record_word(process: &Process<'_>, pointer: u64) -> Option<&'static AtomicU64> {
    let distance = process.slot.record_word.load(Relaxed) as i32;
    let at = pointer.wrapping_add_signed(distance.into()) as *const AtomicU64;
    // SAFETY: the process's own object has said where its threads have it, which is as long as they run.
    (distance != 0).then(|| unsafe { &*at })
}

/// The record that a thread of a process which is sampled has already.
fn recorded(process: &Process<'static>, word: &AtomicU64) -> Option<Thread<'static>> {
    let thread = Thread::at(process, ArenaRef(word.load(Relaxed) as u32))?;
    let (record, tid) = (thread.record, gettid());
    // One that just begins has not yet entered its number.
    let before = record.tid.compare_exchange(0, tid, Relaxed, Relaxed).unwrap_or_else(|before| before);
    ([0, tid].contains(&before) && record.slot.load(Relaxed) == process.slot_index).then_some(thread)
}

/// Has samples of the calling thread find the record that was made for it, if there is none by now: the thread counts before its
/// first instruction in the sampled process's own object, which would make another one.
fn made_known(process: &Process<'static>, made: Thread<'static>, word: &AtomicU64) -> Thread<'static> {
    made.start_clocks(process);
    if word.compare_exchange(0, made.reference().0.into(), AcqRel, Relaxed).is_ok() {
        return made;
    }
    // A sample has come meanwhile. Of a thread that shares another one's memory, the word is that one's.
    match recorded(process, word) {
        Some(earlier) => {
            drop_record(&made);
            earlier
        }
        None => made,
    }
}

/// What is known of the calling thread's stack: from here up to the thread's control block, which the C libraries keep at
/// its top.
fn own_stack(pointer: u64) -> [u64; 2] {
    let low: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) low, options(nomem, nostack, preserves_flags)) };
    /// A control block farther up is no thread's stack.
    const LONGEST: u64 = 1 << 30;
    if low < pointer && pointer - low < LONGEST { [low, pointer] } else { [0; 2] }
}

/// Where the C library keeps the calling thread's number in its control block. What is a part of an address may be the same number, too,
/// in all threads: the upper half of one in the program's code is about 0x5600. So zeroes behind it come first, as glibc has them.
fn number_at(tid: u32) -> Option<u64> {
    let mut found = (0..CONTROL_BLOCK_BYTES).step_by(8).filter(|at| tid != 0 && control_word(*at) == tid);
    let first = found.next()?;
    let is_alone = |at: &u64| control_word(*at + 4) == 0;
    if is_alone(&first) { Some(first) } else { found.find(is_alone).or(Some(first)) }
}

/// # Safety
/// The area must be mapped, and the calling thread's own.
unsafe fn set_up(area: *mut Area, process: &Process<'_>, thread: &Thread<'_>) {
    let tid = gettid();
    let at = number_at(tid);
    // SAFETY: the caller vouches for the area.
    unsafe {
        // Where its number is not found, what never is: each hit asks the kernel.
        (*area).check_at = at.unwrap_or(0);
        (*area).check = u64::from(tid) | if at.is_some() { 0 } else { Area::ASKS };
        (*area).record = u64::from(thread.reference().0);
        gauges::fill_in(&mut (*area).gauges, process);
        (*area).waiting = Waiting::NONE;
        // What a thread before it knew is not this one's.
        for known in &mut (*area).known {
            known.site = 0;
        }
        if let Some(bottom) = (*area).activations.first_mut() {
            *bottom = Activation::mark(0);
        }
        (*area).top = (*area).activations.as_ptr() as u64;
        contexts::forget(&mut (*area).nodes);
    }
}
