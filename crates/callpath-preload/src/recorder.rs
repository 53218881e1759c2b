//! The recorder as a measured process sees it: waiting for it, and whether it is there at all.
//! Knows nothing of what it is asked for.

use callpath_collect::Process;
use callpath_collect::clock::monotonic_ns;
use callpath_collect::syscall::{call4, futex_wait};
use callpath_format::shared::Session;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::file::{File, joined};
use crate::libc::syscall_number;

static PID: AtomicU32 = AtomicU32::new(0);

/// Remembers which process it is.
pub fn remember(pid: u32) {
    PID.store(pid, Relaxed);
}

/// After so long without an answer it is looked after.
const LOOK_NS: u64 = 20_000_000;

/// Waits until `word` is as wanted; in vain if the recorder is killed or stopped, or gets nothing done for so long. Then
/// nobody waits for it again until it says that it is back.
pub fn wait(process: &Process<'_>, word: &AtomicU32, patience_ns: u64, is_done: impl Fn(u32) -> bool) -> bool {
    let session = process.session;
    let mut begin = monotonic_ns();
    let mut beat = session.beat.load(Relaxed);
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
        let waited = now.saturating_sub(begin);
        if waited >= patience_ns || (waited >= LOOK_NS && !matches!(state(), State::Running)) {
            session.recorder.store(Session::GONE, Relaxed);
            return false;
        }
        futex_wait(word, value, LOOK_NS.min(patience_ns - waited));
    }
}

/// Whether it has ended. Without a look at memory: nobody may have been there to say so.
pub fn is_dead() -> bool {
    matches!(state(), State::Dead)
}

enum State {
    Running,
    Stopped,
    Dead,
}

fn state() -> State {
    const ESRCH: isize = -3;
    let pid = PID.load(Relaxed);
    // SAFETY: sends nothing.
    if unsafe { call4(syscall_number::KILL, pid as usize, 0, 0, 0) } == ESRCH {
        return State::Dead;
    }
    let mut digits = [0u8; 10];
    let (mut text, mut buffer) = ([0u8; 64], [0u8; 512]);
    let path = joined(&[b"/proc/", decimal(pid, &mut digits), b"/stat"], &mut text);
    let file = path.and_then(|path| File::open(File::HERE, path, File::READ).ok());
    let Some(text) = file.as_ref().and_then(|file| file.read(0, &mut buffer)) else { return State::Running };
    // PID (name) state ...; the name may hold anything.
    match text.rsplit(|b| *b == b')').next().and_then(|rest| rest.get(1)) {
        Some(b'T' | b't') => State::Stopped,
        Some(b'Z' | b'X') => State::Dead,
        _ => State::Running,
    }
}

fn decimal(mut number: u32, digits: &mut [u8; 10]) -> &[u8] {
    let mut begin = digits.len();
    for (index, digit) in digits.iter_mut().enumerate().rev() {
        if number == 0 && begin < 10 {
            break;
        }
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        begin = index;
    }
    digits.get(begin..).unwrap_or(b"0")
}
