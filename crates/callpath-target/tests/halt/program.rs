//! Programs that run while callpath stops them.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use callpath_format::address::RunAddr;
use callpath_target::{Halted, Pid, Stopped, TargetError};

/// Stops a process's first thread alone, once it waits.
pub(crate) fn first_thread(pid: Pid) -> Result<Stopped, TargetError> {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match Stopped::first_thread(pid, Duration::from_secs(10)) {
            Err(error) if error.to_string().contains("its first thread runs") && Instant::now() < until => {}
            stopped => return stopped,
        }
    }
}

/// Compiles a program beside this file, or whatever `options` make of it.
pub(crate) fn compile(source: &str, options: &[&str], into: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/halt").join(source);
    let program = into.join(source.file_stem().unwrap());
    let status = Command::new("gcc").args(options).arg(&source).arg("-o").arg(&program).status().unwrap();
    assert!(status.success());
    program
}

/// The same of a program in Go, if its compiler is installed.
pub(crate) fn compile_go(source: &str, into: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/halt").join(source);
    let program = into.join(source.file_stem().unwrap());
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(&source);
    build.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache"));
    assert!(build.status().ok()?.success());
    Some(program)
}

/// A user other than ours, if we may become another.
pub(crate) fn other_user() -> Option<u32> {
    const NOBODY: u32 = 65534;
    // SAFETY: has no arguments.
    (unsafe { libc::geteuid() } == 0).then_some(NOBODY)
}

/// A program that is ready. It ends when its standard input does.
pub(crate) struct Program {
    pub(crate) child: Child,
    output: BufReader<ChildStdout>,
    /// What it says when it is ready: addresses.
    pub(crate) addresses: Vec<RunAddr>,
    _place: tempfile::TempDir,
}

impl Program {
    pub(crate) fn start(source: &str, arguments: &[&str]) -> Program {
        Program::start_as(source, arguments, None)
    }

    /// As the user of that number.
    pub(crate) fn start_as(source: &str, arguments: &[&str], user: Option<u32>) -> Program {
        let place = tempfile::tempdir().unwrap();
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let program = compile(source, &["-O1", "-g", "-pthread"], place.path());
        Program::run(&program, (arguments, user), place)
    }

    /// One in Go, if its compiler is installed.
    pub(crate) fn start_go(source: &str) -> Option<Program> {
        let place = tempfile::tempdir().unwrap();
        let program = compile_go(source, place.path())?;
        Some(Program::run(&program, (&[], None), place))
    }

    fn run(program: &Path, (arguments, user): (&[&str], Option<u32>), place: tempfile::TempDir) -> Program {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        user.map(|user| command.uid(user));
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let addresses = line.trim().strip_prefix("ready").unwrap_or_else(|| panic!("{line:?}")).split_whitespace();
        let addresses = addresses.map(|hex| RunAddr(u64::from_str_radix(&hex[2..], 16).unwrap())).collect();
        Program { child, output, addresses, _place: place }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    pub(crate) fn halt(&self) -> Halted {
        Halted::halt(self.pid(), Duration::from_secs(10)).unwrap()
    }

    /// Its main thread's state, as `ps` shows it.
    pub(crate) fn state(&self) -> char {
        let status = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        status.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    }

    /// Waits until that is its state.
    pub(crate) fn await_state(&self, state: char) {
        let until = Instant::now() + Duration::from_secs(20);
        while self.state() != state {
            assert!(Instant::now() < until, "it is in state {}, not {state}", self.state());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: takes numbers; the child has not been waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Ends it: all must have been right.
    pub(crate) fn ends_rightly(mut self) {
        assert_eq!(self.output_at_end(), "right\n");
        assert!(self.child.wait().unwrap().success());
    }

    fn output_at_end(&mut self) -> String {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        rest
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Where a test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
