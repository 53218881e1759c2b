//! Signals that the recorder gets: a termination is handed on to the program, once.
//!
//! The terminal's interrupt and quit reach the program by themselves. A termination may be meant for the recorder
//! alone, and is handed on; or it was sent to the whole process group, and the program has it already. The signal
//! does not show which. So there is a *witness*, a process in the same group that does nothing and blocks all
//! signals: one that is pending there was sent to all.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use callpath_target::Pid;

use crate::threads;

/// Those that are handed on.
const HANDED_ON: [i32; 2] = [libc::SIGTERM, libc::SIGHUP];

/// As long as the sender of a signal may take from one process of a group to the next.
const TO_ALL: Duration = Duration::from_millis(10);

/// There is no program any more to hand them on to.
static PROGRAM_HAS_ENDED: AtomicBool = AtomicBool::new(false);
/// The user ends the wait for the processes that are left.
static SHALL_STOP: AtomicBool = AtomicBool::new(false);

/// From now on interrupts and terminations are for the recorder: it ends the wait for the program's other processes.
pub(crate) fn program_has_ended() {
    PROGRAM_HAS_ENDED.store(true, Relaxed);
    extern "C" fn stop(_: libc::c_int) {
        SHALL_STOP.store(true, Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: the handler stores a word.
        unsafe { libc::signal(signal, stop as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    }
}

/// The same of terminations, for a process that runs without us: they are for the recorder alone.
pub(crate) fn are_all_for_us() {
    extern "C" fn stop(_: libc::c_int) {
        SHALL_STOP.store(true, Relaxed);
    }
    program_has_ended();
    for signal in HANDED_ON {
        // SAFETY: the handler stores a word.
        unsafe { libc::signal(signal, stop as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    }
    // SAFETY: a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &handed_on(), std::ptr::null_mut()) };
}

/// Whether one has come since.
pub(crate) fn shall_stop() -> bool {
    SHALL_STOP.load(Relaxed)
}

/// Forgets that: it has stopped. What comes from now on is for what it does next.
pub(crate) fn have_stopped() {
    SHALL_STOP.store(false, Relaxed);
}

/// The signals are held back until there is a program.
pub(crate) struct Signals {
    witness: Witness,
}

impl Signals {
    /// From here on, in this thread and those that it makes. Before there are others.
    pub(crate) fn hold_back() -> Signals {
        // SAFETY: a valid set; the program gets the mask back that we began with.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &handed_on(), std::ptr::null_mut()) };
        Signals { witness: Witness::start() }
    }

    /// Hands them on in a separate thread that ends with callpath, if a thread can be had.
    pub(crate) fn hand_on_to(self, program: Pid) -> HandedOn {
        // Not before: the program would inherit it.
        for signal in [libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: a valid action.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        let hand = Arc::new(Mutex::new(Hand { witness: self.witness, program }));
        let taken = Arc::clone(&hand);
        let thread = threads::start(move || {
            let mut hand = taken.lock().unwrap_or_else(PoisonError::into_inner);
            let set = handed_on();
            let mut signal = 0;
            // SAFETY: both are valid.
            while unsafe { libc::sigwait(&set, &mut signal) } == 0 {
                hand.on(signal);
            }
        });
        HandedOn(thread.is_none().then_some(hand))
    }
}

/// Signals that are handed on by a thread, or, if none can be had, at each look.
pub(crate) struct HandedOn(Option<Arc<Mutex<Hand>>>);

impl HandedOn {
    /// Hands on what has come, where no thread does.
    pub(crate) fn look(&self) {
        let Some(hand) = &self.0 else { return };
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            // SAFETY: both are valid; the sender is not used.
            let signal = unsafe { libc::sigtimedwait(&handed_on(), std::ptr::null_mut(), &at_once) };
            if signal <= 0 {
                return;
            }
            hand.lock().unwrap_or_else(PoisonError::into_inner).on(signal);
        }
    }
}

struct Hand {
    witness: Witness,
    program: Pid,
}

impl Hand {
    fn on(&mut self, signal: i32) {
        if PROGRAM_HAS_ENDED.load(Relaxed) {
            SHALL_STOP.store(true, Relaxed);
            return;
        }
        std::thread::sleep(TO_ALL);
        let has_it = self.witness.has(signal) && is_in_our_group(self.program);
        if !has_it {
            // SAFETY: sends a signal to our child.
            unsafe { libc::kill(self.program.0 as i32, signal) };
        }
        self.witness = Witness::start();
    }
}

fn handed_on() -> libc::sigset_t {
    // SAFETY: a set is valid for any bytes, and made empty first.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in HANDED_ON {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

fn is_in_our_group(program: Pid) -> bool {
    // SAFETY: these return numbers.
    unsafe { libc::getpgid(program.0 as i32) == libc::getpgrp() }
}

/// Ends with the thread that started it at the latest.
struct Witness {
    /// 0: there is none, and every signal is handed on.
    pid: i32,
}

impl Witness {
    fn start() -> Witness {
        if threads::are_scarce() {
            return Witness { pid: 0 };
        }
        // SAFETY: returns a number; the child makes async-signal-safe calls only.
        unsafe {
            let parent = libc::getpid();
            let pid = libc::fork();
            if pid == 0 {
                let mut all = std::mem::zeroed();
                libc::sigfillset(&mut all);
                libc::sigprocmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // It must not keep inherited pipes open.
                libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
                while libc::getppid() == parent {
                    libc::poll(std::ptr::null_mut(), 0, -1);
                }
                libc::_exit(0);
            }
            Witness { pid: pid.max(0) }
        }
    }

    /// Whether a signal is pending there.
    fn has(&self, signal: i32) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
        pending.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask >> (signal - 1) & 1 != 0))
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        if self.pid > 0 {
            // SAFETY: ends our own child, which no other code waits for.
            unsafe {
                libc::kill(self.pid, libc::SIGKILL);
                libc::waitpid(self.pid, std::ptr::null_mut(), 0);
            }
        }
    }
}
