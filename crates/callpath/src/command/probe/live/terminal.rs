//! The terminal while a screen is drawn on it: entered, drawn on, and put back by whatever ends or stops the command.
//!
//! The state is the terminal's, of which there is one, so it is kept in statics: signal handlers put it back, too.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, OnceLock};

/// The other screen, without a cursor, empty.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";

/// The terminal is ours.
static ENTERED: AtomicBool = AtomicBool::new(false);
/// Its settings before, if they were changed.
static SETTINGS: OnceLock<libc::termios> = OnceLock::new();

/// Signals that end a process which has no handler, or that show its ruin.
const FATAL: [libc::c_int; 14] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGSYS,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGXCPU,
    libc::SIGPIPE,
];
/// What was done at each before, by its number.
static BEFORE: [OnceLock<libc::sigaction>; 32] = [const { OnceLock::new() }; 32];

/// Takes the terminal that standard error is. With `keys`, what is typed on standard input, which is one, too, is read
/// byte by byte and not shown; the keys for signals stay. Does nothing where it is ours already.
pub(super) fn enter(keys: bool) {
    static WATCH: Once = Once::new();
    WATCH.call_once(watch);
    if ENTERED.swap(true, Ordering::SeqCst) {
        return;
    }
    if keys {
        // SAFETY: a valid place; the settings are read before they are written.
        unsafe {
            let mut settings: libc::termios = std::mem::zeroed();
            if libc::tcgetattr(libc::STDIN_FILENO, &mut settings) == 0 {
                SETTINGS.get_or_init(|| settings);
                settings.c_lflag &= !(libc::ICANON | libc::ECHO);
                settings.c_cc[libc::VMIN] = 1;
                settings.c_cc[libc::VTIME] = 0;
                libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &settings);
            }
        }
    }
    drop(io::stderr().write_all(ENTER));
}

/// Whether it is ours: a stop gives it back.
pub(super) fn is_entered() -> bool {
    ENTERED.load(Ordering::SeqCst)
}

/// Draws lines over what was there. A terminal that takes no more changes nothing.
pub(super) fn draw(text: &str) {
    let mut bytes = Vec::with_capacity(text.len() + 1024);
    bytes.extend_from_slice(b"\x1b[H");
    for (number, line) in text.lines().enumerate() {
        bytes.extend_from_slice(if number == 0 { b"" } else { b"\r\n" });
        bytes.extend_from_slice(line.as_bytes());
        bytes.extend_from_slice(b"\x1b[K");
    }
    bytes.extend_from_slice(b"\x1b[J");
    drop(io::stderr().write_all(&bytes));
}

/// Puts it back, if it is ours. Calls only what a signal handler may.
pub(super) fn leave() {
    if !ENTERED.swap(false, Ordering::SeqCst) {
        return;
    }
    // SAFETY: the bytes are there, and the settings are the terminal's own.
    unsafe {
        libc::write(libc::STDERR_FILENO, LEAVE.as_ptr().cast(), LEAVE.len());
        if let Some(settings) = SETTINGS.get() {
            libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, settings);
        }
    }
}

/// Whether the terminal that standard error is belongs to this command, and not to one in the shell's foreground.
pub(super) fn is_in_foreground() -> bool {
    // SAFETY: these return numbers.
    unsafe { libc::tcgetpgrp(libc::STDERR_FILENO) == libc::getpgrp() }
}

/// From now on panics and signals put it back first. Signals that are ignored stay so.
fn watch() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        leave();
        before(panic);
    }));
    for signal in FATAL {
        install(signal, on_fatal as *const () as usize, |old| old != libc::SIG_IGN);
    }
    install(libc::SIGTSTP, on_stop as *const () as usize, |old| old == libc::SIG_DFL);
}

fn install(signal: libc::c_int, handler: usize, replaces: impl Fn(usize) -> bool) {
    // SAFETY: actions are valid when they are zeros; the handlers call only what handlers may.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, std::ptr::null(), &mut action) != 0 || !replaces(action.sa_sigaction) {
            return;
        }
        if let Some(before) = BEFORE.get(signal as usize) {
            before.get_or_init(|| action);
        }
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

/// Puts the terminal back, and has done what would have been done.
extern "C" fn on_fatal(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    leave();
    // SAFETY: the kernel gives a valid record. An action that was read is restored.
    unsafe {
        match BEFORE.get(signal as usize).and_then(OnceLock::get) {
            Some(before) => libc::sigaction(signal, before, std::ptr::null_mut()),
            None => libc::signal(signal, libc::SIG_DFL) as libc::c_int,
        };
        // An instruction that faults does so again. What was sent is sent again: it comes when this one returns.
        let is_fault = (*info).si_code > 0
            && matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE | libc::SIGTRAP);
        if !is_fault {
            libc::kill(libc::getpid(), signal);
        }
    }
}

/// Puts the terminal back, and stops. The next look finds that it is not ours.
extern "C" fn on_stop(_signal: libc::c_int, _info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    leave();
    // SAFETY: stops this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_puts_it_back() {
        enter(false);
        assert!(is_entered());
        std::panic::catch_unwind(|| panic!("said on the terminal as it was")).expect_err("a panic");
        assert!(!is_entered());
    }
}
