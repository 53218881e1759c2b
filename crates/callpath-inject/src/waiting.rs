//! How long a thread waits, for the gauges of it: hidden probes of the C library's functions that wait call these routines.
//! A function that waits by calling another one waits once. No node is looked for, and no signal held back.

use callpath_format::shared::probe::{Interrupted, Waiting};

use crate::areas;
use crate::hit::Saved;
use crate::wait::{end, is_left, set};

/// `callpath_wait`: a function is entered that waits for others.
pub unsafe extern "C" fn waits(saved: &Saved) {
    begin(saved.rsp_at_exit(), Waiting::FOR_OTHERS);
}

/// `callpath_wait_for_io`: a function is entered that waits for input or output.
pub unsafe extern "C" fn waits_for_io(saved: &Saved) {
    begin(saved.rsp_at_exit(), Waiting::FOR_IO);
}

/// `callpath_go_on`: such a function is left.
pub unsafe extern "C" fn goes_on(saved: &Saved) {
    let Some((.., area)) = areas::known() else { return };
    // SAFETY: the area is the calling thread's.
    let waiting = unsafe { &raw mut (*area).waiting };
    // SAFETY: as above.
    unsafe { end(waiting, saved.rsp_at_exit()) };
}

/// A thread of which nothing is known has no activation either.
fn begin(rsp: u64, what_for: u64) {
    let Some((_, thread, area)) = areas::known() else { return };
    // SAFETY: the area is the calling thread's. Volatile: a handler may wait, too.
    unsafe {
        let waiting = &raw mut (*area).waiting;
        let outer = (&raw const (*waiting).rsp).read_volatile();
        if outer != 0 && !is_left(outer, rsp, &thread) {
            return;
        }
        set(waiting, Interrupted { rsp, what_for });
    }
}
