//! Recipe tables are made here while the recorder serves: by threads of their own, as many as there are processors.
//! Knows nothing of processes and of what is published.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use callpath_analyze::module_memo::{LoadedModule, Unfinished};
use callpath_analyze::table_cache::TableCache;

use crate::modules::ModuleId;
use crate::program::Doorbell;

/// Tables that are being made. Dropping it gives up those that are not done.
pub(crate) struct Workshop {
    queue: Arc<Queue>,
    sender: Sender<Done>,
    done: Receiver<Done>,
    under_way: usize,
    workers: usize,
}

/// A module with its table; `None`: its analysis has panicked.
type Done = (ModuleId, Option<LoadedModule>);

struct Queue {
    cache: TableCache,
    doorbell: Doorbell,
    waiting: Mutex<Waiting>,
    more: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<(ModuleId, Unfinished)>,
    closed: bool,
}

impl Workshop {
    pub(crate) fn new(cache: TableCache, doorbell: Doorbell) -> Workshop {
        let queue = Queue { cache, doorbell, waiting: Mutex::default(), more: Condvar::new() };
        let (sender, done) = channel();
        Workshop { queue: Arc::new(queue), sender, done, under_way: 0, workers: 0 }
    }

    pub(crate) fn cache(&self) -> &TableCache {
        &self.queue.cache
    }

    /// Has a module's table made.
    pub(crate) fn begin(&mut self, id: ModuleId, module: Unfinished) {
        self.queue.with(|waiting| waiting.jobs.push_back((id, module)));
        self.under_way += 1;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        if self.workers < self.under_way.min(processors) {
            let (queue, sender) = (Arc::clone(&self.queue), self.sender.clone());
            std::thread::spawn(move || queue.work(&sender));
            self.workers += 1;
        }
        self.queue.more.notify_one();
    }

    /// Samples wait for this one: it is the next to be begun.
    pub(crate) fn hurry(&self, id: ModuleId) {
        self.queue.with(|waiting| {
            if let Some(job) =
                waiting.jobs.iter().position(|(other, _)| *other == id).and_then(|at| waiting.jobs.remove(at))
            {
                waiting.jobs.push_front(job);
            }
        });
    }

    /// How many are not done.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    /// The next that is done; waits for it, if one is under way, so long.
    pub(crate) fn next(&mut self, patience: Duration) -> Option<Done> {
        if self.under_way == 0 {
            return None;
        }
        let done = self.done.recv_timeout(patience).ok()?;
        self.under_way -= 1;
        Some(done)
    }
}

impl Queue {
    fn with<T>(&self, change: impl FnOnce(&mut Waiting) -> T) -> T {
        change(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn work(&self, sender: &Sender<Done>) {
        while let Some((id, module)) = self.next() {
            let make = std::panic::AssertUnwindSafe(|| module.finish(&self.cache));
            let made = std::panic::catch_unwind(make).ok();
            // Nobody listens any more only if the recorder has ended.
            drop(sender.send((id, made)));
            self.with(|waiting| {
                if !waiting.closed {
                    self.doorbell.ring();
                }
            });
        }
    }

    fn next(&self) -> Option<(ModuleId, Unfinished)> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = waiting.jobs.pop_front() {
                return Some(job);
            }
            if waiting.closed {
                return None;
            }
            waiting = self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        // Whoever has begun one ends with the process.
        self.queue.with(|waiting| {
            waiting.closed = true;
            waiting.jobs.clear();
        });
        self.queue.more.notify_all();
    }
}
