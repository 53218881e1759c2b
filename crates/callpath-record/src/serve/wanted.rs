//! Programs that load no preloaded object and that measured processes start: sampled from outside, if that can be had.

use std::sync::atomic::Ordering::Release;

use callpath_format::shared::Settings;
use callpath_format::shared::wanted::WantedState;
use callpath_target::{Maps, Pid, ProcessHandle, SampledFrom};

use super::Recorder;
use crate::arena::wake;
use crate::rings::{Outside, of_started, sees_user_mode_only};

impl Recorder<'_> {
    /// Answers processes that run, or are about to run, programs that load no preloaded object.
    pub(crate) fn serve_wanted(&mut self) {
        let session = self.shared.allocator.session();
        let asked: Vec<_> =
            session.wanted.iter().enumerate().filter_map(|(at, wanted)| Some((at, wanted.read()?))).collect();
        for (at, (tid, unmeasured, waits)) in asked {
            let from = if waits { SampledFrom::ItsExec } else { SampledFrom::Now };
            let taken = self.sample_started(tid, from) == Some(true);
            let session = self.shared.allocator.session();
            if taken && let Some(program) = unmeasured.and_then(|index| session.unmeasured.get(index)) {
                program.count(false);
            }
            let answer = match (waits, taken) {
                (false, _) => WantedState::FREE,
                (true, true) => WantedState::TAKEN,
                (true, false) => WantedState::REFUSED,
            };
            session.wanted[at].state.store(answer, Release);
            wake(&session.wanted[at].state);
        }
    }

    /// Samples a thread from when it executes a program, or a process that runs one. Whether that could be had; `None`: nothing
    /// that is asked for is sampled from outside.
    pub(crate) fn sample_started(&mut self, tid: u32, from: SampledFrom) -> Option<bool> {
        let settings = self.shared.allocator.settings();
        let wall = settings.uses(Settings::WALL_TIME);
        if !(settings.uses(Settings::CPU_TIME) || wall) || self.shared.programs.are_counted() {
            return None;
        }
        let (period_ns, infers, pid) = (settings.period_ns, settings.infers(), Pid(tid));
        // The number is the process's own: in another PID name space it is another process's here.
        let is_ours = |pid: Pid| Maps::read(pid).is_ok_and(|maps| self.shared.allocator.is_mapped_in(&maps));
        let known = |pid: Pid| self.processes.iter().any(|process| process.pid() == pid);
        let parent = ProcessHandle::open(pid).parent();
        if !(is_ours(pid) || parent.is_some_and(|parent| known(parent) && is_ours(parent))) {
            return Some(false);
        }
        let mut outside = match self.outside.take() {
            Some(outside) => outside,
            None => {
                let user_only = sees_user_mode_only();
                if wall && user_only {
                    // Their waits could not be seen.
                    return Some(false);
                }
                let Ok(outside) = Outside::new(of_started(period_ns, user_only, wall), infers, self.doorbell()) else {
                    return Some(false);
                };
                outside
            }
        };
        self.is_beside = true;
        let begun = match from {
            SampledFrom::Now => self.begin_outside(&mut outside, pid),
            SampledFrom::ItsExec | SampledFrom::EachExec => outside.begin_at_exec(tid, from),
        };
        self.outside = Some(outside);
        Some(begun.is_ok())
    }
}
