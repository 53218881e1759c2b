//! SIGTRAPs that the program sends to one of its own threads: none may be lost because a sample is pending there.
//!
//! The kernel keeps one SIGTRAP of a kind for a thread. One that is sent while a sample waits there, which may be while
//! the thread is in a handler, vanishes without a trace. So a sender first announces the signal in a word of the target
//! thread. Whatever SIGTRAP comes there next, a sample or the signal itself, takes that word back, and the program's
//! handler is called for it: once. A signal that finds the word taken back has been delivered already.
//!
//! A signal to the whole process waits in another queue of the kernel, where no sample does.

use callpath_collect::syscall::{call4, getpid, gettid};
use callpath_format::shared::{ArenaRef, ThreadRecord};
use core::ffi::{c_int, c_void};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use crate::hook::hook;
use crate::info::Info;
use crate::libc::{ENOSYS, SIGTRAP, failed, syscall_number};
use crate::part;
use crate::tls::{self, Word};

/// The C library's codes for what `kill`, `sigqueue` and `tgkill` send.
pub const SI_USER: i32 = 0;
const SI_QUEUE: i32 = -1;
pub const SI_TKILL: i32 = -6;

/// What comes with a signal that was announced.
static MARK: u8 = 0;

fn mark() -> u64 {
    (&raw const MARK) as u64
}

/// The program reads SIGTRAPs from a descriptor, which we do not see: what was read may not be delivered again.
static READ_ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// See there.
pub fn is_read_elsewhere() {
    READ_ELSEWHERE.store(true, Relaxed);
}

/// Whether a SIGTRAP was sent to the calling thread and not yet passed to its handler. Takes the announcement back.
pub fn take() -> bool {
    // SAFETY: the calling thread's own word.
    let sent = unsafe { (*tls::address_of(tls::thread_pointer(), Word::Sent)).swap(0, AcqRel) };
    sent != 0 && !READ_ELSEWHERE.load(Relaxed)
}

/// Announces one that comes later.
pub fn is_due() {
    tls::set(Word::Sent, 1);
}

/// A child by fork inherits no signals.
pub fn forget() {
    tls::set(Word::Sent, 0);
}

/// Whether a signal was announced. The C library's waits call SI_TKILL SI_USER.
pub fn is_announced(info: &Info) -> bool {
    matches!(info.code, SI_TKILL | SI_QUEUE | SI_USER) && info.value == mark()
}

/// As the program would see one from one of its threads.
pub fn by_thread() -> Info {
    // SAFETY: the call writes no memory.
    let user = unsafe { call4(syscall_number::GETUID, [0, 0, 0, 0]) } as u32;
    Info { signal: SIGTRAP, code: SI_TKILL, sender: getpid(), user, ..Info::default() }
}

/// Sends one to the calling thread, announced. Below 0: an error of the kernel's.
pub fn again() -> isize {
    let info = Info { value: mark(), ..by_thread() };
    let (process, thread, at) = (getpid() as usize, gettid() as usize, core::ptr::from_ref(&info) as usize);
    // SAFETY: the kernel reads a whole record.
    unsafe { call4(syscall_number::RT_TGSIGQUEUEINFO, [process, thread, SIGTRAP as usize, at]) }
}

/// The record of the thread with this thread pointer, which must be one of this process.
fn record_at(thread_pointer: usize) -> Option<&'static ThreadRecord> {
    let process = part::own_process().filter(|_| !READ_ELSEWHERE.load(Relaxed))?;
    // SAFETY: the caller of the hook vouches for the thread; our words are there as long as it is.
    let record = unsafe { (*tls::address_of(thread_pointer, Word::Record)).load(Relaxed) };
    process.arena.get(ArenaRef(record as u32)).filter(|_| record != 0)
}

/// Sends one to the calling thread. `None`: the real procedure must do it.
fn to_self() -> Option<c_int> {
    // A thread of a raw clone may share its words with its creator.
    record_at(tls::thread_pointer()).filter(|record| record.tid.load(Relaxed) == gettid())?;
    is_due();
    if again() == 0 {
        return Some(0);
    }
    take();
    None
}

/// Sends one to a thread of this process, announced there. `None`: the real procedure must do it.
fn to_thread(thread_pointer: usize) -> Option<c_int> {
    let tid = record_at(thread_pointer)?.tid.load(Relaxed);
    if tid == gettid() {
        return to_self();
    }
    if tid == 0 {
        return None;
    }
    // SAFETY: as in `record_at`.
    let word = unsafe { &*tls::address_of(thread_pointer, Word::Sent) };
    let info = Info { code: SI_QUEUE, value: mark(), ..by_thread() };
    let before = word.swap(1, Release);
    let at = core::ptr::from_ref(&info) as usize;
    // SAFETY: the kernel reads a whole record.
    let sent =
        unsafe { call4(syscall_number::RT_TGSIGQUEUEINFO, [getpid() as usize, tid as usize, SIGTRAP as usize, at]) };
    if sent == 0 {
        return Some(0);
    }
    if before == 0 {
        word.store(0, Relaxed);
    }
    None
}

hook! {
    /// `raise(3)`
    fn raise(signal: c_int) -> c_int, or failed(ENOSYS);
    |next| {
        let sent = if signal == SIGTRAP { to_self() } else { None };
        sent.unwrap_or_else(|| next.original())
    }

    /// `pthread_kill(3)`: returns the error itself.
    fn pthread_kill(thread: *mut c_void, signal: c_int) -> c_int, or ENOSYS;
    |next| {
        // SAFETY: signal 0 is not sent: the C library only checks whether the
        // thread has ended, which the program may ask.
        let lives = || unsafe { (next.real)(thread, 0) } == 0;
        let sent = if signal == SIGTRAP && lives() { to_thread(thread as usize) } else { None };
        sent.unwrap_or_else(|| next.original())
    }

    /// `tgkill(2)`, of the calling thread.
    fn tgkill(process: c_int, thread: c_int, signal: c_int) -> c_int, or failed(ENOSYS);
    |next| {
        let is_own = u32::try_from(process) == Ok(getpid()) && u32::try_from(thread) == Ok(gettid());
        let sent = if signal == SIGTRAP && is_own { to_self() } else { None };
        sent.unwrap_or_else(|| next.original())
    }
}
