//! Bounds the threads that analyse: modules in parallel, and the procedures of each, within one bound.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use callpath_image::memory::has_room;

/// Memory that must be free for another thread to start, in bytes: its stack, and twice what
/// glibc's allocator reserves for it. Where memory is limited (`ulimit -v`), one thread that ends
/// its work is more than several that do not.
const ROOM_FOR_THREAD: usize = 256 << 20;

/// Threads at work now.
static AT_WORK: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// This thread is counted.
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
}

/// The right to be one of the threads at work, until it is dropped.
pub(crate) struct Permit {
    count: &'static AtomicUsize,
}

impl Permit {
    /// One more, if there are a processor and memory for it. The thread that works
    /// by it is to [`begin`](Permit::begin) it.
    pub(crate) fn take() -> Option<Permit> {
        let permit = Permit::take_of(&AT_WORK, std::thread::available_parallelism().map_or(1, usize::from))?;
        has_room(ROOM_FOR_THREAD).then_some(permit)
    }

    fn take_of(count: &'static AtomicUsize, limit: usize) -> Option<Permit> {
        let more = |at_work: usize| (at_work < limit).then_some(at_work + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Permit { count })
    }

    /// For the first of several threads, which continues whatever the others do.
    pub(crate) fn first() -> Permit {
        AT_WORK.fetch_add(1, Ordering::Relaxed);
        Permit { count: &AT_WORK }
    }

    /// For the first of several that are to be begun; none if there is no memory for it.
    pub(crate) fn first_of_several() -> Option<Permit> {
        has_room(ROOM_FOR_THREAD).then(Permit::first)
    }

    /// For a thread that others have started, and that may be counted already.
    pub(crate) fn of_caller() -> Option<Permit> {
        (!IS_COUNTED.get()).then(Permit::first)
    }

    /// Called by the thread that works by it, once, and for as long as it lives.
    pub(crate) fn begin(&self) {
        IS_COUNTED.set(true);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_there_are_processors() {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let mut permits: Vec<Permit> = std::iter::from_fn(|| Permit::take_of(&COUNT, 3)).collect();
        assert_eq!(permits.len(), 3);
        assert!(Permit::take_of(&COUNT, 3).is_none());
        permits.pop();
        assert!(Permit::take_of(&COUNT, 3).is_some());
    }
}
