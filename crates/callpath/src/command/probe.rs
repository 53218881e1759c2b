//! `callpath probe`: options in, the calls of chosen functions counted by call path, while the program runs.

mod choice;
mod list;
mod live;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{anyhow, bail};
use callpath_db::{RefusedProbe, nearest};
use callpath_record::{
    FromOutside, ProbeMetric, ProbeMetricError, ProbeOptions, ProbedProcess, RecordOptions, Recursion, Sentinel, Stops,
    Unwind, probe, probe_events,
};
use callpath_tables::probes::{AtExit, Called, KeepingFlags};
use callpath_target::{Pid, ProcessHandle, why_hidden};
use callpath_view::text::shell_word;
pub(super) use choice::Choice;
use list::{ListOptions, list};
use live::{Live, LiveSubject};

use super::number::{pid, seconds};
use super::record::{FAILED, own_rank, status_of};
use crate::outcome::{Failure, Outcome};
use crate::screen::ScreenOptions;
use crate::{output, preload, surroundings};

/// So many functions that cannot be probed are named.
const NAMED: usize = 5;

#[derive(clap::Args)]
#[command(override_usage = "callpath probe [OPTIONS] -f FUNCTION... (-p PID | [--] PROGRAM [ARGUMENT]...)")]
pub(crate) struct Arguments {
    /// Function whose calls are counted: a name, a glob, `module!name`, `file.c:name` or `module+0x1234`; may be repeated
    #[arg(short, long = "function", value_name = "FUNCTION", required = true)]
    function: Vec<String>,
    /// The running process
    #[arg(short, long, value_name = "PID", value_parser = pid, conflicts_with = "program")]
    pid: Option<u32>,
    /// What is measured of each call path, beside `calls`: `wall-time`, `wall-time:min`, `wall-time:max`,
    /// `wall-time:histogram`, `cpu-time`, `wait-time`, `io-time`, `arg:N`, `ret`, or `NAME=EXPRESSION`; may be repeated
    #[arg(short, long = "metric", value_name = "METRIC", value_delimiter = ',', value_parser = metric)]
    metric: Vec<ProbeMetric>,
    /// Measurement directory; it must not exist, except that the ranks of one MPI job share it [default:
    /// ./<program>-<pid>.callpath]
    #[arg(short, long, value_name = "DIR", env = "CALLPATH_OUTPUT")]
    output: Option<PathBuf>,
    /// Take the probes out after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// Say what would be probed, and where it is; the process is left alone, the program is not started
    #[arg(long, conflicts_with = "duration")]
    list: bool,
    /// With --list, print JSON (docs/formats.md)
    #[arg(long, requires = "list")]
    json: bool,
    #[command(flatten)]
    screen: ScreenOptions,
    /// Show no call paths while it runs
    #[arg(long)]
    no_live: bool,
    /// Say only what went wrong
    #[arg(short, long)]
    quiet: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM", value_hint = clap::ValueHint::CommandWithArguments)]
    program: Vec<OsString>,
}

/// What is measured, or why a text names nothing.
pub(super) fn metric(typed: &str) -> Result<ProbeMetric, String> {
    ProbeMetric::parse(typed).map_err(|error| match error {
        ProbeMetricError::Unknown(_) => match nearest(typed, ProbeMetric::names()) {
            near if near.is_empty() => {
                let names: Vec<&str> = ProbeMetric::names().collect();
                format!("{error}; there are {}, and NAME=EXPRESSION", names.join(", "))
            }
            near => format!("{error}; similar names: {}", near.join(", ")),
        },
        error => error.to_string(),
    })
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    run_or_fail(arguments).map_err(|(error, status)| Failure { error, status })
}

