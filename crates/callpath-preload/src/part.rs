//! Whether this process takes part in a measurement, and its view of it.

use callpath_collect::Process;
use callpath_collect::syscall::getpid;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

struct Cell(UnsafeCell<MaybeUninit<Process<'static>>>);
// SAFETY: written by one thread before `STATE` is set; read only afterwards.
unsafe impl Sync for Cell {}

static PROCESS: Cell = Cell(UnsafeCell::new(MaybeUninit::uninit()));
static STATE: AtomicU32 = AtomicU32::new(0);
const ATTACHED: u32 = 1;

/// This process's view of the measurement, if it takes part in one.
#[inline]
pub fn process() -> Option<&'static Process<'static>> {
    if STATE.load(Acquire) != ATTACHED {
        return None;
    }
    // SAFETY: `STATE` is `ATTACHED` only after the value was written; it is written again only in a fork's child, which
    // has one thread.
    Some(unsafe { (*PROCESS.0.get()).assume_init_ref() })
}

/// As `process`, but only if this is the process that attached, not a child that a raw clone or vfork made of it.
pub fn own_process() -> Option<&'static Process<'static>> {
    process().filter(|p| p.slot.pid.load(Relaxed) == getpid())
}

/// Sets the process's view: it takes part from now on.
///
/// # Safety
/// The process must have one thread, and no reference from [`process`] may exist: its
/// constructors have not run, or it is a fork's child.
pub unsafe fn begin(process: Process<'static>) {
    // SAFETY: it is not read meanwhile, and no reference to the old value exists: the caller vouches for both.
    unsafe { (*PROCESS.0.get()).write(process) };
    STATE.store(ATTACHED, Release);
}

/// Stops taking part: there was no slot for a fork's child, or the program forbids itself system calls.
pub fn leave() {
    STATE.store(0, Release);
}

/// Takes part again.
pub fn come_back() {
    STATE.store(ATTACHED, Release);
}
