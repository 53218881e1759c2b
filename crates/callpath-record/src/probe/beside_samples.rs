//! Probes in a program that is recorded: one measurement of both, one tree. The program waits at its beginning until
//! the probes are in; our object counts in the slot and the records that the process has for its samples.

use std::time::Instant;

use callpath_schema::RefusedProbe;
use callpath_target::Ended;

use crate::beats::while_beating;
use crate::error::RecordError;
use crate::probe::chooser::Chooser;
use crate::probe::control::{Control, Demand};
use crate::probe::halt::Stops;
use crate::probe::inject::{Injected, InjectedInto};
use crate::probe::patches::Probes;
use crate::probe::subject::LOOK_EVERY;
use crate::probe::{ProbedProcess, discard_directory};
use crate::program::{Doorbell, kill};
use crate::serve::{Kept, Program, Recorder, Subject, record_as};
use crate::settings::RecordOptions;

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
    let mut results = Results::default();
    let recorded = record_as(options, |program, recorder| {
        recorder.keep_waiting(Kept::First(program.pid));
        ProbedProgram {
            program,
            object: probes.injected,
            probes: Probes::new(options, probes.chooser),
            injected: None,
            control: None,
            looked: Instant::now(),
            results: &mut results,
        }
    })?;
    let Results { probed, refused, stops, left_in } = results;
    Ok(ProbedProcess { recorded, probed, refused, stops, left_in })
}

/// What is told of probes at their end.
#[derive(Default)]
struct Results {
    probed: usize,
    refused: Vec<RefusedProbe>,
    stops: Stops,
    left_in: Vec<String>,
}

/// A program that is recorded and probed.
struct ProbedProgram<'o> {
    program: Program,
    object: &'static [u8],
    probes: Probes<'o>,
    /// Once the probes are in.
    injected: Option<Injected>,
    control: Option<Control>,
    looked: Instant,
    results: &'o mut Results,
}

impl Drop for ProbedProgram<'_> {
    fn drop(&mut self) {
        let probes = &mut self.probes;
        *self.results = Results {
            probed: probes.probed(),
            refused: std::mem::take(&mut probes.refused),
            stops: std::mem::take(&mut probes.stops),
            left_in: std::mem::take(&mut probes.left_in),
        };
    }
}

impl Subject for ProbedProgram<'_> {
    fn look(&mut self, recorder: &mut Recorder<'_>) -> Option<Result<Ended, RecordError>> {
        if let Some(ended) = self.program.look(recorder) {
            if self.injected.take().is_none() {
                recorder.note(
                    "nothing was probed: the program ended, or did not load callpath's object, before probes were set",
                );
            }
            // Processes of it that go on are no longer measured.
            self.probes.take_out(recorder, |_, _| true);
            self.control = None;
            return Some(ended);
        }
        let pid = self.program.pid;
        match self.injected {
            None => {
                let (_, slot) = recorder.waiting()?;
                if let Err(error) = self.set(recorder, slot) {
                    kill(pid);
                    discard_directory(&recorder.shared.directory);
                    return Some(Err(error));
                }
            }
            Some(injected) => {
                let from = (pid, injected);
                let demand = self.control.as_ref().and_then(|control| control.serve(&mut self.probes, recorder, from));
                if demand == Some(Demand::Stop) {
                    self.probes.take_out(recorder, |_, _| true);
                }
                if self.looked.elapsed() >= LOOK_EVERY {
                    self.probes.follow(recorder, pid, injected);
                    self.looked = Instant::now();
                }
            }
        }
        None
    }

    fn listen(&mut self) {
        self.program.listen();
    }
}

impl ProbedProgram<'_> {
    /// Puts the probes into the program, which waits, and lets it begin.
    fn set(&mut self, recorder: &mut Recorder<'_>, slot: usize) -> Result<(), RecordError> {
        let pid = self.program.pid;
        let beat = Doorbell::new(&recorder.shared.allocator.session().beat);
        let injected = while_beating(&beat, || {
            self.probes.find(pid)?;
            self.probes.check()?;
            let into = InjectedInto { pid, slot: Some(slot), program: None, counts_contexts: false };
            let injected = Injected::into(into, recorder, (self.object, &mut self.probes.stops))?;
            self.probes.put_in(recorder, pid, injected)?;
            Ok::<Injected, RecordError>(injected)
        })?;
        self.injected = Some(injected);
        self.control = Control::open(&recorder.shared.directory).map_err(|why| recorder.note(&why)).ok();
        recorder.let_in(slot);
        Ok(())
    }
}
