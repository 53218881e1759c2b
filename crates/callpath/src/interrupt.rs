//! Interrupts of a command that has something to put in order before it ends. A second one ends it at once.

use std::sync::atomic::{AtomicU8, Ordering};

/// The signal that came, or 0.
static CAUGHT: AtomicU8 = AtomicU8::new(0);

/// From now on the first interrupt, termination or hang-up is only noted. One that is ignored stays so.
pub(crate) fn catch() {
    extern "C" fn note(signal: libc::c_int) {
        CAUGHT.store(signal as u8, Ordering::Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: both actions are valid; the handler stores a byte.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_DFL {
                action.sa_sigaction = note as *const () as usize;
                action.sa_flags = libc::SA_RESTART | libc::SA_RESETHAND;
                libc::sigaction(signal, &action, std::ptr::null_mut());
            }
        }
    }
}

/// The signal that came.
pub(crate) fn caught() -> Option<u8> {
    Some(CAUGHT.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
}
