//! Stopping a process.

use std::time::Duration;

use callpath_target::{Halted, Pid};

use crate::error::RecordError;

/// How long threads may take to stop.
const STOP_AT_MOST: Duration = Duration::from_secs(5);

/// Stops all threads of a process.
pub(crate) fn halt(pid: Pid) -> Result<Halted, RecordError> {
    Ok(Halted::halt(pid, STOP_AT_MOST)?)
}
