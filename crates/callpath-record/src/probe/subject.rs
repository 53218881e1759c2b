//! The process that is probed, as the recorder serves it: until it ends, its time is over, or somebody interrupts.

use std::time::{Duration, Instant};

use callpath_target::{Certainty, Ended, Pid, ProcessHandle};

use crate::error::RecordError;
use crate::probe::control::{Control, Demand};
use crate::probe::programs::Probes;
use crate::serve::{Recorder, Subject};
use crate::signals;

/// How often the process's memory map is read: libraries may have come or gone.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Of a program that callpath has started.
pub(super) const RUNS_ON: &str = "the program was still running when the probes were taken out: it continues, and callpath does not wait for it (exit status 0)";

/// A process that is probed.
pub(super) struct Watched<'o> {
    pub(super) handle: ProcessHandle,
    pub(super) probes: Probes<'o>,
    /// Where requests come from.
    pub(super) control: Option<Control>,
    /// callpath has started it.
    pub(super) is_child: bool,
    pub(super) until: Option<Instant>,
    pub(super) looked: Instant,
}

impl Subject for Watched<'_> {
    fn look(&mut self, recorder: &mut Recorder<'_>) -> Option<Result<Ended, RecordError>> {
        if let Some(ended) = self.end() {
            self.probes.note_end(recorder);
            return Some(Ok(ended));
        }
        let demand = self.control.as_ref().and_then(|control| control.serve(&mut self.probes, recorder));
        let is_over = demand == Some(Demand::Stop) || self.until.is_some_and(|until| Instant::now() >= until);
        if is_over || signals::shall_stop() {
            self.probes.take_all_out(recorder);
            self.probes.note_end(recorder);
            if self.is_child {
                recorder.note(RUNS_ON);
            }
            return Some(Ok(Ended { certainty: Certainty::GoesOn, ..Ended::default() }));
        }
        if self.looked.elapsed() >= LOOK_EVERY {
            self.probes.follow(recorder);
            self.looked = Instant::now();
        }
        None
    }
}

impl Watched<'_> {
    /// How it has ended, if it has. Of one that callpath has not started, that it has is all that is known.
    fn end(&self) -> Option<Ended> {
        if self.is_child {
            return wait_for(self.handle.pid());
        }
        let unknown = Ended { certainty: Certainty::Unknown, ..Ended::default() };
        (!self.handle.lives()).then_some(unknown)
    }
}

/// How a child has ended, if it has.
fn wait_for(child: Pid) -> Option<Ended> {
    let mut status = 0;
    // SAFETY: zeros are valid, and both places are.
    let (waited, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::wait4(child.0 as i32, &mut status, libc::WNOHANG, &mut usage), usage)
    };
    if waited != child.0 as i32 {
        return None;
    }
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    let signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
    let status = signal.map_or_else(|| libc::WEXITSTATUS(status), |signal| 128 + signal);
    Some(Ended {
        certainty: Certainty::Known,
        status,
        signal,
        user: time(usage.ru_utime),
        kernel: time(usage.ru_stime),
    })
}