fn run_or_fail(arguments: &Arguments) -> Result<u8, (anyhow::Error, u8)> {
    let failed = |error: anyhow::Error| (error, FAILED);
    let mut choice = Choice::typed(&arguments.function).map_err(failed)?;
    let pid = arguments.pid.map(Pid);
    let (program, rest) = what_runs(arguments, pid).map_err(failed)?;
    let events = probe_events(&arguments.metric).map_err(|error| failed(error.into()))?;
    if arguments.list {
        let has_exits = arguments.metric.iter().any(ProbeMetric::needs_exit);
        let at_exit = has_exits.then(AtExit::default);
        let keep_flags = !arguments.metric.iter().all(ProbeMetric::is_quick);
        let keeping_flags = (has_exits && !keep_flags).then(KeepingFlags::default);
        let called = Called { at_entry: 0, at_exit, keep_flags, keeping_flags };
        let options = ListOptions { pid, program: &program, called, json: arguments.json, screen: &arguments.screen };
        return list(choice, &options).map(|()| 0);
    }
    // A process that runs may be another job's rank, or none.
    let rank = if pid.is_none() { own_rank().map_err(failed)? } else { None };
    let is_first = rank.as_ref().is_none_or(|rank| rank.number == 0);
    let record = RecordOptions {
        program,
        arguments: rest,
        events,
        period_ns: 0,
        sentinel: Sentinel::Never,
        recursion: Recursion::Full,
        unwind: Unwind::Walk,
        told: Vec::new(),
        told_by: 0,
        kernel: false,
        outside: FromOutside::Never,
        wait_all: false,
        output: arguments.output.clone(),
        rank,
        cache: surroundings::cache_directory(),
        preload: preload::OBJECT,
    };
    let mut live = None;
    let mut begin = |directory: &Path| {
        if !arguments.quiet && !arguments.no_live && is_first {
            let color = arguments.screen.color_of_stderr();
            live = Live::begin(directory, LiveSubject { title: title(&record.program, pid), pid, color });
        }
    };
    let options = ProbeOptions {
        record: &record,
        pid,
        injected: preload::INJECTED,
        duration: arguments.duration,
        chooser: &mut choice,
        begun: &mut begin,
    };
    let probed = probe(options);
    drop(live);
    let probed = probed.map_err(|error| {
        let status = status_of(&error);
        (anyhow!("failed to {error}"), status)
    })?;
    say(arguments, &choice, (&probed, is_first));
    Ok(probed.recorded.ended.status as u8)
}

/// The program and its arguments, or what the process is called.
fn what_runs(arguments: &Arguments, pid: Option<Pid>) -> anyhow::Result<(OsString, Vec<OsString>)> {
    match (pid, arguments.program.split_first()) {
        (Some(pid), _) => {
            let Some(program) = ProcessHandle::open(pid).program() else {
                bail!("failed to {}", why_hidden(pid));
            };
            Ok((program.into_os_string(), Vec::new()))
        }
        (None, Some((program, rest))) => Ok((program.clone(), rest.to_vec())),
        (None, None) => bail!("no program and no process to probe; see: callpath probe --help"),
    }
}

/// What is probed, as the live screen says it.
fn title(program: &OsStr, pid: Option<Pid>) -> String {
    let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
    pid.map_or_else(|| name.to_string(), |pid| format!("{name}, process {pid}"))
}

/// Says what was probed, what could not be, and where the measurement is.
fn say(arguments: &Arguments, choice: &Choice, (probed, is_first): (&ProbedProcess, bool)) {
    let recorded = &probed.recorded;
    let say = |line: &dyn std::fmt::Display| {
        if !arguments.quiet {
            output::say(line);
        }
    };
    // What is said of one rank is said of all; the report has the notes of each.
    if is_first {
        recorded.notes.iter().for_each(|note| say(note));
        say_probed(choice, probed, say);
    }
    if let Some(loss) = &recorded.loss {
        output::say(format_args!("failed to {loss}: this part of the measurement is missing"));
    }
    if is_first {
        let whole = recorded.of_job.as_ref().unwrap_or(&recorded.directory);
        let directory = shell_word(&whole.to_string_lossy());
        let command = surroundings::typed_command();
        say(&format_args!("recorded to {directory}; see it with: {command} report {directory}"));
    }
}

/// Says what was probed and what could not be.
pub(super) fn say_probed(choice: &Choice, probed: &ProbedProcess, say: impl Fn(&dyn std::fmt::Display)) {
    let refused = &probed.refused;
    choice.notes().iter().for_each(|note| say(note));
    for RefusedProbe { function, reason } in refused.iter().take(NAMED) {
        say(&format_args!("not probed: {function}: {reason}"));
    }
    if refused.len() > NAMED {
        say(&format_args!("not probed: {} others", refused.len() - NAMED));
    }
    let Stops { whole, first_thread } = &probed.stops;
    if let Some(longest) = whole.iter().max() {
        let (functions, are) = if probed.probed == 1 { ("function", "was") } else { ("functions", "were") };
        let times = |stops: &[Duration]| match stops.len() {
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        let at_most = |longest: &Duration| format!("{:.1} ms at most", longest.as_secs_f64() * 1e3);
        let alone = first_thread.iter().max();
        let alone =
            alone.map(|longest| format!("; its first thread alone {}, {}", times(first_thread), at_most(longest)));
        say(&format_args!(
            "{} {functions} {are} probed; the program stood still {}, {}{}",
            probed.probed,
            times(whole),
            at_most(longest),
            alone.unwrap_or_default()
        ));
    }
    probed
        .left_in
        .iter()
        .for_each(|failure| output::say(format_args!("failed to {failure}; the process still has them")));
}
