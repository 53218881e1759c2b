//! What is recorded: the program that was typed, and how it is started.

use callpath_target::{Ended, Launch, Pid, find_program, raise_own_limits, survive_long_files};

use super::{Prepared, Recorded, Recorder};
use crate::error::RecordError;
use crate::offered;
use crate::output::Destination;
use crate::program::{Preload, Waiter, kill};
use crate::settings::RecordOptions;
use crate::signals::{HandedOn, Signals};
use crate::suitable::check_program;

/// Runs the program and records it from inside, with what is done in it while it is recorded. Before the program is started an error
/// means that it never ran. `subject`: makes it of the program and its number.
pub(crate) fn record_as<S: Subject>(
    options: &RecordOptions,
    subject: impl FnOnce(Program, &mut Recorder<'_>) -> S,
) -> Result<Recorded, RecordError> {
    let program = find_program(&options.program)?;
    let suitable = check_program(&program)?;
    let (options, notes) = offered::fit(options)?;
    let options = &options;
    survive_long_files();
    raise_own_limits();
    let mut prepared = Prepared::new(options)?;
    prepared.notes.extend(notes);
    let preload = Preload::in_cache(options)?;
    let destination = Destination::known(options)?;
    let mut environment = prepared.environment(&preload.path);
    environment.extend(suitable.environment());
    prepared.notes.extend(suitable.note());
    let launch = Launch {
        program: program.clone(),
        name: options.program.clone(),
        arguments: options.arguments.clone(),
        environment,
        added_space: prepared.added_space(),
    };
    let signals = Signals::hold_back();
    let (waiter, pid) = Waiter::start(&launch, prepared.doorbell())?;
    let signals = signals.hand_on_to(pid);
    let destination = match destination {
        Some(destination) => destination,
        // The program waits in its loader for us; an error here must not leave it running unmeasured.
        None => Destination::usual(&options.program, pid).inspect_err(|_| kill(pid))?,
    };
    prepared.notes.extend(destination.note);
    let mut recorder = Recorder::new(prepared, options, &program, destination.directory);
    let subject = subject(Program { pid, waiter, signals }, &mut recorder);
    let recorded = recorder.run(subject)?;
    Ok(Recorded { of_job: destination.of_job, ..recorded })
}

/// What is recorded, as long as it runs.
pub(crate) trait Subject {
    /// Looks whether it has ended, a few times a second: how, once it has.
    fn look(&mut self, recorder: &mut Recorder<'_>) -> Option<Result<Ended, RecordError>>;

    /// Hands on signals to it that have come, while nothing else is done for it any more.
    fn listen(&mut self) {}
}

impl<S: Subject> Subject for &mut S {
    fn look(&mut self, recorder: &mut Recorder<'_>) -> Option<Result<Ended, RecordError>> {
        S::look(self, recorder)
    }

    fn listen(&mut self) {
        S::listen(self);
    }
}

/// A program that was typed.
pub(crate) struct Program {
    pub(crate) pid: Pid,
    pub(crate) waiter: Waiter,
    pub(crate) signals: HandedOn,
}

impl Subject for Program {
    fn look(&mut self, _: &mut Recorder<'_>) -> Option<Result<Ended, RecordError>> {
        self.signals.look();
        self.waiter.result().map(|ended| ended.map_err(RecordError::from))
    }

    fn listen(&mut self) {
        self.signals.look();
    }
}
