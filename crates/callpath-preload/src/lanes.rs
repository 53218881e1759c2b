//! Lanes: where the threads of a process count what copies of its procedures do (`callpath_format::shared::lanes`). What
//! counts there is the copies' own code; here each thread gets its lane, before its first instruction.

use callpath_collect::Process;
use callpath_collect::syscall::{call4, futex_wait, getpid, gettid};
use callpath_format::shared::ProcessSlot;
use callpath_format::shared::lanes::{LaneHead, LanesHead};
use core::ffi::c_int;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::tls;

/// Whether a thread is being created: the word that new threads get is its own then.
static CREATING: AtomicU32 = AtomicU32::new(0);
/// Lanes of threads that have ended, or are about to: the number of the lane, and above it that of the thread.
static ENDED: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Tells the recorder where the words are that lead to lanes.
pub fn tell(slot: &ProcessSlot) {
    slot.lane_word_image.store(tls::lane_image() as u64, Relaxed);
    slot.lane_word.store(tls::lane_distance() as u64, Relaxed);
}

/// Where the calling thread's lane is, and how many it has, if the process has any.
fn own() -> Option<(&'static LanesHead, u64)> {
    let words = tls::lane();
    if words == 0 {
        return None;
    }
    // SAFETY: the recorder, or who took the lane, has written its head; lanes stay mapped.
    let lane: &LaneHead = unsafe { &*((words as usize - LaneHead::LEN_BYTES) as *const LaneHead) };
    let head = lane.head.load(Relaxed);
    // SAFETY: as above.
    Some((unsafe { &*(head as *const LanesHead) }, head))
}

/// The address of a lane's first word; its head is written.
fn words_of(head: &LanesHead, at: u64, lane: u32) -> u64 {
    let begin = at + head.offset_of(lane);
    // SAFETY: lanes are mapped as long as the process runs.
    let own: &LaneHead = unsafe { &*(begin as *const LaneHead) };
    own.head.store(at, Relaxed);
    own.number.store(lane.into(), Relaxed);
    begin + LaneHead::LEN_BYTES as u64
}

/// What a thread that creates another one has put where that one's word is copied from.
pub struct Creating {
    before: u64,
    lane: u32,
}

/// Begins to create a thread: it will have a lane of its own. `None`: the process has no lanes.
pub fn begin_creating() -> Option<Creating> {
    const PATIENCE_NS: u64 = 100_000;
    let (head, at) = own()?;
    while CREATING.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
        futex_wait(&CREATING, 1, PATIENCE_NS);
    }
    let lane = ended().or_else(|| head.take(getpid())).unwrap_or(LanesHead::SHARED);
    let image = tls::lane_image();
    make_writable(image as usize);
    let words = words_of(head, at, lane);
    // SAFETY: the word of our object's own that threads begin with; nobody else writes it meanwhile.
    let image = unsafe { &*image };
    Some(Creating { before: image.swap(words, AcqRel), lane })
}

impl Creating {
    /// It was created, or not.
    pub fn end(self, result: c_int) {
        // SAFETY: as above.
        unsafe { &*tls::lane_image() }.store(self.before, Release);
        if result != 0 {
            // It never ran; no thread has the number 0.
            note_ended(self.lane, 0);
        }
        CREATING.store(0, Release);
    }
}

/// The calling thread is about to end. Its lane is another one's when it has.
pub fn end() {
    if own().is_none() {
        return;
    }
    // SAFETY: as in `own`.
    let lane: &LaneHead = unsafe { &*((tls::lane() as usize - LaneHead::LEN_BYTES) as *const LaneHead) };
    note_ended(lane.number.load(Relaxed) as u32, gettid());
}

/// A fork's child counts its own.
pub fn adopt(process: &Process<'_>) {
    CREATING.store(0, Relaxed);
    ENDED.iter().for_each(|ended| ended.store(0, Relaxed));
    if let Some((head, at)) = own() {
        let pid = process.slot.pid.load(Relaxed);
        let lane = head.take(pid).unwrap_or(LanesHead::SHARED);
        tls::set_lane(words_of(head, at, lane));
    }
}

fn note_ended(lane: u32, tid: u32) {
    if lane == LanesHead::SHARED {
        return;
    }
    let entry = u64::from(tid) << 32 | u64::from(lane);
    // Without a free entry the lane is not used again.
    let free = |ended: &&AtomicU64| ended.compare_exchange(0, entry, AcqRel, Relaxed).is_ok();
    let _entry = ENDED.iter().find(free);
}

/// The lane of a thread that is gone.
fn ended() -> Option<u32> {
    const TGKILL: usize = 234;
    const ESRCH: isize = -3;
    let is_gone = |tid: u64| {
        // SAFETY: signal 0 is never sent: the call only checks whether the thread exists.
        tid == 0 || unsafe { call4(TGKILL, [getpid() as usize, tid as usize, 0, 0]) } == ESRCH
    };
    ENDED.iter().find_map(|ended| {
        let entry = ended.load(Acquire);
        let is_taken = entry != 0 && is_gone(entry >> 32) && ended.compare_exchange(entry, 0, AcqRel, Relaxed).is_ok();
        is_taken.then_some(entry as u32)
    })
}

/// Lets us write a word of our object that its loader has made read-only.
fn make_writable(at: usize) {
    const MPROTECT: usize = 10;
    const READ_AND_WRITE: usize = 3;
    const PAGE: usize = 4096;
    static IS_WRITABLE: AtomicU32 = AtomicU32::new(0);
    if IS_WRITABLE.swap(1, Relaxed) == 0 {
        // SAFETY: memory of our own object; it can be read as before.
        unsafe { call4(MPROTECT, [at & !(PAGE - 1), PAGE, READ_AND_WRITE, 0]) };
    }
}
