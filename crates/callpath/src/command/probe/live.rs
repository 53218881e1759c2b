//! What a probe counts, shown while it runs: the measurement's files are read as `report` reads them, in a thread of
//! its own that the recorder knows nothing of.
//!
//! The screen takes the whole terminal where no program writes on it, too. A program that was started and whose
//! standard output is the terminal, and a process that has this terminal, would write into the screen, and what they
//! write would be gone with it: there, a line is printed every few seconds. Keys are read only where a running process
//! is probed: a program that was started has the keyboard.

mod terminal;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use callpath_analyze::attribute::attribute;
use callpath_db::{Metric, MetricSource, MetricType, Profile};
use callpath_measurement::Measurement;
use callpath_target::Pid;
use callpath_view::text::{LiveOptions, live, live_line};

use crate::command::profile::analysis_options_of;
use crate::output;
use crate::surroundings::{Size, terminal_of};

/// How often the screen is drawn, at most: the recorder writes as often.
const SCREEN_EVERY: Duration = Duration::from_secs(1);
/// How often a line is printed.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// From one reading to the next it takes at least so many times the processor time that it took: 3% of one processor.
const TIMES_ITS_COST: u32 = 33;
/// How often it looks for keys, and whether the recording has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long the end waits for a reading that is under way.
const END_WAITS: Duration = Duration::from_millis(200);

/// What is shown.
pub(super) struct LiveSubject {
    /// What is probed, as it is called.
    pub(super) title: String,
    /// The running process. `None`: a program that was started.
    pub(super) pid: Option<Pid>,
    pub(super) color: bool,
}

/// How it is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// On the terminal's other screen, with or without keys.
    Screen { keys: bool },
    /// As lines among others'.
    Lines,
}

/// A recording that is shown. Dropped, the terminal is as it was.
pub(super) struct Live {
    thread: Option<JoinHandle<()>>,
    has_ended: Arc<Mutex<bool>>,
}

impl Live {
    /// Shows the measurement in `directory` from now on, if standard error is a terminal that this command may write
    /// on, and a thread can be had.
    pub(super) fn begin(directory: &Path, subject: LiveSubject) -> Option<Live> {
        let form = form(&subject)?;
        let has_ended = Arc::new(Mutex::new(false));
        let keys = match form {
            Form::Screen { keys } => keys,
            Form::Lines => false,
        };
        let shown = Shown {
            directory: directory.to_owned(),
            subject,
            form,
            has_ended: Arc::clone(&has_ended),
            earlier: None,
            now: None,
            metric: 0,
            is_paused: false,
            keys,
        };
        let thread = with_signals_blocked(|| Builder::new().name("live".to_owned()).spawn(|| shown.run())).ok()?;
        Some(Live { thread: Some(thread), has_ended })
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // Nothing is drawn after that.
        *self.has_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        terminal::leave();
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        let began = Instant::now();
        while !thread.is_finished() && began.elapsed() < END_WAITS {
            std::thread::sleep(Duration::from_millis(5));
        }
        // One that is still reading shows nothing any more, and ends with the process.
        if thread.is_finished() {
            drop(thread.join());
        }
    }
}

/// Runs `begin` with all signals blocked that can be: a thread that it starts gets none.
fn with_signals_blocked<T>(begin: impl FnOnce() -> T) -> T {
    // SAFETY: sets are valid for any bytes, and filled or read first.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
        libc::sigfillset(&mut all);
        for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP] {
            libc::sigdelset(&mut all, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
        let begun = begin();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        begun
    }
}

fn form(subject: &LiveSubject) -> Option<Form> {
    if !std::io::stderr().is_terminal() || !terminal::is_in_foreground() {
        return None;
    }
    let knows_escapes = std::env::var_os("TERM").is_some_and(|name| !name.is_empty() && name != "dumb");
    let others_write = match subject.pid {
        None => std::io::stdout().is_terminal(),
        Some(pid) => has_our_terminal(pid),
    };
    if others_write || !knows_escapes {
        return Some(Form::Lines);
    }
    Some(Form::Screen { keys: subject.pid.is_some() && std::io::stdin().is_terminal() })
}

/// Whether a process writes on the terminal that our standard error is.
fn has_our_terminal(pid: Pid) -> bool {
    let file = |whose: &str, number| std::fs::read_link(format!("/proc/{whose}/fd/{number}")).ok();
    let ours = file("self", libc::STDERR_FILENO);
    let whose = pid.to_string();
    ours.is_some() && [libc::STDOUT_FILENO, libc::STDERR_FILENO].iter().any(|number| file(&whose, *number) == ours)
}

/// The thread that reads and draws.
struct Shown {
    directory: PathBuf,
    subject: LiveSubject,
    form: Form,
    has_ended: Arc<Mutex<bool>>,
    earlier: Option<Profile>,
    now: Option<Profile>,
    /// The metric's column.
    metric: usize,
    is_paused: bool,
    /// Keys are read.
    keys: bool,
}

