//! Processes that wait at their beginning: for recipe tables, and for what is to be done in them before they run.

use std::time::{Duration, Instant};

use callpath_target::Pid;

use crate::moved::{MovedCode, ProgramNumber};
use crate::process::{self, Process};
use crate::signals;

use super::Recorder;

/// How long a program waits at its start for the recipe tables of its modules. Samples in those that take longer are
/// kept raw, with no more of the stack than there is room for.
const HELD_AT_MOST: Duration = Duration::from_secs(1);

/// How often tables that are being built are looked for, if nobody rings.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Which processes stay held until something has been done in them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Kept {
    #[default]
    Nobody,
    /// This one, at the first program that it runs.
    First(Pid),
    /// All that begin to run a program; not the forks of others.
    Programs,
}

/// A process that waits.
pub(super) struct Held {
    pub(super) process: Process,
    /// It waits for its tables until then.
    until: Instant,
    /// Something is to be done in it first.
    is_kept: bool,
}

impl Recorder<'_> {
    /// Lets a process wait.
    pub(super) fn hold(&mut self, process: Process) {
        let is_kept = match self.kept {
            Kept::Nobody => false,
            Kept::First(pid) => pid == process.pid(),
            Kept::Programs => !process.is_fork(),
        };
        self.held.push(Held { process, until: Instant::now() + HELD_AT_MOST, is_kept });
    }

    /// Lets those in that have waited long enough.
    pub(super) fn admit_held(&mut self) {
        for mut held in std::mem::take(&mut self.held) {
            held.process.receive_tables(&mut self.shared, process::LOOK_AT_MOST);
            match !held.is_kept && held.is_ready(self) {
                true => self.admit(held.process),
                false => self.held.push(held),
            }
        }
    }

    /// Lets processes wait at their beginning until [`Recorder::let_in`].
    pub(crate) fn keep_waiting(&mut self, kept: Kept) {
        self.kept = kept;
    }

    /// A process that waits for that, and has its tables: it, and the slot that it has taken.
    pub(crate) fn waiting(&self) -> Option<(Pid, usize)> {
        let held = self.held.iter().find(|held| held.is_kept && held.is_ready(self))?;
        Some((held.process.pid(), held.process.slot))
    }

    /// Lets it begin.
    pub(crate) fn let_in(&mut self, slot: usize) {
        if matches!(self.kept, Kept::First(_)) {
            self.kept = Kept::Nobody;
        }
        self.held.iter_mut().filter(|held| held.process.slot == slot).for_each(|held| held.is_kept = false);
    }

    /// Nothing is done in any process any more.
    pub(crate) fn let_all_in(&mut self) {
        self.kept = Kept::Nobody;
        self.held.iter_mut().for_each(|held| held.is_kept = false);
    }

    /// The processes that run a program into which code was put.
    pub(crate) fn pids_of(&self, program: ProgramNumber) -> Vec<Pid> {
        self.known().filter(|process| process.own_program() == Some(program)).map(Process::pid).collect()
    }

    /// Whether the process that has taken a slot is there, and still runs the program that it ran then.
    pub(crate) fn is_there(&self, pid: Pid, slot: usize) -> bool {
        self.known().any(|process| process.slot == slot && process.pid() == pid)
    }

    /// Publishes what is known of code that is about to be put into a process. `false`: there is no such process, or no room.
    pub(crate) fn prepare(&mut self, pid: Pid, moved: &mut MovedCode) -> bool {
        let held = self.held.iter().map(|held| &held.process);
        // One that has just executed another program may be known twice.
        let mut all = held.chain(&self.processes);
        all.find(|process| process.pid() == pid).is_some_and(|process| process.prepare(&mut self.shared, moved))
    }

    /// Begins to build the whole tables of a process that waits: what counts its calls finds no frame in code without a table.
    pub(crate) fn want_whole_tables(&mut self, pid: Pid) {
        let held = self.held.iter().map(|held| &held.process);
        let of_pid = held.chain(&self.processes).find(|process| process.pid() == pid);
        of_pid.into_iter().for_each(|process| process.want_whole_tables(&mut self.shared));
    }

    /// Waits until they are there, so long at most, and serves others meanwhile.
    pub(crate) fn await_whole_tables(&mut self, pid: Pid, at_most: Duration) {
        let begun = Instant::now();
        let awaits = |recorder: &Recorder<'_>| {
            let held = recorder.held.iter().map(|held| &held.process);
            let of_pid = held.chain(&recorder.processes).find(|process| process.pid() == pid);
            of_pid.is_some_and(|process| process.awaits_whole_tables(&recorder.shared))
        };
        while awaits(self) && begun.elapsed() < at_most && !signals::shall_stop() {
            self.serve_for(LOOK_EVERY);
        }
    }
}

impl Held {
    fn is_ready(&self, recorder: &Recorder<'_>) -> bool {
        self.process.has_all_tables(&recorder.shared) || Instant::now() >= self.until
    }
}
