//! Probes: procedures of a process, running or started for it, whose calls are counted by call path (iPath: Bernat and
//! Miller 2006).
//!
//! To set probes, the process is stopped twice, each time for as long as it takes to write: when the object with the routines
//! is injected, and when the copies that call them are put in. What is written has been planned before. Between the two,
//! and from then on, it is served as any process that is recorded.

mod asks;
mod beside_samples;
mod chooser;
mod control;
mod halt;
mod inject;
mod inside;
mod measured;
mod modules;
mod patches;
mod subject;
mod waits;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use callpath_schema::RefusedProbe;
use callpath_target::{Pid, ProcessHandle, raise_own_limits, survive_long_files};

use crate::error::RecordError;
use crate::output::Destination;
use crate::serve::{Prepared, Recorded, Recorder};
use crate::settings::RecordOptions;
use crate::signals;
pub use beside_samples::{ProbesBesideSamples, record_with_probes};
pub use chooser::Chooser;
use control::Control;
pub use control::{Answer, CONTROL_SOCKET, ListedProbe, ask};
pub use halt::Stops;
pub(crate) use halt::halt;
pub(crate) use inject::{Injected, InjectedInto, map_private};
pub(crate) use modules::Loaded;
pub use modules::{is_left_alone, probed_modules};
pub(crate) use patches::Probes;
use subject::Watched;

/// How long the recipe tables of a process's modules may take before it is probed without some.
const TABLES_AT_MOST: Duration = Duration::from_secs(30);

/// What is probed, and how.
pub struct ProbeOptions<'o> {
    /// The program that is started, or what the process is called; what is measured; where it is kept.
    pub record: &'o RecordOptions,
    /// The process. `None`: the program is started.
    pub pid: Option<Pid>,
    /// The bytes of the injected object.
    pub injected: &'static [u8],
    /// How long, if not to the process's end.
    pub duration: Option<Duration>,
    /// Says which procedures.
    pub chooser: &'o mut dyn Chooser,
    /// Called once with the measurement's directory, when the probes are in and before a started program runs.
    pub begun: &'o mut dyn FnMut(&Path),
}

/// The result.
#[derive(Debug)]
pub struct ProbedProcess {
    /// The measurement.
    pub recorded: Recorded,
    /// How many procedures were probed.
    pub probed: usize,
    /// Those that could not be.
    pub refused: Vec<RefusedProbe>,
    /// How often and how long the process stood still.
    pub stops: Stops,
    /// Why probes could not be taken out, completing "failed to ...": the process still has them.
    pub left_in: Vec<String>,
}

impl From<Recorded> for ProbedProcess {
    /// A recording without probes.
    fn from(recorded: Recorded) -> ProbedProcess {
        ProbedProcess { recorded, probed: 0, refused: Vec::new(), stops: Stops::default(), left_in: Vec::new() }
    }
}

/// Probes a process until it ends, the time is over, or somebody interrupts; then the probes are taken out.
///
/// # Errors
/// Before the first procedure is probed. A program that was started for it is ended then.
pub fn probe(options: ProbeOptions<'_>) -> Result<ProbedProcess, RecordError> {
    survive_long_files();
    raise_own_limits();
    if let Some(pid) = options.pid.filter(|pid| ProcessHandle::open(*pid).is_in_other_name_space()) {
        return Err(RecordError::OtherNameSpace { pid });
    }
    let prepared = Prepared::new(options.record)?;
    let asked_for = Destination::known(options.record)?;
    let held = signals::Signals::hold_back();
    let started = match options.pid {
        Some(pid) => inject::Held::running(pid),
        None => inject::Held::started(options.record).inspect_err(|_| discard(asked_for.as_ref()))?,
    };
    let pid = started.pid();
    let mut probes = Probes::new(options.record, options.chooser);
    if let Err(error) = probes.find(pid).and_then(|()| probes.check()) {
        discard(asked_for.as_ref());
        return Err(error);
    }
    let destination = match asked_for {
        Some(destination) => destination,
        None => Destination::usual(&options.record.program, pid)?,
    };
    let handle = ProcessHandle::open(pid);
    let program = handle.program().unwrap_or_else(|| PathBuf::from(&options.record.program));
    let _handed_on = if started.is_child() { Some(held.hand_on_to(pid)) } else { None };
    if !started.is_child() {
        signals::are_all_for_us();
    }
    let (directory, of_job) = (destination.directory.clone(), destination.of_job);
    let mut recorder = Recorder::new(prepared, options.record, &program, destination.directory);
    destination.note.iter().for_each(|note| recorder.note(note));
    let injected = match set(&mut probes, &mut recorder, (pid, options.injected)) {
        Ok(injected) => injected,
        Err(error) => {
            discard_directory(&recorder.shared.directory);
            return Err(error);
        }
    };
    let is_child = started.is_child();
    (options.begun)(&directory);
    started.go_on()?;
    let until = options.duration.map(|duration| Instant::now() + duration);
    let control = Control::open(&recorder.shared.directory).map_err(|why| recorder.note(&why)).ok();
    let mut watched = Watched { handle, probes, injected, control, is_child, until, looked: Instant::now() };
    let recorded = recorder.run(&mut watched)?;
    let probed = watched.probes.probed();
    let Probes { refused, stops, left_in, .. } = watched.probes;
    let recorded = Recorded { of_job, ..recorded };
    Ok(ProbedProcess { recorded, probed, refused, stops, left_in })
}

/// Removes the directory of a measurement that does not begin: it may be asked for again.
fn discard(destination: Option<&Destination>) {
    if let Some(destination) = destination {
        discard_directory(&destination.directory);
    }
}

pub(crate) fn discard_directory(directory: &Path) {
    // It was made for this measurement, which has nothing. What cannot be removed does no harm.
    drop(std::fs::remove_dir_all(directory));
}

/// Brings our object into a process, and puts the first probes in.
fn set(
    probes: &mut Probes<'_>,
    recorder: &mut Recorder<'_>,
    (pid, object): (Pid, &[u8]),
) -> Result<Injected, RecordError> {
    let into = InjectedInto { pid, slot: None, program: None, counts_contexts: false };
    let injected = Injected::into(into, recorder, (object, &mut probes.stops))?;
    if !recorder.serve_until_admitted(pid, TABLES_AT_MOST) {
        return Err(RecordError::NotAdmitted { pid });
    }
    probes.put_in(recorder, pid, injected)?;
    Ok(injected)
}
