//! The live screen of `callpath probe`, in a pseudo-terminal: it is drawn, keys work, and the terminal is as it was.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SOURCE: &str = r#"
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) void beat(void) { usleep(1000); }
__attribute__((noinline)) void outer(void) { beat(); __asm__(""); }
int main(int argc, char **argv) {
    setvbuf(stdout, 0, _IONBF, 0);
    for (long i = 0; i < 600000; i++) { outer(); if (argc > 1 && i == 100) puts("a word of the program"); }
    return 0;
}
"#;

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

/// A terminal, and what was written on it so far.
struct Terminal {
    user: File,
    program: OwnedFd,
    seen: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Terminal {
    fn open() -> Terminal {
        // Not openpty(), whose descriptors programs of tests beside this one would inherit and keep open.
        let how = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        let mut name = [0; 64];
        // SAFETY: a valid place for the name, which ends with a zero, and a size; what is opened is no one else's.
        let (user, program) = unsafe {
            let user = libc::posix_openpt(how);
            assert!(user >= 0, "a pseudo-terminal: {}", std::io::Error::last_os_error());
            assert_eq!((libc::grantpt(user), libc::unlockpt(user)), (0, 0));
            assert_eq!(libc::ptsname_r(user, name.as_mut_ptr(), name.len()), 0);
            let program = libc::open(name.as_ptr(), how);
            assert!(program >= 0, "its other end: {}", std::io::Error::last_os_error());
            let size = libc::winsize { ws_row: 12, ws_col: 70, ws_xpixel: 0, ws_ypixel: 0 };
            assert_eq!(libc::ioctl(program, libc::TIOCSWINSZ, &size), 0);
            (File::from_raw_fd(user), OwnedFd::from_raw_fd(program))
        };
        let seen: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (mut end, all) = (user.try_clone().unwrap(), Arc::clone(&seen));
        let reader = std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(length @ 1..) = end.read(&mut part) {
                all.lock().unwrap().extend_from_slice(&part[..length]);
            }
        });
        Terminal { user, program, seen, reader }
    }

    /// Starts a command whose terminal it is.
    fn start(&self, command: &mut Command) -> Child {
        let descriptor = self.program.as_raw_fd();
        // SAFETY: two system calls.
        unsafe {
            command.pre_exec(move || {
                let done = libc::setsid() != -1 && libc::ioctl(descriptor, libc::TIOCSCTTY, 0) == 0;
                if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
            });
        }
        command.stderr(self.program.try_clone().unwrap()).spawn().unwrap()
    }

    fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    /// Waits until what was written from `from` on holds a text.
    #[track_caller]
    fn wait_for(&self, from: usize, text: &str) {
        let began = Instant::now();
        while !self.seen().get(from..).is_some_and(|seen| seen.contains(text)) {
            assert!(began.elapsed() < Duration::from_secs(60), "{text:?} is not in {:?}", self.seen());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The settings, as words.
    fn settings(&self) -> (u32, u32, u32, Vec<u8>) {
        // SAFETY: a valid place for the answer.
        unsafe {
            let mut settings: libc::termios = std::mem::zeroed();
            assert_eq!(libc::tcgetattr(self.program.as_raw_fd(), &mut settings), 0);
            (settings.c_iflag, settings.c_oflag, settings.c_lflag, settings.c_cc.to_vec())
        }
    }

    /// All that was written, once nothing has the terminal any more.
    fn end(self) -> String {
        drop(self.program);
        self.reader.join().unwrap();
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }
}

/// A program in a directory of its own.
fn program() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("beats.c");
    std::fs::write(&source, SOURCE).unwrap();
    let status = Command::new("gcc").args(["-g", "-O1", "-o"]).arg(directory.path().join("beats")).arg(source).status();
    assert!(status.unwrap().success());
    directory
}

fn callpath(directory: &tempfile::TempDir, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_callpath"));
    command.args(["probe", "-f", "beats!beat", "-o", "out.callpath"]).args(words).current_dir(directory.path());
    command.env("TERM", "xterm").env("NO_COLOR", "1");
    command
}

/// A process to be probed, ended with the test.
struct Running(Child);

impl Running {
    fn start(directory: &tempfile::TempDir) -> Running {
        Running(
            Command::new(directory.path().join("beats")).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(),
        )
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop((self.0.kill(), self.0.wait()));
    }
}

#[test]
fn keys_change_the_screen_of_a_running_process_and_end_the_probe() {
    let directory = program();
    let running = Running::start(&directory);
    let mut terminal = Terminal::open();
    let before = terminal.settings();
    let pid = running.0.id().to_string();
    let mut command = callpath(&directory, &["-m", "wall-time", "-p", &pid]);
    command.stdin(terminal.program.try_clone().unwrap()).stdout(terminal.program.try_clone().unwrap());
    let mut child = terminal.start(&mut command);
    drop(command);
    terminal.wait_for(0, "main › outer › beat");
    assert_ne!(terminal.settings(), before, "keys are read one by one");
    terminal.wait_for(0, "m: by wall-time  p: pause  q: end the probe");
    let by_calls = terminal.seen().len();
    terminal.user.write_all(b"m").unwrap();
    terminal.wait_for(by_calls, " wall-time    a second");
    // A rate is known as soon as it was read twice.
    terminal.wait_for(by_calls, " calls, ");
    let paused = terminal.seen().len();
    terminal.user.write_all(b"p").unwrap();
    terminal.wait_for(paused, "p: go on (paused)");
    terminal.user.write_all(b"pq").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(terminal.settings(), before);
    let seen = terminal.end();
    assert_eq!((seen.matches(ENTER).count(), seen.matches(LEAVE).count()), (1, 1), "{seen:?}");
    let after = seen.split(LEAVE).nth(1).unwrap();
    assert!(after.contains("1 function was probed") && after.contains("recorded to out.callpath"), "{after:?}");
    let drawn = seen.split(LEAVE).next().unwrap().split(ENTER).nth(1).unwrap();
    let lines = drawn.replace('\x1b', "\n").lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    assert!(lines.iter().all(|line| line.chars().count() <= 70 + "[38;5;".len()), "{lines:?}");
}

