//! A program that loads no preloaded object: started by the recorder, and sampled from outside, with all that it starts.

use std::path::Path;

use callpath_target::{
    Launch, Pid, ProcessHandle, SampledFrom, StackSamples, TargetError, raise_own_limits, survive_long_files,
};

use super::PATIENCE;
use super::attached::{check_events, refusal};
use crate::error::RecordError;
use crate::events::Clock;
use crate::output::Destination;
use crate::process::FirstStack;
use crate::program::{Waiter, kill};
use crate::rings::{Loading, Outside, USER_ONLY, of_started, sees_user_mode_only};
use crate::serve::{Prepared, Program, Recorded, Recorder};
use crate::settings::{FromOutside, RecordOptions, Unwind};
use crate::signals::Signals;
use crate::suitable::gains_privileges;

/// Runs the program and samples it until it ends. `what` completes "it is ...": why it cannot be measured from inside, if it cannot.
pub(crate) fn record_from_outside(
    options: &RecordOptions,
    program: &Path,
    what: Option<&str>,
) -> Result<Recorded, RecordError> {
    let is_asked_for = options.outside == FromOutside::Always;
    let subject = if is_asked_for {
        "the program".to_owned()
    } else {
        format!("the program is {}: it", what.unwrap_or("sampled from outside"))
    };
    let user_only = sees_user_mode_only();
    check_events(options, &subject, Some(user_only))?;
    survive_long_files();
    raise_own_limits();
    // It takes longer than what is prepared meanwhile.
    let deep = (options.unwind != Unwind::Infer).then(Loading::start);
    let mut prepared = Prepared::new(options)?;
    let destination = Destination::known(options)?;
    let samples = of_started(options.period_ns, user_only, options.uses(Clock::WallTime));
    let samples = StackSamples { kernel: options.kernel, ..samples };
    let own = ProcessHandle::open(Pid(std::process::id()));
    let mut outside = Outside::new(samples, options.unwind == Unwind::Infer, prepared.doorbell())
        .map_err(|error| refusal(&own, &error))?;
    deep.into_iter().for_each(|deep| outside.expect_deep(deep));
    if let Some(what) = what.filter(|_| !is_asked_for) {
        prepared.notes.push(format!("sampled from outside: it is {what}"));
    }
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
        outside.begin_at_exec(pid.0, SampledFrom::ItsExec).map_err(failed)?;
        outside.begin_deep(PATIENCE);
        Ok(())
    };
    let (waiter, pid) = Waiter::start_after(&launch, prepared.doorbell(), Some(&mut begin))?;
    if gains_privileges(program) {
        // The kernel has taken the events away when it executed the program. What this says of it is read with the records; a program
        // that has ended needs none, and what is refused is said then.
        if outside.begin(pid).is_ok() {
            outside.begun_again.insert(pid.0);
        }
    }
    if options.unwind != Unwind::Walk {
        outside.started = FirstStack::read(&ProcessHandle::open(pid)).map(|stack| (pid, stack));
    }
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
