//! Stopping a process.

use std::time::Duration;

use callpath_target::{Halted, Pid};

use crate::error::RecordError;

/// How long threads may take to stop.
const STOP_AT_MOST: Duration = Duration::from_secs(5);

/// Does what takes time before the first changes of a process, while it runs.
pub(crate) fn prepare(pid: Pid) {
    /// Longer than a busy machine takes to stop two threads.
    const AT_MOST: Duration = Duration::from_millis(200);
    // Where it cannot be done, it is tried again when it is needed.
    drop(Halted::prepare(pid, AT_MOST));
}

/// Stops all threads of a process.
pub(crate) fn halt(pid: Pid) -> Result<Halted, RecordError> {
    Ok(Halted::halt(pid, STOP_AT_MOST)?)
}
