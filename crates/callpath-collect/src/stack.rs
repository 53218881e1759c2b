//! The interrupted thread's memory, read without ever faulting.
//!
//! The known part of a thread's own stack reaches from its top down to where a sample has found it mapped.

use callpath_format::register::Reg;
use callpath_format::shared::ThreadRecord;
use callpath_format::shared::refused::Calls;
use callpath_format::shared::tree::{KnownKind, KnownWord};
use callpath_unwind::Memory;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::frame::Frame;
use crate::refused;
use crate::sample::{InSample, Interrupted, Sample};
use crate::sentinel::{Frames, Marks, Noted, Noting};
use crate::syscall;

/// The red zone: below rsp, but still the procedure's (psABI, section 3.2.2).
pub(crate) const RED_ZONE_BYTES: u64 = 128;
pub(crate) const PAGE_BYTES: u64 = 4096;

/// A stack. Between the thread's stack pointer and the end of its stack all is mapped; anything else, such as a signal
/// stack or a coroutine's, is probed page by page.
pub(crate) struct Stack {
    low: u64,
    high: u64,
    other: Probed,
    /// The sentinel's marks on it.
    pub(crate) marks: Marks,
}

/// Unknown memory: each page is probed before it is read, and the last two are remembered.
pub(crate) struct Probed {
    readable_pages: [u64; 2],
}

impl Probed {
    pub(crate) fn new(_in_sample: &InSample<'_>) -> Probed {
        Probed { readable_pages: [u64::MAX; 2] }
    }

    fn is_readable(&mut self, addr: u64) -> bool {
        let page = addr / PAGE_BYTES;
        if self.readable_pages.contains(&page) {
            return true;
        }
        // The last eight bytes of the page: a set of signals is read whole.
        if page == 0 || !syscall::is_readable(page * PAGE_BYTES + PAGE_BYTES - 8) {
            return false;
        }
        self.readable_pages = [page, self.readable_pages[0]];
        true
    }
}

impl Memory for Probed {
    #[inline]
    fn read_u64(&mut self, addr: u64) -> Option<u64> {
        let last = addr.checked_add(7)?;
        if !self.is_readable(addr) || !self.is_readable(last) {
            return None;
        }
        // SAFETY: the eight bytes are mapped: their pages have just been probed.
        Some(unsafe { read(addr) })
    }
}

/// The eight bytes at `addr`. Unaligned and volatile, so any address and any change are allowed.
///
/// # Safety
/// They must be mapped and readable.
unsafe fn read(addr: u64) -> u64 {
    // SAFETY: the caller vouches for the eight bytes.
    unsafe { core::ptr::read_volatile((addr as *const [u8; 8]).cast::<Unaligned>()) }.0
}

/// How far a stack may grow between two samples and still be followed at once, bytes.
const FOLLOWED_BYTES: u64 = 1 << 20;
/// A stack pointer farther below what is known of the stack is on another stack.
const FARTHEST_BYTES: u64 = 64 << 20;

impl Stack {
    pub(crate) fn new(sample: &Sample<'_, '_>) -> Stack {
        let record = sample.thread.record;
        let rsp = sample.interrupted.registers[Reg::RSP.index()];
        let [low, high] = [record.stack[0].load(Relaxed), record.stack[1].load(Relaxed)];
        let mut stack = Stack { low: 1, high: 0, other: Probed::new(sample.in_sample), marks: Marks::NONE };
        if rsp >= high || low.saturating_sub(rsp) > FARTHEST_BYTES {
            return stack;
        }
        let low = if refused::has(Calls::RT_SIGPROCMASK) { followed(record, low, rsp) } else { stack.grown(low, rsp) };
        record.stack[0].store(low, Relaxed);
        if low <= rsp {
            let zone = rsp.saturating_sub(RED_ZONE_BYTES);
            stack.low = if zone / PAGE_BYTES == rsp / PAGE_BYTES || stack.is_readable(zone) { zone } else { rsp };
            stack.high = high;
        }
        stack
    }

    /// Follows the stack from `low`, above which it is known to be mapped, down to the page of `rsp`, and not beyond:
    /// a look below the stack pointer would make the kernel enlarge the stack.
    fn grown(&mut self, low: u64, rsp: u64) -> u64 {
        let (mut page, last) =
            (low / PAGE_BYTES, (rsp / PAGE_BYTES).max(low.saturating_sub(FOLLOWED_BYTES) / PAGE_BYTES));
        while page > last && self.is_readable((page - 1) * PAGE_BYTES) {
            page -= 1;
        }
        low.min(page * PAGE_BYTES)
    }

