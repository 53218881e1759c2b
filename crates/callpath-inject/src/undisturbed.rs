//! Work that no signal handler of the program's interrupts.

use callpath_collect::syscall::{call4, number};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// All signals that can be held back are, as long as it is there: a handler may call probed procedures, and finds nothing
/// half done. Of a process that is sampled, samples are let through, which would come late: the thread's record shows
/// them where it is in use.
pub struct Undisturbed {
    before: u64,
}

const SIG_SETMASK: usize = 2;
/// The signal of samples, in a mask.
const SIGTRAP: u64 = 1 << (5 - 1);

/// A mask of those that are held back.
static HELD_BACK: AtomicU64 = AtomicU64::new(u64::MAX);

/// From now on samples are let through.
pub fn let_samples_through() {
    HELD_BACK.store(!SIGTRAP, Relaxed);
}
const MASK_BYTES: usize = size_of::<u64>();

impl Undisturbed {
    /// Holds them back.
    pub fn begin() -> Undisturbed {
        let (all, mut before) = (HELD_BACK.load(Relaxed), 0u64);
        let places = [core::ptr::from_ref(&all) as usize, core::ptr::from_mut(&mut before) as usize];
        // SAFETY: the kernel reads one mask and writes the other. Where a filter forbids the call, it is not made; the
        // mask then seems empty, and is not set again either.
        unsafe { call4(number::RT_SIGPROCMASK, [SIG_SETMASK, places[0], places[1], MASK_BYTES]) };
        Undisturbed { before }
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        let before = core::ptr::from_ref(&self.before) as usize;
        // SAFETY: the kernel reads the mask that it gave.
        unsafe { call4(number::RT_SIGPROCMASK, [SIG_SETMASK, before, 0, MASK_BYTES]) };
    }
}
