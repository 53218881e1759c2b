//! A ring that the kernel writes the records of one processor's events into, and this process reads.

mod record;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::perf_event::Attributes;
pub(crate) use record::Fields;
pub use record::{Record, RingRecord, StackCopy, What};

const PAGE_BYTES: usize = 4096;

/// A ring of one processor. The kernel overwrites nothing in it that was not read: what finds no room is lost, and counted.
#[derive(Debug)]
pub struct Ring {
    /// Holds it; other events write into it.
    holder: OwnedFd,
    /// A page with the positions, then the data.
    base: *mut u8,
    data_bytes: usize,
}

// SAFETY: the mapping is this value's own; the kernel writes to it as the rules of its first page say.
unsafe impl Send for Ring {}
// SAFETY: as above: all access through a shared reference is to atomics.
unsafe impl Sync for Ring {}

impl Ring {
    /// A ring for the events of a processor, of the first of these lengths that the kernel allows (powers of two, bytes).
    pub fn open(processor: u32, lengths: &[usize]) -> io::Result<Ring> {
        let holder = Attributes::of_ring().open(0, Some(processor))?;
        let mut refused = io::Error::from_raw_os_error(libc::EINVAL);
        for data_bytes in lengths.iter().copied().filter(|len| len.is_power_of_two() && *len >= PAGE_BYTES) {
            let (len, access) = (PAGE_BYTES + data_bytes, libc::PROT_READ | libc::PROT_WRITE);
            let (null, fd) = (std::ptr::null_mut(), holder.as_raw_fd());
            // SAFETY: a new mapping at no fixed address.
            let base = unsafe { libc::mmap(null, len, access, libc::MAP_SHARED, fd, 0) };
            if base != libc::MAP_FAILED {
                return Ok(Ring { holder, base: base.cast(), data_bytes });
            }
            refused = io::Error::last_os_error();
        }
        Err(refused)
    }

    /// What is readable when something was written.
    pub fn descriptor(&self) -> RawFd {
        self.holder.as_raw_fd()
    }

    /// How much it holds, bytes.
    pub fn len_bytes(&self) -> usize {
        self.data_bytes
    }

    /// Has an event of the same processor write into it.
    pub(crate) fn take_in(&self, event: RawFd) -> io::Result<()> {
        const SET_OUTPUT: libc::c_ulong = 0x2405;
        // SAFETY: the argument is a descriptor's number.
        match unsafe { libc::ioctl(event, SET_OUTPUT, self.descriptor()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// A position's word in the first page: `data_head`, `data_tail` (include/uapi/linux/perf_event.h).
    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: inside the first page of our mapping, at a multiple of eight bytes.
        unsafe { &*self.base.add(offset).cast() }
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the data of our own mapping, which begins at a page.
        unsafe { std::slice::from_raw_parts(self.base.add(PAGE_BYTES).cast(), self.data_bytes / 8) }
    }

    /// The records that have been written and not given back, the oldest first.
    pub fn records(&self) -> Records<'_> {
        const DATA_HEAD: usize = 1024;
        let (at, end) = (self.position(Ring::DATA_TAIL).load(Relaxed), self.position(DATA_HEAD).load(Acquire));
        Records { words: self.words(), at, end }
    }

    /// Whether a thread has begun by the records from a position on, and the position behind them. If records are given back
    /// meanwhile, the answer may be wrong.
    pub fn tells_of_thread(&self, from: u64) -> (bool, u64) {
        let all = self.records();
        let mut new = Records { at: from.clamp(all.at, all.end.max(all.at)), ..all };
        let tells = new.by_ref().fold(false, |tells, record| tells | record.tells_of_thread());
        (tells, new.position())
    }

    /// Gives back all before a position, [`Records::position`]: their place is written again.
    pub fn give_back(&self, before: u64) {
        self.position(Ring::DATA_TAIL).store(before, Release);
    }

    const DATA_TAIL: usize = 1032;
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nothing borrows any more.
        unsafe { libc::munmap(self.base.cast(), PAGE_BYTES + self.data_bytes) };
    }
}

/// The records of a ring, as long as they are not given back.
#[derive(Clone, Debug)]
pub struct Records<'r> {
    /// The ring's data: it goes on at the beginning.
    words: &'r [AtomicU64],
    at: u64,
    end: u64,
}

impl<'r> Records<'r> {
    #[cfg(test)]
    /// Records that lie in these words from `at` to `end`, positions in bytes that grow without end.
    pub(crate) fn within(words: &'r [AtomicU64], at: u64, end: u64) -> Records<'r> {
        Records { words, at, end }
    }

    /// How many bytes of records are left to read.
    pub fn left_bytes(&self) -> u64 {
        self.end.saturating_sub(self.at)
    }

    /// Where the next record begins, in bytes since the ring was made.
    pub fn position(&self) -> u64 {
        self.at
    }
}

impl<'r> Iterator for Records<'r> {
    type Item = RingRecord<'r>;

    fn next(&mut self) -> Option<RingRecord<'r>> {
        let left = usize::try_from(self.end.checked_sub(self.at)?).ok()?.min(8 * self.words.len());
        let begin = (self.at / 8) as usize;
        let head = self.words.get(begin % self.words.len().max(1))?.load(Relaxed);
        // Type, flags, length: 32, 16 and 16 bits.
        let len = (head >> 48) as usize;
        if len < 8 || !len.is_multiple_of(8) || len > left {
            // Not what the kernel writes: nothing behind it can be read.
            self.at = self.end;
            return None;
        }
        self.at += len as u64;
        Some(RingRecord::new(self.words, begin, len / 8))
    }
}