impl Shown {
    fn run(mut self) {
        // Whatever else runs here comes first.
        // SAFETY: changes this thread, and those that it starts, alone.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
        let every = if self.form == Form::Lines { LINE_EVERY } else { SCREEN_EVERY };
        let mut next = Instant::now() + if self.form == Form::Lines { LINE_EVERY } else { Duration::ZERO };
        while !*self.has_ended.lock().unwrap_or_else(PoisonError::into_inner) {
            let must_draw = self.answer_keys();
            let was_left = self.form != Form::Lines && !terminal::is_entered();
            if self.is_paused || Instant::now() < next {
                if must_draw || was_left {
                    self.draw();
                }
                continue;
            }
            let (began, cost) = (Instant::now(), processor_time());
            self.read();
            self.draw();
            let cost = processor_time().saturating_sub(cost);
            next = began + every.max(cost.saturating_mul(TIMES_ITS_COST));
        }
    }

    /// Reads what was written so far. What cannot be read is read the next time.
    fn read(&mut self) {
        let Ok(measurement) = Measurement::read(&self.directory) else { return };
        let profile = attribute(&measurement, &analysis_options_of(&self.directory), &mut |_, _| {});
        let is_newer = self.now.as_ref().is_none_or(|now| profile.info.duration_ns > now.info.duration_ns);
        if is_newer {
            self.earlier = self.now.replace(profile);
        }
    }

    fn draw(&self) {
        if !terminal::is_in_foreground() {
            return;
        }
        // Not every terminal knows its size.
        let size = terminal_of(libc::STDERR_FILENO).unwrap_or(Size { columns: 80, rows: 24 });
        let Size { columns, rows } = size;
        let options = LiveOptions {
            width: columns,
            rows: rows.max(1),
            color: self.subject.color,
            metric: self.metric,
            title: self.subject.title.clone(),
            keys: self.help(),
        };
        let empty = Profile::new(Vec::new());
        let (earlier, now) = (self.earlier.as_ref(), self.now.as_ref().unwrap_or(&empty));
        let drawn = match self.form {
            Form::Screen { .. } => live(earlier, now, &options),
            Form::Lines => live_line(earlier, now, &options),
        };
        let Ok(text) = drawn else { return };
        let has_ended = self.has_ended.lock().unwrap_or_else(PoisonError::into_inner);
        match self.form {
            _ if *has_ended => {}
            Form::Screen { keys } => {
                terminal::enter(keys);
                terminal::draw(&text);
            }
            Form::Lines => output::say(text),
        }
    }

    /// What keys do.
    fn help(&self) -> String {
        if !self.keys {
            return "Ctrl-C ends it".to_owned();
        }
        let metrics = self.metrics();
        let next = metrics.iter().cycle().skip_while(|(column, _)| *column != self.metric).nth(1);
        let metric = next.filter(|_| metrics.len() > 1).map_or_else(String::new, |(_, name)| format!("m: by {name}  "));
        let pause = if self.is_paused { "p: go on (paused)" } else { "p: pause" };
        format!("{metric}{pause}  q: end the probe")
    }

    /// The metrics that call paths can be ordered by: their columns and names.
    fn metrics(&self) -> Vec<(usize, &str)> {
        let all = self.now.iter().flat_map(|now| now.metrics.iter().enumerate());
        let has_order = |metric: &Metric| metric.source == MetricSource::Probes && metric.value == MetricType::Integer;
        all.filter(|(_, metric)| has_order(metric)).map(|(column, metric)| (column, &*metric.name)).collect()
    }

    /// Waits for a key, not for long. Returns whether the screen is to be drawn anew.
    fn answer_keys(&mut self) -> bool {
        if !self.keys || !terminal::is_entered() {
            std::thread::park_timeout(LOOK_EVERY);
            return false;
        }
        let mut typed = libc::pollfd { fd: libc::STDIN_FILENO, events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid record.
        if unsafe { libc::poll(&mut typed, 1, LOOK_EVERY.as_millis() as libc::c_int) } <= 0 {
            return false;
        }
        let mut key = [0u8];
        // Not through the library's buffer, which would hold back keys that were typed together.
        // SAFETY: room for one byte.
        if unsafe { libc::read(libc::STDIN_FILENO, key.as_mut_ptr().cast(), 1) } != 1 {
            // The terminal is gone.
            self.keys = false;
            return true;
        }
        match key {
            [b'm'] => {
                let columns: Vec<usize> = self.metrics().iter().map(|(column, _)| *column).collect();
                let next = columns.iter().cycle().skip_while(|column| **column != self.metric).nth(1);
                self.metric = next.copied().unwrap_or(0);
            }
            [b'p'] => self.is_paused = !self.is_paused,
            // As Ctrl-C does, for this command alone.
            // SAFETY: sends a signal to ourselves.
            [b'q'] => drop(unsafe { libc::kill(libc::getpid(), libc::SIGINT) }),
            _ => return false,
        }
        true
    }
}

/// What this command has taken of processors, all threads together: with the recorder's part, which is small, more than
/// what a reading between two such times takes.
fn processor_time() -> Duration {
    // SAFETY: a valid place for the answer.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}
