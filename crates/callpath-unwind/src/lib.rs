//! The walk: from a thread's registers and memory, by recipes, to the frames of its call path.
//! It must not know where it runs: in a signal handler, over a retained raw sample, over a test's snapshot.
//!
//! It allocates nothing, takes no lock and never panics, whatever recipes and memory hold. Each step is bounded; a
//! walk ends, since every frame but a signal's must lie above the one before it.
#![no_std]
#![forbid(unsafe_code)]

mod expression;
mod memory;
mod step;
mod walk;

pub use memory::Memory;
pub use step::{Cursor, Step, Stop, step_open, step_packed};
pub use walk::{CodeMap, End, Located, MAX_SIGNAL_FRAMES, MAX_STACK_SWITCHES, innermost, walk};
