//! Probes: procedures of a process, running or started for it, whose calls are counted by call path (iPath: Bernat and
//! Miller 2006).
//!
//! To set probes, the process is stopped twice, each time for as long as it takes to write: when the object with the routines
//! is injected, and when the copies that call them are put in. What is written has been planned before. Between the two,
//! and from then on, it is served as any process that is recorded.

mod asks;
mod chooser;
mod control;
mod halt;
mod inject;
mod inside;
mod measured;
mod modules;
mod patches;
mod programs;
mod started;
mod subject;
mod waits;
mod wanted;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use callpath_schema::RefusedProbe;
use callpath_target::{Pid, ProcessHandle, find_program, has_memory, raise_own_limits, survive_long_files};

use crate::error::RecordError;
use crate::output::Destination;
use crate::serve::{Prepared, Recorded, Recorder};
use crate::settings::RecordOptions;
use crate::signals;
use crate::suitable::check_program;
pub use chooser::{Chooser, Come, Unknown};
use control::Control;
pub use control::{Answer, CONTROL_SOCKET, ListedProbe, ask};
pub use halt::Stops;
pub(crate) use halt::halt;
pub(crate) use inject::{Injected, InjectedInto, map_private};
pub(crate) use modules::Loaded;
pub use modules::{is_left_alone, probed_modules};
use patches::Patched;
use programs::{Probes, Results};
use started::probe_started;
pub use started::{ProbesBesideSamples, record_with_probes};
use subject::Watched;
use wanted::Wanted;

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

impl Results {
    /// With the measurement that they are of.
    fn of(self, recorded: Recorded) -> ProbedProcess {
        let Results { probed, refused, stops, left_in } = self;
        ProbedProcess { recorded, probed, refused, stops, left_in }
    }
}

impl From<Recorded> for ProbedProcess {
    /// A recording without probes.
    fn from(recorded: Recorded) -> ProbedProcess {
        Results::default().of(recorded)
    }
}

/// Probes a process until it ends, the time is over, or somebody interrupts; then the probes are taken out. In a program that is
/// started, those that it executes are probed, too.
///
/// # Errors
/// Before the first procedure is probed. A program that was started for it is ended then.
pub fn probe(options: ProbeOptions<'_>) -> Result<ProbedProcess, RecordError> {
    if options.pid.is_none() {
        let program = find_program(&options.record.program)?;
        if !check_program(&program)?.is_musl() {
            return probe_started(options);
        }
    }
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
    let mut wanted = Wanted::new(options.record, (options.chooser, Come::Libraries), options.injected);
    let mut program = Patched::new(pid, None, None);
    // Of a process that is just ending no module was seen: whoever stops it says why.
    let chosen = program.find(&mut wanted).and_then(|()| if has_memory(pid) { wanted.check() } else { Ok(()) });
    if let Err(error) = chosen {
        discard(asked_for.as_ref());
        return Err(error);
    }
    let destination = match asked_for {
        Some(destination) => destination,
        None => Destination::usual(&options.record.program, pid)?,
    };
    let handle = ProcessHandle::open(pid);
    let name = handle.program().unwrap_or_else(|| PathBuf::from(&options.record.program));
    let _handed_on = if started.is_child() { Some(held.hand_on_to(pid)) } else { None };
    if !started.is_child() {
        signals::are_all_for_us();
    }
    let (directory, of_job) = (destination.directory.clone(), destination.of_job);
    let mut recorder = Recorder::new(prepared, options.record, &name, destination.directory);
    destination.note.iter().for_each(|note| recorder.note(note));
    if let Err(error) = set(&mut program, &mut wanted, &mut recorder) {
        discard_directory(&recorder.shared.directory);
        return Err(error);
    }
    let is_child = started.is_child();
    (options.begun)(&directory);
    started.go_on()?;
    let until = options.duration.map(|duration| Instant::now() + duration);
    let control = Control::open(&recorder.shared.directory).map_err(|why| recorder.note(&why)).ok();
    let mut probes = Probes::new(wanted);
    probes.add_program(program);
    let mut watched = Watched { handle, probes, control, is_child, until, looked: Instant::now() };
    let recorded = recorder.run(&mut watched)?;
    Ok(watched.probes.results().of(Recorded { of_job, ..recorded }))
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
fn set(program: &mut Patched, wanted: &mut Wanted<'_>, recorder: &mut Recorder<'_>) -> Result<(), RecordError> {
    let pid = program.pid;
    let into = InjectedInto { pid, slot: None, program: None, mark: None, counts_contexts: false };
    program.injected = Some(Injected::into(into, recorder, (wanted.object, &mut wanted.stops))?);
    if !recorder.serve_until_admitted(pid, TABLES_AT_MOST) {
        return Err(RecordError::NotAdmitted { pid });
    }
    program.put_in(wanted, recorder)?;
    Ok(())
}
