//! Counters of the processor that a thread reads without a system call: the page that the kernel shares with whoever maps an event, and
//! `rdpmc`. The protocol is that of `struct perf_event_mmap_page` in the kernel's include/uapi/linux/perf_event.h.

use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicI64, AtomicU16, AtomicU32, AtomicU64, fence};

/// The beginning of the page.
#[repr(C)]
#[derive(Default)]
pub struct CounterPage {
    version: [AtomicU32; 2],
    /// Another number before and behind what is read: the kernel has changed it meanwhile.
    lock: AtomicU32,
    /// The processor's counter, + 1; 0: the event is not counted at present.
    index: AtomicU32,
    /// What is to be added to what the counter says.
    offset: AtomicI64,
    /// How long the event was to be counted, nanoseconds.
    enabled_ns: AtomicU64,
    /// How long it was counted.
    running_ns: AtomicU64,
    capabilities: AtomicU64,
    /// How many bits of the counter there are.
    width: AtomicU16,
}

/// What a counter says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted {
    /// How many events there were.
    pub events: u64,
    /// How long the event was to be counted and was not, since others had the processor's counters, nanoseconds. Between two readings with different
    /// numbers, events are missing.
    pub missed_ns: u64,
}

impl CounterPage {
    /// The bit of `capabilities`: the program may execute `rdpmc`.
    const USER_RDPMC: u64 = 1 << 2;

    /// What it says to the thread that the event is of. `rdpmc`: reads a counter of the processor by its number. `None`: it is not counted at
    /// present, or cannot be read so.
    #[inline]
    pub fn read(&self, mut rdpmc: impl FnMut(u32) -> u64) -> Option<Counted> {
        /// The kernel changes it where the thread gets or loses a processor: seldom enough.
        const TRIES: usize = 64;
        for _ in 0..TRIES {
            let lock = self.lock.load(Acquire);
            let index = self.index.load(Relaxed);
            let offset = self.offset.load(Relaxed);
            let missed_ns = self.enabled_ns.load(Relaxed).wrapping_sub(self.running_ns.load(Relaxed));
            let may_read = self.capabilities.load(Relaxed) & CounterPage::USER_RDPMC != 0;
            let width = self.width.load(Relaxed);
            let counter = match index.checked_sub(1) {
                Some(number) if may_read => Some(rdpmc(number)),
                _ => None,
            };
            fence(Acquire);
            if self.lock.load(Relaxed) != lock {
                continue;
            }
            // It is as wide as that, with a sign.
            let unused = 64 - u32::from(width.clamp(1, 64));
            let signed = (counter? << unused) as i64 >> unused;
            return Some(Counted { events: offset.wrapping_add(signed) as u64, missed_ns });
        }
        None
    }
}

/// Reads a counter of the processor.
///
/// # Safety
/// The kernel must have said that this thread may read it ([`CounterPage`]): else the program is ended by a signal.
#[inline]
pub unsafe fn rdpmc(number: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the caller vouches for it; it changes these two registers. What comes before is done, and what comes behind has not begun.
    unsafe {
        core::arch::asm!("lfence", "rdpmc", "lfence", in("ecx") number, lateout("eax") low, lateout("edx") high, options(nostack));
    }
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(index: u32, offset: i64, width: u16) -> CounterPage {
        CounterPage {
            index: index.into(),
            offset: offset.into(),
            enabled_ns: 70.into(),
            running_ns: 50.into(),
            capabilities: CounterPage::USER_RDPMC.into(),
            width: width.into(),
            ..CounterPage::default()
        }
    }

    /// Offsets in the page, by the kernel's header.
    #[test]
    fn the_page_is_the_kernels() {
        use core::mem::offset_of;
        let offsets = [
            offset_of!(CounterPage, lock),
            offset_of!(CounterPage, index),
            offset_of!(CounterPage, offset),
            offset_of!(CounterPage, enabled_ns),
            offset_of!(CounterPage, running_ns),
            offset_of!(CounterPage, capabilities),
            offset_of!(CounterPage, width),
        ];
        assert_eq!(offsets, [8, 12, 16, 24, 32, 40, 48]);
    }

    #[test]
    fn a_counter_is_as_wide_as_the_page_says_with_a_sign() {
        let read = |page: CounterPage, value: u64| {
            let mut numbers = 0;
            let read = page.read(|number| {
                numbers = number;
                value
            });
            (numbers, read.map(|counted| (counted.events, counted.missed_ns)))
        };
        assert_eq!(read(page(3, 1_000, 48), 7), (2, Some((1_007, 20))));
        // What lies above its width is not of it; the kernel lets counters begin at negative numbers.
        assert_eq!(read(page(1, 1 << 47, 48), 0xffff_8000_0000_0005), (0, Some((5, 20))));
        assert_eq!(read(page(1, 5, 64), u64::MAX), (0, Some((4, 20))));
        // Not counted now; nobody may read.
        assert_eq!(read(page(0, 1_000, 48), 7), (0, None));
        let closed = page(3, 0, 48);
        closed.capabilities.store(0, Relaxed);
        assert_eq!(read(closed, 7), (0, None));
    }

    #[test]
    fn what_the_kernel_changes_meanwhile_is_read_anew() {
        let page = page(1, 100, 48);
        let mut times = 0;
        let read = page.read(|_| {
            times += 1;
            if times < 3 {
                page.lock.fetch_add(2, Relaxed);
                page.offset.fetch_add(10, Relaxed);
            }
            times
        });
        assert_eq!((times, read.map(|counted| counted.events)), (3, Some(123)));
        let endless = page.read(|_| {
            page.lock.fetch_add(2, Relaxed);
            0
        });
        assert_eq!(endless, None);
    }
}
