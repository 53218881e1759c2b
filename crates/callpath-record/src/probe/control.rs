//! Requests to a probe that is under way, from `callpath ctl`, over a socket in its measurement's directory.
//!
//! A request is words in lines, the command first, and an empty line at its end. The answer is a line `ok` or `error`,
//! then text, up to the end of the connection.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use callpath_measurement::rank_directories;

use crate::probe::programs::Probes;
use crate::serve::Recorder;

/// The socket's name in the directory.
pub const CONTROL_SOCKET: &str = "control";

/// As long as a request may take to arrive; no longer, since nothing else is served meanwhile.
const PATIENCE: Duration = Duration::from_millis(500);
/// No request has more lines, and none is longer.
const MOST_LINES: usize = 10_000;

/// A function that is probed, or was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedProbe {
    /// Its module and name.
    pub function: String,
    /// [`ListedProbe::PROBED`] and the like, or why it is not probed.
    pub state: String,
}

impl ListedProbe {
    /// It is probed.
    pub const PROBED: &str = "probed";
    /// It was probed.
    pub const REMOVED: &str = "removed";
    /// It was probed in programs or libraries that are gone.
    pub const GONE: &str = "gone";
}

/// What is answered, or why a request failed, for the user.
pub(super) type Answered = Result<String, String>;

/// The socket of a probe that is under way. It goes with it.
pub(super) struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for Control {
    fn drop(&mut self) {
        // It lies in our own directory; what is left of it does no harm.
        drop(std::fs::remove_file(&self.path));
    }
}

/// What a request demands of the probe as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Demand {
    /// To end.
    Stop,
}

impl Control {
    /// Opens the socket.
    ///
    /// # Errors
    /// Why there is none, for the user: a path may be too long.
    pub(super) fn open(directory: &Path) -> Result<Control, String> {
        let path = directory.join(CONTROL_SOCKET);
        let opened = UnixListener::bind(&path).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        match opened {
            Ok(listener) => Ok(Control { listener, path }),
            Err(error) => Err(format!("this probe cannot be controlled: failed to make {}: {error}", path.display())),
        }
    }

    /// Answers the requests that have come.
    pub(super) fn serve(&self, probes: &mut Probes<'_>, recorder: &mut Recorder<'_>) -> Option<Demand> {
        let mut demand = None;
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return demand,
            };
            // Somebody who asks and goes away gets no answer.
            let Some(words) = request(&stream) else { continue };
            let (answer, demanded) = probes.answer(&words, recorder);
            demand = demand.or(demanded);
            drop(reply(&stream, &answer));
        }
    }
}

fn request(stream: &UnixStream) -> Option<Vec<String>> {
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    let mut words = Vec::new();
    for line in BufReader::new(stream).lines().take(MOST_LINES) {
        match line.ok()? {
            end if end.is_empty() => return Some(words),
            word => words.push(word),
        }
    }
    None
}

fn reply(mut stream: &UnixStream, answer: &Answered) -> std::io::Result<()> {
    let (word, text) = match answer {
        Ok(text) => ("ok", text),
        Err(text) => ("error", text),
    };
    writeln!(stream, "{word}")?;
    stream.write_all(text.as_bytes())
}

/// Asks the probe that writes a measurement; of a job, those of all ranks. The answer of each is its text.
///
/// # Errors
/// The first's own words, or why it cannot be asked.
pub fn ask(directory: &Path, words: &[String]) -> Result<Vec<Answer>, String> {
    let ranks = rank_directories(directory).into_iter().map(|(rank, path)| (Some(rank), path));
    let mut asked: Vec<_> = ranks.filter(|(_, path)| path.join(CONTROL_SOCKET).exists()).collect();
    if asked.is_empty() {
        asked.push((None, directory.to_owned()));
    }
    asked.into_iter().map(|(rank, path)| Ok(Answer { rank, text: ask_one(&path, words)? })).collect()
}

/// What a probe answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Which rank of a job it probes; `None`: it is no rank's.
    pub rank: Option<u32>,
    /// Lines.
    pub text: String,
}

fn ask_one(directory: &Path, words: &[String]) -> Result<String, String> {
    /// Planning takes as long as the analysis of the modules does.
    const ANSWER_WITHIN: Duration = Duration::from_secs(120);
    let path = directory.join(CONTROL_SOCKET);
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::NotADirectory
        | ErrorKind::ConnectionRefused
        | ErrorKind::ConnectionReset
        | ErrorKind::BrokenPipe => format!("no probe is under way that writes {}", directory.display()),
        _ => format!("failed to talk to the probe by {}: {error}", path.display()),
    };
    let stream = UnixStream::connect(&path).map_err(failed)?;
    if words.iter().any(|word| word.is_empty() || word.contains('\n')) {
        return Err("a name is empty, or has more than one line".to_owned());
    }
    stream.set_read_timeout(Some(ANSWER_WITHIN)).map_err(failed)?;
    let text: String = words.iter().flat_map(|word| [word.as_str(), "\n"]).chain(["\n"]).collect();
    (&stream).write_all(text.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut BufReader::new(&stream), &mut answer).map_err(failed)?;
    match answer.split_once('\n') {
        Some(("ok", text)) => Ok(text.to_owned()),
        Some(("error", text)) => Err(text.to_owned()),
        _ => Err("the probe ended before it answered".to_owned()),
    }
}

impl Probes<'_> {
    fn answer(&mut self, words: &[String], recorder: &mut Recorder<'_>) -> (Answered, Option<Demand>) {
        let Some((command, rest)) = words.split_first() else {
            return (Err("the request is empty".to_owned()), None);
        };
        self.forget_ended(recorder);
        let answer = match (command.as_str(), rest) {
            ("stop", []) => return (Ok("the probes are taken out\n".to_owned()), Some(Demand::Stop)),
            ("list", []) => Ok(self.list().iter().map(|l| format!("{}\t{}\n", l.state, l.function)).collect()),
            ("snapshot", []) => recorder.write_now().map(|()| String::new()),
            ("add", patterns) => self.add(patterns, recorder),
            ("remove", patterns) => self.remove(patterns, recorder),
            ("metrics", metrics) => self.set_metrics(metrics, recorder),
            _ => Err(format!("callpath does not know the request `{command}`, or not with these words")),
        };
        (answer, None)
    }

    /// Says what is measured, or has something else measured from now on.
    fn set_metrics(&mut self, metrics: &[String], recorder: &mut Recorder<'_>) -> Answered {
        let wanted: Vec<&str> = metrics.iter().flat_map(|word| word.split(',')).collect();
        let measured = self.wanted.measured.only(&wanted)?;
        self.measure(measured, recorder).map_err(|error| format!("failed to {error}"))?;
        Ok(self.wanted.measured.names().map(|name| format!("{name}\n")).collect())
    }
}

pub(super) fn functions(count: usize, verb: &str) -> String {
    let (functions, were) = if count == 1 { ("function", "was") } else { ("functions", "were") };
    format!("{count} {functions} {were} {verb}")
}
