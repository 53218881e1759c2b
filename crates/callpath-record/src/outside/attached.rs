//! Processes that run already, sampled until they end, for a time, or until somebody interrupts.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use callpath_target::{
    Certainty, ControlGroup, Ended, Launch, Maps, Pid, ProcessHandle, StackSamples, find_program, raise_own_limits,
    survive_long_files,
};

use super::PATIENCE;
use crate::error::RecordError;
use crate::events::{Clock, Event, EventSource};
use crate::output::Destination;
use crate::probe::discard_directory;
use crate::program::Waiter;
use crate::rings::{Loading, Outside, USER_ONLY, sees_user_mode_only};
use crate::serve::{Prepared, Program, Recorded, Recorder, Subject};
use crate::settings::{RecordOptions, Unwind};
use crate::signals::{self, Signals};

/// What is sampled, and how long.
pub struct AttachOptions<'o> {
    /// What the processes are called; what is measured; where it is kept.
    pub record: &'o RecordOptions,
    /// The processes. `None`: all.
    pub pids: Option<&'o [Pid]>,
    /// The control group of which all processes are meant, if it is not the machine: its name, as [`ControlGroup::find`] has it.
    pub group: Option<&'o str>,
    /// With all processes: recording ends with the program that is named in `record`.
    pub until_program: bool,
    /// Those that they start are sampled, too.
    pub with_children: bool,
    /// How long, if not to the end of all of them.
    pub duration: Option<Duration>,
}

/// Samples processes from outside. Before the first sample an error means that nothing was measured.
pub fn attach(options: &AttachOptions<'_>) -> Result<Recorded, RecordError> {
    let record = options.record;
    let user_only = sees_user_mode_only();
    check_events(record, "a running process", options.pids.map(|_| user_only))?;
    let group = options.group.map(|name| {
        let refused = |error| RecordError::ControlGroup { name: name.to_owned(), source: error };
        ControlGroup::find(name).map_err(refused)
    });
    let group = group.transpose()?;
    survive_long_files();
    raise_own_limits();
    let handles: Vec<ProcessHandle> =
        options.pids.unwrap_or_default().iter().map(|pid| ProcessHandle::open(*pid)).collect();
    if let Some(gone) = handles.iter().find(|handle| !handle.lives()) {
        return Err(refusal(gone, &io::Error::from_raw_os_error(libc::ESRCH)));
    }
    for handle in &handles {
        check_process(handle)?;
    }
    let own = ProcessHandle::open(Pid(std::process::id()));
    // Numbers in /proc are those of the name space that it was mounted in.
    let is_own_proc = std::fs::read_link("/proc/self")
        .is_ok_and(|own| own.as_os_str() == OsStr::new(&std::process::id().to_string()));
    if !is_own_proc {
        return Err(RecordError::OtherProc);
    }
    let first = handles.first().unwrap_or(&own);
    // On a whole machine, there are too many threads to watch them all.
    let deep = (options.pids.is_some() && record.unwind != Unwind::Infer).then(Loading::start);
    let prepared = Prepared::new(record)?;
    let samples = StackSamples {
        period_ns: record.period_ns,
        user_only,
        stack_bytes: 0,
        with_children: options.with_children,
        everything: options.pids.is_none(),
        switches: record.uses(Clock::WallTime),
        kernel: record.kernel,
    };
    let outside = Outside::new(samples, record.unwind == Unwind::Infer, prepared.doorbell());
    let mut outside = outside.map_err(|error| refusal(first, &error))?;
    if let Some(deep) = deep {
        outside.expect_deep(deep);
    }
    if options.pids.is_none() {
        outside.begin_everywhere(group).map_err(|error| refusal_of_all(&error))?;
    }
    let destination = match Destination::known(record)? {
        Some(destination) => destination,
        None => Destination::usual(options.pids.map_or(OsStr::new("machine"), |_| &record.program), first.pid())?,
    };
    let program = handles.first().and_then(ProcessHandle::program).unwrap_or_else(|| PathBuf::from(&record.program));
    let directory = destination.directory.clone();
    let mut recorder = Recorder::new(prepared, record, &program, destination.directory);
    destination.note.iter().for_each(|note| recorder.note(note));
    if user_only {
        recorder.note(USER_ONLY);
    }
    outside.begin_deep(PATIENCE);
    for handle in &handles {
        if let Err(error) = recorder.begin_outside(&mut outside, handle.pid()) {
            discard_directory(&directory);
            return Err(refusal(handle, &error));
        }
    }
    recorder.outside = Some(outside);
    let until = options.duration.map(|duration| Instant::now() + duration);
    let of_job = destination.of_job;
    let recorded = if options.until_program {
        let program = plain_program(record, &recorder).inspect_err(|_| discard_directory(&directory))?;
        recorder.run(program)?
    } else {
        signals::are_all_for_us();
        recorder.run(Attached { handles: options.pids.map(|_| handles), until })?
    };
    Ok(Recorded { of_job, ..recorded })
}

