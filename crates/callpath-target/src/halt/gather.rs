//! Stopping all threads, until there are no others.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::refusal;
use super::release::let_go;
use super::sharers::Strangers;
use super::shelter::Shelter;
use super::tracer::{Patience, Thread, Tracer, look};
use crate::error::TargetError;
use crate::listed::threads_of;
use crate::pid::Pid;
use crate::ptrace::{self, Stop};
use crate::task_status::TaskStatus;

/// Threads, some of which stand still.
struct Gathering {
    pid: Pid,
    threads: Vec<Thread>,
    /// Threads that had ended when they were looked at, and are listed: a first thread is, until the last one ends.
    ended: Vec<Pid>,
    strangers: Strangers,
    started: Instant,
    at_most: Duration,
    /// Before the first was seized: from then on a signal stops it.
    seized: Option<Instant>,
    /// No later than when the first stopped, and no earlier than when all were last seen running.
    since: Option<Instant>,
}

impl Gathering {
    fn of(pid: Pid, at_most: Duration) -> Gathering {
        let (threads, ended, strangers) = (Vec::new(), Vec::new(), Strangers::default());
        Gathering { pid, threads, ended, strangers, started: Instant::now(), at_most, seized: None, since: None }
    }
}

impl Tracer {
    /// As [`super::Halted::halt`]. After an error, the calling thread must end: then the kernel lets the threads go.
    pub(super) fn gather(pid: Pid, at_most: Duration) -> Result<Tracer, TargetError> {
        refusal::check(pid)?;
        // Before the program stands still.
        let shelter = Shelter::find(pid);
        let mut gathering = Gathering::of(pid, at_most);
        gathering.strangers = Strangers::of(pid);
        let outcome = gathering.stop_processes();
        gathering.tracer(outcome, shelter)
    }

    /// Stops threads that have begun since one was let run, until there are no others. Returns them.
    pub(super) fn gather_new(&mut self, at_most: Duration) -> Result<Vec<Pid>, TargetError> {
        let mut gathering = Gathering::of(self.pid, at_most);
        gathering.threads = std::mem::take(&mut self.threads);
        let known: Vec<Pid> = gathering.threads.iter().map(|thread| thread.tid).collect();
        let outcome = gathering.stop_processes();
        self.threads = gathering.threads;
        outcome?;
        self.settle_signals()?;
        let all = self.threads.iter().map(|thread| thread.tid);
        Ok(all.filter(|tid| !known.contains(tid)).collect())
    }

    /// Has no thread stand before the delivery of a signal, which would be lost if callpath were killed.
    fn settle_signals(&mut self) -> Result<(), TargetError> {
        let with_signal = self.threads.iter().filter(|thread| thread.signal.is_some());
        with_signal.map(|thread| thread.tid).collect::<Vec<_>>().into_iter().try_for_each(|tid| self.settle_signal(tid))
    }

    /// Of a process, these threads only; see [`Tracer::gather`].
    pub(super) fn gather_some(pid: Pid, threads: Vec<Pid>, at_most: Duration) -> Result<Tracer, TargetError> {
        refusal::check(pid)?;
        let shelter = Shelter::find(pid);
        let mut gathering = Gathering::of(pid, at_most);
        let outcome = gathering.stop(pid, threads);
        gathering.tracer(outcome, shelter)
    }
}

impl Gathering {
    /// What has been stopped, if all went well.
    fn tracer(self, outcome: Result<(), TargetError>, shelter: Option<Shelter>) -> Result<Tracer, TargetError> {
        let Gathering { pid, mut threads, started, since, .. } = self;
        if let Err(error) = outcome {
            // Whatever fails here, the first error is what matters.
            drop(let_go(&mut threads));
            return Err(error);
        }
        let memory = match Tracer::memory_of(pid, &threads) {
            Ok(memory) => memory,
            Err(error) => {
                drop(let_go(&mut threads));
                return Err(error);
            }
        };
        let mut tracer = Tracer::new(pid, threads, since.unwrap_or(started), memory);
        tracer.shelter = shelter;
        refusal::check_stopped(&tracer)?;
        tracer.settle_signals()?;
        Ok(tracer)
    }

    /// Stops the threads of the process, and of all that share its memory.
    fn stop_processes(&mut self) -> Result<(), TargetError> {
        let mut processes = vec![self.pid];
        loop {
            processes.iter().try_for_each(|process| self.stop_all(*process))?;
            // Only now: a child by vfork shares the memory, and must not be stopped before its parent goes on.
            let reference = self.threads.iter().find(|thread| thread.process == self.pid).map(|thread| thread.tid);
            let others = reference.map_or_else(Vec::new, |reference| self.strangers.sharers(reference, &processes));
            if others.is_empty() {
                return Ok(());
            }
            processes.extend(others);
        }
    }

