//! Stopping a process.

use std::time::Duration;

use callpath_target::{Halted, Pid, Stopped};

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

/// How often and how long a program stood still.
#[derive(Clone, Default, Debug)]
pub struct Stops {
    /// As a whole: how long each time.
    pub whole: Vec<Duration>,
    /// Its first thread alone, while others ran.
    pub first_thread: Vec<Duration>,
}

impl Stops {
    /// Lets the stopped threads run on, and notes how long they were stopped.
    pub(crate) fn end(&mut self, stopped: Stopped) -> Result<(), RecordError> {
        let times = if stopped.is_whole() { &mut self.whole } else { &mut self.first_thread };
        times.push(stopped.release()?);
        Ok(())
    }
}

/// Stops the first thread of a process, or all of them where that one runs, or cannot work for us.
pub(crate) fn halt_first(pid: Pid) -> Result<Stopped, RecordError> {
    /// Longer than a busy machine takes to stop it.
    const AT_MOST: Duration = Duration::from_millis(200);
    match Stopped::first_thread(pid, AT_MOST) {
        Ok(stopped) => Ok(stopped),
        Err(_) => Ok(halt(pid)?.into()),
    }
}

/// Stops all threads of a process.
pub(crate) fn halt(pid: Pid) -> Result<Halted, RecordError> {
    Ok(Halted::halt(pid, STOP_AT_MOST)?)
}
