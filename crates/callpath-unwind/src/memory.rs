//! The memory that a walk reads, as a trait.

/// The memory that a walk may look at: a stack.
pub trait Memory {
    /// The eight bytes at `addr`, little-endian; `None` if they cannot be read.
    fn read_u64(&mut self, addr: u64) -> Option<u64>;

    /// The return address that what was found for one stands for: something may have put its own in its place, and
    /// know. `at`: where it was found, 0 if that is not known. `None`: it is lost.
    #[inline]
    fn true_return(&mut self, _at: u64, found: u64) -> Option<u64> {
        Some(found)
    }
}
