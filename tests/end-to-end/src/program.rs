//! A program with its arguments, run bare and recorded in the same surroundings.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::outcome::Ended;
use crate::profile::Profile;
use crate::{C, compiled, tool_path};

/// The command under test: `CALLPATH_UNDER_TEST`, or a release build made now.
pub fn callpath() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(path) = std::env::var_os("CALLPATH_UNDER_TEST") {
            return path.into();
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--release", "--package", "callpath"]).current_dir(root);
        assert!(build.status().expect("cargo can be run").success(), "callpath does not build");
        let own = std::env::current_exe().expect("a test knows its own path");
        own.ancestors().nth(3).expect("tests lie in target/PROFILE/deps").join("release/callpath")
    })
}

/// A program with its arguments, input, the options of `record`, and a command that runs all of it.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
    options: Vec<OsString>,
    input: Vec<u8>,
    prefix: Vec<OsString>,
}

/// A recorded run. The measurement is deleted with it.
#[derive(Debug)]
pub struct Recorded {
    /// Output and status as the caller of `callpath record` sees them.
    pub ended: Ended,
    /// The measurement's directory.
    pub directory: PathBuf,
    /// The value of `-F`, samples a second.
    pub(crate) rate_hz: Option<u64>,
    pub(crate) surroundings: TempDir,
}

impl Program {
    /// A program that exists.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), arguments: vec![], options: vec![], input: vec![], prefix: vec![] }
    }

    /// A program of tests/nasty, compiled without further options. Panics with the compiler's output.
    pub fn nasty(source: &'static str) -> Self {
        let output = source.split_once('.').map_or(source, |(name, _)| name);
        Self::compiled(C { source, output, options: &[] })
    }

    /// The same, compiled as `what` says.
    pub fn compiled(what: C) -> Self {
        Self::at(compiled(what).unwrap_or_else(|error| panic!("{} does not compile: {error}", what.source)))
    }

    /// Adds arguments of the program.
    #[must_use]
    pub fn arguments<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Adds options of `callpath record`.
    #[must_use]
    pub fn options(mut self, options: &[&str]) -> Self {
        self.options.extend(options.iter().map(OsString::from));
        self
    }

    /// Sets its standard input, which is empty otherwise.
    #[must_use]
    pub fn input(mut self, input: &[u8]) -> Self {
        self.input = input.to_vec();
        self
    }

    /// Runs everything through another command (`setpriv ...`), which gets the
    /// program and its arguments behind its own.
    #[must_use]
    pub fn through(mut self, prefix: &[&str]) -> Self {
        self.prefix = prefix.iter().map(OsString::from).collect();
        self
    }

    /// The program's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// It and its arguments, as a command.
    pub(crate) fn command_line(&self) -> Vec<OsString> {
        let mut words = self.prefix.clone();
        words.push(self.path.clone().into());
        words.extend(self.arguments.iter().cloned());
        words
    }

    /// Its arguments, as text.
    pub fn words(&self) -> Vec<String> {
        self.arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect()
    }

    /// Runs it without callpath, in an empty directory of its own.
    pub fn bare(&self) -> Ended {
        let directory = fresh_directory();
        self.run(&self.command_line(), directory.path())
    }

    /// Runs it under `callpath record -o DIR`, in an empty directory of its own.
    pub fn recorded(&self) -> Recorded {
        self.measured("record", &[])
    }

    /// Runs it under a command of callpath's with these options and its own, in an empty directory of its own.
    pub(crate) fn measured(&self, command: &str, options: &[&str]) -> Recorded {
        let surroundings = fresh_directory();
        let directory = surroundings.path().join("measured.callpath");
        let mut words = self.prefix.clone();
        words.extend([callpath().into(), command.into(), "-o".into(), directory.clone().into()]);
        words.extend(options.iter().map(OsString::from));
        words.extend(self.options.iter().cloned());
        words.extend(["--".into(), self.path.clone().into()]);
        words.extend(self.arguments.iter().cloned());
        let ended = self.run(&words, surroundings.path());
        Recorded { ended, directory, rate_hz: self.rate_hz(), surroundings }
    }

    fn rate_hz(&self) -> Option<u64> {
        let at = self.options.iter().position(|option| option == "-F")?;
        self.options[at + 1].to_str().and_then(|rate| rate.parse().ok())
    }

    /// Runs it without callpath and recorded. Asserts that output and status are the same, and that standard error
    /// has every line of the run without callpath.
    pub fn same(&self) -> Recorded {
        self.same_by(Self::recorded)
    }

    /// The same for another way of measuring it.
    pub(crate) fn same_by(&self, measured: impl Fn(&Self) -> Recorded) -> Recorded {
        let (bare, recorded) = (self.bare(), measured(self));
        assert_eq!(bare.stdout, recorded.ended.stdout, "its output is not what it is bare; {}", recorded.ended.stderr);
        assert_eq!(bare.status, recorded.ended.status, "its status is not what it is bare; {}", recorded.ended.stderr);
        for line in bare.stderr.lines() {
            assert!(recorded.ended.stderr.contains(line), "`{line}` is missing in: {}", recorded.ended.stderr);
        }
        recorded
    }

    /// As [`Program::same`]; gives also the user and system time of the recorded run by the kernel's account,
    /// nanoseconds. The program runs as a child of `rusage.c`, which waits for it.
    pub fn same_with_rusage(&self) -> (Recorded, u64) {
        self.with_rusage(Self::same)
    }

    /// The same for a program whose output differs from run to run: nothing is compared.
    pub fn recorded_with_rusage(&self) -> (Recorded, u64) {
        self.with_rusage(Self::recorded)
    }

    fn with_rusage(&self, run: impl Fn(&Self) -> Recorded) -> (Recorded, u64) {
        let rusage = Self::nasty("rusage.c");
        let file = fresh_directory();
        let file = file.path().join("cost");
        let mut through =
            Self { path: rusage.path, arguments: vec![file.clone().into(), self.path.clone().into()], ..self.clone() };
        through.arguments.extend(self.arguments.iter().cloned());
        let recorded = run(&through);
        let text = std::fs::read_to_string(&file).expect("rusage leaves its file");
        let micros: u64 = text.split_whitespace().map(|number| number.parse::<u64>().expect("numbers")).sum();
        (recorded, micros * 1000)
    }

    fn run(&self, words: &[OsString], directory: &Path) -> Ended {
        let mut command = command_in(words, directory);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("failed to start {command:?}: {error}"));
        let mut to_child = child.stdin.take().expect("stdin is a pipe");
        let input = self.input.clone();
        // Beside the reading of its output: a program that passes everything on stops when no process reads.
        let writer = std::thread::spawn(move || match to_child.write_all(&input) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                panic!("failed to write the input: {error}")
            }
            _ => drop(to_child),
        });
        let ended = Ended::of(&child.wait_with_output().expect("the child can be waited for"));
        writer.join().expect("the input is written");
        ended
    }
}

