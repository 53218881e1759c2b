//! Serves the measured processes, from the start of the recording to its end.

mod arrivals;
mod ending;
mod held;
mod loads;
mod lost;
mod outside;
mod prepared;
mod subject;
mod totals;
mod wanted;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use callpath_format::address::RunAddr;
use callpath_format::frame::FrameKey;
use callpath_format::shared::{PROCESS_SLOTS, Session, SlotState, Source};
use callpath_measurement::{
    EndKind, Measurement, MeasurementError, SessionEnd, SessionFile, Together, encode_session, write_file,
};
use callpath_schema::ProbeAccount;
use callpath_target::{Certainty, Ended, Pid};

use crate::asks::{self, Allowance};
use crate::error::RecordError;
use crate::events::Clock;
use crate::exact::Programs;
use crate::moved::{AllMoved, ProgramNumber};
use crate::plausible::Limits;
use crate::process::Process;
use crate::program::Doorbell;
use crate::raw::Standing;
use crate::rings::{Outside, USER_ONLY, sees_user_mode_only};
use crate::settings::{RecordOptions, frames_left_out};
use crate::shared::Shared;
use crate::signals;
use crate::time_base::{own_cpu_ns, ticks};
use crate::unmeasured;
use held::Held;
pub(crate) use held::Kept;
pub(crate) use loads::Loading;
pub(crate) use prepared::Prepared;
pub(crate) use subject::{Program, Subject, record_as};
use totals::Totals;

/// How often the files are written, unless writing them takes too long.
const WRITE_EVERY: Duration = Duration::from_secs(1);
/// The time between two writings is at least this many times what one took. A larger share would save little: only
/// changes are written.
const WRITE_SHARE: u32 = 4;
/// How long a process that was not rung for waits at most to be looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The same where stacks are looked at while they are there: at from where heights count.
const LOOK_AT_STACKS_EVERY: Duration = Duration::from_millis(50);

/// The result of a recording.
#[derive(Debug)]
pub struct Recorded {
    /// Where the measurement is.
    pub directory: PathBuf,
    /// Of a rank: where that of all ranks is.
    pub of_job: Option<PathBuf>,
    /// How the program ended.
    pub ended: Ended,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// How many processes took part.
    pub processes: u32,
    /// Something of it could not be written: the measurement lacks it, or ends before the program.
    pub loss: Option<MeasurementError>,
}

/// Samples of a whole machine that were lost, and may have been anyone's.
struct Lost {
    /// What they stand under.
    nobody: Box<Process>,
    samples: u64,
    /// How much of their time may be that of processes that are measured, nanoseconds.
    most_ns: u64,
}

/// A recording under way.
pub(crate) struct Recorder<'o> {
    /// What is sampled from outside. The first to go, as below.
    pub(crate) outside: Option<Outside>,
    /// That is beside processes that are measured from inside.
    is_beside: bool,
    /// Once the samples from outside have ended.
    lost: Option<Lost>,
    pub(crate) shared: Shared,
    options: &'o RecordOptions,
    session: SessionFile,
    pub(crate) processes: Vec<Process>,
    /// Those that wait before they begin.
    held: Vec<Held>,
    /// Those that have ended, and when, whose samples wait for recipe tables.
    leaving: Vec<(Process, Instant)>,
    pub(crate) sequence: u32,
    /// How long it was, once it is over.
    lasted: Option<Duration>,
    notes: Vec<String>,
    totals: Totals,
    /// Exits of probed procedures without an entry, of processes that have ended.
    unmatched_exits: u64,
    allowance: Allowance,
    /// Which of them wait for what is done in them.
    kept: Kept,
    /// What could not be written and is lost, and what can still be written the next time.
    loss: Option<MeasurementError>,
    trouble: Option<MeasurementError>,
}

