//! What commands write to a terminal, and what to a pipe: colour, and a pager where the text is longer.

use crate::measurement;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use measurement::measurement;

/// Any file with code that each machine has, and that takes no time to analyse.
const SMALL: &str = "/bin/true";

/// Both ends of a terminal with so many rows of 100 columns.
fn terminal(rows: u16) -> (File, OwnedFd) {
    let size = libc::winsize { ws_row: rows, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    let (mut user, mut program) = (-1, -1);
    // SAFETY: valid places for two descriptors, and a size.
    let made = unsafe { libc::openpty(&mut user, &mut program, std::ptr::null_mut(), std::ptr::null(), &size) };
    assert_eq!(made, 0, "a pseudo-terminal: {}", std::io::Error::last_os_error());
    // SAFETY: just opened, and nobody else's.
    unsafe { (File::from_raw_fd(user), OwnedFd::from_raw_fd(program)) }
}

/// What a command showed, said on standard error, and its status.
#[derive(Debug, PartialEq)]
struct Seen {
    shown: String,
    said: String,
    status: Option<i32>,
}

impl Seen {
    fn is_coloured(&self) -> bool {
        self.shown.contains("\x1b[")
    }

    /// Through the pager of these tests.
    fn is_paged(&self) -> bool {
        self.shown.starts_with("paged:")
    }
}

/// A command in an environment that says nothing about colours and has a pager that marks lines.
fn callpath(words: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_callpath"));
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "PAGER", "CALLPATH_PAGER", "LESS"] {
        command.env_remove(name);
    }
    command.env("TERM", "xterm").env("CALLPATH_PAGER", "sed s/^/paged:/").envs(environment.iter().copied());
    command.args(words).stderr(Stdio::piped());
    command
}

