//! Loads the program that copies deep stacks, in a thread of its own: the kernel takes some milliseconds to check it, in which
//! rings fill.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use callpath_target::DeepCopies;

use crate::threads;

/// Such a thread.
pub(crate) struct Loading {
    /// `None`: it is over.
    loaded: Option<Receiver<DeepCopies>>,
}

impl Loading {
    /// Begins.
    pub(crate) fn start() -> Loading {
        let (tell, loaded) = channel();
        // Whoever may not load it goes on without it; a recording that has ended needs it no more.
        let load = move || {
            if let Ok(deep) = DeepCopies::new() {
                drop(tell.send(deep));
            }
        };
        Loading { loaded: threads::start(load).map(|_| loaded) }
    }

    /// Whether it is not over yet.
    pub(super) fn goes_on(&self) -> bool {
        self.loaded.is_some()
    }

    /// What was loaded, once; it is awaited for so long.
    pub(super) fn take(&mut self, at_most: Duration) -> Option<DeepCopies> {
        let received = self.loaded.as_ref()?.recv_timeout(at_most);
        if !matches!(received, Err(RecvTimeoutError::Timeout)) {
            self.loaded = None;
        }
        received.ok()
    }
}
