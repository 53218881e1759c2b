//! The stubs that stand in marked return addresses' places, and the record of each.
//! Knows nothing of trees; the stubs' code is the preloaded object's.
//!
//! A stub is never moved from one live frame to another but by the return through it: an unwinder may hold its address
//! between two reads (csprof-2006 leaves this open; random tests do not show it).

use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU32, AtomicU64};

use super::frames::Frames;
use crate::syscall;

/// Bytes from one stub to the next.
pub const STUB_BYTES: u64 = 32;
/// How many stubs a process has.
pub const STUBS: usize = 8192;
/// Stubs are given to threads so many at a time.
pub const GROUP: usize = 32;
/// Procedures that read their own return address.
pub const READERS: usize = 24;

/// What a stub stands for. Its layout is known to the stubs' code.
#[repr(C, align(64))]
pub struct Record {
    /// The return address that the stub has replaced.
    pub real: AtomicU64,
    /// Where it has: the address of the return address. 0: the stub is free.
    pub slot: AtomicU64,
    /// The frame's entry (address) among its thread's [`super::frames::Frames`]. 0: nothing is counted and no other frame
    /// marked when it returns.
    pub entry: AtomicU64,
    /// The stub's address.
    pub stub: AtomicU64,
    reserved: [u64; 4],
}

impl Record {
    /// A free one.
    pub const fn new() -> Record {
        let [real, slot, entry, stub] = [const { AtomicU64::new(0) }; 4];
        Record { real, slot, entry, stub, reserved: [0; 4] }
    }
}

impl Default for Record {
    fn default() -> Record {
        Record::new()
    }
}

/// A thread's frames.
#[derive(Clone, Copy)]
pub enum Own {
    /// None yet.
    NotYet,
    /// None, and none must be made.
    Never,
    /// These.
    Has(&'static Frames),
}

/// The stubs of this process.
#[derive(Clone, Copy)]
pub struct Stubs {
    /// Where the first one begins.
    pub first: u64,
    /// The code that all of them go on to; it begins where the last one ends.
    pub common: u64,
    /// From here on in that code, the return address is at rsp - 8, and the record is another frame's.
    pub left: u64,
    /// One past that code.
    pub end: u64,
    /// One for each stub.
    pub records: &'static [Record; STUBS],
    /// The thread (its number) that each group of stubs belongs to, 0: none.
    pub owners: &'static [AtomicU32; STUBS / GROUP],
    /// Where procedures begin that read their own return address, zeros behind the last.
    pub readers: &'static [AtomicU64; READERS],
    /// What the calling thread has.
    pub own: fn() -> Own,
    /// Gives it something.
    pub set_own: fn(Own),
}

/// How long a procedure that reads its own return address is at most, bytes.
const LONGEST_READER_BYTES: u64 = 384;

impl Stubs {
    /// The record of the stub that an address is, if it is one.
    #[inline]
    pub(crate) fn record(&self, addr: u64) -> Option<&'static Record> {
        let offset = addr.wrapping_sub(self.first);
        if offset >= STUBS as u64 * STUB_BYTES || !offset.is_multiple_of(STUB_BYTES) {
            return None;
        }
        self.records.get((offset / STUB_BYTES) as usize)
    }

    /// Whether an address is that of a stub, or within one.
    #[inline]
    pub(crate) fn contain(&self, addr: u64) -> bool {
        addr.wrapping_sub(self.first) < STUBS as u64 * STUB_BYTES
    }

    /// Whether a program counter is in the stubs' code.
    pub(crate) fn contain_pc(&self, pc: u64) -> bool {
        (self.first..self.end).contains(&pc)
    }

    /// Where a thread that was interrupted in that code is about to return to. `rax`: its register.
    pub(crate) fn target(&self, pc: u64, rax: u64, at_left: impl FnOnce() -> Option<u64>) -> Option<u64> {
        if pc >= self.left {
            return at_left();
        }
        if pc < self.common {
            let stub = pc - (pc - self.first) % STUB_BYTES;
            return Some(self.record(stub)?.real.load(Relaxed));
        }
        let offset = rax.checked_sub(self.records.as_ptr() as u64)?;
        if !offset.is_multiple_of(size_of::<Record>() as u64) {
            return None;
        }
        Some(self.records.get(offset as usize / size_of::<Record>())?.real.load(Relaxed))
    }

    /// Whether the code at `pc` may be of a procedure that reads its own return address: setjmp keeps it for later.
    pub(crate) fn is_reader(&self, pc: u64) -> bool {
        self.readers.iter().any(|at| pc.wrapping_sub(at.load(Relaxed)) < LONGEST_READER_BYTES)
    }

    /// Takes a group of stubs for a thread: one that is free, or one whose thread is no more. `looks`: how many to look at.
    pub(crate) fn take_group(&self, tid: u32, start: usize, looks: usize) -> Option<usize> {
        let pid = syscall::getpid();
        (0..looks.min(self.owners.len())).map(|n| (start + n) % self.owners.len()).find(|group| {
            let Some(owner) = self.owners.get(*group) else { return false };
            let now = owner.load(Relaxed);
            (now == 0 || !syscall::is_thread(pid, now)) && owner.compare_exchange(now, tid, Acquire, Relaxed).is_ok()
        })
    }
}