/// Runs it on a terminal, on which a user types `typed`.
fn on_terminal(mut command: Command, rows: u16, typed: &str) -> Seen {
    let (mut user, program) = terminal(rows);
    let descriptor = program.as_raw_fd();
    command.stdin(program.try_clone().unwrap()).stdout(program.try_clone().unwrap());
    // SAFETY: two system calls. It is the terminal of a session of its own, for a pager that asks for /dev/tty.
    unsafe {
        command.pre_exec(move || {
            let done = libc::setsid() != -1 && libc::ioctl(descriptor, libc::TIOCSCTTY, 0) == 0;
            if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
    let mut child = command.spawn().unwrap();
    drop((command, program));
    user.write_all(typed.as_bytes()).unwrap();
    let mut shown = Vec::new();
    let mut part = [0; 4096];
    // It ends with EIO when no process has the other end.
    while let Ok(length @ 1..) = user.read(&mut part) {
        shown.extend_from_slice(&part[..length]);
    }
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap().code();
    Seen { shown: String::from_utf8_lossy(&shown).replace("\r\n", "\n"), said, status }
}

fn in_pipe(mut command: Command) -> Seen {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Seen { shown: text(output.stdout), said: text(output.stderr), status: output.status.code() }
}

fn words<'a>(directory: &'a Path, options: &[&'a str]) -> Vec<&'a str> {
    [&["report", directory.to_str().unwrap()], options].concat()
}

#[test]
fn longer_text_goes_through_a_pager() {
    let measured = measurement(2, true);
    let report = words(measured.path(), &[]);
    for command in [&report[..], &["list"], &["doctor"], &["structure", SMALL, "--no-cache"]] {
        let long = on_terminal(callpath(command, &[]), 5, "");
        assert!(long.is_paged(), "{command:?}: {long:?}");
        assert!(long.shown.lines().all(|line| line.starts_with("paged:")), "{command:?}: {long:?}");
        let short = on_terminal(callpath(command, &[]), u16::MAX, "");
        assert!(!short.is_paged() && !short.shown.is_empty(), "{command:?}: {short:?}");
        // Nothing is lost on the way.
        let all = |seen: &Seen| seen.shown.replace("paged:", "").lines().count();
        assert_eq!(all(&long), all(&short), "{command:?}");
        let without = on_terminal(callpath(&[command, &["--no-pager"]].concat(), &[]), 5, "");
        assert!(!without.is_paged() && !without.shown.is_empty(), "{command:?}: {without:?}");
        let piped = in_pipe(callpath(command, &[]));
        assert!(!piped.is_paged() && !piped.shown.is_empty(), "{command:?}: {piped:?}");
    }
    for pager in ["", "cat"] {
        assert!(!on_terminal(callpath(&report, &[("CALLPATH_PAGER", pager)]), 5, "").is_paged());
    }
    let json = on_terminal(callpath(&words(measured.path(), &["--json"]), &[]), 5, "");
    assert!(json.shown.starts_with('{'), "{json:?}");
}

#[test]
fn a_pager_that_is_left_early_is_no_error() {
    // More than a pipe holds, so that there is something left to write.
    let long = ["structure", "/bin/bash", "--lines", "--no-cache"];
    assert!(in_pipe(callpath(&long, &[])).shown.len() > 200_000);
    let seen = on_terminal(callpath(&long, &[("CALLPATH_PAGER", "head -n 1")]), 5, "");
    assert_eq!((seen.shown.lines().count(), seen.said.as_str(), seen.status), (1, "", Some(0)));
    if Path::new("/usr/bin/less").exists() {
        let seen = on_terminal(callpath(&long, &[("CALLPATH_PAGER", "less -FRX")]), 5, "q");
        assert_eq!((seen.said.as_str(), seen.status), ("", Some(0)), "{seen:?}");
        assert!(seen.shown.lines().count() < 20, "{seen:?}");
    }
}

/// Its text is shown all the same, whether the pager could not be started before it was all written or after.
#[test]
fn a_pager_that_cannot_be_run_is_said() {
    for words in [&["list"][..], &["structure", "/bin/bash", "--lines", "--no-cache"]] {
        let whole = in_pipe(callpath(words, &[])).shown;
        let seen = on_terminal(callpath(words, &[("CALLPATH_PAGER", "/no/such/pager -x")]), 5, "");
        assert_eq!(seen.status, Some(0), "{}", seen.said);
        assert!(seen.said.contains("callpath: the pager `/no/such/pager -x` cannot be run "), "{}", seen.said);
        // A terminal's width is not a pipe's: `list` breaks its lines elsewhere.
        let words_of = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words_of(&seen.shown), words_of(&whole));
    }
}

#[test]
fn colour_on_a_terminal_or_where_it_is_asked_for() {
    let measured = measurement(2, true);
    let report = |options: &[&'static str]| words(measured.path(), options).iter().map(|w| (*w).to_owned()).collect();
    let seen = |options: &[&'static str], environment: &[(&str, &str)], is_terminal: bool| {
        let words: Vec<String> = report(options);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let command = callpath(&words, environment);
        if is_terminal { on_terminal(command, u16::MAX, "") } else { in_pipe(command) }
    };
    for (options, environment, on_terminal, in_pipe) in [
        (&[][..], &[][..], true, false),
        (&["--color=auto"], &[], true, false),
        (&["--color=always"], &[], true, true),
        (&["--color", "never"], &[], false, false),
        (&[], &[("NO_COLOR", "1")], false, false),
        (&["--color=always"], &[("NO_COLOR", "1")], true, true),
        (&[], &[("CLICOLOR_FORCE", "1")], true, true),
        (&["--color=never"], &[("CLICOLOR_FORCE", "1")], false, false),
        (&[], &[("TERM", "dumb")], false, false),
    ] {
        assert_eq!(seen(options, environment, true).is_coloured(), on_terminal, "{options:?} {environment:?}");
        assert_eq!(seen(options, environment, false).is_coloured(), in_pipe, "{options:?} {environment:?}");
    }
    for command in [&["doctor"][..], &["doctor", "--color=never"]] {
        let seen = on_terminal(callpath(command, &[]), u16::MAX, "");
        assert_eq!(seen.is_coloured(), command.len() == 1, "{seen:?}");
    }
    // A pager shows the terminal's colours.
    assert!(on_terminal(callpath(&words(measured.path(), &[]), &[]), 5, "").is_coloured());
    let wrong = in_pipe(callpath(&["list", "--color=green"], &[]));
    assert_eq!(wrong.status, Some(2));
    assert!(wrong.said.contains("auto, always, never"), "{wrong:?}");
}
