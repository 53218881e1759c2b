//! Counts the steps of the search for structure, for the tests of its growth.

#[cfg(test)]
thread_local! {
    static TAKEN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts `count` places that are looked at. Costs nothing outside of tests.
#[inline(always)]
pub(super) fn take(count: usize) {
    #[cfg(test)]
    TAKEN.set(TAKEN.get() + count as u64);
    #[cfg(not(test))]
    let _ = count;
}

/// What this thread took.
#[cfg(test)]
pub(super) fn taken() -> u64 {
    TAKEN.get()
}
