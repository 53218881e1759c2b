//! Counts the work of the analyses, for tests of its growth: instructions that are read, and entries of worklists.

#[cfg(test)]
thread_local! {
    static DONE: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts one instruction read, or one entry of a worklist. Costs nothing outside tests.
#[inline(always)]
pub(crate) fn count() {
    #[cfg(test)]
    DONE.set(DONE.get() + 1);
}

/// This thread's count so far.
#[cfg(test)]
pub(crate) fn done() -> u64 {
    DONE.get()
}