    /// Stops a process's threads, until no others appear.
    fn stop_all(&mut self, process: Pid) -> Result<(), TargetError> {
        loop {
            let mut new = threads_of(process);
            new.retain(|tid| self.threads.iter().all(|thread| thread.tid != *tid) && !self.ended.contains(tid));
            if new.is_empty() {
                return Ok(());
            }
            // One that ends meanwhile may have made another one, which was not listed: all are listed anew.
            self.stop(process, new)?;
            if self.started.elapsed() > self.at_most {
                let pid = self.pid;
                let why =
                    format!("it starts threads faster than callpath stops them, in {} ms", self.at_most.as_millis());
                return Err(TargetError::Refused { pid, why });
            }
        }
    }

    /// Stops threads, as far as they have not ended.
    fn stop(&mut self, process: Pid, tids: Vec<Pid>) -> Result<(), TargetError> {
        let mut seized = Vec::new();
        self.seized.get_or_insert_with(Instant::now);
        for tid in tids {
            if self.seize(process, tid)? {
                seized.push(tid);
            } else if TaskStatus::read(process, tid).is_some() {
                self.ended.push(tid);
            }
        }
        // Running threads first. One that waits wakes when it is asked, and may take the processor from this thread: the
        // threads that would run there next have been asked by then.
        let waits = |tid: &Pid| TaskStatus::read(process, *tid).is_some_and(|status| status.state != 'R');
        seized.sort_by_cached_key(waits);
        self.since.get_or_insert_with(Instant::now);
        for tid in &seized {
            match ptrace::interrupt(*tid) {
                Ok(()) => {}
                // It ends just now: waiting for it says so.
                Err(TargetError::Trace { source, .. }) if source.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => return Err(error),
            }
        }
        self.wait_for_all()
    }

    /// Whether there was such a thread.
    fn seize(&mut self, process: Pid, tid: Pid) -> Result<bool, TargetError> {
        if let Err(error) = ptrace::seize(tid) {
            return match TaskStatus::read(process, tid) {
                None => Ok(false),
                // The kernel refuses one that has ended in the same words.
                Some(status) if status.has_ended() => Ok(false),
                Some(status) => Err(refusal::explain(self.pid, &status, &error)),
            };
        }
        let thread = Thread {
            tid,
            process,
            stopped: false,
            signal: None,
            call: None,
            is_anew: false,
            postponed: VecDeque::new(),
        };
        self.threads.push(thread);
        Ok(true)
    }

    fn wait_for_all(&mut self) -> Result<(), TargetError> {
        let mut patience = Patience::default();
        let mut is_first_look = true;
        loop {
            let looked = Instant::now();
            let mut ended = Vec::new();
            for thread in self.threads.iter_mut().filter(|thread| !thread.stopped) {
                match look(thread.tid, thread.tid == thread.process)? {
                    // The kernel does not tell of a first thread that ends before the others.
                    None if patience.is_long() && thread.has_ended() => ended.push(thread.tid),
                    None => continue,
                    Some(Stop::Ended) => ended.push(thread.tid),
                    Some(Stop::Signal(signal)) => {
                        (thread.stopped, thread.signal) = (true, Some(signal));
                        if is_first_look {
                            // Perhaps before it was asked.
                            self.since = self.seized;
                        }
                    }
                    Some(Stop::SystemCall | Stop::Interrupt | Stop::Event) => thread.stopped = true,
                }
                if thread.stopped {
                    thread.note_call()?;
                }
            }
            self.threads.retain(|thread| !ended.contains(&thread.tid));
            let Some(running) = self.threads.iter().find(|thread| !thread.stopped) else { return Ok(()) };
            if self.threads.iter().all(|thread| !thread.stopped) {
                // One that waits for a processor stops when it gets one: until then, nothing is held up.
                self.since = Some(looked);
            }
            is_first_look = false;
            if self.started.elapsed() > self.at_most {
                return Err(self.does_not_stop(running));
            }
            patience.wait();
        }
    }

    fn does_not_stop(&self, thread: &Thread) -> TargetError {
        let status = TaskStatus::read(thread.process, thread.tid).unwrap_or_default();
        TargetError::DoesNotStop {
            pid: self.pid,
            thread: thread.tid,
            waited_ms: self.at_most.as_millis(),
            why: refusal::why_running(thread.process, thread.tid, status.state),
            name: status.name,
        }
    }
}
