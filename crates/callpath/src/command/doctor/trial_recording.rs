//! A short recording of callpath itself at work: what `record` says and gets here.

use std::process::{Command, Stdio};

use callpath_db::Quality;
use callpath_measurement::Measurement;
use callpath_measurement::plain;

use super::finding::Finding;
use crate::command::profile::load;
use crate::command::record::NO_RANK;

/// How long callpath works while it is recorded, milliseconds of CPU time.
const WORK_MS: u32 = 50;
const RATE: u32 = 1000;

/// The events that are tried.
pub(super) const EVENTS: [&str; 2] = ["cpu-time", "wall-time"];

/// Records by an event. The first finding is where samples come from, as `record` says it; the second what came.
pub(super) fn of(event: &str) -> Vec<Finding> {
    let topic = if event == EVENTS[0] { "samples of cpu-time" } else { "samples of wall-time" };
    match record(event) {
        Err(error) => vec![
            Finding::bad(topic, format!("a trial recording did not work: {}", plain(format_args!("{error:#}"))))
                .means("`callpath record` does not work here"),
        ],
        Ok((notes, quality)) => {
            let source = if notes.is_empty() {
                Finding::good(topic, "the kernel's clock, in user mode and in the kernel, at any rate")
            } else {
                Finding::limited(topic, notes.join("; ")).means("`callpath record` says so, too; the sums are right")
            };
            vec![source, paths(event, &quality)]
        }
    }
}

/// What `callpath record` notes in its measurement, and the tally of the samples.
fn record(event: &str) -> anyhow::Result<(Vec<String>, Quality)> {
    let own = std::env::current_exe()?;
    let directory = format!("callpath-doctor-{}-{event}.callpath", std::process::id());
    let directory = std::env::temp_dir().join(directory);
    let mut command = Command::new(&own);
    // What the user sets for recordings of his own is not for this one.
    for name in ["CALLPATH_EVENT", "CALLPATH_FREQ", "CALLPATH_OUTPUT"] {
        command.env_remove(name);
    }
    command.env(NO_RANK.0, NO_RANK.1);
    command.args(["record", "-e", event, "-F", &RATE.to_string(), "-o"]).arg(&directory).arg("--");
    command.arg(&own).args(["debug", "busy", &WORK_MS.to_string()]).stdin(Stdio::null());
    let said = command.output()?;
    let outcome = if said.status.success() {
        // Not the report's notes: they are of the program's files.
        Measurement::read(&directory).map_err(anyhow::Error::from).and_then(|measurement| {
            let notes = measurement.session.notes.clone();
            Ok((notes, load(Some(&directory))?.quality.clone()))
        })
    } else {
        let words = String::from_utf8_lossy(&said.stderr);
        let words = words.lines().map(|line| line.strip_prefix("callpath: ").unwrap_or(line)).collect::<Vec<_>>();
        Err(anyhow::anyhow!("{} ({})", words.join("; "), said.status))
    };
    // Nothing is lost with it: it was made here.
    drop(std::fs::remove_dir_all(&directory));
    outcome
}

fn paths(event: &str, quality: &Quality) -> Finding {
    let topic = if event == EVENTS[0] { "trial by cpu-time" } else { "trial by wall-time" };
    let found =
        format!("{} samples in {WORK_MS} ms of work, {} with their whole call path", quality.taken, quality.full);
    let incomplete = quality.partial + quality.raw_kept;
    match quality.full {
        0 => Finding::bad(topic, found).means("no call path could be taken: `callpath record` cannot work here"),
        _ if incomplete > 0 => Finding::limited(topic, found).means("some paths of callpath's own are not whole"),
        _ => Finding::good(topic, found),
    }
}
