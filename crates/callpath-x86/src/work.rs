//! Counts the work of the analyses, for the tests of its growth: instructions that are read, and what worklists hand out.

#[cfg(test)]
thread_local! {
    static DONE: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// One instruction is read, or one entry of a worklist looked at. Costs nothing outside of tests.
#[inline(always)]
pub(crate) fn count() {
    #[cfg(test)]
    DONE.set(DONE.get() + 1);
}

/// What this thread has counted so far.
#[cfg(test)]
pub(crate) fn done() -> u64 {
    DONE.get()
}
