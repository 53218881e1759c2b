//! The code that may run inside a signal handler of the measured program: from an interrupted thread to a node of its
//! tree. Knows no libc, no object file and no instruction; it sees shared memory, recipe tables and a stack.
//!
//! Nothing here allocates from the program's heap, takes a lock, calls into libc, prints or panics. Code that
//! runs inside a sample takes an `InSample` as proof.
#![no_std]

mod chunks;
pub mod clock;
mod code;
mod context_number;
pub mod counter;
mod deep;
mod frame;
mod gap;
mod life;
mod path;
pub mod probe;
pub mod process;
mod raw;
pub mod refused;
mod sample;
pub mod sentinel;
mod stack;
pub mod syscall;
mod take;
#[cfg(test)]
mod testing;
mod thread;
mod told;
mod tree;
mod weight;
mod work;

pub use chunks::await_chunks;
pub use process::Process;
pub use sample::{EventOf, Interrupted, Trigger};
pub use take::take;
pub use thread::Thread;
