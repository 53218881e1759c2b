//! `callpath ctl`: asks a probe that is under way for something.

use std::io::Write;
use std::path::PathBuf;

use anyhow::anyhow;
use callpath_record::{Answer, ask};
use serde_json::{Value, json};

use super::record::FAILED;
use crate::outcome::{Failure, Outcome};
use crate::output;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The measurement that the probe writes
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    directory: PathBuf,
    #[command(subcommand)]
    request: Request,
}

#[derive(clap::Subcommand)]
enum Request {
    /// Probe more functions
    Add {
        /// Functions, as for `callpath probe -f`
        #[arg(required = true, value_name = "FUNCTION")]
        functions: Vec<String>,
    },
    /// Take probes out
    Remove {
        /// Functions, as for `callpath probe -f`
        #[arg(required = true, value_name = "FUNCTION")]
        functions: Vec<String>,
    },
    /// Say what is measured, or measure something else from now on: names of metrics that the probe was begun with
    Metrics {
        /// Metrics
        #[arg(value_name = "METRIC", value_delimiter = ',')]
        metrics: Vec<String>,
    },
    /// List the functions that are probed, that were, and that cannot be
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Have everything that was measured until now written to the directory
    Snapshot,
    /// Take all probes out, and end
    Stop,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let words = match &arguments.request {
        Request::Add { functions } => request("add", functions),
        Request::Remove { functions } => request("remove", functions),
        Request::Metrics { metrics } => request("metrics", metrics),
        Request::List { .. } => request("list", &[]),
        Request::Snapshot => request("snapshot", &[]),
        Request::Stop => request("stop", &[]),
    };
    let failed = |error: String| Failure { error: anyhow!("{error}"), status: FAILED };
    let answers = ask(&arguments.directory, &words).map_err(failed)?;
    let printed = match arguments.request {
        Request::List { json: true } => {
            let probes: Vec<Value> =
                answers.iter().flat_map(|answer| listed(answer).map(|of| probe(answer, of))).collect();
            format!("{}\n", json!({ "schema": 1, "kind": "ctl", "probes": probes }))
        }
        Request::List { json: false } => {
            let line = |(state, function): (&str, &str)| format!("{function}: {state}");
            answers.iter().flat_map(|answer| listed(answer).map(|of| said(answer, &line(of)))).collect()
        }
        _ => answers.iter().flat_map(|answer| answer.text.lines().map(|line| said(answer, line))).collect::<String>(),
    };
    let mut out = output::stdout();
    out.write_all(printed.as_bytes())?;
    out.flush()?;
    Ok(0)
}

/// State and function of each line.
fn listed(answer: &Answer) -> impl Iterator<Item = (&str, &str)> {
    answer.text.lines().filter_map(|line| line.split_once('\t'))
}

fn probe(answer: &Answer, (state, function): (&str, &str)) -> Value {
    let mut probe = json!({ "function": function, "state": state });
    if let Some(rank) = answer.rank {
        probe["rank"] = rank.into();
    }
    probe
}

/// A line, with the rank that says it.
fn said(answer: &Answer, line: &str) -> String {
    answer.rank.map_or_else(|| format!("{line}\n"), |rank| format!("rank {rank}: {line}\n"))
}

fn request(command: &str, words: &[String]) -> Vec<String> {
    std::iter::once(command.to_owned()).chain(words.iter().cloned()).collect()
}