impl<'o> Recorder<'o> {
    pub(crate) fn new(
        prepared: Prepared,
        options: &'o RecordOptions,
        program: &Path,
        directory: PathBuf,
    ) -> Recorder<'o> {
        let Prepared { modules, allocator, publisher, kernel, began, notes, .. } = prepared;
        let words = std::iter::once(&options.program).chain(&options.arguments);
        let session = SessionFile {
            program: program.to_owned(),
            command: words.map(|w| w.to_string_lossy().into_owned()).collect(),
            working_directory: std::env::current_dir().unwrap_or_default(),
            host: std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned(),
            recorder: env!("CARGO_PKG_VERSION").to_owned(),
            started_unix_ns: began.unix_ns,
            metrics: options.metrics(),
            period_ns: options.period_ns,
            ..SessionFile::default()
        };
        Recorder {
            shared: Shared {
                modules,
                allocator,
                publisher,
                kernel,
                moved: AllMoved::default(),
                injected_table: None,
                programs: Programs::default(),
                flows: None,
                directory,
                began,
                together: Together::default(),
                credited_ns: 0,
            },
            options,
            session,
            processes: Vec::new(),
            outside: None,
            is_beside: false,
            lost: None,
            held: Vec::new(),
            leaving: Vec::new(),
            sequence: 0,
            lasted: None,
            notes,
            totals: Totals::default(),
            unmatched_exits: 0,
            allowance: Allowance::new(),
            kept: Kept::Nobody,
            loss: None,
            trouble: None,
        }
    }

    /// How threads of ours wake the recorder.
    pub(crate) fn doorbell(&self) -> Doorbell {
        Doorbell::new(&self.shared.allocator.session().doorbell)
    }

    /// How long to wait at most before the next look.
    fn look_every(&self) -> Duration {
        let reads_stacks = self.shared.allocator.settings().keeps_heights();
        let soon = self.outside.as_ref().and_then(Outside::look_every).unwrap_or(LOOK_EVERY);
        soon.min(if self.options.uses(Clock::WallTime) {
            asks::LOOK_EVERY
        } else if reads_stacks && self.outside.is_some() {
            LOOK_AT_STACKS_EVERY
        } else {
            LOOK_EVERY
        })
    }

    /// Records until the program has ended. The program is dropped before the recorder: a thread of its rings the
    /// doorbell.
    pub(crate) fn run(mut self, mut program: impl Subject) -> Result<Recorded, RecordError> {
        let options = self.options;
        self.write_session();
        let mut next_write = Instant::now() + WRITE_EVERY;
        let mut ended: Option<Ended> = None;
        // When no process was seen to run any more.
        let mut quiet: Option<Instant> = None;
        let ended = loop {
            let rung = self.shared.allocator.session().doorbell.load(Acquire);
            self.serve();
            if let Some(result) = program.look(&mut self) {
                ended = Some(result?);
                signals::program_has_ended();
            }
            let now = Instant::now();
            quiet = if self.known().next().is_none() { quiet.or(Some(now)) } else { None };
            // A process that was just forked may not have taken a slot yet.
            let all_ended = quiet.is_some_and(|since| now - since >= LOOK_EVERY);
            if let Some(ended) = ended
                && (!options.wait_all || all_ended || signals::shall_stop())
            {
                break ended;
            }
            if now >= next_write {
                self.write_all();
                next_write = Instant::now() + WRITE_EVERY.max(now.elapsed() * WRITE_SHARE);
            }
            let look_every = self.look_every();
            let is_pressing = self.outside.as_ref().is_some_and(Outside::is_pressing);
            if !is_pressing && !self.any_awaits(|process, _| process.has_more_to_walk()) {
                wait(
                    &self.shared.allocator.session().doorbell,
                    rung,
                    look_every.min(next_write - Instant::now().min(next_write)),
                );
            }
        };
        self.serve();
        let is_of_all = self.outside.as_ref().is_some_and(|outside| outside.sampler.samples().everything);
        self.end_outside();
        self.lasted = Some(self.shared.began.elapsed());
        self.await_tables(&mut program);
        self.session.ended = Some(SessionEnd {
            kind: match ended.certainty {
                Certainty::Known => EndKind::Known,
                Certainty::Unknown => EndKind::Unknown,
                Certainty::GoesOn => EndKind::GoesOn,
            },
            status: ended.status,
            // The kernel's account is of this program alone.
            user_ns: if is_of_all { 0 } else { ended.user.as_nanos() as u64 },
            kernel_ns: if is_of_all { 0 } else { ended.kernel.as_nanos() as u64 },
        });
        // A disk that was full may have room again: what counts is what can be written now.
        self.trouble = None;
        self.processes.iter_mut().for_each(Process::leave);
        self.write_all();
        self.write_lost();
        self.shared.allocator.session().recorder.store(Session::GONE, Relaxed);
        for process in &mut self.processes {
            self.totals.add(process, &self.shared);
            if let Err(error) = process.write_counts(&mut self.shared) {
                self.loss.get_or_insert(error);
            }
        }
        let of_outside = self.totals.note_of_outside().filter(|_| self.is_beside);
        if of_outside.is_some() && sees_user_mode_only() {
            self.notes.push(USER_ONLY.to_owned());
        }
        self.notes.extend(of_outside);
        self.notes.extend(self.shared.programs.note_of_guide());
        self.notes.extend(self.totals.notes_of_events(&options.events));
        match self.processes.len() {
            0 => {}
            1 => self.notes.push("1 process is still running and is no longer measured".into()),
            more => self.notes.push(format!("{more} processes are still running and are no longer measured")),
        }
        self.write_session();
        let notes = self.shared.modules.keep_files(&self.shared.directory);
        if !notes.is_empty() {
            self.notes.extend(notes);
            self.write_session();
        }
        let limits = Limits::after(self.shared.began.elapsed());
        self.notes.extend(unmeasured::note(self.shared.allocator.session(), &limits));
        Ok(Recorded {
            directory: self.shared.directory,
            of_job: None,
            ended,
            notes: self.notes,
            processes: self.sequence,
            loss: self.loss.or(self.trouble),
        })
    }

    /// Serves until a process has been let in. `false`: it has ended, was refused, or did not come for long.
    pub(crate) fn serve_until_admitted(&mut self, pid: Pid, at_most: Duration) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < at_most {
            let rung = self.shared.allocator.session().doorbell.load(Acquire);
            self.serve();
            if self.processes.iter().any(|process| process.pid() == pid) {
                return true;
            }
            if self.known().next().is_none() {
                return false;
            }
            wait(&self.shared.allocator.session().doorbell, rung, LOOK_EVERY / 10);
        }
        false
    }

    /// Reads a process's memory map anew, and waits for the recipe tables of what has come, so long at most.
    pub(crate) fn refresh_map(&mut self, pid: Pid, at_most: Duration) {
        let begun = Instant::now();
        let shared = &mut self.shared;
        let held = self.held.iter_mut().map(|held| &mut held.process);
        let of_pid = self.processes.iter_mut().chain(held).filter(|process| process.pid() == pid);
        of_pid.for_each(|process| process.refresh_map(shared));
        while begun.elapsed() < at_most {
            let rung = self.shared.allocator.session().doorbell.load(Acquire);
            self.serve();
            let mut of_pid = self.processes.iter().filter(|process| process.pid() == pid);
            if of_pid.all(|process| process.has_all_tables(&self.shared)) {
                return;
            }
            wait(&self.shared.allocator.session().doorbell, rung, LOOK_EVERY / 10);
        }
    }

    /// The frames of a thread that stands still: what is at each, the innermost first. `None`: its process is not known.
    pub(crate) fn frames_of(&mut self, pid: Pid, standing: &Standing) -> Option<Vec<FrameKey>> {
        let published = self.shared.publisher.published();
        let process = self.processes.iter_mut().find(|process| process.pid() == pid)?;
        Some(process.frames_of(standing, published))
    }

    /// An address of a process as a frame.
    pub(crate) fn frame_at(&self, pid: Pid, at: RunAddr) -> Option<FrameKey> {
        Some(self.processes.iter().find(|process| process.pid() == pid)?.frame_at(at))
    }

    /// The processes that are measured now.
    pub(crate) fn pids(&self) -> Vec<Pid> {
        self.known().map(Process::pid).collect()
    }

    /// The account of probes, from the first call on a part of the measurement.
    pub(crate) fn probes(&mut self) -> &mut ProbeAccount {
        self.session.probes.get_or_insert_default()
    }

    /// Has the gauges of probes whose bit is set measure nothing from now on, and all others.
    pub(crate) fn set_idle_gauges(&self, bits: u32) {
        self.shared.allocator.session().idle_gauges.store(bits, Relaxed);
    }

    /// Writes the files now.
    ///
    /// # Errors
    /// Why not, for the user.
    pub(crate) fn write_now(&mut self) -> Result<(), String> {
        self.serve();
        self.trouble = None;
        self.write_all();
        match &self.trouble {
            Some(error) => Err(format!("failed to {error}")),
            None => Ok(()),
        }
    }

    /// Notes something for the user, once.
    pub(crate) fn note(&mut self, note: &str) {
        note_once(&mut self.notes, note);
    }

    fn any_awaits(&self, tables: impl Fn(&Process, &Shared) -> bool) -> bool {
        let mut all = self.processes.iter().chain(self.leaving.iter().map(|(process, _)| process));
        all.any(|process| tables(process, &self.shared))
    }

    /// One round, and waits for the next one, for so long at most.
    pub(crate) fn serve_for(&mut self, at_most: Duration) {
        let rung = self.shared.allocator.session().doorbell.load(Acquire);
        self.serve();
        wait(&self.shared.allocator.session().doorbell, rung, at_most);
    }

    /// One round: new processes, what the known ones ask for, those that have ended, free chunks.
    pub(crate) fn serve(&mut self) {
        self.shared.allocator.session().recorder.store(Session::SERVING, Relaxed);
        self.shared.allocator.refill();
        if self.shared.allocator.is_low() {
            for process in &mut self.processes {
                process.reap(&mut self.shared);
            }
            self.shared.allocator.refill_with_more();
        }
        for slot in 0..PROCESS_SLOTS {
            if self.shared.allocator.slot(slot).state.load(Acquire) == SlotState::LIVE
                && !self.known().any(|p| p.slot == slot)
                && self.shared.allocator.slot(slot).source.load(Acquire) != Source::Refused as u32
            {
                self.receive(slot);
                // Many may begin at once, and each of them waits: first for a chunk, then to be let in.
                self.shared.allocator.session().beat.fetch_add(1, Relaxed);
                if self.shared.allocator.is_short() {
                    self.shared.allocator.refill_with_more();
                }
            }
        }
        self.shared.modules.receive(&mut self.shared.publisher);
        self.serve_wanted();
        // What the rings tell of those is read while they are known.
        let over: Vec<Pid> = self
            .processes
            .iter()
            .filter(|process| !process.is_from_outside() && process.has_ended())
            .map(Process::pid)
            .collect();
        self.serve_outside();
        self.admit_held();
        for process in self.processes.iter_mut().chain(self.leaving.iter_mut().map(|(p, _)| p)) {
            process.serve(&mut self.shared);
        }
        let now_ticks = ticks();
        self.allowance.refill();
        for process in &mut self.processes {
            process.ask(&self.shared, now_ticks, &mut self.allowance);
        }
        for (process, ended) in std::mem::take(&mut self.leaving) {
            self.take_leave_at(process, ended);
        }
        let (ended, live): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.processes).into_iter().partition(|process| match process.is_from_outside() {
                true => process.has_ended(),
                false => over.contains(&process.pid()),
            });
        if let Some(outside) = &mut self.outside {
            over.iter().for_each(|pid| outside.sampler.is_over(*pid));
        }
        self.processes = live;
        let has_any_ended = !ended.is_empty();
        for process in ended {
            self.take_leave(process);
        }
        if has_any_ended {
            self.give_up_programs();
        }
        self.shared.allocator.refill();
    }

    /// Forgets programs that are counted and that nobody runs any more.
    fn give_up_programs(&mut self) {
        let used: Vec<ProgramNumber> = self.known().filter_map(Process::own_program).collect();
        match self.shared.programs.give_up(|number| used.contains(&number)) {
            Ok(ended) => ended.into_iter().for_each(|program| {
                self.shared.moved.forget(program, &mut self.shared.publisher);
            }),
            Err(error) => {
                self.loss.get_or_insert(error);
            }
        }
    }

    /// All processes that have a slot.
    fn known(&self) -> impl Iterator<Item = &Process> {
        let leaving = self.leaving.iter().map(|(process, _)| process);
        self.processes.iter().chain(self.held.iter().map(|held| &held.process)).chain(leaving)
    }

    pub(crate) fn take_leave(&mut self, process: Process) {
        self.take_leave_at(process, Instant::now());
    }

    fn take_leave_at(&mut self, mut process: Process, ended: Instant) {
        process.leave();
        process.drain_raw(&mut self.shared);
        if process.awaits_tables() {
            return self.leaving.push((process, ended));
        }
        let ended_ns = self.shared.began.until_ns(ended);
        let written = process.write(&mut self.shared, Some(ended_ns));
        if let Err(error) = written.and_then(|()| process.write_counts(&mut self.shared)) {
            self.loss.get_or_insert(error);
        }
        self.unmatched_exits = self.unmatched_exits.saturating_add(process.unmatched_exits(&self.shared));
        self.totals.add(&process, &self.shared);
        process.release(&mut self.shared);
    }

    fn write_all(&mut self) {
        for process in self.processes.iter_mut().chain(self.leaving.iter_mut().map(|(process, _)| process)) {
            if let Err(error) = process.write(&mut self.shared, None) {
                self.trouble.get_or_insert(error);
            }
        }
        self.shared.allocator.refill();
        self.write_session();
    }

    fn write_session(&mut self) {
        let (shared, session) = (self.shared.allocator.session(), &mut self.session);
        session.duration_ns = self.lasted.unwrap_or_else(|| self.shared.began.elapsed()).as_nanos() as u64;
        let limits = Limits::after(self.shared.began.elapsed());
        let counts = [&shared.lost_processes, &shared.lost_timers, &shared.unmeasured_others];
        let [lost_processes, lost_timers, unmeasured_others] = counts.map(|count| u64::from(count.load(Relaxed)));
        // A program that overwrites one of them will hardly leave the others as they were.
        let are_true = limits.allows_starts(lost_processes.max(lost_timers).max(unmeasured_others));
        session.lost_processes = if are_true { lost_processes } else { 0 };
        if let Some(probes) = &mut session.probes {
            let known = self.processes.iter().chain(self.leaving.iter().map(|(process, _)| process));
            let unmatched = known.map(|process| process.unmatched_exits(&self.shared));
            probes.unmatched_exits = unmatched.fold(self.unmatched_exits, u64::saturating_add);
        }
        session.recorder_cpu_ns = own_cpu_ns();
        session.processes = self.sequence.into();
        session.notes = self.notes.clone();
        if !are_true {
            session.notes.push(
                "how many processes and threads were not measured is not known: a program overwrote callpath's memory"
                    .to_owned(),
            );
        } else if lost_timers > 0 {
            session.notes.push(format!(
                "{lost_timers} threads could not get a timer (RLIMIT_SIGPENDING) and were not sampled: their time is \
                 shown where they began or were last seen"
            ));
        }
        session.notes.extend(frames_left_out(self.shared.allocator.settings(), self.options));
        session.notes.extend(self.totals.notes());
        session.notes.extend(unmeasured::note(shared, &limits));
        session.notes.extend(self.totals.note_of_memory(self.shared.allocator.exhausted()));
        if let Err(error) = write_file(&self.shared.directory, Measurement::SESSION_FILE, &encode_session(session)) {
            self.trouble.get_or_insert(error);
        }
    }
}

/// Waits for a ring after `seen`, for `at_most`.
fn wait(doorbell: &AtomicU32, seen: u32, at_most: Duration) {
    let timeout = libc::timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: i64::from(at_most.subsec_nanos()) };
    // SAFETY: the kernel reads the word and the time.
    unsafe { libc::syscall(libc::SYS_futex, doorbell.as_ptr(), libc::FUTEX_WAIT, seen, &timeout) };
}

fn note_once(notes: &mut Vec<String>, note: &str) {
    if !notes.iter().any(|other| other == note) {
        notes.push(note.to_owned());
    }
}
