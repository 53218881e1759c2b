//! Probes in a program that callpath starts, and in those that it executes: alone, or in one measurement and one tree with samples. Each
//! program waits at its beginning until its probes are in; our object counts in the slot and the records that the process has anyway.

use std::path::Path;
use std::time::Instant;

use callpath_target::{Certainty, Ended};

use crate::beats::while_beating;
use crate::error::RecordError;
use crate::probe::chooser::{Chooser, Come};
use crate::probe::control::{Control, Demand};
use crate::probe::programs::{Probes, Results};
use crate::probe::subject::{LOOK_EVERY, RUNS_ON};
use crate::probe::wanted::Wanted;
use crate::probe::{ProbeOptions, ProbedProcess, discard_directory};
use crate::program::{Doorbell, kill};
use crate::serve::{Kept, Program, Recorder, Subject, record_as};
use crate::settings::RecordOptions;
use crate::signals;

/// What is probed in a program that is recorded.
pub struct ProbesBesideSamples<'o> {
    /// The bytes of the injected object.
    pub injected: &'static [u8],
    /// Says which procedures.
    pub chooser: &'o mut dyn Chooser,
}

/// Runs the program and records it until it ends, with probes in it from its first instruction on. `options` begin with
/// what the probes measure, and mark no return addresses.
///
/// # Errors
/// As of [`crate::record`]; also if nothing can be probed: then the program has been ended before its first instruction.
pub fn record_with_probes(
    options: &RecordOptions,
    probes: ProbesBesideSamples<'_>,
) -> Result<ProbedProcess, RecordError> {
    let ProbesBesideSamples { injected, chooser } = probes;
    run(options, (chooser, injected), Started { stop: Stop::Goes, begun: &mut |_| {} })
}

/// The same without samples.
///
/// # Errors
/// The same.
pub(super) fn probe_started(options: ProbeOptions<'_>) -> Result<ProbedProcess, RecordError> {
    let ProbeOptions { record, injected, duration, chooser, begun, .. } = options;
    let until = duration.map(|duration| Instant::now() + duration);
    run(record, (chooser, injected), Started { stop: Stop::Ends { until }, begun })
}

/// What is done with a program that was started.
struct Started<'o> {
    stop: Stop,
    /// Called once, before it begins, with the measurement's directory.
    begun: &'o mut dyn FnMut(&Path),
}

/// What becomes of the measurement when the probes are taken out.
#[derive(Clone, Copy)]
enum Stop {
    /// Samples go on.
    Goes,
    /// It ends, at this time at the latest.
    Ends { until: Option<Instant> },
}

fn run(
    options: &RecordOptions,
    (chooser, injected): (&mut dyn Chooser, &'static [u8]),
    Started { stop, begun }: Started<'_>,
) -> Result<ProbedProcess, RecordError> {
    let mut results = Results::default();
    let recorded = record_as(options, |program, recorder| {
        recorder.keep_waiting(Kept::Programs);
        ProbedProgram {
            program,
            probes: Probes::new(Wanted::new(options, (chooser, Come::Programs), injected)),
            state: State::Begins,
            started: Started { stop, begun },
            control: None,
            looked: Instant::now(),
            results: &mut results,
        }
    })?;
    Ok(results.of(recorded))
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The program that was typed has no probes yet.
    Begins,
    Runs,
    /// The probes are taken out.
    Stopped,
    /// The program that was typed has ended. Others may go on.
    Ended,
}

/// A program that is probed, with those that it executes.
struct ProbedProgram<'o> {
    program: Program,
    probes: Probes<'o>,
    state: State,
    started: Started<'o>,
    control: Option<Control>,
    looked: Instant,
    results: &'o mut Results,
}

impl Drop for ProbedProgram<'_> {
    fn drop(&mut self) {
        *self.results = self.probes.results();
    }
}

impl Subject for ProbedProgram<'_> {
    fn look(&mut self, recorder: &mut Recorder<'_>) -> Option<Result<Ended, RecordError>> {
        if let Some(ended) = self.program.look(recorder) {
            if self.state == State::Begins {
                recorder.note(
                    "nothing was probed: the program ended, or did not load callpath's object, before probes were set",
                );
            }
            // Processes of it that go on are no longer measured.
            self.stop(recorder);
            self.probes.note_end(recorder);
            self.state = State::Ended;
            self.control = None;
            return Some(ended);
        }
        if self.state == State::Ended {
            return None;
        }
        if let Err(error) = self.put_in_next(recorder) {
            kill(self.program.pid);
            discard_directory(&recorder.shared.directory);
            return Some(Err(error));
        }
        let demand = self.control.as_ref().and_then(|control| control.serve(&mut self.probes, recorder));
        let is_over = match self.started.stop {
            Stop::Ends { until } => until.is_some_and(|until| Instant::now() >= until) || signals::shall_stop(),
            Stop::Goes => false,
        };
        if demand == Some(Demand::Stop) || is_over && self.state == State::Runs {
            self.stop(recorder);
            if let Stop::Ends { .. } = self.started.stop {
                self.probes.note_end(recorder);
                recorder.note(RUNS_ON);
                self.program.waiter.leave();
                return Some(Ok(Ended { certainty: Certainty::GoesOn, ..Ended::default() }));
            }
        }
        if self.state == State::Runs && self.looked.elapsed() >= LOOK_EVERY {
            self.probes.follow(recorder);
            self.looked = Instant::now();
        }
        None
    }

    fn listen(&mut self) {
        self.program.listen();
    }
}

impl ProbedProgram<'_> {
    /// Takes the probes out. Programs that are executed later begin without.
    fn stop(&mut self, recorder: &mut Recorder<'_>) {
        self.probes.take_all_out(recorder);
        recorder.let_all_in();
        if self.state == State::Runs {
            self.state = State::Stopped;
        }
    }

    /// Puts probes into a program that waits, and lets it begin. An error is that of the one which was typed.
    fn put_in_next(&mut self, recorder: &mut Recorder<'_>) -> Result<(), RecordError> {
        let beat = Doorbell::new(&recorder.shared.allocator.session().beat);
        let Some((pid, slot)) = recorder.waiting() else { return Ok(()) };
        let is_first = self.state == State::Begins && pid == self.program.pid;
        while_beating(&beat, || self.probes.begin((pid, slot), recorder, is_first))?;
        if is_first {
            self.state = State::Runs;
            // There is an account of them, even if no program has any.
            recorder.probes();
            (self.started.begun)(&recorder.shared.directory);
            self.control = Control::open(&recorder.shared.directory).map_err(|why| recorder.note(&why)).ok();
        }
        recorder.let_in(slot);
        // Others may wait, too.
        recorder.doorbell().ring();
        Ok(())
    }
}