/// Interrupted, stopped and continued, or killed by a signal: the terminal is as it was.
#[test]
fn signals_put_the_terminal_back() {
    for signal in [libc::SIGINT, libc::SIGUSR1, libc::SIGBUS, libc::SIGABRT] {
        let directory = program();
        let running = Running::start(&directory);
        let terminal = Terminal::open();
        let before = terminal.settings();
        let pid = running.0.id().to_string();
        let mut command = callpath(&directory, &["-p", &pid]);
        command.stdin(terminal.program.try_clone().unwrap()).stdout(terminal.program.try_clone().unwrap());
        let mut child = terminal.start(&mut command);
        drop(command);
        terminal.wait_for(0, "main › outer › beat");
        // SAFETY: sends a signal to our child.
        unsafe { libc::kill(child.id() as i32, signal) };
        let status = child.wait().unwrap();
        match signal {
            libc::SIGINT => assert_eq!(status.code(), Some(0)),
            // A file that was cut short, as every command has it.
            libc::SIGBUS => assert_eq!(status.code(), Some(125)),
            signal => assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(signal)),
        }
        assert_eq!(terminal.settings(), before, "signal {signal}");
        let seen = terminal.end();
        assert_eq!((seen.matches(ENTER).count(), seen.matches(LEAVE).count()), (1, 1), "signal {signal}: {seen:?}");
    }
}

#[test]
fn a_stop_gives_the_terminal_back_until_it_continues() {
    let directory = program();
    let running = Running::start(&directory);
    let mut terminal = Terminal::open();
    let before = terminal.settings();
    let pid = running.0.id().to_string();
    let mut command = callpath(&directory, &["-p", &pid]);
    command.stdin(terminal.program.try_clone().unwrap()).stdout(terminal.program.try_clone().unwrap());
    let mut child = terminal.start(&mut command);
    drop(command);
    terminal.wait_for(0, "main › outer › beat");
    // SAFETY: sends signals to our child.
    let kill = |signal| unsafe { libc::kill(child.id() as i32, signal) };
    kill(libc::SIGTSTP);
    terminal.wait_for(0, LEAVE);
    let stopped = terminal.seen().len();
    let began = Instant::now();
    while terminal.settings() != before {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::yield_now();
    }
    kill(libc::SIGCONT);
    terminal.wait_for(stopped, ENTER);
    // Ctrl-C.
    terminal.user.write_all(b"\x03").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(terminal.settings(), before);
}

/// A program that was started has the keyboard, and with its output there, the terminal.
#[test]
fn a_program_that_was_started_keeps_its_terminal() {
    for is_output_there in [true, false] {
        let directory = program();
        let mut terminal = Terminal::open();
        let before = terminal.settings();
        let mut command = callpath(&directory, &["--", "./beats", "x"]);
        command.stdin(terminal.program.try_clone().unwrap());
        match is_output_there {
            true => command.stdout(terminal.program.try_clone().unwrap()),
            false => command.stdout(Stdio::null()),
        };
        let mut child = terminal.start(&mut command);
        drop(command);
        match is_output_there {
            true => terminal.wait_for(0, "of calls: "),
            false => terminal.wait_for(0, "main › outer › beat"),
        }
        assert_eq!(terminal.settings(), before);
        // Ctrl-C, which ends the program; callpath ends with it.
        terminal.user.write_all(b"\x03").unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(128 + libc::SIGINT));
        let beats = terminal.end();
        assert_eq!(beats.matches(ENTER).count(), beats.matches(LEAVE).count(), "{beats:?}");
        assert_eq!(beats.contains(ENTER), !is_output_there, "{beats:?}");
        assert_eq!(beats.contains("a word of the program"), is_output_there, "{beats:?}");
        assert!(beats.contains(if is_output_there { "outer › beat" } else { "Ctrl-C ends it" }), "{beats:?}");
    }
}

#[test]
fn nothing_is_drawn_where_it_is_not_wanted_or_not_seen() {
    for (words, on_terminal) in [(&["--no-live"][..], true), (&["--quiet"], true), (&[], false)] {
        let directory = program();
        let running = Running::start(&directory);
        let terminal = Terminal::open();
        let pid = running.0.id().to_string();
        let words = [words, &["--duration", "2", "-p", &pid]].concat();
        let mut command = callpath(&directory, &words);
        command.stdin(terminal.program.try_clone().unwrap()).stdout(Stdio::null());
        let mut child = match on_terminal {
            true => terminal.start(&mut command),
            false => command.stderr(Stdio::piped()).spawn().unwrap(),
        };
        drop(command);
        let mut said = String::new();
        if let Some(mut pipe) = child.stderr.take() {
            pipe.read_to_string(&mut said).unwrap();
        }
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let seen = terminal.end() + &said;
        assert!(!seen.contains('\x1b') && !seen.contains("outer"), "{words:?}: {seen:?}");
    }
}
