//! No more memory: a sentence and our exit status, where Rust's library would abort.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use callpath_image::memory::may_be_refused;

/// The system's allocator. Where it has nothing left, the command ends.
struct OrEnd;

#[global_allocator]
static ALLOCATOR: OrEnd = OrEnd;

/// How the command ends.
static STATUS: AtomicI32 = AtomicI32::new(1);

/// The stack of the first thread grows where memory is left, and without it the kernel ends
/// the process: so much of it is taken first.
const STACK_LEN: usize = 512 << 10;

/// Says how the command is to end for want of memory, and takes what cannot be refused later.
pub(crate) fn begin(status: u8) {
    end_with(status);
    if is_space_limited() {
        // SAFETY: only says how the C library is to allocate, before there is a second thread.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
    std::hint::black_box(&mut [0u8; STACK_LEN]);
}

/// Changes how the command is to end for want of memory.
pub(crate) fn end_with(status: u8) {
    STATUS.store(status.into(), Ordering::Relaxed);
}

/// Whether address space is limited. The C library would reserve 64 MiB of it for
/// each thread that allocates while others do.
fn is_space_limited() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid place.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) == 0 };
    is_known && limit.rlim_cur != libc::RLIM_INFINITY
}

/// Allocates nothing.
fn end() -> ! {
    static IS_ENDING: AtomicBool = AtomicBool::new(false);
    const SENTENCE: &[u8] = b"callpath: there is not enough memory for this (see ulimit -v)\n";
    if !IS_ENDING.swap(true, Ordering::Relaxed) {
        // SAFETY: a constant of that length is written. Whether it can be does not matter any more.
        unsafe { libc::write(libc::STDERR_FILENO, SENTENCE.as_ptr().cast(), SENTENCE.len()) };
        // SAFETY: ends the process; nothing that would allocate is run at its end.
        unsafe { libc::_exit(STATUS.load(Ordering::Relaxed)) };
    }
    // Another thread is at it.
    loop {
        // SAFETY: only waits.
        unsafe { libc::pause() };
    }
}

fn known(memory: *mut u8) -> *mut u8 {
    if memory.is_null() && !may_be_refused() { end() } else { memory }
}

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for OrEnd {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        known(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        known(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        known(unsafe { System.realloc(memory, layout, len) })
    }
}
