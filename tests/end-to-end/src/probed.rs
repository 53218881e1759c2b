//! Programs under `callpath probe`: started by it, or running when it comes.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command};
use std::time::Duration;

use tempfile::TempDir;

use crate::program::{command_in, fresh_directory};
use crate::{Ended, Program, Recorded, callpath};

/// How often a state that will come is looked for, and after how many looks a test gives up: a minute.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const LOOKS: u32 = 12_000;

fn chosen<'a>(functions: &[&'a str]) -> Vec<&'a str> {
    functions.iter().flat_map(|function| ["-f", function]).collect()
}

impl Program {
    /// Runs it under `callpath probe -o DIR` with these functions and its options, in an empty directory of its own.
    pub fn probed(&self, functions: &[&str]) -> Recorded {
        self.measured("probe", &chosen(functions))
    }

    /// Runs it bare and as [`Program::probed`] does, and asserts what [`Program::same`] asserts.
    #[track_caller]
    pub fn same_probed(&self, functions: &[&str]) -> Recorded {
        self.same_by(|program| program.probed(functions))
    }

    /// Starts it bare, in an empty directory of its own.
    pub fn started(&self) -> Running {
        let directory = fresh_directory();
        let mut child = command_in(&self.command_line(), directory.path()).spawn().expect("the program can be started");
        let input = child.stdin.take().expect("stdin is a pipe");
        let output = BufReader::new(child.stdout.take().expect("stdout is a pipe"));
        Running { child, input: Some(input), output, said: String::new(), directory }
    }
}

/// A program that runs, and answers lines by lines.
#[derive(Debug)]
pub struct Running {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    said: String,
    directory: TempDir,
}

impl Running {
    /// Its PID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its working directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The next line of its output, without its end.
    #[track_caller]
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.output.read_line(&mut line).expect("its output can be read");
        assert!(read > 0, "it has ended: {:?}", self.child.try_wait());
        self.said.push_str(&line);
        line.trim_end().to_owned()
    }

    /// Writes a line to it, and reads one.
    #[track_caller]
    pub fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.line()
    }

    /// Writes a line to it.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().expect("its input is open"), "{line}").expect("it reads its input");
    }

    /// A line of its status that the kernel gives in kB.
    #[track_caller]
    pub fn status_kb(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("the kernel tells it");
        line.trim_matches([':', '\t', ' ', 'k', 'B']).parse().expect("a number")
    }

    /// Bytes of its memory.
    pub fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let memory = File::open(format!("/proc/{}/mem", self.pid())).expect("it lives");
        memory.read_exact_at(&mut bytes, at).expect("it is mapped");
        bytes
    }

    /// Ends its input, waits for its end, and gives all of its output.
    pub fn ended(mut self) -> Ended {
        drop(self.input.take());
        self.output.read_to_string(&mut self.said).expect("its output can be read");
        let rest = self.child.wait_with_output().expect("it can be waited for");
        Ended { stdout: self.said, ..Ended::of(&rest) }
    }
}

/// `callpath probe -p`, at work.
#[derive(Debug)]
pub struct Attached {
    child: Child,
    directory: std::path::PathBuf,
    surroundings: TempDir,
}

impl Attached {
    /// Starts it.
    pub fn to(pid: u32, functions: &[&str], options: &[&str]) -> Attached {
        Attached::through(&[], pid, (functions, options))
    }

    /// Starts it as the argument of another command.
    pub fn through(command: &[&str], pid: u32, (functions, options): (&[&str], &[&str])) -> Attached {
        let surroundings = fresh_directory();
        let directory = surroundings.path().join("measured.callpath");
        let mut words: Vec<OsString> = command.iter().map(OsString::from).collect();
        words.extend([callpath().into(), "probe".into(), "-p".into(), pid.to_string().into()]);
        words.extend(chosen(functions).into_iter().chain(options.iter().copied()).map(OsString::from));
        words.extend(["-o".into(), directory.clone().into()]);
        let mut child = command_in(&words, surroundings.path()).spawn().expect("callpath can be started");
        drop(child.stdin.take());
        Attached { child, directory, surroundings }
    }

    /// Waits until something is so. Panics if callpath ends before.
    #[track_caller]
    pub fn until(mut self, mut is_so: impl FnMut() -> bool) -> Attached {
        for _ in 0..LOOKS {
            if is_so() {
                return self;
            }
            if self.child.try_wait().expect("it is a child").is_some() {
                panic!("callpath has ended: {:?}", self.ended().ended);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        panic!("it never is so");
    }

    /// Waits until a jump stands at the beginning of a function of the program.
    #[track_caller]
    pub fn until_probed(self, program: &Running, function: u64) -> Attached {
        self.until(|| program.bytes(function, 1) == [0xe9])
    }

    /// The measurement that it writes.
    pub fn directory(&self) -> &std::path::Path {
        &self.directory
    }

    /// Sends callpath a signal.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill can be run").success(), "callpath has ended");
    }

    /// Has it take the probes out, and waits for its end.
    pub fn detached(self) -> Recorded {
        self.signal("INT");
        self.ended()
    }

    /// The same, if it has not ended already.
    pub fn stopped(mut self) -> Recorded {
        if self.child.try_wait().expect("it is a child").is_none() {
            self.signal("INT");
        }
        self.ended()
    }

    /// Waits for its end.
    pub fn ended(self) -> Recorded {
        let Attached { child, directory, surroundings } = self;
        let ended = Ended::of(&child.wait_with_output().expect("callpath can be waited for"));
        Recorded { ended, directory, rate_hz: None, surroundings }
    }
}

/// Runs `callpath probe` with these words in an empty directory, and says what is left there.
pub fn run_probe(words: &[&str]) -> (Ended, Vec<String>) {
    let place = fresh_directory();
    let mut all: Vec<OsString> = vec![callpath().into(), "probe".into()];
    all.extend(words.iter().map(OsString::from));
    let mut command = command_in(&all, place.path());
    command.stdin(std::process::Stdio::null());
    let ended = Ended::of(&command.output().expect("callpath can be run"));
    let left = place.path().read_dir().expect("it is still there");
    let left = left.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    (ended, left.collect())
}
