//! Work that takes long, while all processes are served: others run, and need memory for what they count.

use std::sync::mpsc::{self, TryRecvError};
use std::time::Duration;

use crate::error::RecordError;
use crate::serve::Recorder;
use crate::threads;

/// How often processes are looked at that do not ring.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Does it on another thread, if there is one, and serves processes until it is done.
pub(super) fn meanwhile<T: Send>(recorder: &mut Recorder<'_>, work: impl Fn() -> T + Sync) -> Result<T, RecordError> {
    let doorbell = recorder.doorbell();
    std::thread::scope(|scope| {
        let (to_us, from_worker) = mpsc::channel();
        let (work, doorbell) = (&work, &doorbell);
        let worker = threads::start_in(scope, move || {
            drop(to_us.send(work()));
            doorbell.ring();
        });
        if worker.is_none() {
            return Ok(work());
        }
        loop {
            match from_worker.try_recv() {
                Ok(done) => return Ok(done),
                Err(TryRecvError::Empty) => recorder.serve_for(LOOK_EVERY),
                Err(TryRecvError::Disconnected) => {
                    return Err(RecordError::Injected { reason: "an analysis of the program's code has failed" });
                }
            }
        }
    })
}
