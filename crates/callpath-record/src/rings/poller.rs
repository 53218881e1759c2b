//! A thread that waits for rings to fill, or to tell of a thread that begins, and rings the recorder's doorbell.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use callpath_target::{Ring, StackSampler};

use crate::program::Doorbell;
use crate::threads;

/// How soon it sees that a thread has begun where others have begun within this time.
const LOOK_EVERY: Duration = Duration::from_millis(15);
const BEGAN_WITHIN: Duration = Duration::from_secs(1);
/// The same elsewhere, and how soon it sees that it shall end.
const LOOK_SELDOM: Duration = Duration::from_millis(50);

/// Such a thread, as long as there is one. Without it the recorder looks at the rings a few times a second.
pub(super) struct Poller {
    thread: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
}

impl Poller {
    /// Has a thread wait, if the system lets it start. `for_threads`: it also rings when threads begin.
    pub(super) fn start(rings: &Arc<[Ring]>, doorbell: Doorbell, for_threads: bool) -> Poller {
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, rings) = (Arc::clone(&is_over), Arc::clone(rings));
        let thread = threads::start(move || {
            let doorbell = doorbell;
            let descriptors: Vec<RawFd> = rings.iter().map(Ring::descriptor).collect();
            let mut seen = vec![0; rings.len()];
            let mut began = Instant::now();
            while !over.load(Relaxed) {
                let is_soon = for_threads && began.elapsed() < BEGAN_WITHIN;
                let is_due = StackSampler::wait(&descriptors, if is_soon { LOOK_EVERY } else { LOOK_SELDOM });
                let mut has_begun = false;
                for (ring, seen) in rings.iter().zip(&mut seen).filter(|_| for_threads) {
                    let (tells, up_to) = ring.tells_of_thread(*seen);
                    (has_begun, *seen) = (has_begun | tells, up_to);
                }
                if has_begun {
                    began = Instant::now();
                }
                if is_due || has_begun {
                    doorbell.ring();
                }
            }
        });
        Poller { thread, is_over }
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        // It must not outlive the doorbell.
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
