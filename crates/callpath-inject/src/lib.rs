//! The object that is injected into a running process: what copies of probed procedures call.
//! No decoding, DWARF or database here; how a call's path is found is callpath-collect's.
//!
//! It needs no library and no loader: the recorder maps it, and nothing in it is bound. It takes no lock, and makes no
//! allocation but by `mmap`. Its routines keep all registers but the arithmetic flags; `routines.rs` says how.
#![no_std]

mod activations;
mod areas;
mod contexts;
mod counters;
mod entry;
mod gauges;
mod hashed;
mod hit;
mod join;
mod left;
mod loads;
mod measured;
#[path = "../../callpath-preload/src/memory.rs"]
mod memory;
mod metrics;
mod routines;
mod times;
mod undisturbed;
mod wait;
mod waiting;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // No code here can panic (`cargo xtask audit-collect` checks this); if one did, it would stop the process. SAFETY:
    // `ud2` ends the process; it needs and changes nothing.
    unsafe { core::arch::asm!("ud2", options(noreturn)) }
}
