//! The walk: from a thread's registers and memory, by recipes, to the frames of its call path.
//! Knows nothing of where it runs: in a signal handler, over a kept raw sample, over a snapshot of a test.
//!
//! It allocates nothing, takes no lock and never panics, whatever recipes and memory hold. Each step is bounded; a
//! walk ends, since every frame but a signal's must lie above the one before it.
#![no_std]
#![forbid(unsafe_code)]

mod expression;
mod step;
mod walk;

pub use step::{Cursor, Step, Stop, step_open, step_packed};
pub use walk::{CodeMap, End, Located, MAX_SIGNAL_FRAMES, walk};

/// The memory that a walk may look at: a stack.
pub trait Memory {
    /// The eight bytes at `addr`, little-endian; `None` if they cannot be read.
    fn read_u64(&mut self, addr: u64) -> Option<u64>;

    /// The return address that what was found for one stands for: something may have put its own in its place, and know.
    /// `at`: where it was found, 0 if that is not known. `None`: it is lost.
    #[inline]
    fn true_return(&mut self, _at: u64, found: u64) -> Option<u64> {
        Some(found)
    }
}
