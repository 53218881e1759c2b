//! A thread's counters of the processor, which it reads without a system call (`callpath_collect::counter`). What is counted the recorder says, in the
//! kernel's own words; nothing here knows events.
//!
//! Each thread opens its own where its first path is measured, keeps the page that the kernel shares, and closes the descriptor: the page keeps the event.

use callpath_collect::counter::{CounterPage, rdpmc};
use callpath_collect::syscall::{call4, call6, getpid, gettid, number, unmap};
use callpath_format::shared::Settings;
use callpath_format::shared::lanes::{LaneHead, LanesHead};
use callpath_format::shared::times::TimesHead;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::areas::map_wiped;
use crate::join;
use crate::undisturbed::Undisturbed;

const PAGE_BYTES: usize = 4096;

/// What the thread of a lane has.
#[repr(C)]
struct OfLane {
    /// The thread's number; 0: nothing was opened.
    thread: AtomicU64,
    /// The addresses of the kernel's pages; 0: the metric is no counter, or cannot be counted.
    pages: [AtomicU64; TimesHead::METRICS],
    /// How long each was not counted when the path that is measured began ([`callpath_collect::counter::Counted::missed_ns`]).
    missed_ns: [AtomicU64; TimesHead::METRICS],
}

/// The address of [`OfLane`] of each lane; 0: there is none. In a fork's child all of them are empty: it has none of the pages.
static TABLE: AtomicU64 = AtomicU64::new(0);

/// The counters of the calling thread.
#[derive(Clone, Copy)]
pub struct Counters {
    lane: u32,
}

impl Counters {
    /// # Safety
    /// `lane` must be the address of the words of the calling thread's lane.
    pub unsafe fn of(lane: u64) -> Counters {
        // SAFETY: the head is before the words.
        let head = unsafe { &*((lane as usize).wrapping_sub(LaneHead::LEN_BYTES) as *const LaneHead) };
        Counters { lane: head.number.load(Relaxed) as u32 }
    }

    fn own(self) -> Option<&'static OfLane> {
        let table = TABLE.load(Acquire) as *const OfLane;
        // A lane of several threads has no thread's counters.
        if table.is_null() || self.lane == LanesHead::SHARED || self.lane as usize >= LanesHead::MOST {
            return None;
        }
        // SAFETY: it has as many, and stays mapped; atomics are valid for any bytes.
        Some(unsafe { &*table.wrapping_add(self.lane as usize) })
    }

    /// A path is measured: opens the counters, if the thread has not done so. `false`: the path cannot be measured.
    pub fn begin(self, head: &TimesHead) -> bool {
        let is_counter = |number: usize| {
            head.metrics.get(number).is_some_and(|metric| metric.meter.load(Relaxed) as u32 == Settings::EXACT_COUNTER)
        };
        if !is_counter(0) && !is_counter(1) {
            return true;
        }
        make_table();
        // What cannot be read is counted where it is read.
        let Some(own) = self.own() else { return true };
        if own.thread.load(Relaxed) != u64::from(gettid()) {
            // A child of `vfork` has its parent's lane, whose paths go on.
            if join::process().is_none_or(|process| process.slot.pid.load(Relaxed) != getpid()) {
                return false;
            }
            let _undisturbed = Undisturbed::begin();
            for (number, (page, metric)) in own.pages.iter().zip(&head.metrics).enumerate() {
                // Of a thread that has ended.
                match page.swap(0, Relaxed) as usize {
                    0 => {}
                    before => unmap(before, PAGE_BYTES),
                }
                if is_counter(number) {
                    page.store(open(metric.attributes.as_ptr() as usize).unwrap_or(0) as u64, Relaxed);
                }
            }
            own.thread.store(gettid().into(), Relaxed);
        }
        for (number, missed_ns) in own.missed_ns.iter().enumerate() {
            if let Some(counted) = own.page(number).and_then(read) {
                missed_ns.store(counted.missed_ns, Relaxed);
            }
        }
        true
    }

    /// What a counter says. `None`: it cannot be read, or has missed events since the path began.
    pub fn read(self, number: usize) -> Option<u64> {
        let own = self.own()?;
        let counted = read(own.page(number)?)?;
        (counted.missed_ns == own.missed_ns.get(number)?.load(Relaxed)).then_some(counted.events)
    }
}

impl OfLane {
    fn page(&self, number: usize) -> Option<&'static CounterPage> {
        // SAFETY: 0, or a page of the kernel's that stays mapped while this is not another number.
        unsafe { (self.pages.get(number)?.load(Relaxed) as *const CounterPage).as_ref() }
    }
}

fn read(page: &CounterPage) -> Option<callpath_collect::counter::Counted> {
    // SAFETY: the page says that it may.
    page.read(|number| unsafe { rdpmc(number) })
}

fn make_table() {
    const BYTES: usize = (LanesHead::MOST * size_of::<OfLane>()).next_multiple_of(PAGE_BYTES);
    if TABLE.load(Acquire) != 0 {
        return;
    }
    if let Some(at) = map_wiped(BYTES)
        && TABLE.compare_exchange(0, at as u64, AcqRel, Acquire).is_err()
    {
        unmap(at, BYTES);
    }
}

/// Opens a counter on the calling thread, and gives the address of its page. `None`: the kernel does not let it.
fn open(attributes: usize) -> Option<usize> {
    const CALLING_THREAD: usize = 0;
    const ANY_PROCESSOR: usize = usize::MAX;
    const NO_GROUP: usize = usize::MAX;
    const CLOSE_ON_EXEC: usize = 8;
    const PROT_READ: usize = 1;
    const MAP_SHARED: usize = 1;
    let arguments = [attributes, CALLING_THREAD, ANY_PROCESSOR, NO_GROUP, CLOSE_ON_EXEC, 0];
    // SAFETY: the kernel reads the attributes.
    let descriptor = unsafe { call6(number::PERF_EVENT_OPEN, arguments) };
    if descriptor < 0 {
        return None;
    }
    // SAFETY: at a place that the kernel chooses.
    let page = unsafe { call6(number::MMAP, [0, PAGE_BYTES, PROT_READ, MAP_SHARED, descriptor as usize, 0]) };
    // SAFETY: it is ours.
    unsafe { call4(number::CLOSE, [descriptor as usize, 0, 0, 0]) };
    (page > 0).then_some(page as usize)
}