/// A command in the surroundings that all programs have, its input and output connected.
pub(crate) fn command_in(words: &[OsString], directory: &Path) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(directory);
    command.env("CALLPATH_CACHE_DIR", cache()).env_remove("CALLPATH_UNDER_TEST").env_remove("CALLPATH_SKIPPED_TESTS");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO") || name.starts_with("RUST")) {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// So begins the note about numbers that cannot be true.
pub const DISTRUSTED: &str = "do not trust the numbers of ";

impl Recorded {
    /// The context view of the measurement. Panics if there is none, if it is not sound ([`Profile::assert_sound`]), or if its
    /// numbers are said to be [`DISTRUSTED`].
    pub fn profile(&self) -> Profile {
        assert!(self.directory.is_dir(), "no measurement: {:?}", self.ended);
        let said = run_report(&self.directory, &["--json"]);
        assert_eq!(said.status, 0, "the report failed: {}", said.stderr);
        assert!(!said.stdout.contains(DISTRUSTED), "no program overwrites callpath's memory: {}", said.stdout);
        let mut profile = Profile::of_json(&said.stdout);
        if let Some(rate_hz) = self.rate_hz {
            profile = profile.at_rate(rate_hz);
        }
        profile.assert_sound();
        profile
    }

    /// The directory in which it ran.
    pub fn surroundings(&self) -> &Path {
        self.surroundings.path()
    }
}

/// `callpath` with these words, run in a directory.
pub fn run_callpath<S: AsRef<OsStr>>(directory: &Path, words: impl IntoIterator<Item = S>) -> Ended {
    let mut command = Command::new(callpath());
    command.args(words).current_dir(directory).env("CALLPATH_CACHE_DIR", cache()).stdin(Stdio::null());
    Ended::of(&command.output().expect("callpath can be run"))
}

/// `callpath report` of a measurement's directory.
pub fn run_report(directory: &Path, options: &[&str]) -> Ended {
    let mut report = Command::new(callpath());
    report.arg("report").arg(directory).args(options).env("CALLPATH_CACHE_DIR", cache()).stdin(Stdio::null());
    Ended::of(&report.output().expect("callpath can be run"))
}

/// The same, killed if it takes more than `most_cpu_s` seconds of CPU time.
pub fn run_report_within(most_cpu_s: u32, directory: &Path, options: &[&str]) -> Ended {
    let mut report = Command::new("/bin/sh");
    report.args(["-c", &format!("ulimit -t {most_cpu_s}; exec \"$@\""), "sh"]).arg(callpath());
    report.arg("report").arg(directory).args(options).env("CALLPATH_CACHE_DIR", cache()).stdin(Stdio::null());
    Ended::of(&report.output().expect("a shell can be run"))
}

fn cache() -> PathBuf {
    tool_path("cache")
}

pub(crate) fn fresh_directory() -> TempDir {
    let directory = TempDir::new().expect("the temp directory can be written");
    // An ordinary user writes there, too.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(directory.path(), open).expect("one's own directory can be opened to all");
    directory
}
