//! Programs that load no preloaded object, which processes ask the recorder to sample from outside.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// How many may ask at once.
pub(super) const WANTED_LEN: usize = 16;

/// One request. A process claims a free entry, fills it in, and frees it when it has the answer; one that waits for none is freed by the
/// recorder.
#[repr(C)]
pub struct Wanted {
    /// Futex: [`WantedState`]
    pub state: AtomicU32,
    /// The thread's number, as the process sees it.
    pub tid: AtomicU32,
    /// The index + 1 of the program among those that are not measured, which the recorder counts back; 0: it has none.
    pub unmeasured: AtomicU32,
}

/// A request's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WantedState;

#[allow(missing_docs)]
impl WantedState {
    pub const FREE: u32 = 0;
    /// A process is filling it in.
    pub const CLAIMED: u32 = 1;
    /// The thread is about to execute such a program, and waits.
    pub const AT_EXEC: u32 = 2;
    /// The process with this number runs one already; nobody waits.
    pub const NOW: u32 = 3;
    /// The answer: it is sampled from when it executes a program.
    pub const TAKEN: u32 = 4;
    /// The answer: it cannot be.
    pub const REFUSED: u32 = 5;
}

impl Wanted {
    /// Asks in this entry, if it is free.
    pub fn ask(&self, tid: u32, unmeasured: u32, state: u32) -> bool {
        if self.state.compare_exchange(WantedState::FREE, WantedState::CLAIMED, AcqRel, Relaxed).is_err() {
            return false;
        }
        self.tid.store(tid, Relaxed);
        self.unmeasured.store(unmeasured, Relaxed);
        self.state.store(state, Release);
        true
    }

    /// What is asked, for the recorder: the thread, the program's index, and whether somebody waits.
    pub fn read(&self) -> Option<(u32, Option<usize>, bool)> {
        let state = self.state.load(Acquire);
        let is_asked = state == WantedState::AT_EXEC || state == WantedState::NOW;
        let unmeasured = (self.unmeasured.load(Relaxed) as usize).checked_sub(1);
        is_asked.then(|| (self.tid.load(Relaxed), unmeasured, state == WantedState::AT_EXEC))
    }

    /// Gives up a request that nobody has answered, or takes note of the answer: whether it was taken.
    pub fn close(&self) -> bool {
        self.state.swap(WantedState::FREE, AcqRel) == WantedState::TAKEN
    }
}
