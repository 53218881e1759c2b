//! A pool of threads that build recipe tables while the recorder serves, as many as there are processors.
//!
//! Slices of large modules and tables of small ones take milliseconds, and samples wait for them. The
//! whole table of a large module takes seconds and hundreds of megabytes: one at a time is built, by a
//! thread that leaves most of the processors to others.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use callpath_tables::module_memo::{LoadedModule, Unfinished};
use callpath_tables::slices::Slices;
use callpath_tables::table_cache::TableCache;

use crate::module::ModuleId;
use crate::program::Doorbell;
use crate::threads;

/// Tables that are being built. Dropping it gives up those that are not done.
pub(crate) struct WorkerPool {
    queue: Arc<Queue>,
    sender: Sender<Done>,
    done: Receiver<Done>,
    /// Of a queue's jobs, those that are not done, and its threads: [`Pace`].
    under_way: [usize; 2],
    workers: [usize; 2],
}

/// A table to build.
pub(crate) enum Job {
    /// A module's table.
    Table(Box<Unfinished>),
    /// A slice of a large one's.
    Slice(Arc<Slices>, u32),
}

/// A table that was built; `None`: there is no such table.
pub(crate) enum Built {
    /// Of [`Job::Table`].
    Table(Option<LoadedModule>),
    /// Of [`Job::Slice`].
    Slice(u32, Option<Vec<u8>>),
}

/// How soon something is to be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    /// Samples wait for it.
    Now,
    /// By one thread of low priority.
    Slow,
}

type Done = (ModuleId, Pace, Built);

struct Queue {
    cache: TableCache,
    doorbell: Doorbell,
    priority: Mutex<Priority>,
    waiting: Mutex<Waiting>,
    more: Condvar,
}

/// Of the thread for [`Pace::Slow`].
#[derive(Default)]
struct Priority {
    /// Its number, once it is a low one.
    lowered: Option<libc::id_t>,
    /// It is the usual one from now on.
    is_usual: bool,
}

#[derive(Default)]
struct Waiting {
    jobs: [VecDeque<(ModuleId, Job)>; 2],
    closed: bool,
}

impl WorkerPool {
    pub(crate) fn new(cache: TableCache, doorbell: Doorbell) -> WorkerPool {
        let queue =
            Queue { cache, doorbell, priority: Mutex::default(), waiting: Mutex::default(), more: Condvar::new() };
        let (sender, done) = channel();
        WorkerPool { queue: Arc::new(queue), sender, done, under_way: [0; 2], workers: [0; 2] }
    }

    pub(crate) fn cache(&self) -> &TableCache {
        &self.queue.cache
    }

    /// Queues a table of a module.
    pub(crate) fn begin(&mut self, id: ModuleId, job: Job, pace: Pace) {
        let lane = pace as usize;
        self.queue.with(|waiting| waiting.jobs[lane].push_back((id, job)));
        self.under_way[lane] += 1;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let most = if pace == Pace::Slow { 1 } else { processors };
        if self.workers[lane] < self.under_way[lane].min(most) {
            let (queue, sender) = (Arc::clone(&self.queue), self.sender.clone());
            // If a thread is refused, its jobs are left to the others, or to `next`.
            self.workers[lane] += usize::from(threads::start(move || queue.work(pace, &sender)).is_some());
        }
        self.queue.more.notify_all();
    }

    /// Samples wait for this one's table: it is the next to be begun.
    pub(crate) fn hurry(&self, id: ModuleId) {
        self.queue.with(|waiting| {
            let jobs = &mut waiting.jobs[Pace::Now as usize];
            if let Some(job) = jobs.iter().position(|(other, _)| *other == id).and_then(|at| jobs.remove(at)) {
                jobs.push_front(job);
            }
        });
    }

    /// Nobody is disturbed any more: slow jobs are done at the usual priority. Not every user may raise that of a thread that
    /// has begun; then it goes on as it is.
    pub(crate) fn hasten(&self) {
        let mut priority = self.queue.priority.lock().unwrap_or_else(PoisonError::into_inner);
        priority.is_usual = true;
        if let Some(thread) = priority.lowered.take() {
            // SAFETY: takes numbers.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, 0) };
        }
    }

    /// The next table that is done; waits at most `patience` if one is being built. Without a worker, a table that
    /// samples wait for is built here.
    pub(crate) fn next(&mut self, patience: Duration) -> Option<(ModuleId, Built)> {
        if self.under_way == [0; 2] {
            return None;
        }
        let lane = Pace::Now as usize;
        if self.workers[lane] == 0
            && let Some((id, job)) = self.queue.with(|waiting| waiting.jobs[lane].pop_front())
        {
            self.under_way[lane] -= 1;
            return Some((id, self.queue.make(job)));
        }
        let (id, pace, built) = self.done.recv_timeout(patience).ok()?;
        self.under_way[pace as usize] -= 1;
        Some((id, built))
    }
}

impl Job {
    fn make(self, cache: &TableCache) -> Built {
        match self {
            Job::Table(unfinished) => Built::Table(Some(unfinished.finish(cache))),
            Job::Slice(slices, index) => Built::Slice(index, slices.table(index, cache)),
        }
    }

    fn nothing(&self) -> Built {
        match self {
            Job::Table(_) => Built::Table(None),
            Job::Slice(_, index) => Built::Slice(*index, None),
        }
    }
}

impl Queue {
    fn with<T>(&self, change: impl FnOnce(&mut Waiting) -> T) -> T {
        change(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn work(&self, pace: Pace, sender: &Sender<Done>) {
        if pace == Pace::Slow {
            self.run_slowly();
        }
        while let Some((id, job)) = self.next(pace) {
            // The receiver is gone only if the recorder has ended.
            drop(sender.send((id, pace, self.make(job))));
            self.with(|waiting| {
                if !waiting.closed {
                    self.doorbell.ring();
                }
            });
        }
    }

    /// The calling thread leaves the processors to others, while there are any. One that cannot is as good.
    fn run_slowly(&self) {
        let mut priority = self.priority.lock().unwrap_or_else(PoisonError::into_inner);
        if !priority.is_usual {
            // SAFETY: takes numbers; 0 is the calling thread.
            let thread = unsafe {
                libc::setpriority(libc::PRIO_PROCESS, 0, SLOW_NICE);
                libc::gettid()
            };
            priority.lowered = libc::id_t::try_from(thread).ok();
        }
    }

    fn make(&self, job: Job) -> Built {
        let nothing = job.nothing();
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job.make(&self.cache))).unwrap_or(nothing)
    }

    fn next(&self, pace: Pace) -> Option<(ModuleId, Job)> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = waiting.jobs[pace as usize].pop_front() {
                return Some(job);
            }
            if waiting.closed {
                return None;
            }
            waiting = self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A tenth of the weight of others: a program on all processors hardly notices,
/// and it is done some time on a busy machine, too.
const SLOW_NICE: i32 = 10;

impl Drop for WorkerPool {
    fn drop(&mut self) {
        // A worker that has begun a table ends with the process.
        self.queue.with(|waiting| {
            waiting.closed = true;
            waiting.jobs = Default::default();
        });
        self.queue.more.notify_all();
    }
}
