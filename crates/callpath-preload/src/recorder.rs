//! The recorder as a measured process sees it: waits for it, and finds out whether it still runs.

use callpath_collect::clock::monotonic_ns;
use callpath_collect::syscall::{call4, futex_wait};
use callpath_collect::{Process, refused};
use callpath_format::shared::Session;
use callpath_format::shared::refused::Calls;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::digits::{decimal, number};
use crate::file::{File, joined};
use crate::libc::syscall_number;

static PID: AtomicU32 = AtomicU32::new(0);

/// Remembers which process it is.
pub fn remember(pid: u32) {
    PID.store(pid, Relaxed);
}

/// After this time without an answer, the process checks whether the recorder is alive; then after twice the time, and
/// so on up to the longest: each look costs some system calls, and hundreds of processes may wait at the same time.
const LOOK_NS: u64 = 20_000_000;
const LONGEST_LOOK_NS: u64 = 320_000_000;

/// The longest wait, however busy the recorder is.
const LONGEST_NS: u64 = 60_000_000_000;

/// Waits until `word` is as wanted. Gives up if the recorder is killed or stopped, or makes no progress for that long.
/// Then no thread waits for it again until it reports that it is back.
pub fn wait(process: &Process<'_>, word: &AtomicU32, patience_ns: u64, is_done: impl Fn(u32) -> bool) -> bool {
    let session = process.session;
    if refused::has(Calls::FUTEX) {
        // If the wait is refused, do not spin either.
        return is_done(word.load(Acquire));
    }
    let first = monotonic_ns();
    let (mut begin, mut worked) = (first, 0);
    let mut beat = session.beat.load(Relaxed);
    let mut look_ns = LOOK_NS;
    loop {
        let value = word.load(Acquire);
        if is_done(value) {
            return true;
        }
        if session.recorder.load(Relaxed) != Session::SERVING {
            return false;
        }
        let now = monotonic_ns();
        if session.beat.load(Relaxed) != beat {
            // It is at work, on the tables of many or large modules.
            beat = session.beat.load(Relaxed);
            begin = now;
        }
        let mut waited = now.saturating_sub(begin);
        let is_time = waited >= look_ns;
        if is_time {
            look_ns = (2 * look_ns).min(LONGEST_LOOK_NS);
        }
        let is_there = match if is_time { state() } else { State::Running(worked) } {
            // On a busy machine it may get little of the CPU.
            State::Running(cpu) if cpu != worked && now.saturating_sub(first) < LONGEST_NS => {
                (begin, worked, waited) = (now, cpu, 0);
                true
            }
            State::Running(_) => waited < patience_ns,
            State::Stopped | State::Dead => false,
        };
        if !is_there {
            session.recorder.store(Session::GONE, Relaxed);
            return false;
        }
        futex_wait(word, value, look_ns.min(patience_ns - waited));
    }
}

/// Whether it has ended. The kernel is asked, since a recorder that was killed leaves no word in shared memory.
pub fn is_dead() -> bool {
    matches!(state(), State::Dead)
}

enum State {
    /// The CPU time that it has used, in the kernel's units.
    Running(u64),
    Stopped,
    Dead,
}

fn state() -> State {
    const ESRCH: isize = -3;
    let pid = PID.load(Relaxed);
    // SAFETY: signal 0 is never sent: the call only checks whether the process exists.
    if unsafe { call4(syscall_number::KILL, [pid as usize, 0, 0, 0]) } == ESRCH {
        return State::Dead;
    }
    let mut digits = [0u8; 10];
    let (mut text, mut buffer) = ([0u8; 64], [0u8; 512]);
    let path = joined(&[b"/proc/", decimal(pid, &mut digits), b"/stat"], &mut text);
    let file = path.and_then(|path| File::open(File::HERE, path, File::READ).ok());
    let Some(text) = file.as_ref().and_then(|file| file.read(0, &mut buffer)) else { return State::Running(0) };
    // PID (name) state ...; the name may hold anything. User and system time are the 14th and 15th field.
    let mut fields = text.rsplit(|b| *b == b')').next().unwrap_or(b"").split(|b| *b == b' ').skip(1);
    match fields.next() {
        Some(b"T" | b"t") => State::Stopped,
        Some(b"Z" | b"X") => State::Dead,
        _ => State::Running(fields.skip(10).take(2).filter_map(number).sum()),
    }
}
