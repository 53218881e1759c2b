//! The object that is preloaded into measured programs: the only one that exports C symbols.
//! No decoding, DWARF or database here; what happens in a sample is callpath-collect's.
//!
//! It needs no library: what it uses of libc is bound to the program's own when it is loaded, all at once (`-z now`),
//! so that nothing is resolved inside a signal handler. Without a session in the environment it does nothing.
#![no_std]

mod attach;
mod digits;
mod entries;
mod environment;
mod exec;
mod file;
mod filter;
mod fork;
mod handlers;
mod hook;
mod info;
mod lanes;
mod libc;
mod limits;
mod loader;
mod look_up;
mod masks;
mod memory;
mod names;
mod outside;
mod part;
mod recorder;
mod sanitizer;
mod seccomp;
mod sends;
mod sentinel;
mod session;
mod signal;
mod spawn;
mod successor;
mod threads;
mod time;
mod timer;
mod tls;
mod waits;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // No code here can panic (`cargo xtask audit-collect` checks this); if one did, it would stop the process. SAFETY:
    // `ud2` ends the process; it needs and changes nothing.
    unsafe { core::arch::asm!("ud2", options(noreturn)) }
}