    /// The bounds of readable memory, if rsp was on the thread's own stack.
    pub(crate) fn bounds(&self) -> Option<(u64, u64)> {
        if self.low < self.high { Some((self.low, self.high)) } else { None }
    }

    pub(crate) fn is_readable(&mut self, addr: u64) -> bool {
        self.other.is_readable(addr)
    }

    /// How many of these words, from the last one on, are unchanged: words of
    /// frames on the thread's own stack, not marked.
    #[inline]
    pub(crate) fn same_words(&self, known: &[KnownWord]) -> usize {
        let last = self.high.saturating_sub(8);
        let is_same = |entry: &&KnownWord| {
            let at = entry.at.load(Relaxed);
            let addr = at & !KnownKind::BITS;
            // SAFETY: on the thread's own stack above its stack pointer, where all is mapped.
            at & (KnownKind::WORD | KnownKind::SEAL) == 0
                && self.low <= addr
                && addr <= last
                && unsafe { read(addr) } == entry.word.load(Relaxed)
        };
        known.iter().rev().take_while(is_same).count()
    }

    /// The word at `addr`; if it is a mark, the return address that it replaces.
    #[inline]
    pub(crate) fn true_word(&mut self, addr: u64) -> Option<u64> {
        let found = self.read_u64(addr)?;
        self.true_return(0, found)
    }

    /// Copies words from `addr` on, up to `end`, to the first unreadable one, or as many as there is room for. Returns
    /// where it stopped. Marks are copied as the return addresses that they replace.
    pub(crate) fn copy(&mut self, mut addr: u64, end: u64, to: &[AtomicU64]) -> u64 {
        let mut to = to.iter();
        loop {
            let known =
                if self.low <= addr && addr < self.high { self.high } else { (addr / PAGE_BYTES + 1) * PAGE_BYTES };
            let until = known.min(end);
            // A word that lies in two pages, at the end of what is known of the stack.
            let len = if until.saturating_sub(addr) < 8 { 1 } else { (until - addr) / 8 };
            if addr.saturating_add(8) > end || self.read_u64(addr).is_none() {
                return addr;
            }
            for _ in 0..len {
                let Some(word) = to.next() else { return addr };
                // SAFETY: the bytes up to `until` are on the thread's own stack, where all is mapped, or in a page that
                // has just been read from; a single word that lies in two has been read itself.
                let found = unsafe { read(addr) };
                let Stack { marks, .. } = self;
                word.store(marks.true_return(0, found, |_| None).unwrap_or(found), Relaxed);
                addr += 8;
            }
        }
    }

    /// Where the callee of a frame keeps its return address, if it may be
    /// marked; else 0. `head`: of the callee's recipe.
    #[inline]
    pub(crate) fn slot_of_callee(&mut self, head: u16, caller: Frame<'_>) -> u64 {
        let Stack { marks, other, .. } = self;
        marks.slot(head, caller, |addr| other.read_u64(addr))
    }

    /// Notes the next frame inwards.
    pub(crate) fn note(&mut self, noting: Noting<'_, '_>, frame: Noted) {
        let Stack { marks, other, low, high } = self;
        marks.note(noting, frame, |addr| word(*low, *high, other, addr));
    }

    /// Marks one of the frames that were noted.
    pub(crate) fn mark(&mut self, interrupted: &Interrupted, noted: &Frames) {
        let Stack { marks, other, low, high } = self;
        marks.mark(interrupted, noted, |addr| word(*low, *high, other, addr));
    }
}

/// Eight bytes of a stack within `low..high`, or of other memory.
#[inline]
fn word(low: u64, high: u64, other: &mut Probed, addr: u64) -> Option<u64> {
    let last = addr.checked_add(7)?;
    if low <= addr && last < high {
        // SAFETY: they lie on the thread's own stack above its stack pointer, where all is mapped.
        return Some(unsafe { read(addr) });
    }
    other.read_u64(addr)
}

impl Memory for Stack {
    #[inline]
    fn read_u64(&mut self, addr: u64) -> Option<u64> {
        word(self.low, self.high, &mut self.other, addr)
    }

    #[inline]
    fn true_return(&mut self, at: u64, found: u64) -> Option<u64> {
        let Stack { marks, other, low, high } = self;
        marks.true_return(at, found, |addr| word(*low, *high, other, addr))
    }
}

/// How far a stack is known to reach down where memory cannot be probed: the first thread's
/// grows as it is used, and nothing lies close below.
fn followed(record: &ThreadRecord, low: u64, rsp: u64) -> u64 {
    let is_first = record.start_routine.load(Relaxed) == 0;
    if is_first && low.saturating_sub(rsp) <= FOLLOWED_BYTES { low.min(rsp) } else { low }
}

#[repr(C, packed)]
struct Unaligned(u64);
