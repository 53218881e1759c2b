//! Work that takes long, while all processes are served: others run, and need memory for what they count.

use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::error::RecordError;
use crate::serve::Recorder;
use crate::threads;

/// How often processes are looked at that do not ring.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Does `work` on another thread, if one can be started, and serves processes until it is done.
pub(crate) fn meanwhile<T: Send>(
    recorder: &mut Recorder<'_>,
    work: impl FnOnce() -> T + Send,
) -> Result<T, RecordError> {
    let failed = || RecordError::NotAnalysed;
    let doorbell = recorder.doorbell();
    // Whoever takes it does it.
    let work = Mutex::new(Some(work));
    let take = || work.lock().unwrap_or_else(PoisonError::into_inner).take();
    std::thread::scope(|scope| {
        let (to_us, from_worker) = mpsc::channel();
        let (take, doorbell) = (&take, &doorbell);
        let worker = threads::start_in(scope, move || {
            if let Some(work) = take() {
                drop(to_us.send(work()));
            }
            doorbell.ring();
        });
        if worker.is_none() {
            return take().map(|work| work()).ok_or_else(failed);
        }
        loop {
            match from_worker.try_recv() {
                Ok(done) => return Ok(done),
                Err(TryRecvError::Empty) => recorder.serve_for(LOOK_EVERY),
                Err(TryRecvError::Disconnected) => return Err(failed()),
            }
        }
    })
}
