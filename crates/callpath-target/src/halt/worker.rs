//! The thread that traces: it owns the [`Tracer`], and does what others ask for.

use std::borrow::Borrow;
use std::mem::ManuallyDrop;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::tracer::Tracer;
use crate::error::TargetError;
use crate::hurried::Hurried;
use crate::pid::Pid;

type Job = Box<dyn FnOnce(&mut Tracer) + Send>;

/// The thread. When it ends, the kernel lets go whatever it traces.
#[derive(Debug)]
pub(super) struct Worker {
    pid: Pid,
    tid: libc::pid_t,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    /// When it had nothing left to do but end.
    ended: Arc<OnceLock<Instant>>,
    /// Whoever has work done: as long as that one waits for a processor, the program stands still, too.
    _caller: Hurried,
}

impl Worker {
    /// Starts it, with the tracer that `make` gives. Returns when its first tracee was stopped, too.
    pub(super) fn start(
        pid: Pid,
        make: impl FnOnce() -> Result<Tracer, TargetError> + Send + 'static,
    ) -> Result<(Worker, Instant), TargetError> {
        let (jobs, to_do) = channel::<Job>();
        let (made, outcome) = channel();
        let (named, name) = channel();
        let ended = Arc::new(OnceLock::new());
        let ends = Arc::clone(&ended);
        let work = move || {
            // SAFETY: takes nothing, and always succeeds.
            if named.send(unsafe { libc::gettid() }).is_err() {
                return;
            }
            // Until it has ended: what it still traces then is let go by that.
            let _hurried = ManuallyDrop::new(Hurried::new());
            let mut tracer = match make() {
                Ok(tracer) => tracer,
                Err(error) => return drop(made.send(Err(error))),
            };
            if made.send(Ok(tracer.since)).is_err() {
                return;
            }
            while let Ok(job) = to_do.recv() {
                job(&mut tracer);
            }
            drop(tracer);
            ends.get_or_init(Instant::now);
        };
        let caller = Hurried::new();
        let thread = Builder::new().name("callpath-tracer".to_owned()).spawn(work);
        let thread = thread.map_err(|source| TargetError::Trace { request: "a thread for it", pid, source })?;
        let tid = name.recv().unwrap_or_default();
        let worker = Worker { pid, tid, jobs: Some(jobs), thread: Some(thread), ended, _caller: caller };
        // If it failed, its end is waited for: nothing is traced any more when the error is seen.
        let since = outcome.recv().unwrap_or_else(|_| Err(worker.ended()))?;
        Ok((worker, since))
    }

    /// Has it do something, and waits.
    pub(super) fn with<R: Send>(
        &self,
        work: impl FnOnce(&mut Tracer) -> Result<R, TargetError> + Send,
    ) -> Result<R, TargetError> {
        hand_over(self.jobs.as_ref(), work, || self.ended())
    }

    /// As [`Worker::with`]; then it ends. Also returns when it did: some ten microseconds later the kernel has let go what
    /// it traced.
    pub(super) fn finish<R: Send>(
        mut self,
        work: impl FnOnce(&mut Tracer) -> Result<R, TargetError> + Send,
    ) -> Result<(R, Instant), TargetError> {
        // Gone before the result comes: the thread does not wait for the caller to say that this was the last.
        let result = hand_over(self.jobs.take(), work, || self.ended())?;
        self.join();
        let ended = self.ended.get().copied().ok_or_else(|| self.ended())?;
        Ok((result, ended))
    }

    fn ended(&self) -> TargetError {
        let source = std::io::Error::other("callpath's thread for it has ended");
        TargetError::Trace { request: "anything", pid: self.pid, source }
    }
}

/// Sends a job and waits for its result.
fn hand_over<R: Send>(
    jobs: Option<impl Borrow<Sender<Job>>>,
    work: impl FnOnce(&mut Tracer) -> Result<R, TargetError> + Send,
    ended: impl Fn() -> TargetError,
) -> Result<R, TargetError> {
    let (done, outcome) = channel();
    let job = move |tracer: &mut Tracer| {
        let result = work(tracer);
        // The receiver waits below.
        drop(done.send(result));
    };
    let job: Box<dyn FnOnce(&mut Tracer) + Send + '_> = Box::new(job);
    // SAFETY: what the job borrows outlives this call, which ends only when the job has run or was dropped: `done`
    // belongs to it, and `recv` returns when something was sent, after the last use of what `work` borrows, or when
    // `done` is gone.
    let job: Job = unsafe { std::mem::transmute(job) };
    let sent = jobs.as_ref().is_some_and(|jobs| jobs.borrow().send(job).is_ok());
    drop(jobs);
    if !sent {
        return Err(ended());
    }
    outcome.recv().unwrap_or_else(|_| Err(ended()))
}

impl Worker {
    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported.
            drop(thread.join());
            self.wait_until_gone();
        }
    }

    /// A thread that has been joined may still be about to let go what it traces.
    fn wait_until_gone(&self) {
        /// Some seconds: it may have to wait for a processor.
        const LOOKS: u32 = 100_000;
        for _ in 0..LOOKS {
            // SAFETY: takes numbers; signal 0 is not sent.
            let is_there = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.tid, 0) } == 0;
            if !is_there {
                return;
            }
            std::thread::sleep(Duration::from_micros(10));
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The tracer, dropped, lets all threads run on.
        drop(self.jobs.take());
        self.join();
    }
}
