//! What a program sees that waits for us: that we are at work.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use crate::program::Doorbell;
use crate::threads;

/// Does what takes long while the program sees that we are at work.
pub(crate) fn while_beating<T>(beat: &Doorbell, work: impl FnOnce() -> T) -> T {
    const EVERY: Duration = Duration::from_millis(500);
    let (is_at_work, ends) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let beats = threads::start_in(scope, move || {
            while ends.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                beat.ring();
            }
        });
        let done = work();
        drop(is_at_work);
        drop(beats);
        done
    })
}
