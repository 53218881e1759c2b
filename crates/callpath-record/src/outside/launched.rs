//! A program that loads no preloaded object: started by the recorder, and sampled from outside, with all that it starts.

use std::path::Path;
use std::sync::atomic::Ordering::Release;

use callpath_format::shared::Settings;
use callpath_format::shared::wanted::WantedState;
use callpath_target::{
    Launch, Maps, Pid, ProcessHandle, StackSamples, TargetError, raise_own_limits, survive_long_files,
};

use super::Outside;
use super::attached::{USER_ONLY, check_events, refusal, sees_user_mode_only};
use crate::arena::wake;
use crate::error::RecordError;
use crate::output::Destination;
use crate::program::{Waiter, kill};
use crate::serve::{Prepared, Program, Recorded, Recorder};
use crate::settings::{RecordOptions, Unwind};
use crate::signals::Signals;

/// Runs the program and samples it until it ends. `what` completes "it is ...".
pub(crate) fn record_from_outside(
    options: &RecordOptions,
    program: &Path,
    what: &str,
) -> Result<Recorded, RecordError> {
    check_events(options, &format!("the program is {what}: it"))?;
    if options.unwind != Unwind::Walk {
        let reason = format!("it is {what}, and heights of stacks (--unwind) are kept by an object inside a program");
        return Err(RecordError::Unsuitable { program: program.to_owned(), reason });
    }
    survive_long_files();
    raise_own_limits();
    let mut prepared = Prepared::new(options)?;
    let destination = Destination::known(options)?;
    let user_only = sees_user_mode_only();
    let samples = of_started(options.period_ns, user_only);
    let own = ProcessHandle::open(Pid(std::process::id()));
    let mut outside = Outside::new(samples, prepared.doorbell()).map_err(|error| refusal(&own, &error))?;
    prepared.notes.push(format!("sampled from outside: it is {what}"));
    prepared.notes.extend(user_only.then(|| USER_ONLY.to_owned()));
    let launch = Launch {
        program: program.to_owned(),
        name: options.program.clone(),
        arguments: options.arguments.clone(),
        environment: Vec::new(),
        added_space: 0,
    };
    let signals = Signals::hold_back();
    let mut begin = |pid: Pid| {
        let failed = |source| TargetError::Event { event: "cpu-clock with copies of stacks", pid, source };
        outside.begin_at_exec(pid.0).map_err(failed)
    };
    let (waiter, pid) = Waiter::start_after(&launch, prepared.doorbell(), Some(&mut begin))?;
    let signals = signals.hand_on_to(pid);
    let destination = match destination {
        Some(destination) => destination,
        None => Destination::usual(&options.program, pid).inspect_err(|_| kill(pid))?,
    };
    prepared.notes.extend(destination.note);
    let mut recorder = Recorder::new(prepared, options, program, destination.directory);
    recorder.outside = Some(outside);
    let recorded = recorder.run(Program { pid, waiter, signals })?;
    Ok(Recorded { of_job: destination.of_job, ..recorded })
}

/// Samples of programs that a recording starts, and of all that these start.
fn of_started(period_ns: u64, user_only: bool) -> StackSamples {
    StackSamples { period_ns, user_only, stack_bytes: 0, with_children: true, everything: false }
}

impl Recorder<'_> {
    /// Answers processes that run, or are about to run, programs that load no preloaded object.
    pub(crate) fn serve_wanted(&mut self) {
        let session = self.shared.allocator.session();
        let asked: Vec<_> =
            session.wanted.iter().enumerate().filter_map(|(at, wanted)| Some((at, wanted.read()?))).collect();
        for (at, (tid, unmeasured, waits)) in asked {
            let taken = self.sample_started(tid, waits);
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

    /// Samples a thread from when it executes a program, or a process that runs one. Whether that could be had.
    fn sample_started(&mut self, tid: u32, at_exec: bool) -> bool {
        let settings = self.shared.allocator.settings();
        if !settings.uses(Settings::CPU_TIME) || settings.keeps_heights() || self.shared.counted.is_some() {
            return false;
        }
        let (period_ns, pid) = (settings.period_ns, Pid(tid));
        // The number is the process's own: in another PID name space it is another process's here.
        let is_ours = |pid: Pid| Maps::read(pid).is_ok_and(|maps| self.shared.allocator.is_mapped_in(&maps));
        let known = |pid: Pid| self.processes.iter().any(|process| process.pid() == pid);
        let parent = ProcessHandle::open(pid).parent();
        if !(is_ours(pid) || parent.is_some_and(|parent| known(parent) && is_ours(parent))) {
            return false;
        }
        let mut outside = match self.outside.take() {
            Some(outside) => outside,
            None => {
                let user_only = sees_user_mode_only();
                let Ok(outside) = Outside::new(of_started(period_ns, user_only), self.doorbell()) else { return false };
                if user_only {
                    self.note(USER_ONLY);
                }
                outside
            }
        };
        let begun = if at_exec {
            outside.begin_at_exec(tid).is_ok()
        } else {
            match self.begin_outside(outside, pid) {
                Ok(begun) => {
                    self.outside = Some(begun);
                    return true;
                }
                Err(_) => return false,
            }
        };
        self.outside = Some(outside);
        begun
    }
}