/// Starts a program unchanged: it is sampled like every other process.
fn plain_program(record: &RecordOptions, recorder: &Recorder<'_>) -> Result<Program, RecordError> {
    let launch = Launch {
        program: find_program(&record.program)?,
        name: record.program.clone(),
        arguments: record.arguments.clone(),
        environment: Vec::new(),
        added_space: 0,
    };
    let signals = Signals::hold_back();
    let (waiter, pid) = Waiter::start(&launch, recorder.doorbell())?;
    Ok(Program { pid, waiter, signals: signals.hand_on_to(pid) })
}

/// Whether the events can be had from outside. `user_only`: the kernel lets this user sample user mode alone; `None`: all processes are
/// sampled.
pub(super) fn check_events(record: &RecordOptions, of: &str, user_only: Option<bool>) -> Result<(), RecordError> {
    if record.kernel && user_only == Some(true) {
        return Err(RecordError::KernelHidden);
    }
    let refused =
        |event: &Event, reason: String| Err(RecordError::Event { event: event.asked_name().to_owned(), reason });
    for event in &record.events {
        match (event.source, user_only) {
            (EventSource::Clock(Clock::CpuTime), _) | (EventSource::Clock(Clock::WallTime), Some(false) | None) => {}
            (EventSource::Clock(Clock::WallTime), Some(true)) => {
                let reason = format!(
                    "{of} is sampled from outside, and the kernel shows this user no waits (kernel.perf_event_paranoid is 2 or more); with \
                     `sysctl kernel.perf_event_paranoid=1`, or as root, it does"
                );
                return refused(event, reason);
            }
            _ => {
                let reason =
                    format!("{of} is sampled from outside, by cpu-time and wall-time alone; leave this event out");
                return refused(event, reason);
            }
        }
    }
    Ok(())
}

/// Whether a number is that of a process with call paths.
fn check_process(handle: &ProcessHandle) -> Result<(), RecordError> {
    let pid = handle.pid();
    if let Some(process) = handle.thread_group().filter(|process| *process != pid) {
        let reason = format!("it is a thread of process {process}; -p {process} samples all of its threads");
        return Err(RecordError::NotAttached { pid, reason });
    }
    let has_no_memory = Maps::read(pid).is_ok_and(|maps| maps.entries.is_empty());
    // One whose first thread has ended has none either.
    if has_no_memory
        && handle.command_line().is_empty()
        && handle.parent().is_some_and(|parent| parent.0 == 2 || pid.0 == 2)
    {
        let reason = "it is a thread of the kernel, which has no call paths in user mode".to_owned();
        return Err(RecordError::NotAttached { pid, reason });
    }
    Ok(())
}

/// Why a process cannot be sampled.
pub(super) fn refusal(handle: &ProcessHandle, error: &io::Error) -> RecordError {
    let pid = handle.pid();
    let reason = match error.raw_os_error() {
        Some(libc::ESRCH) => "there is no such process".to_owned(),
        Some(libc::EACCES | libc::EPERM) => not_allowed(pid),
        Some(libc::EMFILE) => {
            "there are not enough file descriptors for an event on each processor; raise the limit (ulimit -n)"
                .to_owned()
        }
        Some(libc::ENOSYS) => {
            "the kernel lacks perf_event_open, or this container's seccomp filter hides it".to_owned()
        }
        _ => error.to_string(),
    };
    RecordError::NotAttached { pid, reason }
}

fn not_allowed(pid: Pid) -> String {
    let owner = std::fs::metadata(format!("/proc/{pid}")).map(|metadata| metadata.uid());
    // SAFETY: returns a number.
    let own = unsafe { libc::geteuid() };
    if own != 0 && owner.is_ok_and(|owner| owner != own) {
        return "it belongs to another user; run callpath as that user, or as root".to_owned();
    }
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    if own != 0 && paranoid.trim().parse().is_ok_and(|level: i32| level > 2) {
        return format!(
            "kernel.perf_event_paranoid is {}, so that only root may sample; with `sysctl kernel.perf_event_paranoid=2` every user may \
             sample processes of their own",
            paranoid.trim()
        );
    }
    "the kernel does not allow it: the process has privileges that this user lacks, or a filter of this container refuses \
     perf_event_open"
        .to_owned()
}

/// Why the machine cannot be sampled.
fn refusal_of_all(error: &io::Error) -> RecordError {
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let reason = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => format!(
            "only root or a user with CAP_PERFMON may: kernel.perf_event_paranoid is {}; `sysctl kernel.perf_event_paranoid=0` allows every user",
            level.trim()
        ),
        _ => error.to_string(),
    };
    RecordError::NotEverywhere { reason }
}

/// What is sampled, as long as it is.
struct Attached {
    /// `None`: everything.
    handles: Option<Vec<ProcessHandle>>,
    until: Option<Instant>,
}

impl Subject for Attached {
    fn look(&mut self, _: &mut Recorder<'_>) -> Option<Result<Ended, RecordError>> {
        let have_ended = |handles: &Vec<ProcessHandle>| !handles.iter().any(ProcessHandle::lives);
        let certainty = if self.handles.as_ref().is_some_and(have_ended) {
            Certainty::Unknown
        } else if self.until.is_some_and(|until| Instant::now() >= until) || signals::shall_stop() {
            Certainty::GoesOn
        } else {
            return None;
        };
        Some(Ok(Ended { certainty, ..Ended::default() }))
    }
}
